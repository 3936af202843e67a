//! Many writers at once: each has its own fate, and on SQLite they share commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_protocol::ids::HostId;
use tarn_store::{Store, StoreError};
use tokio::sync::Notify;

use crate::fixtures::*;

on_both_engines! {
    one_that_fails_or_panics_takes_nobody_with_it,
}

const WRITERS: usize = 40;

/// One writer that holds the database until it is let go, so that everyone else waits behind it.
async fn behind_one_that_waits(store: &Store, crowd: impl FnOnce()) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (first, host) = (store.clone(), host_row());
    let holder = {
        let (started, go, waited) = (started.clone(), go.clone(), Arc::new(AtomicBool::new(false)));
        tokio::spawn(async move {
            change!(first, tx => {
                tx.insert_host(&host).await?;
                // Once: work may run again.
                if !waited.swap(true, Ordering::Relaxed) {
                    started.notify_one();
                    go.notified().await;
                }
                Done::Ok(())
            })
            .await
        })
    };
    started.notified().await;
    crowd();
    // Everyone gets to the writer's door; who comes later merely joins a later group.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    go.notify_one();
    holder.await.unwrap().unwrap();
}

async fn there(store: &Store, host: &HostId) -> bool {
    store.reader().await.unwrap().host(host).await.unwrap().is_some()
}

async fn one_that_fails_or_panics_takes_nobody_with_it(store: Store, _url: String) {
    let mut writers = vec![];
    behind_one_that_waits(&store, || {
        for number in 0..WRITERS {
            let (store, host) = (store.clone(), host_row());
            let (id, inserted) = (host.id.clone(), host);
            let task = tokio::spawn(async move {
                change!(store, tx => {
                    tx.insert_host(&inserted).await?;
                    assert_ne!(number % 10, 7, "on purpose");
                    if number % 10 == 3 {
                        // A statement that the engine refuses, and an error of the work's own.
                        tx.insert_host(&inserted).await?;
                    }
                    if number % 10 == 5 { Err(StoreError::Ended) } else { Ok(()) }
                })
                .await
            });
            writers.push((number, id, task));
        }
    })
    .await;
    for (number, id, task) in writers {
        match (number % 10, task.await) {
            (7, ended) => assert!(ended.unwrap_err().is_panic(), "{number}"),
            (3, done) => assert!(matches!(done.unwrap(), Err(StoreError::Unique(_))), "{number}"),
            (5, done) => assert!(matches!(done.unwrap(), Err(StoreError::Ended)), "{number}"),
            (_, done) => done.unwrap().unwrap(),
        }
        assert_eq!(there(&store, &id).await, ![3, 5, 7].contains(&(number % 10)), "{number}");
    }
}

/// Bytes that `WRITERS` commits of one row each append to the write-ahead log: every commit writes the pages it touched anew.
async fn log_growth(store: &Store, url: &str, at_once: bool) -> u64 {
    let log = format!("{}-wal", url.trim_start_matches("sqlite://"));
    let size = || std::fs::metadata(&log).map_or(0, |file| file.len());
    let before = size();
    let insert = |store: &Store| {
        let (store, host) = (store.clone(), host_row());
        tokio::spawn(async move { change!(store, tx => tx.insert_host(&host).await).await.unwrap() })
    };
    let mut tasks = vec![];
    if at_once {
        behind_one_that_waits(store, || tasks.extend((0..WRITERS).map(|_| insert(store)))).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    if !at_once {
        for _ in 0..WRITERS {
            insert(store).await.unwrap();
        }
    }
    size() - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_that_wait_for_each_other_share_a_commit_on_sqlite() {
    let fresh = crate::database::Fresh::sqlite().await;
    let one_by_one = log_growth(&fresh.store, &fresh.url, false).await;
    let at_once = log_growth(&fresh.store, &fresh.url, true).await;
    assert!(at_once * 3 < one_by_one, "{at_once} bytes for all at once, {one_by_one} one by one");
    fresh.remove().await;
}
