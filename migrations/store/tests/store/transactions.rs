//! What a transaction promises, whatever happens to its caller or its work.

use std::sync::Arc;
use std::time::Duration;

use tarn_store::{Store, StoreError};
use tokio::sync::Notify;

use crate::fixtures::*;

on_both_engines! {
    a_write_commits_though_its_caller_left,
    failed_work_leaves_nothing,
    a_panic_leaves_nothing_and_blocks_nobody,
    work_that_swallows_a_failure_is_not_committed,
    a_savepoint_undoes_its_own_part_only,
    a_reader_cannot_write,
    a_snapshot_sees_one_instant,
}

/// Polls until `done` or a bound far above any honest delay.
async fn wait_until<F: Future<Output = bool>>(mut done: impl FnMut() -> F) {
    for _ in 0..1000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited 10 s in vain");
}

async fn exists(store: &Store, host: &tarn_protocol::ids::HostId) -> bool {
    store.reader().await.unwrap().host(host).await.unwrap().is_some()
}

async fn a_write_commits_though_its_caller_left(store: Store, _url: String) {
    let host = host_row();
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let caller = {
        let (store, host, started, go) = (store.clone(), host.clone(), started.clone(), go.clone());
        tokio::spawn(async move {
            change!(store, tx => {
                tx.insert_host(&host).await?;
                started.notify_one();
                go.notified().await;
                Done::Ok(())
            })
            .await
        })
    };
    started.notified().await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    go.notify_one();
    wait_until(|| exists(&store, &host.id)).await;
}

async fn failed_work_leaves_nothing(store: Store, _url: String) {
    let host = host_row();
    let inserted = host.clone();
    let refused: Result<(), StoreError> = change!(store, tx => {
        tx.insert_host(&inserted).await?;
        Err(StoreError::Ended)
    })
    .await;
    assert!(refused.is_err());
    assert!(!exists(&store, &host.id).await);
}

async fn a_panic_leaves_nothing_and_blocks_nobody(store: Store, _url: String) {
    let host = host_row();
    let inserted = host.clone();
    let panicking = store.clone();
    let outcome = tokio::spawn(async move {
        change!(panicking, tx => {
            tx.insert_host(&inserted).await?;
            assert!(inserted.cordoned, "on purpose");
            Done::Ok(())
        })
        .await
    })
    .await;
    assert!(outcome.unwrap_err().is_panic());
    assert!(!exists(&store, &host.id).await);
    let again = host.clone();
    change!(store, tx => tx.insert_host(&again).await).await.unwrap();
}

async fn work_that_swallows_a_failure_is_not_committed(store: Store, _url: String) {
    let (host, twin) = (host_row(), host_row());
    let (inserted, inserted_twin) = (host.clone(), twin.clone());
    let swallowed: Result<(), StoreError> = change!(store, tx => {
        tx.insert_host(&inserted).await?;
        assert!(tx.insert_host(&inserted).await.is_err());
        let _ = tx.insert_host(&inserted_twin).await;
        Ok(())
    })
    .await;
    assert!(matches!(swallowed, Err(StoreError::Poisoned)), "{swallowed:?}");
    assert!(!exists(&store, &host.id).await && !exists(&store, &twin.id).await);
}

async fn a_savepoint_undoes_its_own_part_only(store: Store, _url: String) {
    let hosts = [host_row(), host_row(), host_row()];
    let inserted = hosts.clone();
    change!(store, tx => {
        tx.insert_host(&inserted[0]).await?;
        let bad = inserted.clone();
        let part: Done<()> = tx
            .savepoint(|tx| {
                Box::pin(async move {
                    tx.insert_host(&bad[1]).await?;
                    tx.insert_host(&bad[0]).await
                })
            })
            .await;
        assert!(matches!(part, Err(StoreError::Unique(_))), "{part:?}");
        tx.insert_host(&inserted[2]).await
    })
    .await
    .unwrap();
    let mut there = vec![];
    for host in &hosts {
        there.push(exists(&store, &host.id).await);
    }
    assert_eq!(there, [true, false, true]);
}

async fn a_reader_cannot_write(store: Store, _url: String) {
    let host = host_row();
    assert!(store.reader().await.unwrap().insert_host(&host).await.is_err());
    assert!(!exists(&store, &host.id).await);
}

async fn a_snapshot_sees_one_instant(store: Store, _url: String) {
    let (first, second) = (host_row(), host_row());
    let inserted = first.clone();
    change!(store, tx => tx.insert_host(&inserted).await).await.unwrap();
    let writer = store.clone();
    let seen = store.snapshot(|tx| {
        Box::pin(async move {
            let before = tx.fleet_hosts().await?.len();
            change!(writer, tx => tx.insert_host(&second).await).await?;
            Done::Ok((before, tx.fleet_hosts().await?.len()))
        })
    });
    assert_eq!(seen.await.unwrap(), (1, 1));
    assert_eq!(store.reader().await.unwrap().fleet_hosts().await.unwrap().len(), 2);
}
