//! A host that speaks the agent's protocol in real time, and remembers every piece of evidence it ever gave.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tarn_api::clock::{Clock, SystemClock};
use tarn_protocol::control::{Desired, JoinRequest, JoinResponse, Phase, ReportAccepted, UsageEvidence};
use tarn_protocol::units::{BootId, MonoMillis, Timestamp};

use super::Dice;
use crate::fleet::agent::FakeAgent;
use crate::fleet::hardware::Wiring;

const CARDS: u32 = 8;
/// Between two turns: within the rate that one credential is allowed.
const TURN: Duration = Duration::from_millis(110);

pub struct ScriptedHost {
    agent: FakeAgent,
    clock: SystemClock,
    http: reqwest::Client,
    url: String,
    dice: Dice,
    pub memory: Memory,
}

/// All that the oracle takes from a host.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// By number; each was acknowledged by the time a world ends.
    pub evidence: BTreeMap<u64, UsageEvidence>,
    /// When each run was first ready, on the host's clock and on the wall, by instance and generation.
    pub ready: BTreeMap<(String, i64), (MonoMillis, Timestamp)>,
}

impl ScriptedHost {
    pub async fn join(url: &str, token: &str, seed: u64) -> Self {
        let clock = SystemClock::default();
        let address: IpAddr = "127.9.9.9".parse().unwrap();
        let http = reqwest::Client::builder().local_address(address).build().unwrap();
        let request = JoinRequest {
            token: token.to_owned(),
            name: "chaos-host".to_owned(),
            boot_id: BootId::new("boot-1-1"),
            agent_version: "0.1.0".into(),
            nonce: "chaos".into(),
        };
        let sent = http.post(format!("{url}/agent/v1/join")).json(&request).send().await.unwrap();
        let joined: JoinResponse = sent.json().await.unwrap();
        let agent = FakeAgent::joined(joined, 1, CARDS, Wiring::BridgedPairs, clock.now());
        let (url, dice) = (url.to_owned(), Dice::new(seed));
        Self { agent, clock, http, url, dice, memory: Memory::default() }
    }

    /// Pulls, obeys, reports; whether both were answered.
    pub async fn turn(&mut self) -> bool {
        let wanted = self.http.get(format!("{}/agent/v1/desired?after=-1&wait_seconds=0", self.url));
        let Some(desired) = self.answer::<Desired>(wanted).await else { return false };
        // After the answer: nothing is ready before its start was heard of.
        let now = self.clock.now();
        self.agent.set_now(now);
        // Now and then a part of what ran is excused, and not to be billed.
        self.agent.excuse_ms = if self.dice.roll().is_multiple_of(5) { self.dice.between(1, 90) } else { 0 };
        self.agent.obey(&desired);
        let report = self.agent.next_report();
        for evidence in &report.usage {
            let known = self.memory.evidence.insert(evidence.seq.get(), evidence.clone());
            assert!(known.is_none_or(|known| known == *evidence), "evidence never changes");
        }
        for seen in &report.instances {
            if let Phase::Running { ready_mono_ms } = seen.phase {
                let run = (seen.instance_id.to_string(), seen.generation.get());
                self.memory.ready.entry(run).or_insert((ready_mono_ms, now));
            }
        }
        let sent = self.http.post(format!("{}/agent/v1/report", self.url)).json(&report);
        let Some(accepted) = self.answer::<ReportAccepted>(sent).await else { return false };
        self.agent.acknowledged(&accepted);
        true
    }

    async fn answer<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> Option<T> {
        let answer = request.bearer_auth(&self.agent.credential).send().await.ok()?;
        if answer.status() == 200 { answer.json().await.ok() } else { None }
    }

    /// Whether nothing is left on it, and nothing of its evidence is unacknowledged.
    pub fn idle(&self) -> bool {
        self.agent.instances().is_empty() && self.agent.owes_nothing()
    }

    /// Turns for ever.
    pub async fn run(mut self, mut over: tokio::sync::watch::Receiver<bool>) -> Memory {
        loop {
            let answered = self.turn().await;
            if *over.borrow_and_update() && answered && self.idle() {
                return self.memory;
            }
            tokio::time::sleep(TURN).await;
        }
    }
}
