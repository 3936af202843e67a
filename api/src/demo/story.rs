//! The story: what a customer does, step by step, each step checked by what the API answers.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::facts::Facts;
use super::host::Agent;
use super::{DemoError, bill, screen};
use crate::clock::Clock;
use crate::entropy::Entropy;

const OFFER: &str = "pool-96";
const POLL: Duration = Duration::from_millis(200);
const CERTIFIED_SECONDS: u64 = 120;
const READY_SECONDS: u64 = 60;
const PROGRAM_SECONDS: u64 = 120;
const SETTLED_SECONDS: u64 = 60;
/// How long the instance runs at least, so that there are whole seconds to bill.
const RUN_MICROS_MIN: i64 = 3_000_000;

/// Who tells the story, and with what.
pub(super) struct Teller<'a> {
    pub customer: Client,
    pub artefacts: &'a Path,
    pub clock: &'a dyn Clock,
    pub entropy: &'a dyn Entropy,
    pub agent: &'a mut Agent,
}

/// A running instance and its primary's UUID.
struct Rented {
    instance_id: String,
    primary: String,
}

/// What was seen while the instance ran.
struct Seen {
    witness: Witness,
    donors: u64,
    primary_bytes: u64,
}

/// The one line of JSON that the program inside the instance printed.
struct Witness {
    devices: u64,
    total_bytes: u64,
    allocated_bytes: u64,
    verified_bytes: u64,
}

impl Teller<'_> {
    pub async fn tell(&mut self) -> Result<Facts, DemoError> {
        // An earlier run may have been cut short.
        clear(&self.customer).await?;
        self.look_at_wallet().await?;
        self.wait_for_offer().await?;
        let rented = self.rent().await?;
        let running_at = self.clock.now();
        let seen = self.watch(&rented).await?;
        while self.clock.now().micros_since(running_at) < RUN_MICROS_MIN {
            tokio::time::sleep(POLL).await;
        }
        self.stop(&rented.instance_id).await?;
        self.read_the_bill(&rented, seen).await
    }

    async fn look_at_wallet(&self) -> Result<(), DemoError> {
        let wallet = self.customer.get("/v1/wallet").await?;
        screen::step(&format!("wallet: {} available", wallet.amount("/available")?));
        Ok(())
    }

    /// Repeats `look` until it gives something, the agent is gone, or `seconds` have passed.
    async fn until<T>(
        &mut self,
        what: &str,
        seconds: u64,
        look: impl AsyncFn(&Client) -> Result<Option<T>, DemoError>,
    ) -> Result<T, DemoError> {
        let started = self.clock.now();
        let limit = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        loop {
            if let Some(found) = look(&self.customer).await? {
                return Ok(found);
            }
            self.agent.still_runs()?;
            if self.clock.now().micros_since(started) > limit {
                let hint = self.agent.hint();
                return Err(DemoError::Timeout { what: what.to_owned(), seconds, hint });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn wait_for_offer(&mut self) -> Result<(), DemoError> {
        screen::step("the agent joins, takes inventory and proves every link by data …");
        let offer = self
            .until("the host's links to be certified", CERTIFIED_SECONDS, async |customer| {
                let offer = customer.get(&format!("/v1/offers/{OFFER}")).await?;
                let available = offer.at("/availability/count")?.as_u64().unwrap_or(0);
                Ok((available > 0).then_some(offer))
            })
            .await?;
        let figure = |pointer: &'static str| offer.at(pointer).map(Value::to_string);
        screen::step(&format!(
            "offer {OFFER}: {} cards, {} metered, links {} to {} ({} to {} MB/s read, measured), {}/h, {} available now",
            figure("/cards")?,
            figure("/metered_cards")?,
            offer.text("/links/class_min")?,
            offer.text("/links/class_max")?,
            figure("/links/read_mb_per_second_min")?,
            figure("/links/read_mb_per_second_max")?,
            offer.amount("/price/per_hour")?,
            figure("/availability/count")?,
        ));
        Ok(())
    }

    /// Rents the pool and waits until it runs.
    async fn rent(&mut self) -> Result<Rented, DemoError> {
        let witness = self.artefacts.join("tarn-witness").display().to_string();
        let key = format!("demo-{:032x}", self.entropy.bits());
        let order = json!({
            "offer_id": OFFER,
            "label": "demo",
            "command": [witness, "--smi", "--json", "--hold"],
        });
        let asked = self.clock.now();
        let created = self.customer.post_once("/v1/instances", order, &key).await?;
        let id = created.text("/id")?.to_owned();
        screen::step(&format!("instance {id} requested; an ordinary CUDA program is its command"));
        let path = format!("/v1/instances/{id}/wait?state=running&timeout={READY_SECONDS}");
        let running = self.customer.get(&path).await?;
        let millis = self.clock.now().micros_since(asked) / 1000;
        let primary = running.text("/pool/primary_gpu")?.to_owned();
        let donors = running.list("/pool/peer_gpus")?.len();
        screen::step(&format!(
            "running after {millis} ms: primary {primary} and {donors} donors; only the primary is metered"
        ));
        Ok(Rented { instance_id: id, primary })
    }

    /// Waits for the program's own words, then reads where its bytes are.
    async fn watch(&mut self, rented: &Rented) -> Result<Seen, DemoError> {
        let Rented { instance_id, primary } = rented;
        let logs = format!("/v1/instances/{instance_id}/logs");
        let (text, witness) = self
            .until(
                "the program inside the instance to verify its memory",
                PROGRAM_SECONDS,
                async |customer| {
                    let logs = customer.get(&logs).await?;
                    let text = logs.text("/tail")?.to_owned();
                    Ok(Witness::find(&text)?.map(|witness| (text, witness)))
                },
            )
            .await?;
        screen::step("what the tenant's program sees and does:");
        screen::quote(&text);
        let residency = format!("/v1/instances/{instance_id}/residency");
        let wanted = witness.allocated_bytes;
        let residency = self
            .until("the residency to show the program's bytes", READY_SECONDS, async |customer| {
                let answer = customer.get(&residency).await?;
                let used: u64 = cards(&answer)?.iter().map(|card| card.used_bytes).sum();
                Ok((used >= wanted).then_some(answer))
            })
            .await?;
        let cards = cards(&residency)?;
        screen::step("where the bytes are, card by card:");
        screen::table(&residency_rows(&cards));
        let donors = cards.iter().filter(|card| &card.uuid != primary && card.used_bytes > 0).count();
        let primary_bytes =
            cards.iter().find(|card| &card.uuid == primary).map_or(0, |card| card.capacity_bytes);
        Ok(Seen { witness, donors: u64::try_from(donors).unwrap_or(0), primary_bytes })
    }

    async fn stop(&mut self, id: &str) -> Result<(), DemoError> {
        let key = format!("demo-{:032x}", self.entropy.bits());
        let stopping =
            self.customer.post_once(&format!("/v1/instances/{id}/actions/stop"), json!({}), &key).await?;
        for kept in stopping.list("/keeps_costing")? {
            let kept = Answer { call: stopping.call.clone(), body: kept.clone() };
            screen::step(&format!(
                "what keeps costing while it is stopped: its disk of {} GiB, {} an hour; {} ends it",
                kept.whole("/size_gb")?,
                kept.amount("/per_hour")?,
                kept.text("/ends_with")?
            ));
        }
        self.customer.get(&format!("/v1/instances/{id}/wait?state=stopped&timeout={READY_SECONDS}")).await?;
        screen::step("stopped; the agent proved that nothing is left, and the cards are free again");
        Ok(())
    }

    async fn read_the_bill(&mut self, rented: &Rented, seen: Seen) -> Result<Facts, DemoError> {
        let id = rented.instance_id.clone();
        let bill = self
            .until("the bill to be settled", SETTLED_SECONDS, async |customer| {
                let charges = bill::charges(customer, &id).await?;
                let settled = bill::cards(&charges).next().is_some()
                    && bill::cards(&charges).all(|card| card.ended && card.seconds > 0);
                if !settled {
                    return Ok(None);
                }
                // Evidence of the last second may still arrive: the ledger and the charges must agree before we quote either.
                let ledger = bill::ledger(customer).await?;
                let agreed = bill::paid(&ledger, &charges) == bill::charged(&charges);
                Ok(agreed.then_some((charges, ledger)))
            })
            .await?;
        let (charges, ledger) = bill;
        screen::step("the bill, by segment:");
        screen::table(&bill::charge_rows(&charges));
        screen::step("the ledger:");
        screen::table(&bill::ledger_rows(&ledger));
        self.look_at_wallet().await?;
        Ok(Facts {
            devices: seen.witness.devices,
            total_bytes: seen.witness.total_bytes,
            verified_bytes: seen.witness.verified_bytes,
            allocated_bytes: seen.witness.allocated_bytes,
            donors: seen.donors,
            segments: u64::try_from(bill::cards(&charges).count()).unwrap_or(0),
            billed_micros: bill::paid(&ledger, &charges),
            expected_micros: charges.iter().map(bill::Charge::expected_micros).sum(),
            on_primary: bill::cards(&charges).all(|card| card.card.as_ref() == Some(&rented.primary)),
            primary_bytes: seen.primary_bytes,
        })
    }
}

/// Ends whatever the customer still has running, and waits until the host has proven that nothing is left of it.
pub(super) async fn clear(customer: &Client) -> Result<(), DemoError> {
    let instances = customer.get("/v1/instances?limit=100").await?;
    for instance in instances.list("/items")? {
        let instance = Answer { call: instances.call.clone(), body: instance.clone() };
        let (id, state) = (instance.text("/id")?, instance.text("/state")?);
        if !matches!(state, "stopped" | "failed" | "terminated") {
            screen::step(&format!("ending instance {id}, which is {state}"));
            customer.delete(&format!("/v1/instances/{id}")).await?;
            customer
                .get(&format!("/v1/instances/{id}/wait?state=terminated&timeout={READY_SECONDS}"))
                .await?;
        }
    }
    Ok(())
}

impl Witness {
    /// The program's line of JSON within its output, once it is there.
    fn find(output: &str) -> Result<Option<Self>, DemoError> {
        let Some(document) = output
            .lines()
            .filter(|line| line.starts_with('{'))
            .find_map(|line| serde_json::from_str::<Value>(line).ok())
        else {
            return Ok(None);
        };
        let answer = Answer { call: "the program's own report".to_owned(), body: document };
        let figure = |pointer: &'static str| answer.whole(pointer);
        if figure("/mismatches")? != 0 {
            return Err(DemoError::Untrue(format!("the program found wrong bytes: {}", answer.body)));
        }
        Ok(Some(Self {
            devices: figure("/devices")?,
            total_bytes: figure("/total_bytes")?,
            allocated_bytes: figure("/allocated_bytes")?,
            verified_bytes: figure("/verified_bytes")?,
        }))
    }
}

/// One card of the residency.
struct Card {
    uuid: String,
    role: String,
    used_bytes: u64,
    capacity_bytes: u64,
}

fn cards(residency: &Answer) -> Result<Vec<Card>, DemoError> {
    residency
        .list("/cards")?
        .iter()
        .map(|card| {
            let card = Answer { call: residency.call.clone(), body: card.clone() };
            Ok(Card {
                uuid: card.text("/uuid")?.to_owned(),
                role: card.text("/role")?.to_owned(),
                used_bytes: card.whole("/used_bytes")?,
                capacity_bytes: card.whole("/capacity_bytes")?,
            })
        })
        .collect()
}

fn residency_rows(cards: &[Card]) -> Vec<Vec<String>> {
    let heading = ["card", "role", "used", "of"].map(str::to_owned).to_vec();
    let row = |card: &Card| {
        vec![
            card.uuid.clone(),
            card.role.clone(),
            screen::gib(card.used_bytes),
            screen::gib(card.capacity_bytes),
        ]
    };
    std::iter::once(heading).chain(cards.iter().map(row)).collect()
}
