//! Money ends while nobody is there to say so.

use std::time::Duration;

use serde_json::{Value, json};
use tarn_api::clock::{Clock, SystemClock};

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::host::Host;
use super::site::{Site, counted_witness};

/// A price of one yuan a second, a promotion that ends six seconds from now, and a trial credit of ten yuan: the start gate sees an
/// hour of money, and what can be spent ends within twenty seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m20_with_the_control_plane_away_the_agent_stops_when_the_money_ends() {
    let mut site = Site::on(ControlPlane::apart().await).await;
    let customer = site.customer.clone();
    let mut price =
        json!({"offer_id": "pool-96", "price_per_hour": {"amount": "3600.00", "currency": "CNY"}});
    let preview = site.operator.post("/v1/admin/price-book/preview", price.clone()).await.is(200);
    price["fingerprint"] = preview["fingerprint"].clone();
    site.operator.post("/v1/admin/price-book", price).await.is(201);
    let ends = SystemClock::default().now().plus_seconds(6);
    let credit = json!({
        "tenant_id": customer.tenant_id, "kind": "promo", "amount": {"amount": "3590.00", "currency": "CNY"},
        "expires_at": rfc3339(ends.as_micros()), "reason": "a test",
    });
    site.operator.post("/v1/admin/credits", credit).await.is(201);

    let command = counted_witness();
    let id = customer.rent(&pool_of(&command.each_ref().map(String::as_str))).await;
    eventually("the paid-until instant to be on the host", 10, async || paid_until(&site.host, &id)).await;
    site.control_plane.kill();
    assert!(!site.host.tenant_processes(&id, "tarn-witness").is_empty());
    eventually("the agent to stop it by itself", 40, async || {
        site.host.tenant_processes(&id, "tarn-witness").is_empty().then_some(())
    })
    .await;
    // Its evidence waits for the control plane.
    tokio::time::sleep(Duration::from_secs(1)).await;
    site.control_plane.start_again().await;
    let stopped = customer.at_last(&id, "stopped").await;
    assert_eq!(stopped["reason_code"], "balance_exhausted", "{stopped}");
    eventually("the expired promotion to be taken back", 20, async || {
        let wallet = customer.get("/v1/wallet").await;
        (wallet["available"]["amount"] == "0.00").then_some(())
    })
    .await;
    let charge = customer.get("/v1/charges?item=gpu").await["items"][0].clone();
    let seconds = charge["seconds"].as_i64().unwrap();
    assert!((10..=16).contains(&seconds), "{charge}");
    assert_eq!(charge["amount"]["amount"], format!("{seconds}.00"), "{charge}");
    assert_eq!(charge["close_reason"], "balance_exhausted", "{charge}");
    audit(&site, &[Ended { customer: &customer, id: &id, segments: 1 }]).await;
}

/// What the agent was told, from its own files: the only place where it is once nobody answers.
fn paid_until(host: &Host, id: &str) -> Option<()> {
    let text = std::fs::read(host.state_dir().join("wanted").join(format!("{id}.json"))).ok()?;
    let wanted: Value = serde_json::from_slice(&text).ok()?;
    tells_an_end(&wanted).then_some(())
}

/// Whether a paid-until instant is anywhere in it.
fn tells_an_end(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.get("run_until").is_some_and(|until| !until.is_null()) || fields.values().any(tells_an_end)
        }
        _ => false,
    }
}

fn rfc3339(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).unwrap().to_string()
}
