//! What a segment meters: a card of a pool, or gibibytes of an instance's disk.
//!
//! A card is proven by its host: seconds count where a host's clock says that the instance ran on the primary's UUID. A disk is
//! proven by the control plane alone: it exists from the instant at which it was first seen usable until its deletion is accepted,
//! whether a host is silent or not, so every moment between the two counts. Both are segments under the same rules: one price
//! version, a cumulative floor, one end.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::GpuUuid;

use crate::account::AccountKind;
use crate::rate::{InvalidRate, Rate};

/// The thing behind a segment, with what the price is multiplied by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meter {
    /// The primary card, whatever the pool's size. Priced whole.
    Card(GpuUuid),
    /// So many GiB (2^30 bytes) of disk. Priced per GiB.
    Disk { gib: u32 },
}

/// The kinds of thing that a bill lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Gpu,
    Disk,
}

/// A text that names no item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown item: gpu or disk")]
pub struct UnknownItem;

impl Meter {
    pub const fn item(&self) -> Item {
        match self {
            Self::Card(_) => Item::Gpu,
            Self::Disk { .. } => Item::Disk,
        }
    }

    /// What the price book's rate is multiplied by.
    pub const fn quantity(&self) -> u32 {
        match self {
            Self::Card(_) => 1,
            Self::Disk { gib } => *gib,
        }
    }

    /// The rate of the whole thing at a price of one unit.
    pub fn rate_at(&self, price: Rate) -> Result<Rate, InvalidRate> {
        price.times(self.quantity())
    }

    pub const fn card(&self) -> Option<&GpuUuid> {
        match self {
            Self::Card(card) => Some(card),
            Self::Disk { .. } => None,
        }
    }
}

impl Item {
    pub const ALL: [Self; 2] = [Self::Gpu, Self::Disk];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Disk => "disk",
        }
    }

    /// The account that earns it.
    pub const fn revenue(self) -> AccountKind {
        match self {
            Self::Gpu => AccountKind::RevenueGpu,
            Self::Disk => AccountKind::RevenueStorage,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Item {
    type Err = UnknownItem;
    fn from_str(text: &str) -> Result<Self, UnknownItem> {
        Self::ALL.into_iter().find(|item| item.as_str() == text).ok_or(UnknownItem)
    }
}
