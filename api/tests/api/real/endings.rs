//! L10: whatever ends a tenant's program, the customer reads afterwards which it was and what it said last.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::Customer;
use super::eventually;
use super::site::Site;

fn card(command: &[&str]) -> Value {
    json!({"offer_id": "card-24", "command": command})
}

/// The failed instance and its last words, as the customer reads both.
async fn read(customer: &Customer, id: &str) -> (Value, String) {
    let failed = customer.instance(id).await;
    let logs = customer.get(&format!("/v1/instances/{id}/logs")).await;
    (failed, logs["tail"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_bad_commands_and_exhausted_memory_stay_readable_when_the_host_is_long_gone() {
    let mut site = Site::on(ControlPlane::on_sqlite().await).await;
    let customer = site.customer.clone();
    let mut wanted = Vec::new();
    let ends = ["/bin/sh", "-c", "echo these were my last words >&2; exit 7"];
    for (command, reason, said, words) in [
        (&ends[..], "command_failed", "status 7", "these were my last words\n"),
        (&["/no/such/program"], "command_failed", "/no/such/program", ""),
    ] {
        let id = text(&customer.create(&card(command)).await.is(201)["id"]);
        customer.at_last(&id, "failed").await;
        wanted.push((id, reason, said, words));
    }
    if let Some(id) = out_of_memory(&site).await {
        wanted.push((id, "out_of_memory", "memory", "filling\n"));
    }
    for (id, reason, said, words) in &wanted {
        let failed = eventually(&format!("the last words of {id}, {reason}"), 20, async || {
            let (failed, log) = read(&customer, id).await;
            log.contains(words).then_some(failed)
        })
        .await;
        assert_eq!(failed["reason_code"], *reason, "{failed}");
        assert!(failed["reason_detail"].as_str().unwrap().contains(said), "{failed}");
        assert_eq!(failed["actions"], json!(["start", "terminate"]), "{failed}");
        assert_eq!(failed["billable"], false, "{failed}");
    }
    site.both_pools_are_free().await;

    // The host is gone with everything on it.
    let before: Vec<(Value, String)> =
        futures_util::future::join_all(wanted.iter().map(|(id, ..)| read(&customer, id))).await;
    site.host.kill_agent();
    for (id, ..) in &wanted {
        std::fs::remove_dir_all(site.host.instance_dir(id)).unwrap();
    }
    for ((id, ..), before) in wanted.iter().zip(&before) {
        let (failed, log) = read(&customer, id).await;
        assert_eq!(
            (&failed["reason_code"], &failed["reason_detail"]),
            (&before.0["reason_code"], &before.0["reason_detail"])
        );
        assert_eq!(log, before.1);
    }
    site.start_agent(&[]);
    for (id, ..) in &wanted {
        customer.delete(id).await;
        customer.reaches(id, "terminated").await;
    }
    let mut ended = Vec::new();
    for (id, ..) in &wanted {
        let page = customer.get(&format!("/v1/instances/{id}/events?limit=100")).await;
        let ran = page["items"].as_array().unwrap().iter();
        let segments = ran.filter(|event| event["kind"] == "instance.running").count();
        ended.push(Ended { customer: &customer, id, segments });
    }
    audit(&site, &ended).await;
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// An instance that the kernel ended for memory, where the kernel counts it: its group is made narrow from outside, as an operator would.
async fn out_of_memory(site: &Site) -> Option<String> {
    let waits = "while [ ! -e fill ]; do sleep 0.05; done; echo filling; tail /dev/zero > none; exit 9";
    let customer = &site.customer;
    let id = customer.rent(&card(&["/bin/sh", "-c", waits])).await;
    let limits = ["memory/tarn", "tarn"].map(|group| PathBuf::from("/sys/fs/cgroup").join(group).join(&id));
    let files = [limits[0].join("memory.limit_in_bytes"), limits[1].join("memory.max")];
    let Some(file) = files.iter().find(|file| file.exists()) else {
        // This machine has no memory groups: nobody could tell.
        customer.delete(&id).await;
        return None;
    };
    std::fs::write(file, (32 << 20).to_string()).unwrap();
    std::fs::write(site.host.instance_dir(&id).join("home/fill"), "").unwrap();
    customer.at_last(&id, "failed").await;
    Some(id)
}
