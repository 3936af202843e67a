//! What holds once everything has ended, whatever happened before: cards free on record and on the cards themselves, and money that
//! follows from the evidence alone.

use std::collections::BTreeSet;

use serde_json::Value;
use tarn_protocol::ids::{InstanceId, TenantId};
use tarn_rows::TenantScope;
use tarn_rows::segments::{MeterEventRow, SegmentRow};

use super::customer::Customer;
use super::eventually;
use super::site::Site;

/// One instance that has ended, and how many times it was billable.
#[derive(Debug, Clone)]
pub struct Ended<'a> {
    pub customer: &'a Customer,
    pub id: &'a str,
    pub segments: usize,
}

/// Checks a site on which nothing is rented any more.
pub async fn audit(site: &Site, ended: &[Ended<'_>]) {
    nothing_is_held(site).await;
    for one in ended {
        one.is_billed_exactly(site).await;
    }
    ledger_adds_up(site).await;
}

async fn nothing_is_held(site: &Site) {
    let store = &site.control_plane.store;
    eventually("every lease to be released", 30, async || {
        let counts = store.read(|tx| Box::pin(async move { tx.fleet_counts().await })).await.unwrap();
        (counts.gpus_held == 0 && counts.segments_open == 0).then_some(())
    })
    .await;
    site.both_pools_are_free().await;
    eventually("every card to be empty", 10, async || (site.host.used() == vec![0; 8]).then_some(())).await;
    assert_eq!(site.host.live_pools(), Vec::<BTreeSet<String>>::new());
}

pub async fn ledger_adds_up(site: &Site) {
    let store = &site.control_plane.store;
    let audit = store.snapshot(|tx| Box::pin(async move { tx.ledger_audit().await })).await.unwrap();
    let wrong = (audit.unbalanced_transfers, audit.wrong_wallets, audit.wrong_holds);
    assert_eq!(wrong, (0, 0, 0), "{audit:?}");
}

impl Ended<'_> {
    async fn is_billed_exactly(&self, site: &Site) {
        let (segments, events) = eventually("the bill to be what the evidence proves", 30, async || {
            let (segments, events) = self.metered(site).await;
            let settled =
                segments.iter().all(|segment| settled_seconds(segment) == proven_seconds(segment, &events));
            (settled && segments.iter().all(|segment| segment.ended_at.is_some()))
                .then_some((segments, events))
        })
        .await;
        assert_eq!(segments.len(), self.segments, "{segments:?}");
        let document = self.customer.instance(self.id).await;
        let primary = document["pool"]["primary_gpu"].as_str();
        let newest = segments.last().map(|segment| segment.meter_gpu_uuid.to_string());
        assert!(
            newest.is_none() || newest.as_deref() == primary,
            "{newest:?} is not the primary: {document}"
        );
        assert!(events.iter().all(|event| segments.iter().any(|own| own.meter_gpu_uuid == event.gpu_uuid)));
        let charges = self.charges().await;
        assert_eq!(charges.len(), segments.len(), "{charges:?}");
        for segment in &segments {
            self.is_charged(site, segment, &charges).await;
        }
    }

    async fn is_charged(&self, site: &Site, segment: &SegmentRow, charges: &[Value]) {
        let seconds = settled_seconds(segment);
        let elapsed = segment.ended_at.unwrap().micros_since(segment.started_at);
        assert!(seconds * 1_000_000 <= elapsed, "{seconds} s of {elapsed} µs");
        let expected = i128::from(segment.micros_per_hour.hourly().get()) * i128::from(seconds) / 3600;
        assert_eq!(i128::from(segment.settled_micros.get()), expected, "{segment:?}");
        let charge = charges.iter().find(|charge| charge["id"] == segment.id.as_str()).unwrap();
        assert_eq!(charge["seconds"], seconds, "{charge}");
        let (scope, id) = (self.scope(), segment.id.clone());
        let posted = site.control_plane.store.read(move |tx| {
            let (scope, id) = (scope.clone(), id.clone());
            Box::pin(async move { tx.transfers_of_segment(&scope, &id).await })
        });
        let posted: i128 =
            posted.await.unwrap().iter().map(|transfer| i128::from(transfer.amount_micros.get())).sum();
        assert_eq!(posted, expected, "the ledger and the bill differ: {segment:?}");
    }

    async fn charges(&self) -> Vec<Value> {
        let page = self.customer.get("/v1/charges?item=gpu&limit=100").await;
        let items = page["items"].as_array().unwrap().clone();
        items.into_iter().filter(|charge| charge["instance_id"] == self.id).collect()
    }

    fn scope(&self) -> TenantScope {
        TenantScope::proven(self.customer.tenant_id.parse::<TenantId>().unwrap())
    }

    /// The instance's segments, oldest first, and every piece of evidence that was counted on any of them.
    async fn metered(&self, site: &Site) -> (Vec<SegmentRow>, Vec<MeterEventRow>) {
        let (scope, id) = (self.scope(), self.id.parse::<InstanceId>().unwrap());
        let read = site.control_plane.store.snapshot(move |tx| {
            let (scope, id) = (scope.clone(), id.clone());
            Box::pin(async move {
                let mut segments = tx.segments_of_instance(&scope, &id).await?;
                segments.sort_by_key(|segment| segment.started_at);
                let mut events = Vec::new();
                for segment in &segments {
                    events.extend(tx.meter_events_of_segment(&segment.id).await?);
                }
                Ok::<_, tarn_store::StoreError>((segments, events))
            })
        });
        read.await.unwrap()
    }
}

fn settled_seconds(segment: &SegmentRow) -> i64 {
    segment.settled_seconds.get()
}

/// Whole seconds of the segment that the host proved, added up independently of billing: a union of half-open intervals, the
/// excused end of each taken off, cut to the segment's window.
fn proven_seconds(segment: &SegmentRow, events: &[MeterEventRow]) -> i64 {
    let from = segment.anchor_mono_ms.get();
    let length = segment.ended_at.map_or(i64::MAX, |end| end.micros_since(segment.started_at) / 1000);
    let to = from.saturating_add(length.unsigned_abs());
    let run =
        |event: &&MeterEventRow| event.boot_id == segment.boot_id && event.generation == segment.generation;
    let mut spans: Vec<(u64, u64)> = events
        .iter()
        .filter(run)
        .map(|event| {
            (event.from_mono_ms.get().max(from), (event.to_mono_ms.get() - event.excused_ms).min(to))
        })
        .filter(|(start, end)| start < end)
        .collect();
    spans.sort_unstable();
    let mut reached = 0;
    let mut millis = 0;
    for (start, end) in spans {
        millis += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    i64::try_from(millis / 1000).unwrap()
}
