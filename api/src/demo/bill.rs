//! The bill and the ledger as the API gives them, and the amount that the published rule gives for the same seconds.

use super::DemoError;
use super::client::{Answer, Client};

/// One segment's line of the bill.
pub(super) struct Charge {
    pub segment: String,
    /// Its UUID; `None`: this is the disk.
    pub card: Option<String>,
    size_gib: i64,
    pub seconds: i64,
    pub ended: bool,
    rate_micros: i64,
    amount_micros: i64,
    rate: String,
    amount: String,
}

/// One movement of the tenant's money.
pub(super) struct Movement {
    kind: String,
    account: String,
    amount: String,
    amount_micros: i64,
    balance: String,
    segment: Option<String>,
}

impl Charge {
    /// `floor(rate × seconds / 3600)`, computed here and not asked of anyone.
    pub fn expected_micros(&self) -> i64 {
        let exact = i128::from(self.rate_micros) * i128::from(self.seconds);
        i64::try_from(exact.div_euclid(3600)).unwrap_or(i64::MAX)
    }
}

/// The instance's own lines.
pub(super) async fn charges(customer: &Client, instance: &str) -> Result<Vec<Charge>, DemoError> {
    let answer = customer.get("/v1/charges?limit=100").await?;
    let mut own = Vec::new();
    for line in answer.list("/items")? {
        let line = Answer { call: answer.call.clone(), body: line.clone() };
        if line.text("/instance_id")? == instance {
            own.push(Charge {
                segment: line.text("/id")?.to_owned(),
                card: line.text("/primary_gpu_uuid").ok().map(str::to_owned),
                size_gib: line.at("/size_gib").ok().and_then(serde_json::Value::as_i64).unwrap_or(0),
                seconds: line.at("/seconds")?.as_i64().unwrap_or(0),
                ended: line.at("/ended_at").is_ok_and(|ended| !ended.is_null()),
                rate_micros: line.micros("/rate_per_hour")?,
                amount_micros: line.micros("/amount")?,
                rate: line.amount("/rate_per_hour")?,
                amount: line.amount("/amount")?,
            });
        }
    }
    Ok(own)
}

/// The tenant's newest movements, newest first.
pub(super) async fn ledger(customer: &Client) -> Result<Vec<Movement>, DemoError> {
    let answer = customer.get("/v1/ledger?limit=100").await?;
    let line = |line: &serde_json::Value| {
        let line = Answer { call: answer.call.clone(), body: line.clone() };
        Ok(Movement {
            kind: line.text("/kind")?.to_owned(),
            account: line.text("/account")?.to_owned(),
            amount: line.amount("/amount")?,
            amount_micros: line.micros("/amount")?,
            balance: line.amount("/balance_after").unwrap_or_default(),
            segment: line.text("/segment_id").ok().map(str::to_owned),
        })
    };
    answer.list("/items")?.iter().map(line).collect()
}

/// The lines of cards.
pub(super) fn cards(charges: &[Charge]) -> impl Iterator<Item = &Charge> + Clone {
    charges.iter().filter(|charge| charge.card.is_some())
}

/// What the bill says these segments cost.
pub(super) fn charged(charges: &[Charge]) -> i64 {
    charges.iter().map(|charge| charge.amount_micros).sum()
}

/// What left the wallet for these segments.
pub(super) fn paid(ledger: &[Movement], charges: &[Charge]) -> i64 {
    let own = |movement: &&Movement| {
        movement
            .segment
            .as_ref()
            .is_some_and(|segment| charges.iter().any(|charge| &charge.segment == segment))
    };
    ledger.iter().filter(own).map(|movement| -movement.amount_micros).sum()
}

pub(super) fn charge_rows(charges: &[Charge]) -> Vec<Vec<String>> {
    let heading = ["billed", "seconds", "rate per hour", "amount"].map(str::to_owned).to_vec();
    let row = |charge: &Charge| {
        let free = if charge.rate_micros == 0 { " (free; settled hour by hour)" } else { "" };
        let what = charge.card.clone().unwrap_or_else(|| format!("disk, {} GiB{free}", charge.size_gib));
        vec![what, charge.seconds.to_string(), charge.rate.clone(), charge.amount.clone()]
    };
    std::iter::once(heading).chain(charges.iter().map(row)).collect()
}

pub(super) fn ledger_rows(ledger: &[Movement]) -> Vec<Vec<String>> {
    let heading = ["movement", "account", "amount", "balance"].map(str::to_owned).to_vec();
    let row = |movement: &Movement| {
        vec![
            movement.kind.clone(),
            movement.account.clone(),
            movement.amount.clone(),
            movement.balance.clone(),
        ]
    };
    std::iter::once(heading).chain(ledger.iter().map(row)).collect()
}
