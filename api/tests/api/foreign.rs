//! One of everything that a tenant can own, by the name of its path parameter, for the walk of the document.

use std::collections::BTreeMap;

use serde_json::json;
use tarn_api::clock::Clock;
use tarn_api::workers;

use crate::fleet::agent::FakeAgent;
use crate::fleet::hardware::Wiring;
use crate::harness::{Api, Person};

pub type Ids = BTreeMap<&'static str, String>;

/// Makes `owner`'s things. A new kind of path parameter needs a line here.
pub async fn ids(api: &Api, owner: &Person) -> Ids {
    let friend = api.person().await;
    let members = format!("/v1/tenants/{}/members", owner.tenant_id);
    api.post(&owner.access, &members, json!({"email": friend.email, "role": "viewer"})).await.is(201);
    let key = api
        .post(&owner.access, "/v1/api-keys", json!({"name": "x", "scopes": ["offers:read"]}))
        .await
        .is(201);
    let public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1z0gLEWK4jSNDnQGuKtUvuS8nJ6SMdbkWLKxkCLdKC";
    let ssh_key =
        api.post(&owner.access, "/v1/ssh-keys", json!({"name": "x", "public_key": public_key})).await.is(201);
    let fifty = json!({"amount": {"amount": "50.00", "currency": "CNY"}});
    let top_up = api.post_once(&owner.access, "/v1/wallet/topups", "owners", fifty).await.is(201);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let refunds = format!("/v1/wallet/topups/{}/refunds", text(&top_up["id"]));
    let refund = api.post_once(&owner.access, &refunds, "owners-refund", json!({})).await.is(201);
    let month = json!({"period": "month", "limit": {"amount": "500.00", "currency": "CNY"}});
    let cap = api.put(&owner.access, "/v1/wallet/spend-caps", month).await.is(200);
    let (instance_id, charge_id) = running_instance(api, owner).await;
    BTreeMap::from([
        ("tenant_id", owner.tenant_id.clone()),
        ("user_id", friend.user_id),
        ("key_id", text(&key["id"])),
        ("ssh_key_id", text(&ssh_key["id"])),
        ("instance_id", instance_id),
        ("charge_id", charge_id),
        ("invoice_id", invoice(api, owner).await),
        ("top_up_id", text(&top_up["id"])),
        ("refund_id", text(&refund["id"])),
        ("cap_id", text(&cap["id"])),
        ("notice_id", notice_of(api, owner).await),
    ])
}

/// A running instance of `owner` on a scripted host of its own, and the charge it makes.
async fn running_instance(api: &Api, owner: &Person) -> (String, String) {
    let operator = api.operator().await;
    let token = api.post(&operator.access, "/v1/admin/join-tokens", json!({"region": "local"})).await.is(201);
    let token = token["token"].as_str().unwrap();
    let mut host = FakeAgent::join(api, token, 1, 2, Wiring::BridgedPairs, api.clock.now()).await;
    host.report(api).await;
    let order = json!({"offer_id": "card-24"});
    let made = api.post_once(&owner.access, "/v1/instances", "foreign", order).await.is(201);
    workers::tick_all(api.server.state(), api.clock.now()).await.unwrap();
    host.step(api, api.clock.now()).await;
    api.clock.advance_seconds(10);
    host.step(api, api.clock.now()).await;
    workers::tick_all(api.server.state(), api.clock.now()).await.unwrap();
    let charges = api.get(&owner.access, "/v1/charges?item=gpu").await.is(200);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (text(&made["id"]), text(&charges["items"][0]["id"]))
}

/// An invoice of `owner`: the seconds of the running instance so far.
async fn invoice(api: &Api, owner: &Person) -> String {
    let period_to = serde_json::to_value(tarn_api::http::instant::Instant(api.clock.now())).unwrap();
    let issued = api
        .post_once(&owner.access, "/v1/invoices", "foreign-invoice", json!({"period_to": period_to}))
        .await
        .is(201);
    issued["id"].as_str().unwrap().to_owned()
}

/// The owner's newest notice: ten yuan of trial credit last for less than a day.
async fn notice_of(api: &Api, owner: &Person) -> String {
    let notices = api.get(&owner.access, "/v1/notices").await.is(200);
    notices["items"][0]["id"].as_str().unwrap().to_owned()
}

/// An id of the right form that names nothing.
pub fn absent(parameter: &str, body: &str) -> String {
    let prefix = match parameter {
        "tenant_id" => "ten",
        "user_id" => "usr",
        "key_id" => "key",
        "ssh_key_id" => "ssh",
        "top_up_id" => "top",
        "refund_id" => "rfd",
        "notice_id" => "ntc",
        "cap_id" => "cap",
        "incident_id" => "inc",
        "provider" => return "none".to_owned(),
        "charge_id" => "seg",
        "invoice_id" => "inv",
        "instance_id" => "ins",
        "host_id" => "hst",
        "credit_id" => "crq",
        "certificate_id" => "crt",
        "offer_id" => return "pool-1".to_owned(),
        "gpu_uuid" => return "GPU-00000000-0000-0000-0000-000000000000".to_owned(),
        other => panic!("foreign.rs knows no {{{other}}}"),
    };
    format!("{prefix}_{body}")
}

/// After the walk, everything is as it was.
pub async fn untouched(api: &Api, owner: &Person, ids: &Ids) {
    let key = api.get(&owner.access, &format!("/v1/api-keys/{}", ids["key_id"])).await.is(200);
    assert!(key["revoked_at"].is_null());
    api.get(&owner.access, &format!("/v1/ssh-keys/{}", ids["ssh_key_id"])).await.is(200);
    let members = api.get(&owner.access, &format!("/v1/tenants/{}/members", owner.tenant_id)).await.is(200);
    let instance = api.get(&owner.access, &format!("/v1/instances/{}", ids["instance_id"])).await.is(200);
    assert_eq!((&instance["desired_state"], &instance["label"]), (&json!("running"), &json!("card-24")));
    assert!(members["items"].as_array().unwrap().iter().any(|member| member["role"] == "viewer"));
}
