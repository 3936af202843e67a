use tarn_protocol::ids::SshKeyId;
use tarn_rows::accounts::{MembershipRow, Role, SshKeyRow};
use tarn_rows::api_keys::ApiKeyRow;
use tarn_rows::idempotency::IdempotencyRow;
use tarn_rows::instances::{InstanceEventRow, InstanceFilter, InstanceRow};
use tarn_rows::sessions::RefreshTokenRow;
use tarn_rows::{Json, Page};
use tarn_store::{Constraint, Store, StoreError};
use tokio::task::JoinSet;

use crate::fixtures::*;

on_both_engines! {
    an_email_signs_up_once,
    a_refresh_token_rotates_once_and_its_session_is_revoked_whole,
    expired_refresh_tokens_go_oldest_first_and_no_more_than_asked_for,
    a_foreign_id_is_an_absent_id,
    one_key_in_100_parallel_calls_has_one_effect,
    revoked_keys_and_memberships_end,
}

async fn an_email_signs_up_once(store: Store, _url: String) {
    let row = user(&store).await;
    let again = tarn_rows::accounts::UserRow { id: id!(UserId), ..row.clone() };
    let refused = change!(store, tx => tx.insert_user(&again).await).await.unwrap_err();
    assert!(refused.breaks(Constraint::UserEmail), "{refused:?}");
    let found = store.reader().await.unwrap().user_by_email(&row.email).await.unwrap();
    assert_eq!(found.as_ref(), Some(&row));
    assert!(!format!("{found:?}").contains("argon2id"));
    let id = row.id.clone();
    assert_eq!(change!(store, tx => tx.bump_token_epoch(&id).await).await.unwrap(), Some(1));
}

async fn a_refresh_token_rotates_once_and_its_session_is_revoked_whole(store: Store, _url: String) {
    let (scope, user) = (tenant(&store).await, user(&store).await);
    let token = |session: &tarn_protocol::ids::SessionId| RefreshTokenRow {
        id: id!(RefreshTokenId),
        session_id: session.clone(),
        user_id: user.id.clone(),
        tenant_id: scope.tenant_id().clone(),
        secret_sha256: digest(),
        created_at: at(0),
        expires_at: at(100),
        rotated_at: None,
        revoked_at: None,
    };
    let session = id!(SessionId);
    let (first, second) = (token(&session), token(&session));
    let (inserted, next) = (first.clone(), second.clone());
    change!(store, tx => {
        tx.insert_refresh_token(&inserted).await?;
        tx.insert_refresh_token(&next).await
    })
    .await
    .unwrap();
    let mut uses = JoinSet::new();
    for _ in 0..16 {
        let (store, id) = (store.clone(), first.id.clone());
        uses.spawn(
            async move { change!(store, tx => tx.rotate_refresh_token(&id, at(1)).await).await.unwrap() },
        );
    }
    assert_eq!(uses.join_all().await.into_iter().filter(|rotated| *rotated).count(), 1);
    change!(store, tx => {
        assert_eq!(tx.revoke_session(&session, at(2)).await?, 2);
        assert!(!tx.rotate_refresh_token(&second.id, at(3)).await?);
        assert!(tx.refresh_token(&second.secret_sha256).await?.unwrap().revoked_at.is_some());
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn expired_refresh_tokens_go_oldest_first_and_no_more_than_asked_for(store: Store, _url: String) {
    let (scope, user) = (tenant(&store).await, user(&store).await);
    let mut tokens = vec![];
    for expires in [30, 10, 20, 40] {
        let token = RefreshTokenRow {
            id: id!(RefreshTokenId),
            session_id: id!(SessionId),
            user_id: user.id.clone(),
            tenant_id: scope.tenant_id().clone(),
            secret_sha256: digest(),
            created_at: at(0),
            expires_at: at(expires),
            rotated_at: None,
            revoked_at: None,
        };
        tokens.push(token.clone());
        change!(store, tx => tx.insert_refresh_token(&token).await).await.unwrap();
    }
    for (before, limit, deleted, left) in [
        (10, 9, 0, vec![30, 10, 20, 40]),
        (40, 2, 2, vec![30, 40]),
        (40, 2, 1, vec![40]),
        (40, 2, 0, vec![40]),
    ] {
        let went = change!(store, tx => tx.delete_expired_refresh_tokens(at(before), limit).await).await;
        assert_eq!(went.unwrap(), deleted);
        let mut there = vec![];
        for token in &tokens {
            there.extend(store.reader().await.unwrap().refresh_token(&token.secret_sha256).await.unwrap());
        }
        let there: Vec<_> = there.into_iter().map(|token| token.expires_at).collect();
        assert_eq!(there, left.into_iter().map(at).collect::<Vec<_>>());
    }
}

async fn a_foreign_id_is_an_absent_id(store: Store, _url: String) {
    let (mine, theirs) = (tenant(&store).await, tenant(&store).await);
    let creator = user(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 1).await;
    let instance = instance(&store, &theirs).await;
    let segment = segment_row(&instance, &gpus[0].uuid, 0);
    let (lease, cards) = lease_rows(&instance, &gpus);
    let ssh_key = SshKeyRow {
        id: id!(SshKeyId),
        tenant_id: theirs.tenant_id().clone(),
        name: "laptop".to_owned(),
        public_key: "ssh-ed25519 AAAA".to_owned(),
        fingerprint: "SHA256:x".to_owned(),
        created_at: at(0),
    };
    let api_key = ApiKeyRow {
        id: id!(ApiKeyId),
        tenant_id: theirs.tenant_id().clone(),
        created_by: creator.id.clone(),
        name: "ci".to_owned(),
        scopes: Json(vec!["instances:read".to_owned()]),
        secret_sha256: digest(),
        created_at: at(0),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    };
    let event = InstanceEventRow {
        id: id!(EventId),
        instance_id: instance.id.clone(),
        tenant_id: theirs.tenant_id().clone(),
        kind: "created".to_owned(),
        detail: Json(serde_json::json!({})),
        created_at: at(0),
    };
    change!(store, tx => {
        tx.insert_segment(&theirs, &segment).await?;
        tx.insert_lease(&theirs, &lease, &cards).await?;
        tx.insert_ssh_key(&theirs, &ssh_key).await?;
        tx.insert_api_key(&theirs, &api_key).await?;
        tx.insert_instance_event(&theirs, &event).await?;
        // Reads.
        assert_eq!(tx.instance(&mine, &instance.id).await?, None);
        assert!(tx.instances(&mine, &InstanceFilter::default(), Page::first(9)).await?.is_empty());
        assert_eq!(tx.segment(&mine, &segment.id).await?, None);
        assert!(tx.segments(&mine, Page::first(9)).await?.is_empty());
        assert_eq!(tx.open_segment_of_instance(&mine, &instance.id).await?, None);
        assert_eq!(tx.live_lease(&mine, &instance.id).await?, None);
        assert_eq!(tx.ssh_key(&mine, &ssh_key.id).await?, None);
        assert_eq!(tx.api_key(&mine, &api_key.id).await?, None);
        assert!(tx.instance_events(&mine, &instance.id, Page::first(9)).await?.is_empty());
        assert!(tx.transfers_of_segment(&mine, &segment.id).await?.is_empty());
        // Writes, also with a row that lies about its tenant.
        let lie = InstanceRow { tenant_id: mine.tenant_id().clone(), label: "mine".to_owned(), ..instance.clone() };
        assert!(!tx.update_instance(&mine, &lie).await?);
        assert!(!tx.update_segment(&mine, &segment).await?);
        assert!(!tx.release_lease(&mine, &lease.id, lease.generation, at(1)).await?);
        assert!(!tx.delete_ssh_key(&mine, &ssh_key.id).await?);
        assert!(!tx.revoke_api_key(&mine, &api_key.id, at(1)).await?);
        // And it is all still there for its owner.
        assert_eq!(tx.instance(&theirs, &instance.id).await?.unwrap(), instance);
        assert_eq!(tx.ssh_keys(&theirs, Page::first(9)).await?, [ssh_key]);
        assert_eq!(tx.api_keys(&theirs, Page::first(9)).await?, [api_key]);
        assert_eq!(tx.segments(&theirs, Page::first(9)).await?, [segment]);
        assert_eq!(tx.instance_events(&theirs, &instance.id, Page::first(9)).await?, [event]);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn one_key_in_100_parallel_calls_has_one_effect(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let answer = IdempotencyRow {
        tenant_id: scope.tenant_id().clone(),
        key: "k".to_owned(),
        route: "POST /v1/ssh-keys".to_owned(),
        body_sha256: digest(),
        status: 201,
        response: "{}".to_owned(),
        created_at: at(0),
    };
    let mut calls = JoinSet::new();
    for call in 0..100 {
        let (store, scope, answer) = (store.clone(), scope.clone(), answer.clone());
        let key = SshKeyRow {
            id: id!(SshKeyId),
            tenant_id: scope.tenant_id().clone(),
            name: "k".to_owned(),
            public_key: "k".to_owned(),
            fingerprint: format!("{call}"),
            created_at: at(0),
        };
        calls.spawn(async move {
            change!(store, tx => {
                if !tx.insert_idempotent_answer(&scope, &answer).await? {
                    return Done::<Option<SshKeyId>>::Ok(None);
                }
                tx.insert_ssh_key(&scope, &key).await?;
                Done::Ok(Some(key.id.clone()))
            })
            .await
        });
    }
    let outcomes: Vec<Result<_, StoreError>> = calls.join_all().await;
    let made: Vec<_> = outcomes.into_iter().filter_map(Result::unwrap).collect();
    let mut reader = store.reader().await.unwrap();
    let stored: Vec<_> =
        reader.ssh_keys(&scope, Page::first(200)).await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored, made);
    assert_eq!(reader.idempotent_answer(&scope, "k").await.unwrap(), Some(answer));
}

async fn revoked_keys_and_memberships_end(store: Store, _url: String) {
    let (scope, user) = (tenant(&store).await, user(&store).await);
    let membership = MembershipRow {
        tenant_id: scope.tenant_id().clone(),
        user_id: user.id.clone(),
        role: Role::Owner,
        created_at: at(0),
    };
    change!(store, tx => {
        tx.insert_membership(&scope, &membership).await?;
        assert_eq!(tx.membership(&user.id, scope.tenant_id()).await?.unwrap().role, Role::Owner);
        assert!(tx.set_role(&scope, &user.id, Role::Viewer).await?);
        assert_eq!(tx.members(&scope, Page::first(9)).await?[0].role, Role::Viewer);
        assert_eq!(tx.memberships_of_user(&user.id).await?.len(), 1);
        assert!(tx.delete_membership(&scope, &user.id).await?);
        assert_eq!(tx.membership(&user.id, scope.tenant_id()).await?, None);
        Done::Ok(())
    })
    .await
    .unwrap();
}
