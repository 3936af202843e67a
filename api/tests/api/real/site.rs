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
        let url = control_plane.url();
        let site = Self::with(control_plane, Host::new(), &url).await;
        site.both_pools_are_free().await;
        site
    }

    /// The same with this host, whose agent finds the control plane at `url`; what it sells is not known yet.
    pub async fn with(control_plane: ControlPlane, mut host: Host, url: &str) -> Self {
        let operator = control_plane.operator().await;
        let customer = control_plane.customer("customer").await;
        let made = operator.post("/v1/admin/join-tokens", json!({"region": "local"})).await.is(201);
        host.start_agent(url, made["token"].as_str(), &[]);
        Self { host, control_plane, customer, operator }
    }

    pub async fn both_pools_are_free(&self) {
        eventually("two Pool-96 on offer", 60, async || {
            let offer = self.customer.get("/v1/offers/pool-96").await;
            (offer["availability"]["count"] == 2).then_some(())
        })
        .await;
    }

    /// Kinds of open alerts.
    pub async fn alerts(&self) -> Vec<String> {
        let page = self.operator.get("/v1/admin/alerts?limit=100").await;
        let open = page["items"].as_array().unwrap().iter().filter(|alert| alert["cleared_at"].is_null());
        open.map(|alert| alert["kind"].as_str().unwrap().to_owned()).collect()
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
