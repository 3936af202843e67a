//! The monthly issue: which month is due, and how far its run has come.

use tarn_billing::charge::BucketWidth;
use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::invoices::InvoiceRunRow;
use tarn_rows::{Page, TenantScope};
use tarn_store::{StoreError, Tx};

use super::issue::{self, IssueError};
use crate::app::act::Act;
use crate::config::Seller;

/// How long after the end of a month its invoices are issued: hosts that were silent have told of their last seconds by then, and what
/// comes later is on the next invoice.
pub const AFTER_MONTH_SECONDS: i64 = 3600;
/// Tenants invoiced in one commit.
const TENANTS_PER_COMMIT: u32 = 20;

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    pub tenants: u32,
    pub invoices: u32,
    /// Nothing more is due now.
    pub idle: bool,
}

/// Takes the run of the earliest month that is due on by some tenants.
pub async fn step(tx: &mut Tx, act: &Act, seller: &Seller) -> Result<Step, IssueError> {
    let newest = tx.newest_invoice_run().await?;
    let Some(run) = due(newest, act.now) else { return Ok(Step { idle: true, ..Step::default() }) };
    let after: Option<TenantId> = run.after_tenant.parse().ok();
    let tenants = tx.tenants(Page { after: after.as_ref(), limit: TENANTS_PER_COMMIT }).await?;
    let mut step = Step::default();
    for tenant in &tenants {
        step.tenants += 1;
        step.invoices +=
            invoice(tx, act, seller, &TenantScope::proven(tenant.id.clone()), run.period_to).await?;
    }
    let next = match tenants.last() {
        Some(last) => InvoiceRunRow { after_tenant: last.id.to_string(), ..run },
        None => InvoiceRunRow { finished_at: Some(act.now), ..run },
    };
    tx.put_invoice_run(&next).await?;
    Ok(step)
}

/// The run to go on with: the newest if it is unfinished, else that of the month after it, once that has ended.
fn due(newest: Option<InvoiceRunRow>, now: Timestamp) -> Option<InvoiceRunRow> {
    let ended = BucketWidth::Month.start(now.plus_seconds(-AFTER_MONTH_SECONDS));
    let begun = |period_to| InvoiceRunRow { period_to, after_tenant: String::new(), finished_at: None };
    match newest {
        // The first run of all: the month that ended last, with all that was used before.
        None => Some(begun(ended)),
        Some(run) if run.finished_at.is_none() => Some(run),
        Some(run) => {
            let next = BucketWidth::Month.next(run.period_to);
            (next <= ended).then(|| begun(next))
        }
    }
}

/// Every invoice that a tenant gets for the period; more than one if it used more than one holds.
async fn invoice(
    tx: &mut Tx,
    act: &Act,
    seller: &Seller,
    scope: &TenantScope,
    period_to: Timestamp,
) -> Result<u32, IssueError> {
    let mut issued = 0;
    loop {
        match issue::issue(tx, act, seller, scope, period_to).await {
            Ok(_) => issued += 1,
            Err(IssueError::Nothing | IssueError::PeriodCovered) => return Ok(issued),
            Err(error) => return Err(error),
        }
    }
}

/// Whether a run is under way or due: for a worker that reads before it writes.
pub async fn waiting(tx: &mut Tx, now: Timestamp) -> Result<bool, StoreError> {
    Ok(due(tx.newest_invoice_run().await?, now).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
    }

    #[test]
    fn months_are_invoiced_one_after_the_other_an_hour_after_their_end() {
        let run = |period_to: &str, finished: bool| {
            let finished_at = finished.then(|| at("2027-03-01T02:00:00Z"));
            Some(InvoiceRunRow { period_to: at(period_to), after_tenant: String::new(), finished_at })
        };
        let march = "2027-03-01T00:00:00Z";
        let cases = [
            (None, "2027-03-15T00:00:00Z", Some(march)),
            (None, "2027-03-01T00:59:59Z", Some("2027-02-01T00:00:00Z")),
            (run(march, false), "2027-03-15T00:00:00Z", Some(march)),
            (run(march, true), "2027-04-01T00:59:59Z", None),
            (run(march, true), "2027-04-01T01:00:00Z", Some("2027-04-01T00:00:00Z")),
            (run(march, true), "2027-12-24T00:00:00Z", Some("2027-04-01T00:00:00Z")),
        ];
        for (newest, now, expected) in cases {
            let found = due(newest.clone(), at(now)).map(|run| run.period_to);
            assert_eq!(found, expected.map(at), "{newest:?} at {now}");
        }
    }
}
