//! Use cases on what tenants rent. Each is one transaction: read the dossier, decide purely, apply the effects, announce.

use std::collections::BTreeSet;

use tarn_protocol::ids::GpuUuid;
use tarn_rows::instances::LaunchSpec;

use crate::app::offers::shape::Wanted;

pub mod apply;
pub mod change;
pub mod claim;
pub mod create;
pub mod dossier;
pub mod place;
pub mod start;

/// Where a stored spec wants its instance, checked again at every start.
pub fn wanted(spec: &LaunchSpec, excluded: Vec<BTreeSet<GpuUuid>>) -> Wanted {
    Wanted {
        region: spec.region.clone(),
        link_class_min: Some(spec.link_class_min),
        host_id: spec.host_id.clone(),
        excluded,
    }
}
