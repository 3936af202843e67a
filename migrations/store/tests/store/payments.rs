use tarn_billing::account::AccountKind;
use tarn_billing::cap::Period;
use tarn_billing::money::Micros;
use tarn_billing::transfer::TransferKind;
use tarn_rows::TenantScope;
use tarn_rows::caps::{CapSubject, SpendCapRow};
use tarn_rows::notices::{NoticeKind, NoticeMarkRow, NoticeRow};
use tarn_rows::payments::{TopUpCause, TopUpRow, TopUpState};
use tarn_rows::{Json, Page};
use tarn_store::Store;
use tokio::task::JoinSet;

use crate::fixtures::*;

on_both_engines! {
    a_top_up_leaves_pending_once_whoever_races,
    one_call_and_one_payment_have_one_top_up,
    m17_reversals_of_one_transfer_never_pass_it_whoever_races,
    a_debt_never_falls_below_zero,
    one_cap_for_each_period_and_subject,
    a_crossing_is_told_once,
}

fn top_up_row(scope: &TenantScope, reference: &str) -> TopUpRow {
    TopUpRow {
        id: id!(TopUpId),
        tenant_id: scope.tenant_id().clone(),
        reference: reference.to_owned(),
        provider: "stripe".to_owned(),
        external_id: None,
        payment_ref: None,
        amount_micros: Micros::new(5_000_000),
        cause: TopUpCause::Customer,
        save_method: false,
        state: TopUpState::Pending,
        failure: None,
        pay_url: None,
        transfer_id: None,
        grant_id: None,
        created_by: None,
        created_at: at(0),
        asks: 0,
        ask_at: at(60),
        resolved_at: None,
    }
}

async fn a_top_up_leaves_pending_once_whoever_races(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let row = top_up_row(&scope, "one");
    let (owner, new) = (scope.clone(), row.clone());
    assert!(change!(store, tx => tx.insert_top_up(&owner, &new).await).await.unwrap());
    let mut ends = JoinSet::new();
    for number in 0..16 {
        let state = if number % 2 == 0 { TopUpState::Settled } else { TopUpState::Failed };
        let next =
            TopUpRow { state, external_id: Some("cs_1".to_owned()), resolved_at: Some(at(1)), ..row.clone() };
        let (store, scope) = (store.clone(), scope.clone());
        ends.spawn(async move { change!(store, tx => tx.update_top_up(&scope, &next).await).await.unwrap() });
    }
    let ended: Vec<bool> = ends.join_all().await;
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1);
    let mut tx = store.reader().await.unwrap();
    let now = tx.top_up_by_external("stripe", "cs_1").await.unwrap().unwrap();
    assert_ne!(now.state, TopUpState::Pending);
    assert_eq!(tx.top_ups_due(at(100), 10).await.unwrap(), [], "nothing to ask any more");
    assert_eq!(tx.top_up_by_external("local", "cs_1").await.unwrap(), None);
    drop(tx);
    let other = tenant(&store).await;
    let stolen = TopUpRow { tenant_id: other.tenant_id().clone(), ..now.clone() };
    assert!(!change!(store, tx => tx.update_top_up(&other, &stolen).await).await.unwrap());
}

async fn one_call_and_one_payment_have_one_top_up(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let mut tries = JoinSet::new();
    for _ in 0..8 {
        let (store, scope, row) = (store.clone(), scope.clone(), top_up_row(&scope, "the same call"));
        tries.spawn(async move { change!(store, tx => tx.insert_top_up(&scope, &row).await).await.unwrap() });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|made| *made).count(), 1);
    // A tenant has one automatic top-up under way.
    let auto = |reference: &str| TopUpRow { cause: TopUpCause::Auto, ..top_up_row(&scope, reference) };
    for (row, made) in [(auto("a"), true), (auto("b"), false)] {
        let owner = scope.clone();
        assert_eq!(change!(store, tx => tx.insert_top_up(&owner, &row).await).await.unwrap(), made);
    }
    let named =
        |reference: &str| TopUpRow { external_id: Some("cs_1".to_owned()), ..top_up_row(&scope, reference) };
    for (row, made) in [(named("c"), true), (named("d"), false)] {
        let owner = scope.clone();
        assert_eq!(
            change!(store, tx => tx.insert_top_up(&owner, &row).await).await.unwrap(),
            made,
            "one external name"
        );
    }
}

async fn m17_reversals_of_one_transfer_never_pass_it_whoever_races(store: Store, _url: String) {
    let (_, wallet) = funded_tenant(&store, 1_000).await;
    let charge = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 100);
    let posted = charge.clone();
    change!(store, tx => tx.post_transfer(&posted).await).await.unwrap();
    let mut tries = JoinSet::new();
    for _ in 0..20 {
        let (store, id) = (store.clone(), charge.id.clone());
        tries.spawn(async move {
            change!(store, tx => tx.reverse_transfer(&id, Micros::new(100), Micros::new(30)).await)
                .await
                .unwrap()
        });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|reversed| *reversed).count(), 3);
    let of = |amount: i64| {
        let (store, id) = (store.clone(), charge.id.clone());
        async move {
            change!(store, tx => tx.reverse_transfer(&id, Micros::new(100), Micros::new(amount)).await)
                .await
                .unwrap()
        }
    };
    assert!(
        !of(11).await && of(10).await && !of(1).await && !of(-101).await && of(-100).await && of(100).await
    );
    let reversed = store.reader().await.unwrap().reversed_of_transfer(&charge.id).await.unwrap();
    assert_eq!(reversed, Micros::new(100));
}

async fn a_debt_never_falls_below_zero(store: Store, _url: String) {
    let (scope, other) = (tenant(&store).await, tenant(&store).await);
    let add = |scope: &TenantScope, change: i64| {
        let (store, scope) = (store.clone(), scope.clone());
        async move { change!(store, tx => tx.add_debt(&scope, Micros::new(change)).await).await.unwrap() }
    };
    assert!(
        !add(&scope, -1).await && add(&scope, 40).await && !add(&scope, -41).await && add(&scope, -15).await
    );
    let mut tx = store.reader().await.unwrap();
    assert_eq!(
        (tx.owed(&scope).await.unwrap(), tx.owed(&other).await.unwrap()),
        (Micros::new(25), Micros::ZERO)
    );
    assert_eq!(tx.wallet(&scope).await.unwrap().owed_micros, Micros::new(25));
}

async fn one_cap_for_each_period_and_subject(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let cap = |period, limit: i64| SpendCapRow {
        id: id!(SpendCapId),
        tenant_id: scope.tenant_id().clone(),
        period,
        subject_kind: CapSubject::Tenant,
        subject: String::new(),
        limit_micros: Micros::new(limit),
        created_at: at(0),
        updated_at: at(0),
    };
    let put = |row: SpendCapRow| {
        let (store, scope) = (store.clone(), scope.clone());
        async move { change!(store, tx => tx.put_spend_cap(&scope, &row).await).await.unwrap() }
    };
    let first = put(cap(Period::Day, 1)).await;
    let again = put(cap(Period::Day, 2)).await;
    assert_eq!((&again.id, again.limit_micros), (&first.id, Micros::new(2)));
    put(cap(Period::Month, 3)).await;
    assert_eq!(store.reader().await.unwrap().spend_caps(&scope).await.unwrap().len(), 2);
    let (other, id) = (tenant(&store).await, first.id.clone());
    assert!(!change!(store, tx => tx.delete_spend_cap(&other, &id).await).await.unwrap());
    let (owner, id) = (scope.clone(), first.id.clone());
    assert!(change!(store, tx => tx.delete_spend_cap(&owner, &id).await).await.unwrap());
}

async fn a_crossing_is_told_once(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let mut tries = JoinSet::new();
    for _ in 0..8 {
        let row = NoticeRow {
            id: id!(NoticeId),
            tenant_id: scope.tenant_id().clone(),
            kind: NoticeKind::BalanceLow24h,
            crossing: "the same".to_owned(),
            detail: Json(serde_json::json!({})),
            created_at: at(0),
        };
        let (store, scope) = (store.clone(), scope.clone());
        tries.spawn(async move { change!(store, tx => tx.insert_notice(&scope, &row).await).await.unwrap() });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|told| *told).count(), 1);
    assert_eq!(store.reader().await.unwrap().notices(&scope, Page::first(10)).await.unwrap().len(), 1);
    for (step, inserted) in [(0, true), (1, false)] {
        let mark = NoticeMarkRow {
            tenant_id: scope.tenant_id().clone(),
            kind: NoticeKind::BalanceLow1h,
            fired_at: at(step),
        };
        let owner = scope.clone();
        assert_eq!(change!(store, tx => tx.insert_notice_mark(&owner, &mark).await).await.unwrap(), inserted);
    }
    let owner = scope.clone();
    assert!(
        change!(store, tx => tx.clear_notice_mark(&owner, NoticeKind::BalanceLow1h).await).await.unwrap()
    );
    assert!(store.reader().await.unwrap().notice_marks(&scope).await.unwrap().is_empty());
}
