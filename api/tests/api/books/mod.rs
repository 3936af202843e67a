//! The books as a whole: audited, and exported to programs that add them up again.

mod audit;
pub mod bookkeepers;
mod journal;

use serde_json::json;
use tarn_api::app::money::wallet;
use tarn_billing::account::AccountKind;
use tarn_billing::grant::{Grant, GrantKind, GrantTerms};
use tarn_billing::money::Micros;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{GrantId, TenantId, TransferId};
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::{Page, TenantScope};

use crate::fleet::world::World;
use crate::harness::{Api, Person};

/// What someone wrote who would rather be a journal.
pub const HOSTILE: &str = "a \"quoted\" memo; | \\\" \\ } date:2020-13-99\r\n2026-01-01 * injected\n    Income:Revenue-Gpu  1 CNY\u{2028}\
                           = 7 CNY\u{0}\u{85}\t中文 🦀 \u{202e}drawkcab";

/// Two tenants, several instances at once, a price that changes, credit that expires, a charge that is given back, a hold that is
/// pending, and words that nobody should have let in.
pub async fn busy(api: Api) -> World {
    let mut world = World::with_host(api, 8).await;
    let rich = topped_up(&world).await;
    let poor = world.person().await;
    promise(&world, &poor).await;
    let pool = world.create(&rich, "pool-96").await;
    world.pass(1).await;
    let card = world.create(&poor, "card-24").await;
    world.pass(1).await;
    world.pass(600).await;
    let from = jiff::Timestamp::from_microsecond(world.now().plus_seconds(301).as_micros()).unwrap();
    let price = json!({
        "offer_id": "pool-96", "price_per_hour": {"amount": "4.81", "currency": "CNY"}, "effective_from": from.to_string(),
    });
    world.api.change_price(&world.operator, price).await.is(201);
    for _ in 0..4 {
        world.pass(157).await;
    }
    world.stop(&rich, &pool).await;
    world.pass(2).await;
    world.pass(3).await;
    let path = format!("/v1/instances/{pool}/actions/start");
    world.api.post_once(&rich.access, &path, "again", json!({})).await.is(202);
    for _ in 0..5 {
        world.pass(61).await;
    }
    // The promise has expired by then.
    world.pass(3_600).await;
    world.terminate(&rich, &pool).await;
    world.terminate(&poor, &card).await;
    for _ in 0..3 {
        world.pass(7).await;
    }
    give_back(&world, &rich).await;
    world.create(&rich, "pool-96").await;
    world
}

async fn topped_up(world: &World) -> Person {
    let person = world.api.person().await;
    for (key, amount) in [("first", "30.00"), ("second", "20.01")] {
        let body = json!({"amount": {"amount": amount, "currency": "CNY"}});
        world.api.post_once(&person.access, "/v1/wallet/topups", key, body).await.is(201);
    }
    let scopes = ["offers:read", "instances:read", "instances:write", "wallet:read"];
    let access = world.api.key(&person, &scopes).await;
    Person { access, ..person }
}

pub fn scope(person: &Person) -> TenantScope {
    TenantScope::proven(person.tenant_id.parse::<TenantId>().unwrap())
}

/// Credit for an hour, with a memo that no form would have taken.
async fn promise(world: &World, person: &Person) {
    let now = world.now();
    let grant = Grant::new(GrantTerms {
        id: GrantId::new(now, 77),
        tenant_id: person.tenant_id.parse().unwrap(),
        kind: GrantKind::Promo,
        priority: 0,
        amount: Micros::new(8_000_001),
        granted_at: now,
        expires_at: Some(now.plus_seconds(3_600)),
    });
    let (scope, grant) = (scope(person), grant.unwrap());
    // PostgreSQL keeps no NUL in a text.
    let memo = HOSTILE.replace('\u{0}', "");
    let given = world
        .api
        .server
        .state()
        .store
        .write(move |tx| Box::pin(async move { wallet::fund(tx, &scope, &grant, None, &memo).await }));
    assert!(given.await.unwrap());
}

/// Reverses half of a tenant's first charge, as an operator would.
async fn give_back(world: &World, person: &Person) {
    let (scope, now) = (scope(person), world.now());
    let reversed = world.api.server.state().store.write(move |tx| {
        Box::pin(async move {
            let charges = tx.transfers(&scope, Page::first(1_000)).await?;
            let charge = charges.into_iter().rfind(|transfer| transfer.kind == TransferKind::Usage).unwrap();
            let half = Micros::new(charge.amount_micros.get() / 2);
            let reversal = TransferRow {
                id: TransferId::new(now, 78),
                kind: TransferKind::Reversal,
                debit_account_id: charge.credit_account_id.clone(),
                credit_account_id: charge.debit_account_id.clone(),
                amount_micros: half,
                reverses: Some(charge.id.clone()),
                memo: "half of it back".to_owned(),
                created_at: now,
                ..charge.clone()
            };
            assert_eq!(tx.post_transfer(&reversal).await?, Posting::Posted);
            let grant = tx.grant(&scope, charge.grant_id.as_ref().unwrap()).await?.unwrap();
            let after = Micros::new(grant.remaining_micros.get() + half.get());
            assert!(tx.set_grant_remaining(&scope, &grant.id, grant.remaining_micros, after).await?);
            Ok::<_, tarn_store::StoreError>(())
        })
    });
    reversed.await.unwrap();
}

/// Every account that there is, by the name that a journal gives it, with what it holds.
pub async fn held(world: &World) -> std::collections::BTreeMap<String, Micros> {
    let read = world.api.server.state().store.snapshot(|tx| {
        Box::pin(async move {
            let until = tarn_protocol::units::Timestamp::from_micros(i64::MAX);
            let sums = tx.journal_other_sums(until).await?;
            let accounts = tx.audit_accounts("", 1_000).await?;
            Ok::<_, tarn_store::StoreError>((accounts, sums))
        })
    });
    let (accounts, sums) = read.await.unwrap();
    let named = accounts.into_iter().map(|account| {
        let summed = sums.iter().find(|sum| sum.account_id == account.id).map(|sum| sum.sum_micros);
        let held = account.posted_micros.or(summed).unwrap_or(Micros::ZERO);
        assert!(account.kind.wallet() || account.posted_micros.is_none());
        let name = tarn_api::app::books::journal::account_name(account.kind, account.tenant_id.as_ref());
        (name, held)
    });
    let held: std::collections::BTreeMap<_, _> = named.collect();
    assert!(held.len() > AccountKind::ALL.len());
    held
}
