//! What can be broken while the host runs. A fault is written into the shared state and takes effect at the next driver
//! call of any process; cards are named by index or UUID on the command line, by index here.

use crate::layout::{GPUS_MAX, KERNELS_CRASH, KERNELS_HANG, LinkState, State, XIDS_MAX, Xid};

/// Links are ordered pairs `from → to`: `from` executes, `to` owns the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Raises an event; hardware codes do not break the card by themselves.
    Xid {
        gpu: usize,
        code: u32,
    },
    /// The card fell off the bus: NVML says lost, work on it fails. Raises Xid 79.
    CardLost {
        gpu: usize,
    },
    LinkLost {
        from: usize,
        to: usize,
    },
    /// Writes succeed and change nothing.
    P2pWritesVanish {
        from: usize,
        to: usize,
    },
    /// Capability calls say yes, granting access fails.
    P2pEnableFails {
        from: usize,
        to: usize,
    },
    /// Read-modify-write across the link loses updates.
    AtomicsMissing {
        from: usize,
        to: usize,
    },
    /// Writes to the upper half of every allocation change nothing.
    UpperHalfVanishes {
        from: usize,
        to: usize,
    },
    /// Kernel writes change nothing while another stream keeps the link busy.
    VanishUnderLoad {
        from: usize,
        to: usize,
    },
    /// A kernel that touches memory across the link never ends.
    KernelsHang {
        from: usize,
        to: usize,
    },
    /// A kernel that touches memory across the link takes its process down.
    KernelsCrash {
        from: usize,
        to: usize,
    },
    Temperature {
        gpu: usize,
        celsius: u32,
    },
    /// Every allocation on the card takes this long.
    SlowAlloc {
        gpu: usize,
        milliseconds: u32,
    },
    /// The card works at this load, whatever processes it shows.
    Load {
        gpu: usize,
        percent: u32,
    },
    /// The driver keeps account of processes on the card from now on. A setting, so clearing faults leaves it.
    Accounting {
        gpu: usize,
    },
    /// The driver does not scrub: freed memory keeps what was in it, for whoever gets it next.
    KeepsFreed {
        gpu: usize,
    },
    /// Every NVML call about the card blocks this long.
    HungNvml {
        gpu: usize,
        milliseconds: u32,
    },
    /// Takes this share of the link's bandwidth away.
    LinkDegrade {
        from: usize,
        to: usize,
        percent: u32,
    },
    /// Ends every fault; past Xid events stay in the log.
    Clear,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    #[error("the host has no card {0}")]
    NoCard(usize),
    #[error("{0} percent is not between 0 and 100")]
    Percent(u32),
}

impl Fault {
    pub(crate) fn apply(self, state: &mut State, cards: usize) -> Result<(), FaultError> {
        let card = |gpu: usize| if gpu < cards { Ok(gpu) } else { Err(FaultError::NoCard(gpu)) };
        match self {
            Self::Load { percent, .. } | Self::LinkDegrade { percent, .. } if percent > 100 => {
                return Err(FaultError::Percent(percent));
            }
            Self::Xid { gpu, code } => raise_xid(state, card(gpu)?, code),
            Self::CardLost { gpu } => {
                state.gpus[card(gpu)?].lost = 1;
                raise_xid(state, gpu, 79);
            }
            Self::LinkLost { from, to } => link(state, card(from)?, card(to)?).lost = 1,
            Self::P2pWritesVanish { from, to } => link(state, card(from)?, card(to)?).writes_vanish = 1,
            Self::P2pEnableFails { from, to } => link(state, card(from)?, card(to)?).enable_fails = 1,
            Self::AtomicsMissing { from, to } => link(state, card(from)?, card(to)?).atomics_missing = 1,
            Self::UpperHalfVanishes { from, to } => {
                link(state, card(from)?, card(to)?).upper_half_vanishes = 1;
            }
            Self::VanishUnderLoad { from, to } => link(state, card(from)?, card(to)?).vanish_under_load = 1,
            Self::KernelsHang { from, to } => link(state, card(from)?, card(to)?).kernels = KERNELS_HANG,
            Self::KernelsCrash { from, to } => link(state, card(from)?, card(to)?).kernels = KERNELS_CRASH,
            Self::Temperature { gpu, celsius } => {
                state.gpus[card(gpu)?].temperature_c = celsius.saturating_add(1);
            }
            Self::SlowAlloc { gpu, milliseconds } => state.gpus[card(gpu)?].slow_allocation_ms = milliseconds,
            Self::Load { gpu, percent } => state.gpus[card(gpu)?].load_percent = percent + 1,
            Self::KeepsFreed { gpu } => state.gpus[card(gpu)?].keeps_freed = 1,
            Self::Accounting { gpu } => state.gpus[card(gpu)?].accounting = 1,
            Self::HungNvml { gpu, milliseconds } => state.gpus[card(gpu)?].hung_nvml_ms = milliseconds,
            Self::LinkDegrade { from, to, percent } => {
                link(state, card(from)?, card(to)?).degraded_percent = percent;
            }
            Self::Clear => clear(state),
        }
        Ok(())
    }
}

fn link(state: &mut State, from: usize, to: usize) -> &mut LinkState {
    &mut state.links[from][to]
}

fn raise_xid(state: &mut State, gpu: usize, code: u32) {
    state.xid_serial += 1;
    let serial = state.xid_serial;
    state.xids[serial as usize % XIDS_MAX] = Xid { serial, gpu: gpu as u32, code };
    state.gpus[gpu].last_xid = code;
}

fn clear(state: &mut State) {
    state.links = [[LinkState::default(); GPUS_MAX]; GPUS_MAX];
    for gpu in &mut state.gpus {
        gpu.lost = 0;
        gpu.temperature_c = 0;
        gpu.slow_allocation_ms = 0;
        gpu.hung_nvml_ms = 0;
        gpu.last_xid = 0;
        gpu.load_percent = 0;
        gpu.keeps_freed = 0;
        gpu.dirty_bytes = 0;
    }
}

impl State {
    /// The oldest event after `serial` that `wanted` accepts and that the log still has.
    pub fn xid_after(&self, serial: u64, wanted: impl Fn(&Xid) -> bool) -> Option<Xid> {
        let later = self.xids.iter().filter(|xid| xid.serial > serial && wanted(xid));
        later.min_by_key(|xid| xid.serial).copied()
    }
}
