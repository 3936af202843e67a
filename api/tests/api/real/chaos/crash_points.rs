//! M8: death at each place where money is written, and recovery.
//!
//! One world for all places: somebody's instance runs throughout, so that reports, evidence and settlements are always on their way;
//! for each place somebody new tops up, rents, runs and stops while the armed process serves, until it has died there. What they
//! were not answered they send to the next process.

use serde_json::json;
use tarn_api::failpoint;

use super::super::eventually;
use super::campaign::{Engine, World};
use super::shopper::Shopper;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_death_at_every_place_where_money_is_written_recovers_on_sqlite() {
    dies_everywhere(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_death_at_every_place_where_money_is_written_recovers_on_postgres() {
    dies_everywhere(Engine::Postgres).await;
}

async fn dies_everywhere(engine: Engine) {
    let mut world = World::quiet(engine, 8).await;
    let url = world.control_plane.url();
    let mut throughout = Shopper::sign_up(&url, 200, 8).await;
    let kept = throughout.rent().await.unwrap();
    assert!(throughout.runs(&kept, 200).await);
    let mut shoppers = Vec::new();
    for (number, place) in (1..).zip(failpoint::ALL) {
        if *place == "split.ended" {
            raise_the_price(&world).await;
        }
        world.control_plane.kill();
        world.lives_again_armed(place).await;
        let errand = tokio::spawn({
            let url = url.clone();
            async move { errand(&url, number).await }
        });
        world.control_plane.dies(place).await;
        world.add_up().await;
        world.lives_again(&[]).await;
        shoppers.push(errand.await.unwrap());
    }
    throughout.end(&kept).await;
    shoppers.push(throughout);
    let billed = world.compare(shoppers).await;
    assert!(billed.segments > failpoint::ALL.len(), "{billed:?}");
}

/// A new price, for something to be split at; previewed as often as something changes meanwhile.
async fn raise_the_price(world: &World) {
    eventually("a new price", 20, async || {
        let mut price =
            json!({"offer_id": "card-24", "price_per_hour": {"amount": "7.77", "currency": "CNY"}});
        let preview = world.operator.post("/v1/admin/price-book/preview", price.clone()).await.is(200);
        price["fingerprint"] = preview["fingerprint"].clone();
        let appended = world.operator.post("/v1/admin/price-book", price).await;
        assert!(matches!(appended.status, 201 | 409), "{appended:?}");
        (appended.status == 201).then_some(())
    })
    .await;
}

async fn errand(url: &str, number: u8) -> Shopper {
    let mut shopper = Shopper::sign_up(url, number, u64::from(number)).await;
    shopper.top_up().await;
    let id = shopper.rent().await.expect("cards are free");
    assert!(shopper.runs(&id, 1_000).await);
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    shopper.stop(&id).await;
    shopper.end(&id).await;
    shopper
}
