//! What the bill must be, from what customers and hosts remember alone.
//!
//! A run is billed from the moment its host says it was ready, by the host's own clock, for as long as the bill says that the control
//! plane's clock ran; within that, for what the host has proven. So many whole seconds, and not one more or less.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tarn_billing::money::Micros;

use super::scripted_host;
use super::shopper::Shopper;

/// Two readings of one machine's clock in whole milliseconds.
const CLOCKS_DIFFER_MICROS: i64 = 2_000;

/// Of one customer: everything that was acknowledged is there, once.
pub async fn holds(shopper: &Shopper, host: &scripted_host::Memory) -> Billed {
    let credited = top_ups_are_there_once(shopper).await;
    // Disks within what is included cost nothing.
    let mut charges = shopper.all("/v1/charges").await;
    charges.retain(|line| line["item"] == "gpu" || amount(&line["amount"]) != Micros::ZERO);
    let mut billed = Billed::default();
    for id in &shopper.memory.instances {
        let mut lines: Vec<&Value> =
            charges.iter().filter(|line| line["instance_id"] == id.as_str()).collect();
        lines.sort_by_key(|line| micros_of(&line["started_at"]));
        let mut told = shopper.all(&format!("/v1/instances/{id}/events")).await;
        told.push(shopper.get(&format!("/v1/instances/{id}/evidence")).await);
        billed.add(instance_is_billed(shopper, host, id, &lines, &told));
    }
    assert_eq!(charges.len(), billed.segments, "a charge for what nobody rented: {charges:?}");
    let wallet = shopper.get("/v1/wallet").await;
    let held = amount(&wallet["cash"]).get() + amount(&wallet["credit"]).get();
    let trial = 10_000_000;
    assert_eq!(held, trial + credited - billed.micros, "{wallet}");
    billed
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Billed {
    pub segments: usize,
    pub seconds: i64,
    pub micros: i64,
}

impl Billed {
    pub fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.seconds += other.seconds;
        self.micros += other.micros;
    }
}

async fn top_ups_are_there_once(shopper: &Shopper) -> i64 {
    let mut told: Vec<(String, Micros)> = shopper.memory.top_ups.clone();
    let listed = shopper.all("/v1/wallet/topups").await;
    let mut found: Vec<(String, Micros)> = listed
        .iter()
        .map(|item| (item["transfer_id"].as_str().unwrap().to_owned(), amount(&item["amount"])))
        .collect();
    told.sort();
    found.sort();
    assert_eq!(found, told, "top-ups that were answered, and those that are there");
    told.iter().map(|(_, micros)| micros.get()).sum()
}

/// `told` is the instance's history and what proves its seconds, for whoever has to find out what went wrong.
fn instance_is_billed(
    shopper: &Shopper,
    host: &scripted_host::Memory,
    id: &str,
    lines: &[&Value],
    told: &[Value],
) -> Billed {
    let runs = || host.ready.range((id.to_owned(), i64::MIN)..=(id.to_owned(), i64::MAX)).rev();
    // Nothing ever fails on this host, so nothing is run but what somebody started.
    let started = 1 + shopper.memory.starts.get(id).copied().unwrap_or_default();
    assert!(
        runs().count() <= started,
        "{id} was started {started} times: {:?}: {lines:?}",
        runs().collect::<Vec<_>>()
    );
    let mut billed = Billed::default();
    // Where the last line began on the control plane's clock and on the host's, of which run.
    let mut last: Option<(i64, u64, i64)> = None;
    let mut used = BTreeSet::new();
    for (place, line) in lines.iter().enumerate() {
        let (started, ended) = (micros_of(&line["started_at"]), micros_of(&line["ended_at"]));
        if started == ended {
            // A run that a report first showed after its stop was accepted.
            assert_eq!((&line["seconds"], amount(&line["amount"]).get()), (&Value::from(0), 0), "{line}");
            billed.segments += 1;
            continue;
        }
        let continues = place > 0 && lines[place - 1]["close_reason"] == "price_changed";
        let (anchor_ms, generation) = if let Some((began, began_ms, generation)) = last.filter(|_| continues)
        {
            (began_ms + millis(started - began), generation)
        } else {
            // The run that was the newest when the line began; some runs were stopped before a report showed them, and have none.
            let run = runs().find(|(_, (_, at))| at.as_micros() <= started + CLOCKS_DIFFER_MICROS);
            let ((_, generation), (ready, _)) =
                run.unwrap_or_else(|| panic!("a line for no run of {id}: {lines:?}"));
            let known = runs().collect::<Vec<_>>();
            assert!(
                used.insert(*generation),
                "run {generation} of {id} is billed twice: {lines:?} of {known:?}: {told:?}"
            );
            (ready.get(), *generation)
        };
        let window = (anchor_ms, anchor_ms + millis(ended - started));
        let spans = spans(host, id, generation);
        let seconds = proven_millis(&spans, window) / 1000;
        assert_eq!(
            line["seconds"], seconds,
            "run {generation} of {id}: {line} in {window:?} of {spans:?}: {told:?}"
        );
        let rate = i128::from(amount(&line["rate_per_hour"]).get());
        let owed = i64::try_from(rate * i128::from(seconds) / 3600).unwrap();
        assert_eq!(amount(&line["amount"]).get(), owed, "{line}");
        last = Some((started, anchor_ms, generation));
        billed.add(Billed { segments: 1, seconds: i64::try_from(seconds).unwrap(), micros: owed });
    }
    let seen = shopper.memory.ran.iter().filter(|(instance, _)| instance == id).count();
    let billed_runs = lines.iter().filter(|line| line["close_reason"] != "price_changed").count();
    assert!(billed_runs >= seen, "{id} was seen running {seen} times and billed {billed_runs} times");
    billed
}

/// Evidence of one run, less what was excused at its end.
fn spans(host: &scripted_host::Memory, id: &str, generation: i64) -> Vec<(u64, u64)> {
    let of_run = host
        .evidence
        .values()
        .filter(|evidence| evidence.instance_id.as_str() == id && evidence.generation.get() == generation);
    of_run
        .map(|evidence| (evidence.from_mono_ms.get(), evidence.to_mono_ms.get() - evidence.excused_ms))
        .collect()
}

/// The host gives intervals that never overlap, so they are simply added up.
fn proven_millis(spans: &[(u64, u64)], (from, to): (u64, u64)) -> u64 {
    spans.iter().map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum()
}

fn millis(micros: i64) -> u64 {
    u64::try_from(micros / 1000).unwrap()
}

fn amount(money: &Value) -> Micros {
    money["amount"].as_str().unwrap_or_else(|| panic!("{money}")).parse().unwrap()
}

fn micros_of(instant: &Value) -> i64 {
    let text = instant.as_str().unwrap_or_else(|| panic!("{instant} is no instant"));
    text.parse::<jiff::Timestamp>().unwrap().as_microsecond()
}

/// Ids of a customer's top-ups, each of which a journal has exactly once.
pub fn told_once(journal: &str, ids: &BTreeMap<String, Micros>) {
    for id in ids.keys() {
        assert_eq!(journal.matches(&format!("({id})")).count(), 1, "{id}");
    }
}
