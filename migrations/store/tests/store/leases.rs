use tarn_protocol::units::Generation;
use tarn_rows::Page;
use tarn_rows::instances::InstanceFilter;
use tarn_store::{Constraint, Store};
use tokio::task::JoinSet;

use crate::fixtures::*;

on_both_engines! {
    one_of_64_claims_of_a_card_wins,
    a_released_card_is_claimed_again_and_old_generations_release_nothing,
    a_stale_instance_is_not_written,
    pages_of_instances_neither_skip_nor_repeat,
    quota_counts_live_leases,
}

async fn one_of_64_claims_of_a_card_wins(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 4).await;
    let mut claims = JoinSet::new();
    for turn in 0..64 {
        let (store, scope, mut wanted) = (store.clone(), scope.clone(), gpus.clone());
        wanted.rotate_left(turn % 4);
        claims.spawn(async move {
            let instance = instance(&store, &scope).await;
            let (lease, cards) = lease_rows(&instance, &wanted);
            change!(store, tx => tx.insert_lease(&scope, &lease, &cards).await).await
        });
    }
    let outcomes = claims.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for refused in outcomes.into_iter().filter_map(Result::err) {
        assert!(refused.breaks(Constraint::LiveLeaseOfGpu), "{refused:?}");
    }
    let held = store.reader().await.unwrap().fleet_held_gpus().await.unwrap();
    assert_eq!(held.len(), 4);
    assert_eq!(held.iter().map(|card| card.place).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

async fn a_released_card_is_claimed_again_and_old_generations_release_nothing(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 1).await;
    let first = instance(&store, &scope).await;
    let second = instance(&store, &scope).await;
    let (lease, cards) = lease_rows(&first, &gpus);
    let (next, next_cards) = lease_rows(&second, &gpus);
    change!(store, tx => {
        tx.insert_lease(&scope, &lease, &cards).await?;
        assert!(!tx.release_lease(&scope, &lease.id, Generation::new(0), at(1)).await?);
        assert!(tx.release_lease(&scope, &lease.id, lease.generation, at(1)).await?);
        assert!(!tx.release_lease(&scope, &lease.id, lease.generation, at(2)).await?);
        tx.insert_lease(&scope, &next, &next_cards).await?;
        assert_eq!(tx.live_lease(&scope, &first.id).await?, None);
        assert_eq!(tx.live_lease(&scope, &second.id).await?.unwrap().id, next.id);
        assert_eq!(tx.lease_gpus(&next.id).await?, next_cards);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn a_stale_instance_is_not_written(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let row = instance(&store, &scope).await;
    let mut writers = JoinSet::new();
    for label in 0..16 {
        let (store, scope) = (store.clone(), scope.clone());
        let changed = tarn_rows::instances::InstanceRow { label: format!("label {label}"), ..row.clone() };
        writers.spawn(async move {
            change!(store, tx => tx.update_instance(&scope, &changed).await).await.unwrap()
        });
    }
    assert_eq!(writers.join_all().await.into_iter().filter(|written| *written).count(), 1);
    let stored = store.reader().await.unwrap().instance(&scope, &row.id).await.unwrap().unwrap();
    assert_eq!(stored.row_version, row.row_version + 1);
    assert_eq!(stored.spec, row.spec);
}

async fn pages_of_instances_neither_skip_nor_repeat(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let mut expected = vec![];
    for _ in 0..23 {
        expected.push(instance(&store, &scope).await.id);
    }
    let mut seen = vec![];
    let mut after = None;
    loop {
        let page = Page { after: after.as_ref(), limit: 5 };
        let filter = InstanceFilter { terminated: true, ..InstanceFilter::default() };
        let rows = store.reader().await.unwrap().instances(&scope, &filter, page).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        seen.extend(rows.into_iter().map(|row| row.id));
        // Older than the cursor or newer: neither moves the pages that are left.
        if seen.len() == 10 {
            expected.push(instance(&store, &scope).await.id);
        }
    }
    assert_eq!(seen, expected);
    let filter = InstanceFilter { offer_id: Some("card-24".parse().unwrap()), ..InstanceFilter::default() };
    let none = store.reader().await.unwrap().instances(&scope, &filter, Page::first(5)).await.unwrap();
    assert!(none.is_empty());
}

async fn quota_counts_live_leases(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 3).await;
    let instance = instance(&store, &scope).await;
    let (lease, cards) = lease_rows(&instance, &gpus[..2]);
    let used = change!(store, tx => {
        assert!(tx.lock_tenant(&scope).await?);
        assert_eq!(tx.quota_use(&scope).await?.cards, 0);
        tx.insert_lease(&scope, &lease, &cards).await?;
        tx.quota_use(&scope).await
    });
    let used = used.await.unwrap();
    assert_eq!((used.cards, used.bytes), (2, tarn_protocol::units::Bytes::gib(48)));
}
