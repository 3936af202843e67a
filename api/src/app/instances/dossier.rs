//! An instance with all that the planner must know of it, read and written in one transaction.

use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::BootId;
use tarn_provisioner::lease::Claim;
use tarn_provisioner::lifecycle::Wish;
use tarn_provisioner::reconcile::{Instance, Published};
use tarn_rows::instances::InstanceRow;
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::plans::InstancePlanRow;
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

#[derive(Debug, Clone)]
pub struct Dossier {
    pub row: InstanceRow,
    pub plan: InstancePlanRow,
    /// The live lease with its cards, the primary first.
    pub lease: Option<(LeaseRow, Vec<LeaseGpuRow>)>,
    /// The boot under which the open segment began.
    pub segment_boot: Option<BootId>,
    /// As read: what changed is what gets written.
    read: (InstanceRow, InstancePlanRow),
    /// Something outside the row was written on the word of the row.
    relied: bool,
}

impl Dossier {
    pub async fn load(tx: &mut Tx, row: InstanceRow) -> Result<Self, StoreError> {
        let scope = TenantScope::proven(row.tenant_id.clone());
        let plan = tx.instance_plan(&row.id).await?.unwrap_or_else(|| blank(&row));
        let lease = match tx.live_lease(&scope, &row.id).await? {
            Some(lease) => {
                let gpus = tx.lease_gpus(&lease.id).await?;
                Some((lease, gpus))
            }
            None => None,
        };
        let segment = tx.open_segment_of_instance(&scope, &row.id).await?;
        let segment_boot = segment.map(|segment| segment.boot_id);
        let read = (row.clone(), plan.clone());
        Ok(Self { row, plan, lease, segment_boot, read, relied: false })
    }

    /// A new instance, nothing of it stored yet.
    pub fn new(row: InstanceRow) -> Self {
        let plan = blank(&row);
        let read = (row.clone(), plan.clone());
        Self { row, plan, lease: None, segment_boot: None, read, relied: false }
    }

    /// As the planner sees it.
    pub fn instance(&self) -> Instance {
        let row = &self.row;
        Instance {
            id: row.id.clone(),
            state: row.state,
            reason: row.reason_code,
            generation: row.generation,
            wish: Wish { state: row.desired_state, reason: row.desired_reason, since: row.desired_since },
            claim: self.claim(),
            published: self.published(),
            segment_boot: self.segment_boot.clone(),
            placement_attempts: row.placement_attempts,
            failed_sets: self.plan.failed_sets.0.clone(),
            progress_at: self.plan.progress_at,
        }
    }

    fn claim(&self) -> Option<Claim> {
        let (lease, gpus) = self.lease.as_ref()?;
        let mut cards = gpus.iter().map(|gpu| gpu.gpu_uuid.clone());
        Some(Claim {
            id: lease.id.clone(),
            instance_id: lease.instance_id.clone(),
            host_id: lease.host_id.clone(),
            generation: lease.generation,
            primary: cards.next()?,
            donors: cards.collect::<Vec<GpuUuid>>(),
        })
    }

    fn published(&self) -> Option<Published> {
        let plan = &self.plan;
        Some(Published {
            generation: plan.published_generation?,
            goal: plan.published_goal?.0,
            revision: plan.published_revision?,
        })
    }

    pub fn publish(&mut self, published: Published) {
        self.plan.published_generation = Some(published.generation);
        self.plan.published_goal = Some(Json(published.goal));
        self.plan.published_revision = Some(published.revision);
    }

    /// What is written next (a segment, a lease, what the host shall do) follows from the row as it was read. Under read committed
    /// another transaction may have changed both between our reading of the one and of the other, so [`Self::save`] compares the
    /// row's version even if the row itself stays as it is.
    pub const fn rely(&mut self) {
        self.relied = true;
    }

    /// Writes what changed since it was read. `false`: someone else changed the instance meanwhile.
    pub async fn save(&mut self, tx: &mut Tx) -> Result<bool, StoreError> {
        if self.relied || self.read.0 != self.row {
            if !tx.update_instance(&self.scope(), &self.row).await? {
                return Ok(false);
            }
            self.row.row_version += 1;
        }
        if self.read.1 != self.plan {
            tx.upsert_instance_plan(&self.plan).await?;
        }
        self.read = (self.row.clone(), self.plan.clone());
        self.relied = false;
        Ok(true)
    }

    /// The instance's tenant: read from its own row, never from a request.
    pub fn scope(&self) -> TenantScope {
        TenantScope::proven(self.row.tenant_id.clone())
    }

    pub const fn id(&self) -> &InstanceId {
        &self.row.id
    }
}

fn blank(row: &InstanceRow) -> InstancePlanRow {
    InstancePlanRow {
        instance_id: row.id.clone(),
        published_generation: None,
        published_goal: None,
        published_revision: None,
        failed_sets: Json(Vec::new()),
        progress_at: row.created_at,
    }
}
