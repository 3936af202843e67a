//! A process killed at any moment: what it acknowledged is there, and nothing is half there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use tarn_billing::account::AccountKind;
use tarn_billing::transfer::TransferKind;
use tarn_rows::Page;
use tarn_rows::TenantScope;
use tarn_rows::ledger::Posting;
use tarn_store::Store;

use crate::fixtures::*;

on_both_engines! {
    what_was_acknowledged_survives_kill_9,
}

const URL: &str = "TARN_STORE_CRASH_URL";
const TENANT: &str = "TARN_STORE_CRASH_TENANT";
/// Acknowledged transfers before the kill.
const ACKNOWLEDGED: usize = 40;

async fn what_was_acknowledged_survives_kill_9(store: Store, url: String) {
    let (scope, wallet) = funded_tenant(&store, 1_000_000).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_posts_until_it_is_killed", "--nocapture"])
        .env(URL, &url)
        .env(TENANT, scope.as_str())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged: Vec<String> =
        lines.filter_map(|line| Some(line.strip_prefix("posted ")?.to_owned())).take(ACKNOWLEDGED).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(acknowledged.len(), ACKNOWLEDGED);
    // A store opened anew, as the next process would.
    let store = Store::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let mut reader = store.reader().await.unwrap();
    for id in &acknowledged {
        assert!(
            reader.transfer(&id.parse().unwrap()).await.unwrap().is_some(),
            "{id} was acknowledged and lost"
        );
    }
    let audit = reader.ledger_audit().await.unwrap();
    assert_eq!((audit.unbalanced_transfers, audit.wrong_wallets), (0, 0));
    let balance = reader.balance(&scope, wallet.id()).await.unwrap().unwrap();
    let lines = reader.ledger_lines(&scope, Page::first(100_000)).await.unwrap();
    assert_eq!(balance.posted_micros.get(), 1_000_000 - i64::try_from(lines.len() - 1).unwrap());
    drop(reader);
    store.close().await;
}

/// Not a test of its own: the process that the test above starts and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "how the parent tells its child what to do")]
async fn child_posts_until_it_is_killed() {
    let (Ok(url), Ok(tenant)) = (std::env::var(URL), std::env::var(TENANT)) else { return };
    let store = Store::connect(&url).await.unwrap();
    let scope = TenantScope::proven(tenant.parse().unwrap());
    let wallet = tarn_billing::account::Account::wallet_promo(scope.tenant_id());
    // Ids of the parent's fixtures are not to be met again.
    for _ in 0..1_000 {
        number();
    }
    loop {
        let spend = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 1);
        let id = spend.id.clone();
        let posting = change!(store, tx => tx.post_transfer(&spend).await).await.unwrap();
        assert_eq!(posting, Posting::Posted);
        writeln!(std::io::stdout(), "posted {id}").unwrap();
    }
}
