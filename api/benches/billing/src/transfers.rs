//! Tarn's own ledger: charges from tenants' wallets to Tarn's revenue.

use std::sync::Arc;

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::transfer::TransferKind;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_store::Store;

use crate::fixtures::{Done, change, funded_tenant, system, transfer_row};
use crate::load::{Table, closed_loop};

const WALLETS: usize = 64;
const FUNDS: i64 = 1_000_000_000_000;

pub async fn all(table: &mut Table, engine: &str, store: &Store) {
    let mut wallets = Vec::new();
    for _ in 0..WALLETS {
        wallets.push(funded_tenant(store, FUNDS).await.1);
    }
    let wallets = Arc::new(wallets);
    let revenue = [AccountKind::RevenueGpu];
    for batch in [1, 100, 200] {
        let name = format!("tarn {engine}, 1 client, {batch} a commit");
        run(table, name, store, &wallets, &revenue, 1, batch).await;
    }
    settlement_batches(table, engine, store, &wallets).await;
    for clients in [8, 32, 64] {
        let name = format!("tarn {engine}, {clients} clients, 1 a call");
        run(table, name, store, &wallets, &revenue, clients, 1).await;
    }
    let spread = [AccountKind::RevenueGpu, AccountKind::RevenueStorage];
    let name = format!("tarn {engine}, 8 clients to {} accounts of Tarn's", spread.len());
    run(table, name, store, &wallets, &spread, 8, 1).await;
    let one = Arc::new(vec![wallets[0].clone()]);
    run(table, format!("tarn {engine}, 8 clients from one wallet"), store, &one, &revenue, 8, 1).await;
}

/// What a commit of the settling worker posts: the charges of 50 tenants, four each.
async fn settlement_batches(table: &mut Table, engine: &str, store: &Store, wallets: &Arc<Vec<Account>>) {
    const TENANTS: usize = 50;
    const CHARGES: usize = 4;
    let (store, wallets) = (store.clone(), Arc::clone(wallets));
    let load = closed_loop(1, TENANTS * CHARGES, move |_, _| {
        let target = system(AccountKind::RevenueGpu);
        let charge = |wallet| transfer_row(TransferKind::Usage, wallet, &target, 1);
        let charges = wallets.iter().take(TENANTS).map(|wallet| (0..CHARGES).map(|_| charge(wallet)).collect());
        let (store, charges) = (store.clone(), charges.collect::<Vec<Vec<TransferRow>>>());
        async move {
            change!(store, tx => {
                for charges in &charges {
                    assert!(tx.post_charges(charges).await?);
                }
                Done::Ok(())
            })
            .await
            .unwrap();
        }
    });
    table.row(format!("tarn {engine}, settlement batches of {}", TENANTS * CHARGES), load.await);
}

async fn run(
    table: &mut Table,
    name: String,
    store: &Store,
    wallets: &Arc<Vec<Account>>,
    to: &[AccountKind],
    clients: usize,
    batch: usize,
) {
    let (store, wallets, to) = (store.clone(), Arc::clone(wallets), to.to_vec());
    let load = closed_loop(clients, batch, move |client, n| {
        let wallet = wallets[client % wallets.len()].clone();
        let target = system(to[(client + n) % to.len()]);
        post(
            store.clone(),
            (0..batch).map(|_| transfer_row(TransferKind::Usage, &wallet, &target, 1)).collect(),
        )
    });
    table.row(name, load.await);
}

async fn post(store: Store, transfers: Vec<TransferRow>) {
    change!(store, tx => {
        for transfer in &transfers {
            assert_eq!(tx.post_transfer(transfer).await?, Posting::Posted);
        }
        Done::Ok(())
    })
    .await
    .unwrap();
}
