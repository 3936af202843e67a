//! What a tenant is told about its money: each thing once.
//!
//! A notice is a row with a stable id, a type and a document, so that it can be listed, shown and delivered. What happened is named
//! by its `crossing`, which is unique for a tenant: whoever notices the same thing again tells nothing. A threshold that is crossed
//! stays marked until it is armed again, so that a runway which creeps below it tells once, and a top-up that lifts it tells again.

use serde_json::{Value, json};
use tarn_billing::exhaustion::Runway;
use tarn_protocol::ids::NoticeId;
use tarn_protocol::units::Timestamp;
use tarn_rows::notices::{NoticeMarkRow, NoticeRow};
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;

pub use tarn_rows::notices::NoticeKind;

/// How long before the end of the money a customer is told, and by which notice.
const THRESHOLDS: [(NoticeKind, i64); 2] =
    [(NoticeKind::BalanceLow24h, 24 * 3600), (NoticeKind::BalanceLow1h, 3600)];

/// Money that lasts for so long has not ended: its end is told again. Shorter than what a start needs, longer than what is left when
/// several runs end one after the other.
const LASTS_SECONDS: i64 = 1800;

/// Tells `scope` of `crossing`, unless it was told before; whether it is news.
pub async fn tell(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    kind: NoticeKind,
    crossing: &str,
    detail: Value,
) -> Result<bool, StoreError> {
    let row = NoticeRow {
        id: NoticeId::new(act.now, act.bits()),
        tenant_id: scope.tenant_id().clone(),
        kind,
        crossing: crossing.to_owned(),
        detail: Json(detail),
        created_at: act.now,
    };
    tx.insert_notice(scope, &row).await
}

/// The runway as it is now: tells what was crossed, arms what is clear again.
pub async fn runway(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    runway: Runway,
    burn_per_hour: tarn_billing::money::Micros,
) -> Result<(), StoreError> {
    let marks = tx.notice_marks(scope).await?;
    for (kind, seconds) in THRESHOLDS {
        let marked = marks.iter().any(|mark| mark.kind == kind);
        let close = match runway {
            Runway::Until(until) => until <= act.now.plus_seconds(seconds),
            Runway::Unlimited => false,
        };
        match (close, marked) {
            (true, false) => fire(tx, act, scope, kind, runway, burn_per_hour).await?,
            (false, true) => drop(tx.clear_notice_mark(scope, kind).await?),
            (true, true) | (false, false) => {}
        }
    }
    let lasts = match runway {
        Runway::Until(until) => until > act.now.plus_seconds(LASTS_SECONDS),
        Runway::Unlimited => true,
    };
    if lasts && marks.iter().any(|mark| mark.kind == NoticeKind::BalanceExhausted) {
        tx.clear_notice_mark(scope, NoticeKind::BalanceExhausted).await?;
    }
    Ok(())
}

/// Marks what is told once until it is armed again; whether it was not marked.
pub async fn mark(tx: &mut Tx, act: &Act, scope: &TenantScope, kind: NoticeKind) -> Result<bool, StoreError> {
    let mark = NoticeMarkRow { tenant_id: scope.tenant_id().clone(), kind, fired_at: act.now };
    tx.insert_notice_mark(scope, &mark).await
}

/// Arms every threshold: money came while nothing burns.
pub async fn arm(tx: &mut Tx, scope: &TenantScope) -> Result<(), StoreError> {
    for (kind, _) in THRESHOLDS {
        tx.clear_notice_mark(scope, kind).await?;
    }
    tx.clear_notice_mark(scope, NoticeKind::BalanceExhausted).await?;
    Ok(())
}

async fn fire(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    kind: NoticeKind,
    runway: Runway,
    burn_per_hour: tarn_billing::money::Micros,
) -> Result<(), StoreError> {
    if !mark(tx, act, scope, kind).await? {
        return Ok(());
    }
    let until = match runway {
        Runway::Until(until) => until,
        Runway::Unlimited => Timestamp::from_micros(i64::MAX),
    };
    let seconds_left = (until.micros_since(act.now) / 1_000_000).max(0);
    let detail = json!({
        "exhausts_at_micros": until.as_micros(), "seconds_left": seconds_left, "burn_per_hour": burn_per_hour,
        "then": "every running instance stops; its data is kept as its storage terms say",
    });
    let crossing = format!("{} {}", kind.as_str(), act.now.as_micros());
    tell(tx, act, scope, kind, &crossing, detail).await.map(drop)
}
