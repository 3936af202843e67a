//! PostgreSQL behind a slow line, and callers that stop waiting at every moment of a round trip.
//!
//! sqlx 0.9.0 returns a connection to its pool inside an open transaction when `begin` is cancelled while `BEGIN` is in flight. What
//! then runs on it is acknowledged and lost, or reads an old snapshot for ever. These are the regression tests.

use std::time::Duration;

use tarn_store::Store;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp};

use crate::database::Fresh;
use crate::fixtures::*;

const DELAY: Duration = Duration::from_millis(25);

/// Starts a proxy that holds every packet back for `DELAY`, each way; returns the URL through it.
async fn slow(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxied = format!("{scheme}://{user}@{}/{name}", listener.local_addr().unwrap());
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = TcpStream::connect(&server).await.unwrap().into_split();
            tokio::spawn(pass(from_client, to_server));
            tokio::spawn(pass(from_server, to_client));
        }
    });
    proxied
}

async fn pass(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) {
    let mut packet = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut packet).await {
        tokio::time::sleep(DELAY).await;
        if length == 0 || to.write_all(&packet[..length]).await.is_err() {
            return;
        }
    }
}

/// 5 to 165 ms: from before the connection is checked out to after the transaction ended.
fn deadlines() -> impl Iterator<Item = Duration> {
    (5..=165).step_by(10).map(Duration::from_millis)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancelled_begin_leaves_no_connection_inside_a_transaction() {
    let fresh = Fresh::postgres().await;
    let store = Store::connect(&slow(&fresh.url).await).await.unwrap();
    let mut written = 0;
    for deadline in deadlines() {
        let cancelled = store.snapshot(|tx| Box::pin(async move { Done::Ok(tx.fleet_hosts().await?.len()) }));
        let _ = tokio::time::timeout(deadline, cancelled).await;
        let host = host_row();
        change!(store, tx => tx.insert_host(&host).await).await.unwrap();
        written += 1;
        // A connection that leaked inside the cancelled snapshot would not see the row.
        let mut readers = vec![];
        for _ in 0..4 {
            readers.push(store.reader().await.unwrap());
        }
        for mut reader in readers {
            assert_eq!(reader.fleet_hosts().await.unwrap().len(), written, "after {deadline:?}");
        }
    }
    store.close().await;
    fresh.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_whose_caller_gave_up_is_whole_and_so_is_the_next() {
    let fresh = Fresh::postgres().await;
    let store = Store::connect(&slow(&fresh.url).await).await.unwrap();
    let mut expected = vec![];
    for deadline in deadlines() {
        let (abandoned, next) = (host_row(), host_row());
        expected.extend([abandoned.id.clone(), next.id.clone()]);
        let write = change!(store, tx => tx.insert_host(&abandoned).await);
        let _ = tokio::time::timeout(deadline, write).await;
        change!(store, tx => tx.insert_host(&next).await).await.unwrap();
    }
    // Waits for what still runs.
    store.close().await;
    let hosts = fresh.store.reader().await.unwrap().fleet_hosts().await.unwrap();
    assert_eq!(hosts.into_iter().map(|host| host.id).collect::<Vec<_>>(), expected);
    fresh.remove().await;
}
