//! `doubleentry`: draws from a limited wallet, as Tarn's charges are, one by one and in batches.

use std::sync::Arc;

use doubleentry::store::{SqlStore, Store};
use doubleentry::{
    AccountKind, AccountSpec, Amount, BalanceLimit, Entry, Ledger, LedgerId, MemoSalt, currency::EUR, date,
};

use crate::database::Fresh;
use crate::fixtures::number;
use crate::load::{Table, closed_loop};

pub async fn sqlite(table: &mut Table, batch: usize) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("peer.db").display());
    measure(table, "sqlite", SqlStore::sqlite(&url).await.unwrap(), batch).await;
}

pub async fn postgres(table: &mut Table, batch: usize) {
    let url = Fresh::empty_postgres().await;
    measure(table, "postgres", SqlStore::postgres(&url).await.unwrap(), batch).await;
}

async fn measure<S: Store<2> + Clone + Send + Sync + 'static>(
    table: &mut Table,
    engine: &str,
    store: S,
    batch: usize,
) {
    let ledger = Arc::new(books(store).await);
    let load = closed_loop(1, batch, move |_, _| {
        let ledger = Arc::clone(&ledger);
        async move {
            if batch == 1 {
                ledger.record(draw()).await.unwrap();
            } else {
                ledger.record_batch((0..batch).map(|_| draw())).await.unwrap();
            }
        }
    })
    .await;
    table.row(format!("doubleentry {engine}, 1 client, {batch} a call"), load);
}

async fn books<S: Store<2> + Clone + Send + Sync + 'static>(store: S) -> Ledger<S> {
    let books = Ledger::new(store, LedgerId::new("example.com/bench").unwrap())
        .await
        .unwrap()
        .with_salt_source(|| MemoSalt([1; 16]));
    let on = date!("2026-01-01");
    books.declare_currency(EUR, 2, on).await.unwrap();
    books.open("Assets:Cash", AccountKind::Asset, on).await.unwrap();
    let wallet = AccountSpec::new("Liabilities:Wallet", AccountKind::Liability, on);
    books.register(wallet.limit(BalanceLimit::NoDebitBalance)).await.unwrap();
    books.define_months(2026, 1..=12).await.unwrap();
    let fund = Amount::from_minor(1_000_000_000).unwrap();
    let funding = Entry::new("fund", date!("2026-06-01"));
    books
        .record(funding.debit("Assets:Cash", fund, EUR).credit("Liabilities:Wallet", fund, EUR))
        .await
        .unwrap();
    books
}

fn draw() -> Entry {
    let one = Amount::from_minor(1_00).unwrap();
    Entry::new(format!("draw-{}", number()), date!("2026-06-15"))
        .debit("Liabilities:Wallet", one, EUR)
        .credit("Assets:Cash", one, EUR)
}
