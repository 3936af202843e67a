//! What holds for every answer: problems, ids, limits.

use serde_json::json;
use tarn_api::config::{Rates, RequestLimits};

use crate::harness::{Api, config};

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let api = Api::start().await;
    let person = api.person().await;
    let me = &person.access;

    let absent = api.get(me, "/v1/no-such-thing").await;
    let request_id = absent.header("x-request-id").to_owned();
    let problem = absent.fails(404, "route_not_found");
    assert_eq!(problem["instance"], "/v1/no-such-thing");
    assert_eq!(problem["request_id"], request_id.as_str());
    assert_eq!(problem["type"], "urn:tarn:problem:route_not_found");

    let wrong_method = api.delete(me, "/v1/wallet").await;
    assert!(wrong_method.header("allow").contains("GET"), "{wrong_method:?}");
    wrong_method.fails(405, "method_not_allowed");

    let text = api.request("POST", "/v1/auth/login").body("email=x").header("content-type", "text/plain");
    api.send(text).await.fails(415, "unsupported_media_type");
    let broken = api.request("POST", "/v1/auth/login").body("{").header("content-type", "application/json");
    api.send(broken).await.fails(400, "malformed_request");
    let large = api
        .request("POST", "/v1/auth/login")
        .body(vec![b' '; 2 << 20])
        .header("content-type", "application/json");
    api.send(large).await.fails(413, "body_too_large");

    let unwritten = json!({"email": "a\0@example.com", "password": "correct horse battery"});
    api.post_openly("/v1/auth/login", unwritten).await.fails(422, "invalid_request");
    api.get(me, "/v1/instances?offer_id=pool%0096").await.fails(422, "invalid_request");
    api.get(me, "/v1/statement?to=-009999-01-02T01:59:59Z").await.fails(422, "invalid_request");

    let problem = api.post(me, "/v1/ssh-keys", json!({"name": "x"})).await.fails(422, "invalid_request");
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains("public_key"), "{problem}");
    let assigned = json!({"name": "x", "public_key": "x", "tenant_id": "ten_other"});
    let problem = api.post(me, "/v1/ssh-keys", assigned).await.fails(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/tenant_id");

    api.get("nonsense", "/v1/wallet").await.fails(401, "unauthenticated");
    assert_eq!(api.get("nonsense", "/v1/wallet").await.header("www-authenticate"), "Bearer");
}

#[tokio::test]
async fn limits_are_told_and_kept() {
    let rates = Rates { per_address: 1000, per_credential: 5, per_tenant: 1000, sign_in: 3 };
    let api = Api::start_with(|config| tarn_api::config::Config { rates, ..config }).await;
    let person = api.person().await;
    let first = api.get(&person.access, "/v1/auth/me").await;
    assert_eq!(first.header("ratelimit-policy"), "\"credential\";q=5;w=60");
    assert!(first.header("ratelimit").starts_with("\"credential\";r=4;t="), "{first:?}");
    for _ in 0..4 {
        api.get(&person.access, "/v1/auth/me").await.is(200);
    }
    let refused = api.get(&person.access, "/v1/auth/me").await;
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert!(refused.header("ratelimit").starts_with("\"credential\";r=0;"));
    refused.fails(429, "rate_limited");

    for _ in 0..2 {
        api.post_openly("/v1/auth/login", json!({"email": "x@example.com", "password": "x"}))
            .await
            .fails(401, "invalid_login");
    }
    api.post_openly("/v1/auth/login", json!({"email": "x@example.com", "password": "x"}))
        .await
        .fails(429, "rate_limited");
    let open = api.send(api.request("GET", "/healthz")).await;
    assert_eq!((open.status, open.header("ratelimit-policy")), (204, "\"address\";q=1000;w=60"));
}

#[tokio::test]
async fn lists_are_cut_into_pages_whose_cursors_cannot_be_altered() {
    let api = Api::start().await;
    let (person, other) = (api.person().await, api.person().await);
    for number in 0..5 {
        api.clock.advance_seconds(1);
        api.post(
            &person.access,
            "/v1/api-keys",
            json!({"name": format!("{number}"), "scopes": ["offers:read"]}),
        )
        .await
        .is(201);
    }
    let (mut names, mut path) = (Vec::new(), "/v1/api-keys?limit=2".to_owned());
    loop {
        let page = api.get(&person.access, &path).await.is(200);
        names.extend(
            page["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        api.get(&other.access, &format!("/v1/api-keys?cursor={cursor}")).await.fails(422, "invalid_cursor");
        api.get(&person.access, &format!("/v1/ssh-keys?cursor={cursor}")).await.fails(422, "invalid_cursor");
        api.get(&person.access, &format!("/v1/api-keys?cursor={cursor}A")).await.fails(422, "invalid_cursor");
        path = format!("/v1/api-keys?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
    for query in ["limit=0", "limit=101", "limit=x"] {
        api.get(&person.access, &format!("/v1/api-keys?{query}")).await.fails(422, "invalid_request");
    }
    assert_eq!(api.get(&other.access, "/v1/api-keys").await.is(200)["items"], json!([]));
}

#[tokio::test]
async fn the_service_tells_its_health_and_its_contract() {
    let api = Api::start().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(api.send(api.request("GET", path)).await.status, 204);
    }
    let metrics = api.send(api.request("GET", "/metrics")).await.is(200);
    assert!(metrics.as_str().unwrap().contains("tarn_http_answers"), "{metrics}");
    let document = api.send(api.request("GET", "/openapi.json")).await.is(200);
    assert_eq!(document["info"]["title"], "Tarn");
    assert_eq!(api.send(api.request("GET", "/docs/")).await.status, 200);
}

#[tokio::test]
async fn a_stopped_server_starts_again_on_its_data() {
    let data = tempfile::TempDir::new().unwrap();
    let requests = RequestLimits { seconds: 5, ..config(&data).requests };
    let first = tarn_api::serve::serve(tarn_api::config::Config { requests, ..config(&data) }).await.unwrap();
    let http = reqwest::Client::new();
    let body = json!({"email": "ada@example.com", "password": "correct horse battery"});
    let signed_up = http.post(format!("{}/v1/auth/signup", first.url())).json(&body).send().await.unwrap();
    assert_eq!(signed_up.status(), 201);
    let session: serde_json::Value = signed_up.json().await.unwrap();
    first.stop().await;

    let second = tarn_api::serve::serve(config(&data)).await.unwrap();
    let me = http
        .get(format!("{}/v1/auth/me", second.url()))
        .bearer_auth(session["access_token"].as_str().unwrap());
    assert_eq!(me.send().await.unwrap().status(), 200, "the signing key and the user are still there");
    second.stop().await;
}
