//! The ledger against a plain model, and after a death in the middle of a change.

use std::path::Path;

use super::*;
use crate::layout::{GPUS_MAX, Holder};
use crate::state::SharedState;

const CAPACITY: u64 = 1000;
const HOLDERS: usize = 3;

fn shared(directory: &Path) -> SharedState {
    let shared = SharedState::create(&directory.join("state"), &[CAPACITY, CAPACITY]).unwrap();
    let mut state = shared.lock().unwrap();
    for slot in 0..HOLDERS {
        enter(&mut state, slot);
    }
    drop(state);
    shared
}

fn enter(state: &mut State, slot: usize) {
    state.holders[slot] = Holder {
        live: 1,
        pid: 1,
        start_ticks: 1,
        pid_namespace: 0,
        program: 0,
        references: 0,
        pad: 0,
        contexts: [0; GPUS_MAX],
        context_bytes: [0; GPUS_MAX],
        native_bytes: [0; GPUS_MAX],
    };
    state.holders_high = HOLDERS as u32;
}

/// Bytes, card, holds by holder.
type Shared = (u64, usize, Vec<(usize, Hold)>);

/// What each holder has, kept the plain way.
#[derive(Debug, Default)]
struct Model {
    native: [[u64; 2]; HOLDERS],
    allocations: Vec<Shared>,
}

impl Model {
    fn used(&self, gpu: usize) -> u64 {
        let native: u64 = self.native.iter().map(|cards| cards[gpu]).sum();
        let held = self.allocations.iter().filter(|(_, card, holds)| *card == gpu && !holds.is_empty());
        native + held.map(|(bytes, ..)| bytes).sum::<u64>()
    }

    fn step(&mut self, state: &mut State, mut random: impl FnMut(u64) -> u64) {
        let (holder, gpu, bytes) = (random(HOLDERS as u64) as usize, random(2) as usize, 1 + random(200));
        match random(6) {
            0 => {
                let room = self.used(gpu) + bytes <= CAPACITY;
                assert_eq!(state.charge_native(holder, gpu, bytes).is_ok(), room);
                self.native[holder][gpu] += if room { bytes } else { 0 };
            }
            1 => {
                let bytes = bytes.min(self.native[holder][gpu]);
                state.discharge_native(holder, gpu, bytes);
                self.native[holder][gpu] -= bytes;
            }
            2 => {
                let room = self.used(gpu) + bytes <= CAPACITY;
                let created = state.create(holder, gpu, bytes);
                assert_eq!(created.is_ok(), room);
                self.allocations.extend(created.ok().map(|hold| (bytes, gpu, vec![(holder, hold)])));
            }
            3 if !self.allocations.is_empty() => {
                let at = random(self.allocations.len() as u64) as usize;
                let (bytes, gpu, holds) = &mut self.allocations[at];
                if let Some((_, hold)) = holds.first().copied() {
                    holds.push((holder, state.import(holder, *gpu, *bytes, hold.id).unwrap()));
                }
            }
            4 if !self.allocations.is_empty() => {
                let at = random(self.allocations.len() as u64) as usize;
                if let Some((holder, hold)) = self.allocations[at].2.pop() {
                    state.let_go(holder, hold);
                }
            }
            _ if random(8) == 0 => {
                state.drop_holder(holder);
                enter(state, holder);
                self.native[holder] = [0; 2];
                for (.., holds) in &mut self.allocations {
                    holds.retain(|(of, _)| *of != holder);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn used_bytes_are_what_a_plain_model_says_also_after_a_recount() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(directory.path());
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut model = Model::default();
    for step in 0..20_000 {
        let mut state = shared.lock().unwrap();
        model.step(&mut state, &mut random);
        if step % 97 == 0 {
            state.recount();
        }
        for gpu in 0..2 {
            assert_eq!(state.gpus[gpu].used_bytes, model.used(gpu), "step {step}");
        }
    }
}

#[test]
fn a_change_cut_short_is_counted_again_by_the_next_owner() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(directory.path());
    let mut state = shared.lock().unwrap();
    let kept = state.create(0, 0, 100).unwrap();
    // A death between taking the bytes and entering the hold.
    state.gpus[0].used_bytes += 50;
    state.insert(0, 50, 999).unwrap();
    std::mem::forget(state);
    // SAFETY: this thread owns the lock through the guard that was forgotten; the flag `changing` stays set.
    unsafe { shared.unlock_as_if_dead() };
    let mut state = shared.lock().unwrap();
    assert_eq!(state.gpus[0].used_bytes, 100);
    state.let_go(0, kept);
    assert_eq!(state.gpus[0].used_bytes, 0);
}

#[test]
fn an_exported_allocation_lingers_until_its_descriptors_are_gone_and_revives_on_import() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(directory.path());
    let mut state = shared.lock().unwrap();
    let hold = state.create(0, 1, 64).unwrap();
    state.mark_exported(hold);
    state.let_go(0, hold);
    assert_eq!((state.gpus[1].used_bytes, state.lingering), (64, 1));
    state.drop_lingering(|serial| serial == hold.id.serial);
    assert_eq!(state.gpus[1].used_bytes, 64);
    state.drop_lingering(|_| false);
    assert_eq!((state.gpus[1].used_bytes, state.lingering), (0, 0));
    let other = state.create(1, 1, 10).unwrap();
    let revived = state.import(2, 1, 64, hold.id).unwrap();
    assert_eq!(state.gpus[1].used_bytes, 74);
    state.let_go(2, revived);
    state.let_go(1, other);
    state.drop_lingering(|_| false);
    assert_eq!(state.gpus[1].used_bytes, 0);
}
