//! Placing again: an instance whose set failed its proof gets the next matched set, or fails for the reason that made it look.

use tarn_provisioner::lifecycle::State;
use tarn_provisioner::placement;
use tarn_provisioner::reconcile::{HostView, placement_refused};
use tarn_store::Tx;

use super::claim::{self, ClaimError};
use super::dossier::Dossier;
use super::{apply, start, wanted};
use crate::app::act::Act;
use crate::app::fleet;
use crate::app::offers::shape::Shape;

/// One try for an instance that is scheduling and holds no cards.
pub async fn place_again(tx: &mut Tx, act: &mut Act, dossier: &mut Dossier) -> Result<(), ClaimError> {
    debug_assert_eq!(dossier.row.state, State::Scheduling);
    tx.take_placement_turn().await?;
    let Some(offer) = tx.offer(&dossier.row.offer_id).await? else {
        return Ok(());
    };
    let shape = Shape::of(&offer);
    let snapshot = fleet::snapshot(tx).await?;
    let sought = wanted(&dossier.row.spec.0, dossier.plan.failed_sets.0.clone());
    match placement::place(&shape.fleet(&snapshot)?, &shape.request(&sought)) {
        Ok(placed) => {
            start::begin_generation(tx, act, dossier, &placed.host_id).await?;
            dossier.row.placement_attempts += 1;
            claim::lease(tx, act, dossier, &placed).await?;
            apply::converge(tx, act, dossier, &HostView::default(), None).await?;
        }
        Err(refusal) => {
            let plan = placement_refused(&dossier.instance());
            apply::carry_out(tx, act, dossier, plan).await?;
            dossier.row.reason_detail = Some(refusal.to_string());
            apply::save(tx, dossier).await?;
        }
    }
    Ok(())
}
