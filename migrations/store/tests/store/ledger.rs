use tarn_billing::account::AccountKind;
use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_billing::transfer::TransferKind;
use tarn_rows::Page;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::wallet::{GrantRow, HoldRow, HoldState};
use tarn_store::{Constraint, Store, StoreError};
use tokio::task::JoinSet;

use crate::fixtures::*;

on_both_engines! {
    concurrent_debits_never_pass_below_zero,
    one_transfer_posted_many_times_moves_money_once,
    another_transfer_of_the_same_id_is_refused,
    charges_posted_together_are_those_posted_one_by_one,
    charges_that_a_wallet_does_not_cover_or_that_are_there_leave_nothing,
    a_replay_is_told_apart_from_an_empty_wallet,
    holds_reserve_and_resolve_once,
    a_grant_is_drawn_by_compare_and_set,
    one_external_payment_is_credited_once,
    a_wallet_does_not_overflow,
    a_wallet_is_read_whole_in_one_statement,
}

async fn audit(store: &Store) -> u64 {
    let audit = store.snapshot(|tx| Box::pin(async move { tx.ledger_audit().await })).await.unwrap();
    assert_eq!((audit.unbalanced_transfers, audit.wrong_wallets, audit.wrong_holds), (0, 0, 0));
    audit.transfers
}

async fn post_all(store: &Store, transfers: Vec<TransferRow>) -> Vec<Posting> {
    let mut posts = JoinSet::new();
    for transfer in transfers {
        let store = store.clone();
        posts.spawn(async move { change!(store, tx => tx.post_transfer(&transfer).await).await.unwrap() });
    }
    posts.join_all().await
}

fn count(postings: &[Posting], wanted: Posting) -> usize {
    postings.iter().filter(|posting| **posting == wanted).count()
}

async fn concurrent_debits_never_pass_below_zero(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 10_000_000).await;
    let revenue = system(AccountKind::RevenueGpu);
    let debit = || transfer_row(TransferKind::Usage, &wallet, &revenue, 999_999);
    let postings = post_all(&store, (0..40).map(|_| debit()).collect()).await;
    assert_eq!((count(&postings, Posting::Posted), count(&postings, Posting::Insufficient)), (10, 30));
    let balance = store.reader().await.unwrap().balance(&scope, wallet.id()).await.unwrap().unwrap();
    assert_eq!((balance.posted_micros, balance.version), (Micros::new(10), 11));
    assert_eq!(audit(&store).await, 11);
    let lines = store.reader().await.unwrap().ledger_lines(&scope, Page::first(100)).await.unwrap();
    assert_eq!(lines.len(), 11);
}

async fn one_transfer_posted_many_times_moves_money_once(store: Store, _url: String) {
    let (_, wallet) = funded_tenant(&store, 10_000_000).await;
    let once = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 1);
    let postings = post_all(&store, vec![once; 32]).await;
    assert_eq!((count(&postings, Posting::Posted), count(&postings, Posting::Replayed)), (1, 31));
    assert_eq!(audit(&store).await, 2);
}

async fn another_transfer_of_the_same_id_is_refused(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 100).await;
    let first = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 1);
    let other = TransferRow { amount_micros: Micros::new(2), ..first.clone() };
    assert_eq!(post_all(&store, vec![first]).await, [Posting::Posted]);
    assert_eq!(post_all(&store, vec![other]).await, [Posting::Conflicting]);
    let balance = store.reader().await.unwrap().balance(&scope, wallet.id()).await.unwrap().unwrap();
    assert_eq!(balance.posted_micros, Micros::new(99));
    audit(&store).await;
}

async fn post_together(store: &Store, charges: Vec<TransferRow>) -> Result<(), StoreError> {
    change!(store, tx => if tx.post_charges(&charges).await? { Done::Ok(()) } else { Err(tx.stale()) }).await
}

async fn charges_posted_together_are_those_posted_one_by_one(store: Store, _url: String) {
    let (_, one) = funded_tenant(&store, 100).await;
    let (_, other) = funded_tenant(&store, 50).await;
    let revenue = system(AccountKind::RevenueGpu);
    let charges: Vec<TransferRow> = [(&one, 3), (&other, 7), (&one, 4), (&one, 5), (&other, 43)]
        .into_iter()
        .map(|(wallet, micros)| transfer_row(TransferKind::Usage, wallet, &revenue, micros))
        .collect();
    post_together(&store, charges.clone()).await.unwrap();
    let mut reader = store.reader().await.unwrap();
    let mut told = Vec::new();
    for charge in &charges {
        let entries = reader.entries_of_transfer(&charge.id).await.unwrap();
        assert_eq!(entries.iter().map(|entry| entry.amount_micros.get()).sum::<i64>(), 0);
        let entry = entries.iter().find(|entry| entry.account_id == charge.debit_account_id).unwrap();
        told.push((entry.seq.unwrap(), entry.balance_after_micros.unwrap().get()));
    }
    // The first entry of each is the money that came.
    assert_eq!(told, [(2, 97), (2, 43), (3, 93), (4, 88), (3, 0)]);
    drop(reader);
    assert_eq!(audit(&store).await, 7);
}

async fn charges_that_a_wallet_does_not_cover_or_that_are_there_leave_nothing(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 10).await;
    let charge =
        |micros| transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), micros);
    let (known, small, large) = (charge(1), charge(4), charge(6));
    post_together(&store, vec![known.clone()]).await.unwrap();
    for charges in [vec![small.clone(), large], vec![small, known]] {
        let refused = post_together(&store, charges).await.unwrap_err();
        assert!(matches!(refused, StoreError::Stale), "{refused}");
    }
    let balance = store.reader().await.unwrap().balance(&scope, wallet.id()).await.unwrap().unwrap();
    assert_eq!((balance.posted_micros, balance.version), (Micros::new(9), 2));
    assert_eq!(audit(&store).await, 2);
}

async fn a_replay_is_told_apart_from_an_empty_wallet(store: Store, _url: String) {
    let (_, wallet) = funded_tenant(&store, 5).await;
    let all = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 5);
    assert_eq!(post_all(&store, vec![all.clone()]).await, [Posting::Posted]);
    assert_eq!(post_all(&store, vec![all]).await, [Posting::Replayed]);
    audit(&store).await;
}

async fn holds_reserve_and_resolve_once(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 10).await;
    let other = tenant(&store).await;
    let hold = |micros| HoldRow {
        id: id!(HoldId),
        tenant_id: scope.tenant_id().clone(),
        account_id: wallet.id().clone(),
        instance_id: None,
        amount_micros: Micros::new(micros),
        state: HoldState::Pending,
        created_at: at(0),
        expires_at: at(60),
        resolved_at: None,
    };
    let mut starts = JoinSet::new();
    for _ in 0..8 {
        let (store, scope, hold) = (store.clone(), scope.clone(), hold(4));
        starts.spawn(async move {
            change!(store, tx => Done::Ok(tx.place_hold(&scope, &hold).await?.then(|| hold.id.clone()))).await
        });
    }
    let held: Vec<_> = starts.join_all().await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(held.len(), 2);
    let spend = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 3);
    assert_eq!(post_all(&store, vec![spend]).await, [Posting::Insufficient]);
    audit(&store).await;
    let foreign = hold(1);
    let spend = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 4);
    change!(store, tx => {
        assert!(!tx.place_hold(&other, &foreign).await?);
        assert_eq!(tx.resolve_hold(&other, &held[0], HoldState::Voided, at(1)).await?, None);
        let posted = tx.resolve_hold(&scope, &held[0], HoldState::Posted, at(1)).await?.unwrap();
        assert_eq!(posted.state, HoldState::Posted);
        assert_eq!(tx.resolve_hold(&scope, &held[0], HoldState::Voided, at(2)).await?, None);
        assert_eq!(tx.post_transfer(&spend).await?, Posting::Posted);
        assert_eq!(tx.holds_expired(at(60)).await?.len(), 1);
        assert_eq!(tx.expire_holds(&scope, at(59)).await?, 0);
        assert_eq!(tx.expire_holds(&other, at(60)).await?, 0);
        assert_eq!(tx.expire_holds(&scope, at(60)).await?, 1);
        assert!(tx.holds_pending(&scope).await?.is_empty());
        Done::Ok(())
    })
    .await
    .unwrap();
    audit(&store).await;
}

async fn a_grant_is_drawn_by_compare_and_set(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let grant = |kind, priority, expires_at| GrantRow {
        id: id!(GrantId),
        tenant_id: scope.tenant_id().clone(),
        kind,
        priority,
        granted_micros: Micros::new(100),
        remaining_micros: Micros::new(100),
        expires_at,
        created_at: at(0),
    };
    let late = grant(GrantKind::Promo, 0, None);
    let soon = grant(GrantKind::Trial, 0, Some(at(10)));
    let cash = grant(GrantKind::Cash, 9, None);
    change!(store, tx => {
        for grant in [&late, &soon, &cash] {
            assert!(tx.insert_grant(&scope, grant).await?);
            assert!(!tx.insert_grant(&scope, grant).await?);
        }
        let order: Vec<_> = tx.spendable_grants(&scope, at(9)).await?.into_iter().map(|row| row.id).collect();
        assert_eq!(order, [soon.id.clone(), late.id.clone(), cash.id.clone()]);
        assert_eq!(tx.spendable_grants(&scope, at(10)).await?.len(), 2);
        assert_eq!(tx.grants_expired(at(10)).await?.len(), 1);
        let (full, left) = (Micros::new(100), Micros::new(40));
        assert!(tx.set_grant_remaining(&scope, &cash.id, full, left).await?);
        assert!(!tx.set_grant_remaining(&scope, &cash.id, full, left).await?);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn one_external_payment_is_credited_once(store: Store, _url: String) {
    let (_, wallet) = funded_tenant(&store, 1).await;
    let cash = tarn_billing::account::Account::wallet_cash(wallet.tenant_id().unwrap());
    let top_up = || TransferRow {
        external_provider: Some("alipay".to_owned()),
        external_id: Some("2026-1".to_owned()),
        ..transfer_row(TransferKind::TopUp, &system(AccountKind::TopupClearing), &cash, 7)
    };
    let (first, second) = (top_up(), top_up());
    assert_eq!(post_all(&store, vec![first]).await, [Posting::Posted]);
    let refused = change!(store, tx => tx.post_transfer(&second).await).await.unwrap_err();
    assert!(refused.breaks(Constraint::ExternalTransfer), "{refused:?}");
    audit(&store).await;
}

async fn a_wallet_does_not_overflow(store: Store, _url: String) {
    let (_, wallet) = funded_tenant(&store, 3_999_999_999_999_999_999).await;
    let more = transfer_row(TransferKind::TrialCredit, &system(AccountKind::TrialGrants), &wallet, 2);
    let refused = change!(store, tx => tx.post_transfer(&more).await).await.unwrap_err();
    assert!(matches!(refused, StoreError::Check { .. }), "{refused:?}");
    audit(&store).await;
}

async fn a_wallet_is_read_whole_in_one_statement(store: Store, _url: String) {
    let (scope, _) = funded_tenant(&store, 10_000_000).await;
    let (other, _) = funded_tenant(&store, 7).await;
    let (_, gpus) = host(&store, 1).await;
    offer(&store).await;
    let runs = instance(&store, &scope).await;
    let segment = segment_row(&runs, &gpus[0].uuid, 1);
    let (owner, opened) = (scope.clone(), segment.clone());
    change!(store, tx => tx.insert_segment(&owner, &opened).await).await.unwrap();
    for number in 0..2 {
        let grant = GrantRow {
            id: id!(GrantId),
            tenant_id: scope.tenant_id().clone(),
            kind: GrantKind::Promo,
            priority: number,
            granted_micros: Micros::new(10),
            remaining_micros: Micros::new(3),
            expires_at: (number == 1).then(|| at(90)),
            created_at: at(number),
        };
        let owner = scope.clone();
        assert!(change!(store, tx => tx.insert_grant(&owner, &grant).await).await.unwrap());
    }
    let mut tx = store.reader().await.unwrap();
    let wallet = tx.wallet(&scope).await.unwrap();
    let mut balances = tx.balances(&scope).await.unwrap();
    balances.sort_by(|one, next| one.account_id.cmp(&next.account_id));
    assert_eq!(wallet.balances, balances);
    assert_eq!((wallet.grants.len(), &wallet.grants), (2, &tx.grants(&scope).await.unwrap()));
    assert_eq!(wallet.burning.len(), 1);
    let burning = &wallet.burning[0];
    assert_eq!((&burning.segment_id, burning.micros_per_hour), (&segment.id, segment.micros_per_hour));
    assert_eq!(burning.exhausts_at, segment.exhausts_at);
    let other = tx.wallet(&other).await.unwrap();
    assert_eq!((other.grants.len(), other.burning.len()), (0, 0), "nothing of another tenant");
}
