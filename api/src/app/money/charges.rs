//! What was charged, as lines: the segments of cards and of disks in one list.

use std::collections::HashMap;

use tarn_billing::charge::ChargeLine;
use tarn_billing::meter::Item;
use tarn_billing::segment::Segment;
use tarn_protocol::ids::{InstanceId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::segments::ChargeFilter;
use tarn_rows::{Page, TenantScope};
use tarn_store::{StoreError, Tx};

use crate::app::metering::stored::{self, corrupt};

/// A line with the label that its instance has now.
#[derive(Debug, Clone)]
pub struct Charged {
    pub line: ChargeLine,
    pub label: String,
}

/// A page of the segments that `filter` names, newest first.
pub async fn segments(
    tx: &mut Tx,
    scope: &TenantScope,
    filter: &ChargeFilter,
    page: Page<'_, SegmentId>,
) -> Result<Vec<Segment>, StoreError> {
    // Ids of both tables are in one order, so the page is among the first of each.
    let cards = match filter.item {
        None | Some(Item::Gpu) => tx.charged_segments(scope, filter, page.clone()).await?,
        Some(Item::Disk) => Vec::new(),
    };
    let disks = match filter.item {
        None | Some(Item::Disk) => tx.charged_storage(scope, filter, page.clone()).await?,
        Some(Item::Gpu) => Vec::new(),
    };
    let mut found = Vec::with_capacity(cards.len() + disks.len());
    for row in &cards {
        found.push(stored::segment(row).map_err(corrupt)?);
    }
    for row in &disks {
        found.push(stored::storage_segment(row).map_err(corrupt)?);
    }
    found.sort_by(|one, other| other.id().cmp(one.id()));
    found.truncate(page.limit as usize);
    Ok(found)
}

/// A page of lines, newest first.
pub async fn lines(
    tx: &mut Tx,
    scope: &TenantScope,
    filter: &ChargeFilter,
    page: Page<'_, SegmentId>,
) -> Result<Vec<Charged>, StoreError> {
    let mut labels: HashMap<InstanceId, String> = HashMap::new();
    let mut lines = Vec::new();
    for segment in segments(tx, scope, filter, page).await? {
        let line = ChargeLine::of(&segment);
        let label = if let Some(known) = labels.get(&line.instance_id) {
            known.clone()
        } else {
            let instance = tx.instance(scope, &line.instance_id).await?;
            let label = instance.map(|instance| instance.label).unwrap_or_default();
            labels.insert(line.instance_id.clone(), label.clone());
            label
        };
        lines.push(Charged { line, label });
    }
    Ok(lines)
}

/// One line of either kind.
pub async fn line(tx: &mut Tx, scope: &TenantScope, id: &SegmentId) -> Result<Option<Charged>, StoreError> {
    let segment = match tx.segment(scope, id).await? {
        Some(card) => stored::segment(&card).map_err(corrupt)?,
        None => match tx.storage_segment(scope, id).await? {
            Some(disk) => stored::storage_segment(&disk).map_err(corrupt)?,
            None => return Ok(None),
        },
    };
    let instance = tx.instance(scope, &segment.terms().instance_id).await?;
    let label = instance.map(|instance| instance.label).unwrap_or_default();
    Ok(Some(Charged { line: ChargeLine::of(&segment), label }))
}

/// The labels of all instances that lived in `[from, to)`.
pub async fn labels(
    tx: &mut Tx,
    scope: &TenantScope,
    from: Timestamp,
    to: Timestamp,
) -> Result<HashMap<InstanceId, String>, StoreError> {
    let rows = tx.instance_labels(scope, from, to).await?;
    Ok(rows.into_iter().map(|row| (row.id, row.label)).collect())
}
