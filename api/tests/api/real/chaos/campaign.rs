//! The campaign: worlds of rounds, each round one death.

use std::collections::BTreeMap;

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::super::control_plane::ControlPlane;
use super::super::customer::Customer;
use super::super::eventually;
use super::books::Books;
use super::oracle::{self, Billed};
use super::scripted_host::{Memory, ScriptedHost};
use super::shopper::Shopper;
use super::{Dice, ROUNDS, ROUNDS_OF_A_WORLD, chosen};
use crate::database::Fresh;

const SHOPPERS: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_nothing_acknowledged_is_lost_or_doubled_by_kill_9_on_sqlite() {
    run(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_nothing_acknowledged_is_lost_or_doubled_by_kill_9_on_postgres() {
    run(Engine::Postgres).await;
}

async fn run(engine: Engine) {
    let rounds = chosen("TARN_CHAOS_ROUNDS").map_or(ROUNDS, |rounds| u32::try_from(rounds).unwrap());
    let seed = chosen("TARN_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("chaos on {engine:?}: {rounds} rounds from seed {seed}");
    let mut dice = Dice::new(seed);
    let (mut done, mut billed) = (0, Billed::default());
    while done < rounds {
        let many = ROUNDS_OF_A_WORLD.min(rounds - done);
        let mut world = World::begin(engine, dice.roll()).await;
        for round in 0..many {
            let said = world.round().await;
            println!("chaos on {engine:?}: round {} of {rounds}, {said}", done + round + 1);
        }
        billed.add(world.end().await);
        done += many;
    }
    println!(
        "chaos on {engine:?}: {rounds} rounds from seed {seed}: {} charges of {} s and {} micros, none lost, none doubled",
        billed.segments, billed.seconds, billed.micros
    );
    assert!(billed.seconds > 0, "nothing was billed, so nothing was tried");
}

/// One database under load.
pub struct World {
    pub control_plane: ControlPlane,
    pub operator: Customer,
    dice: Dice,
    over: watch::Sender<bool>,
    host_over: watch::Sender<bool>,
    host: JoinHandle<Memory>,
    shoppers: Vec<JoinHandle<Shopper>>,
}

impl World {
    /// A control plane, a host that sells eight cards, and customers who shop.
    pub async fn begin(engine: Engine, seed: u64) -> Self {
        let mut world = Self::quiet(engine, seed).await;
        let url = world.control_plane.url();
        // All but one are there before the first death; that one signs up under fire.
        let mut known = Vec::new();
        for number in 1..SHOPPERS {
            known.push(Shopper::sign_up(&url, number, world.dice.roll()).await);
        }
        for shopper in known {
            let over = world.over.subscribe();
            world.shoppers.push(tokio::spawn(shopper.shop(over)));
        }
        let (seed, over) = (world.dice.roll(), world.over.subscribe());
        world
            .shoppers
            .push(tokio::spawn(async move { Shopper::sign_up(&url, SHOPPERS, seed).await.shop(over).await }));
        world
    }

    /// The same without customers.
    pub async fn quiet(engine: Engine, seed: u64) -> Self {
        let database_url = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => Some(Fresh::empty_postgres().await),
        };
        let control_plane = ControlPlane::apart_on(database_url).await;
        let operator = control_plane.operator().await;
        let made = operator.post("/v1/admin/join-tokens", json!({"region": "local"})).await.is(201);
        let mut host = ScriptedHost::join(&control_plane.url(), made["token"].as_str().unwrap(), seed).await;
        eventually("eight cards on offer", 30, async || {
            host.turn().await;
            let offer = operator.get("/v1/offers/card-24").await;
            (offer["availability"]["count"] == 8).then_some(())
        })
        .await;
        let (over, host_over) = (watch::channel(false).0, watch::channel(false).0);
        let host = tokio::spawn(host.run(host_over.subscribe()));
        Self { control_plane, operator, dice: Dice::new(seed), over, host_over, host, shoppers: Vec::new() }
    }

    /// Dies at a moment of the seed's choosing, is audited, and lives again; what was done.
    async fn round(&mut self) -> String {
        let lived = self.dice.millis(100, 2_000);
        tokio::time::sleep(lived).await;
        self.control_plane.kill();
        let said = self.add_up().await;
        if self.dice.roll().is_multiple_of(8) {
            // A second death, while it comes up.
            self.control_plane.begin_again(&[]);
            tokio::time::sleep(self.dice.millis(0, 400)).await;
            self.control_plane.kill();
        }
        self.lives_again(&[]).await;
        format!("lived {} ms: {said}", lived.as_millis())
    }

    /// What the audit says of the books of a process that is dead.
    pub async fn add_up(&self) -> String {
        Books::of(&self.control_plane).add_up().await.0
    }

    /// The next process, which finds the claims of the dead one expired, as it would some seconds later.
    pub async fn lives_again(&mut self, more: &[&str]) {
        self.control_plane.claims_expire().await;
        self.control_plane.begin_again(more);
        self.control_plane.answers().await;
    }

    /// The same with one place armed at which it dies, perhaps before it answers anybody.
    pub async fn lives_again_armed(&mut self, place: &str) {
        self.control_plane.claims_expire().await;
        self.control_plane.begin_again(&["--failpoint", place]);
    }

    /// Ends and settles everything, and compares.
    async fn end(mut self) -> Billed {
        self.over.send_replace(true);
        let mut shoppers = Vec::new();
        for shopper in std::mem::take(&mut self.shoppers) {
            shoppers.push(shopper.await.unwrap());
        }
        self.compare(shoppers).await
    }

    /// The bill against what these customers and the host remember.
    pub async fn compare(mut self, shoppers: Vec<Shopper>) -> Billed {
        self.host_over.send_replace(true);
        let memory = self.host.await.unwrap();
        let operator = self.operator.clone();
        eventually("everything proven to be settled", 60, async || {
            let got = operator.try_send(operator.request("GET", "/v1/admin/audit")).await?;
            let audited = got.is(200);
            assert_eq!(audited["consistent"], true, "{audited}");
            (audited["audited"]["unsettled_seconds"] == 0).then_some(())
        })
        .await;
        let mut billed = Billed::default();
        for shopper in &shoppers {
            billed.add(oracle::holds(shopper, &memory).await);
        }
        self.control_plane.kill();
        let (_, journal) = Books::of(&self.control_plane).add_up().await;
        for shopper in &shoppers {
            oracle::told_once(&journal, &shopper.memory.top_ups.iter().cloned().collect::<BTreeMap<_, _>>());
        }
        billed
    }
}
