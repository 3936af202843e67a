//! A control plane with one host of eight cards that has joined and sells two Pool-96, and a customer.

use serde_json::json;

use super::control_plane::ControlPlane;
use super::customer::Customer;
use super::eventually;
use super::host::{Host, artefact};

pub struct Site {
    // Dropped first: what it started goes before its control plane does.
    pub host: Host,
    pub control_plane: ControlPlane,
    pub customer: Customer,
    pub operator: Customer,
}

impl Site {
    pub async fn on(control_plane: ControlPlane) -> Self {
        let operator = control_plane.operator().await;
        let customer = control_plane.customer("customer").await;
        let made = operator.post("/v1/admin/join-tokens", json!({"region": "local"})).await.is(201);
        let mut host = Host::new();
        host.start_agent(&control_plane.url(), made["token"].as_str(), &[]);
        let site = Self { host, control_plane, customer, operator };
        site.both_pools_are_free().await;
        site
    }

    pub async fn both_pools_are_free(&self) {
        eventually("two Pool-96 on offer", 60, async || {
            let offer = self.customer.get("/v1/offers/pool-96").await;
            (offer["availability"]["count"] == 2).then_some(())
        })
        .await;
    }

    /// Starts the agent that was killed, with `more` arguments.
    pub fn start_agent(&mut self, more: &[&str]) {
        self.host.start_agent(&self.control_plane.url(), None, more);
    }
}

/// Fills a little of every card, says so and waits; each start leaves a line in `starts`.
pub fn counted_witness() -> [String; 3] {
    let witness = artefact("tarn-witness");
    let line = format!(
        "echo started >> starts; exec {} --fill-percent 8 --block-gib 2 --json --hold",
        witness.display()
    );
    ["/bin/sh".to_owned(), "-c".to_owned(), line]
}
