//! Which instance rents which cards, as far as anything of it may run.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tarn_protocol::ids::{GpuUuid, InstanceId};

#[derive(Debug, Default)]
pub struct Roster {
    seats: Mutex<BTreeMap<InstanceId, Seat>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    pub primary: GpuUuid,
    pub donors: Vec<GpuUuid>,
}

impl Roster {
    pub fn seat(&self, instance: &InstanceId, seat: Seat) {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).insert(instance.clone(), seat);
    }

    pub fn leave(&self, instance: &InstanceId) {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).remove(instance);
    }

    pub fn seats(&self) -> BTreeMap<InstanceId, Seat> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
