//! Signing up, in and out; tenants and their members; SSH keys.

use serde_json::{Value, json};
use tarn_api::clock::Clock;
use tarn_api::workers::{self, Worker};

use crate::harness::{Api, PASSWORD, Person};

on_both! {
    one_of_many_equal_signups_wins;
    signing_up_gives_a_tenant_with_ten_yuan;
    a_wrong_login_says_nothing_about_the_email;
    a_refresh_token_works_once_and_its_reuse_ends_the_session;
    sessions_expire_and_end;
    expired_refresh_tokens_are_forgotten_and_living_sessions_are_not;
    a_person_acts_for_one_tenant_at_a_time;
    members_are_managed_by_admins_and_owners_by_owners;
    ssh_keys_are_public_sound_and_known_once;
}

async fn signing_up_gives_a_tenant_with_ten_yuan(api: Api) {
    let person = api.person().await;
    let wallet = api.get(&person.access, "/v1/wallet").await.is(200);
    assert_eq!(wallet["available"], json!({"amount": "10.00", "currency": "CNY"}));
    assert_eq!(wallet["credit"]["amount"], "10.00");
    assert_eq!(wallet["cash"]["amount"], "0.00");
    assert_eq!(wallet["grants"][0]["kind"], "trial");
    let ledger = api.get(&person.access, "/v1/ledger").await.is(200);
    assert_eq!(ledger["items"].as_array().unwrap().len(), 1);
    assert_eq!(ledger["items"][0]["kind"], "trial_credit");
    assert_eq!(ledger["items"][0]["balance_after"]["amount"], "10.00");

    let again = json!({"email": person.email.to_uppercase(), "password": PASSWORD});
    api.post_openly("/v1/auth/signup", again).await.fails(409, "already_exists");
    for (body, pointer) in [
        (json!({"email": "no", "password": PASSWORD}), "/email"),
        (json!({"email": "a@example.com", "password": "short"}), "/password"),
        (json!({"email": "a@example.com", "password": PASSWORD, "tenant_name": "\u{7}"}), "/tenant_name"),
    ] {
        let problem = api.post_openly("/v1/auth/signup", body).await.fails(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

async fn one_of_many_equal_signups_wins(api: Api) {
    let body = json!({"email": "ada@example.com", "password": PASSWORD});
    let calls = (0..12).map(|_| api.post_openly("/v1/auth/signup", body.clone()));
    let mut won = 0;
    for got in futures_util::future::join_all(calls).await {
        match got.status {
            201 => won += 1,
            _ => drop(got.fails(409, "already_exists")),
        }
    }
    assert_eq!(won, 1);
}

async fn a_wrong_login_says_nothing_about_the_email(api: Api) {
    let person = api.person().await;
    let wrong = |email: &str, password: &str| json!({"email": email, "password": password});
    let known = api
        .post_openly("/v1/auth/login", wrong(&person.email, "not the password"))
        .await
        .fails(401, "invalid_login");
    let unknown = api
        .post_openly("/v1/auth/login", wrong("nobody@example.com", PASSWORD))
        .await
        .fails(401, "invalid_login");
    assert_eq!(known["detail"], unknown["detail"]);
    assert_eq!(api.log_in(&person.email.to_uppercase()).await.user_id, person.user_id);
}

async fn refresh(api: &Api, token: &str) -> crate::harness::Got {
    api.post_openly("/v1/auth/refresh", json!({"refresh_token": token})).await
}

async fn a_refresh_token_works_once_and_its_reuse_ends_the_session(api: Api) {
    let person = api.person().await;
    let other_login = api.log_in(&person.email).await;
    let next = Person::from_session(&person.email, &refresh(&api, &person.refresh).await.is(200));
    api.get(&next.access, "/v1/auth/me").await.is(200);

    refresh(&api, &person.refresh).await.fails(401, "unauthenticated");
    refresh(&api, &next.refresh).await.fails(401, "unauthenticated");
    api.get(&next.access, "/v1/auth/me").await.fails(401, "unauthenticated");
    // Only the stolen session ends; the other one renews itself, because the person's access tokens were all refused.
    refresh(&api, &other_login.refresh).await.is(200);
    refresh(&api, "tarn_refresh_never_issued").await.fails(401, "unauthenticated");
}

async fn sessions_expire_and_end(api: Api) {
    let person = api.person().await;
    api.clock.advance_seconds(15 * 60 + 31);
    api.get(&person.access, "/v1/auth/me").await.fails(401, "unauthenticated");
    let renewed = Person::from_session(&person.email, &refresh(&api, &person.refresh).await.is(200));
    api.clock.advance_seconds(31 * 24 * 3600);
    refresh(&api, &renewed.refresh).await.fails(401, "unauthenticated");

    let person = api.log_in(&person.email).await;
    assert_eq!(api.post(&person.access, "/v1/auth/logout", Value::Null).await.status, 204);
    api.get(&person.access, "/v1/auth/me").await.fails(401, "unauthenticated");
    refresh(&api, &person.refresh).await.fails(401, "unauthenticated");
}

async fn expired_refresh_tokens_are_forgotten_and_living_sessions_are_not(api: Api) {
    let (gone, kept) = (api.person().await, api.person().await);
    let state = api.server.state();
    let forgotten = async || {
        let reports = workers::tick_all(state, api.clock.now()).await.unwrap();
        let report = reports.into_iter().find(|(worker, _)| *worker == Worker::Forget);
        report.unwrap().1.changed
    };
    let life = state.config.sessions.refresh_token_seconds;
    api.clock.advance_seconds(life - 1);
    let refreshed = refresh(&api, &kept.refresh).await.is(200);
    let access = refreshed["access_token"].as_str().unwrap();
    assert_eq!(forgotten().await, 0, "nothing has expired");
    api.clock.advance_seconds(2 + state.config.sessions.access_token_seconds - 60);
    assert_eq!(forgotten().await, 0, "what was signed beside it may still be in use");
    api.clock.advance_seconds(60);
    assert_eq!(forgotten().await, 2, "one of each person");
    refresh(&api, &gone.refresh).await.fails(401, "unauthenticated");
    let next = refresh(&api, refreshed["refresh_token"].as_str().unwrap()).await.is(200);
    assert_ne!(next["access_token"].as_str().unwrap(), access);
    api.get(next["access_token"].as_str().unwrap(), "/v1/wallet").await.is(200);
}

async fn a_person_acts_for_one_tenant_at_a_time(api: Api) {
    let person = api.person().await;
    let second = api.post(&person.access, "/v1/tenants", json!({"name": "Second"})).await;
    assert_eq!(second.header("location"), format!("/v1/tenants/{}", second.body["id"].as_str().unwrap()));
    let second = second.is(201);
    let tenants = api.get(&person.access, "/v1/tenants").await.is(200);
    assert_eq!(tenants["items"].as_array().unwrap().len(), 2);

    let switched =
        api.post(&person.access, "/v1/auth/switch", json!({"tenant_id": second["id"]})).await.is(200);
    let there = Person::from_session(&person.email, &switched);
    assert_eq!(there.tenant_id, second["id"]);
    assert_eq!(
        api.get(&there.access, "/v1/wallet").await.is(200)["available"]["amount"],
        "0.00",
        "the trial is given once"
    );
    api.get(&there.access, &format!("/v1/tenants/{}", person.tenant_id)).await.fails(404, "not_found");

    let stranger = api.person().await;
    api.post(&stranger.access, "/v1/auth/switch", json!({"tenant_id": second["id"]}))
        .await
        .fails(404, "not_found");
}

async fn members_are_managed_by_admins_and_owners_by_owners(api: Api) {
    let (owner, friend) = (api.person().await, api.person().await);
    let members = format!("/v1/tenants/{}/members", owner.tenant_id);
    let add = |role: &str| json!({"email": friend.email, "role": role});
    api.post(&owner.access, &members, json!({"email": "nobody@example.com", "role": "viewer"}))
        .await
        .fails(404, "not_found");
    api.post(&owner.access, &members, add("admin")).await.is(201);
    api.post(&owner.access, &members, add("viewer")).await.fails(409, "already_exists");

    let switched =
        api.post(&friend.access, "/v1/auth/switch", json!({"tenant_id": owner.tenant_id})).await.is(200);
    let friend_there = Person::from_session(&friend.email, &switched);
    let (of_owner, of_friend) =
        (format!("{members}/{}", owner.user_id), format!("{members}/{}", friend.user_id));
    api.patch(&friend_there.access, &of_friend, json!({"role": "owner"})).await.fails(403, "forbidden");
    api.delete(&friend_there.access, &of_owner).await.fails(403, "forbidden");
    api.patch(&owner.access, &of_owner, json!({"role": "viewer"})).await.fails(409, "wrong_state");

    api.patch(&owner.access, &of_friend, json!({"role": "viewer"})).await.is(200);
    api.patch(&friend_there.access, &of_friend, json!({"role": "admin"})).await.fails(403, "scope_missing");
    api.get(&friend_there.access, &members).await.is(200);
    assert_eq!(api.delete(&owner.access, &of_friend).await.status, 204);
    api.get(&friend_there.access, &members).await.fails(401, "unauthenticated");
    api.delete(&owner.access, &of_friend).await.fails(404, "not_found");
}

async fn ssh_keys_are_public_sound_and_known_once(api: Api) {
    let person = api.person().await;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1z0gLEWK4jSNDnQGuKtUvuS8nJ6SMdbkWLKxkCLdKC";
    let added = api
        .post(&person.access, "/v1/ssh-keys", json!({"name": "laptop", "public_key": format!("{key} ada")}))
        .await
        .is(201);
    assert_eq!(added["public_key"], key);
    api.post(&person.access, "/v1/ssh-keys", json!({"name": "again", "public_key": key}))
        .await
        .fails(409, "already_exists");
    let private = json!({"name": "oops", "public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"});
    let problem = api.post(&person.access, "/v1/ssh-keys", private).await.fails(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/public_key");
    let path = format!("/v1/ssh-keys/{}", added["id"].as_str().unwrap());
    assert_eq!(api.get(&person.access, &path).await.is(200), added);
    assert_eq!(api.delete(&person.access, &path).await.status, 204);
    api.get(&person.access, &path).await.fails(404, "not_found");
}
