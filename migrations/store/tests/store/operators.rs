use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_rows::Json;
use tarn_rows::operators::{CreditRequestRow, CreditState, DeedRow};
use tarn_rows::wallet::GrantRow;
use tarn_store::{Constraint, Store, StoreError};
use tokio::task::JoinSet;

use crate::fixtures::*;
use crate::schema::past_the_store;

on_both_engines! {
    lines_of_the_operators_log_take_turns_and_never_change,
    credit_of_four_eyes_is_never_given_by_who_asked,
    a_decision_stands,
}

async fn lines_of_the_operators_log_take_turns_and_never_change(store: Store, url: String) {
    let mut writers = JoinSet::new();
    for _ in 0..24 {
        let store = store.clone();
        writers.spawn(async move {
            change!(store, tx => {
                let head = tx.take_log_turn().await?;
                let row = DeedRow {
                    seq: head.seq + 1,
                    operator_id: None,
                    credential_id: "command_line".to_owned(),
                    request_id: None,
                    action: "test".to_owned(),
                    subject: "nothing".to_owned(),
                    detail: Json(serde_json::json!({"before": head.sha256})),
                    created_at: at(0),
                    sha256: format!("line {}", head.seq + 1),
                };
                tx.append_deed(&row).await
            })
            .await
            .unwrap();
        });
    }
    writers.join_all().await;
    let rows = store.reader().await.unwrap().deeds_above(0, 100).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=24).collect::<Vec<_>>());
    for pair in rows.windows(2) {
        assert_eq!(pair[1].detail.0["before"], *pair[0].sha256, "each saw the one before it");
    }
    for sql in ["UPDATE operator_log SET action = 'x'", "DELETE FROM operator_log WHERE seq = 24"] {
        assert!(past_the_store(&url, sql).await.is_err(), "{sql}");
    }
}

/// A request for credit of a tenant, pending, and a grant to give for it.
async fn asked(store: &Store, four_eyes: bool) -> (CreditRequestRow, GrantRow) {
    let (scope, _) = funded_tenant(store, 10).await;
    let operator = user(store).await;
    let grant = GrantRow {
        id: id!(GrantId),
        tenant_id: scope.tenant_id().clone(),
        kind: GrantKind::Promo,
        priority: 10,
        granted_micros: Micros::new(5),
        remaining_micros: Micros::new(5),
        expires_at: None,
        created_at: at(0),
    };
    let row = CreditRequestRow {
        id: id!(CreditRequestId),
        tenant_id: scope.tenant_id().clone(),
        kind: GrantKind::Promo,
        amount_micros: Micros::new(5),
        grant_expires_at: None,
        reason: "a test".to_owned(),
        state: CreditState::Pending,
        four_eyes,
        requested_by: operator.id,
        decided_by: None,
        decision: None,
        grant_id: None,
        created_at: at(0),
        expires_at: at(100),
        decided_at: None,
    };
    let (request, given) = (row.clone(), grant.clone());
    change!(store, tx => {
        tx.insert_grant(&scope, &given).await?;
        tx.insert_credit_request(&request).await
    })
    .await
    .unwrap();
    (row, grant)
}

async fn decide(store: &Store, row: &CreditRequestRow) -> Result<bool, StoreError> {
    let row = row.clone();
    change!(store, tx => tx.decide_credit_request(&row).await).await
}

async fn credit_of_four_eyes_is_never_given_by_who_asked(store: Store, url: String) {
    let (row, grant) = asked(&store, true).await;
    let own = CreditRequestRow {
        state: CreditState::Given,
        decided_by: Some(row.requested_by.clone()),
        decided_at: Some(at(1)),
        grant_id: Some(grant.id.clone()),
        ..row.clone()
    };
    let is_refused = |done: Result<bool, StoreError>| match done {
        Err(StoreError::Check { constraint }) => {
            assert!(constraint.contains("another_operator_approves"), "{constraint}");
        }
        other => panic!("{other:?}"),
    };
    is_refused(decide(&store, &own).await);
    is_refused(decide(&store, &CreditRequestRow { decided_by: None, ..own.clone() }).await);
    for sql in [
        "UPDATE credit_requests SET four_eyes = FALSE".to_owned(),
        "UPDATE credit_requests SET amount_micros = 1000000".to_owned(),
        format!("UPDATE credit_requests SET requested_by = '{}'", user(&store).await.id),
        "DELETE FROM credit_requests".to_owned(),
    ] {
        assert!(past_the_store(&url, &sql).await.is_err(), "{sql}");
    }
    let other = user(&store).await;
    let unpaid = CreditRequestRow { decided_by: Some(other.id.clone()), grant_id: None, ..own.clone() };
    assert!(matches!(decide(&store, &unpaid).await, Err(StoreError::Check { .. })), "given without a grant");
    assert!(decide(&store, &CreditRequestRow { decided_by: Some(other.id), ..own }).await.unwrap());
    // What needs no second operator is given by the one.
    let (row, grant) = asked(&store, false).await;
    let alone = CreditRequestRow {
        state: CreditState::Given,
        decided_by: Some(row.requested_by.clone()),
        decided_at: Some(at(1)),
        grant_id: Some(grant.id.clone()),
        ..row
    };
    assert!(decide(&store, &alone).await.unwrap());
}

async fn a_decision_stands(store: Store, url: String) {
    let (row, grant) = asked(&store, true).await;
    let other = user(&store).await.id;
    let given = CreditRequestRow {
        state: CreditState::Given,
        decided_by: Some(other.clone()),
        decided_at: Some(at(1)),
        grant_id: Some(grant.id.clone()),
        ..row.clone()
    };
    assert!(
        !decide(&store, &CreditRequestRow { decided_at: Some(at(100)), ..given.clone() }).await.unwrap(),
        "too late"
    );
    assert_eq!(store.reader().await.unwrap().credit_requests_expired(at(99), 9).await.unwrap(), []);
    assert!(decide(&store, &given).await.unwrap());
    let rejected = CreditRequestRow { state: CreditState::Rejected, grant_id: None, ..given.clone() };
    assert!(!decide(&store, &rejected).await.unwrap());
    assert!(past_the_store(&url, "UPDATE credit_requests SET decided_at = 5").await.is_err());
    // One grant pays for one request.
    let (second, _) = asked(&store, true).await;
    let twice = CreditRequestRow { id: second.id, ..given };
    let refused = decide(&store, &twice).await.unwrap_err();
    assert!(refused.breaks(Constraint::RequestOfGrant), "{refused:?}");
    assert_eq!(store.reader().await.unwrap().credit_requests_expired(at(100), 9).await.unwrap().len(), 1);
}
