//! API keys: shown once, narrow, revoked at once.

use serde_json::json;

use crate::harness::Api;

on_both! {
    a_key_is_shown_once_and_ends_at_once;
    a_key_never_reaches_further_than_its_maker;
    an_operators_key_administers_only_while_its_maker_does;
    keys_expire;
}

async fn a_key_is_shown_once_and_ends_at_once(api: Api) {
    let person = api.person().await;
    let made = api
        .post(&person.access, "/v1/api-keys", json!({"name": "ci", "scopes": ["wallet:read"]}))
        .await
        .is(201);
    let (secret, path) =
        (made["secret"].as_str().unwrap(), format!("/v1/api-keys/{}", made["id"].as_str().unwrap()));
    let stored = api.get(&person.access, &path).await.is(200);
    assert!(stored["secret"].is_null() && !stored.to_string().contains(secret), "{stored}");

    api.get(secret, "/v1/wallet").await.is(200);
    let by_header = api.request("GET", "/v1/wallet").header("x-api-key", secret);
    api.send(by_header).await.is(200);
    let both = api.request("GET", "/v1/wallet").header("x-api-key", secret).bearer_auth(&person.access);
    api.send(both).await.fails(401, "unauthenticated");
    assert!(api.get(&person.access, &path).await.is(200)["last_used_at"].is_string());

    api.get(secret, "/v1/ssh-keys").await.fails(403, "scope_missing");
    assert_eq!(api.delete(&person.access, &path).await.status, 204);
    api.get(secret, "/v1/wallet").await.fails(401, "unauthenticated");
    assert_eq!(api.delete(&person.access, &path).await.status, 204, "revoking twice is revoking once");
}

async fn a_key_never_reaches_further_than_its_maker(api: Api) {
    let person = api.person().await;
    let wish = |scopes: &[&str]| json!({"name": "x", "scopes": scopes});
    api.post(&person.access, "/v1/api-keys", wish(&["admin"])).await.fails(403, "forbidden");
    api.post(&person.access, "/v1/api-keys", wish(&[])).await.fails(422, "invalid_request");
    api.post(&person.access, "/v1/api-keys", wish(&["everything"])).await.fails(422, "invalid_request");
    let maker = api.key(&person, &["keys:write", "offers:read"]).await;
    api.post(&maker, "/v1/api-keys", wish(&["offers:read"])).await.is(201);
    api.post(&maker, "/v1/api-keys", wish(&["wallet:write"])).await.fails(403, "forbidden");
}

async fn an_operators_key_administers_only_while_its_maker_does(api: Api) {
    let operator = api.operator().await;
    let key = api.key(&operator, &["admin"]).await;
    api.get(&key, "/v1/admin/tenants").await.is(200);
    let id = operator.user_id.parse().unwrap();
    let demoted = api.server.state().store.write(move |tx| {
        let id: tarn_protocol::ids::UserId = id;
        let id = id.clone();
        Box::pin(async move { tx.set_operator(&id, false).await })
    });
    demoted.await.unwrap();
    // The row was changed beside the control plane, which notices within a quarter of a second; the test does not wait for it.
    api.server.state().auth.proofs.forget();
    api.get(&key, "/v1/admin/tenants").await.fails(403, "scope_missing");
}

async fn keys_expire(api: Api) {
    let person = api.person().await;
    let wish = |expires_at: &str| json!({"name": "x", "scopes": ["offers:read"], "expires_at": expires_at});
    api.post(&person.access, "/v1/api-keys", wish("2020-01-01T00:00:00Z"))
        .await
        .fails(422, "invalid_request");
    let made = api.post(&person.access, "/v1/api-keys", wish("2027-01-15T09:00:00Z")).await.is(201);
    let secret = made["secret"].as_str().unwrap();
    api.get(secret, "/v1/auth/me").await.is(200);
    api.clock.advance_seconds(3600);
    api.get(secret, "/v1/auth/me").await.fails(401, "unauthenticated");
}
