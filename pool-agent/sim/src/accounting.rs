//! Accounting: what the driver remembers of processes that are gone, on cards for which it was switched on.

use crate::layout::{ACCOUNTS_MAX, Account, State};

impl State {
    /// A process's first context on a card.
    pub(crate) fn account_begins(&mut self, holder: usize, gpu: usize) {
        if self.gpus[gpu].accounting == 0 {
            return;
        }
        self.accounts_serial += 1;
        let serial = self.accounts_serial;
        self.accounts[serial as usize % ACCOUNTS_MAX] = Account {
            serial,
            holder: holder as u32,
            pid: self.holders[holder].pid,
            gpu: gpu as u32,
            running: 1,
            bytes_max: self.process_bytes(holder, gpu).unwrap_or(0),
            started_us: wall_us(),
            ended_us: 0,
        };
    }

    /// The last one is about to go.
    pub(crate) fn account_ends(&mut self, holder: usize, gpu: usize) {
        let bytes = self.process_bytes(holder, gpu).unwrap_or(0);
        let mine = |account: &&mut Account| {
            account.running != 0 && account.holder as usize == holder && account.gpu as usize == gpu
        };
        for account in self.accounts.iter_mut().filter(mine) {
            account.running = 0;
            account.bytes_max = account.bytes_max.max(bytes);
            account.ended_us = wall_us();
        }
    }

    /// What the driver tells of a card, oldest first.
    pub fn accounts_of(&self, gpu: usize) -> Vec<Account> {
        let of_card = |account: &&Account| account.serial != 0 && account.gpu as usize == gpu;
        let mut found: Vec<Account> = self.accounts.iter().filter(of_card).copied().collect();
        found.sort_by_key(|account| account.serial);
        found
    }
}

/// The driver's own time stamps are wall time.
fn wall_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-parameter outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}
