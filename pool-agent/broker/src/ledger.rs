//! The chunk ledger: who holds which bytes of which donor, as values.
//!
//! Question it answers: may this client have these bytes, and whose are they now. A byte of a donor is in exactly one of three
//! places: **leased** (a tenant process holds it), **quarantined** (given back or orphaned, but not yet proven free on the card) or
//! **free**. `leased + quarantined + free = capacity`, always, except that a quota which shrank below what is lent leaves nothing
//! free. Nothing here touches a driver, a socket or a clock: the server calls in with what happened and is told what it may do.
//!
//! Giving memory back never frees it here. Bytes live on the card until the last handle, descriptor and mapping go, in forked
//! children and passed-on descriptors too, so only the card's own `used` figure moves bytes from quarantine to free
//! ([`Ledger::settle`]). After a restart every lease of the past is an *orphan* inside the quarantine, until its process registers it
//! again or the card shows that it is gone.

use std::collections::BTreeMap;

/// What donor memory is created in: the driver's own granularity for device memory.
pub const CHUNK_UNIT: u64 = 2 << 20;

/// One connection of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(pub u64);

/// Names a tenant process over broker restarts; drawn by the process itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Index into the pool config's donors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Donor(pub usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    pub nonce: Nonce,
    pub donor: Donor,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    pub capacity_bytes: u64,
    pub leased_bytes: u64,
    pub quarantined_bytes: u64,
}

impl Account {
    pub const fn free_bytes(self) -> u64 {
        // After a quota shrank below what is lent, nothing is free.
        self.capacity_bytes.saturating_sub(self.leased_bytes).saturating_sub(self.quarantined_bytes)
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    #[error("no donor has {bytes} bytes")]
    OutOfMemory { bytes: u64 },
    #[error("{bytes} bytes is not a positive multiple of the chunk unit")]
    BadSize { bytes: u64 },
    #[error("donor {donor} does not exist")]
    NoSuchDonor { donor: usize },
    #[error("the client holds {leases} leases, the most one client may")]
    Limited { leases: usize },
    #[error("lease {lease} is not the caller's")]
    NotYours { lease: u64 },
}

/// What a client asks a lease of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub bytes: u64,
    /// `None`: the donor with the most free bytes.
    pub donor: Option<Donor>,
    /// Less than `bytes` is of no use to the caller.
    pub exact: bool,
}

#[derive(Debug, Clone)]
struct Lease {
    client: Client,
    chunk: Chunk,
}

#[derive(Debug, Clone)]
pub struct Ledger {
    accounts: Vec<Account>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Leases of an earlier broker process that nobody claimed yet; their bytes are quarantined.
    orphans: BTreeMap<LeaseId, Chunk>,
    /// Of each donor's quarantine, what a predecessor or a connection that ended left: only that can be claimed.
    past_bytes: Vec<u64>,
    held: BTreeMap<Client, usize>,
    next_lease: u64,
    leases_max: usize,
    /// Lent from only when it is asked for by its number.
    overflow: Option<Donor>,
}

impl Ledger {
    /// An empty ledger over donors of these capacities; a client holds at most `leases_max` leases.
    pub fn new(capacities: &[u64], leases_max: usize) -> Self {
        let accounts = capacities
            .iter()
            .map(|&capacity_bytes| Account { capacity_bytes, ..Account::default() })
            .collect();
        Self {
            accounts,
            past_bytes: vec![0; capacities.len()],
            leases: BTreeMap::new(),
            orphans: BTreeMap::new(),
            held: BTreeMap::new(),
            next_lease: 1,
            leases_max,
            overflow: None,
        }
    }

    /// The same, with a place from which nothing is lent to those who name none.
    #[must_use]
    pub fn with_overflow(self, overflow: Option<Donor>) -> Self {
        Self { overflow, ..self }
    }

    /// The ledger of a new broker process that found `chunks` leased by its predecessor: all of them orphans. Each is charged whole,
    /// whatever its donor gives now: a quota that shrank meanwhile takes no live memory, and holders are recognised by their bytes.
    pub fn resumed(
        capacities: &[u64],
        leases_max: usize,
        chunks: impl IntoIterator<Item = (LeaseId, Chunk)>,
        next_lease: u64,
    ) -> Self {
        let mut ledger = Self::new(capacities, leases_max);
        ledger.next_lease = next_lease.max(1);
        for (id, chunk) in chunks {
            ledger.next_lease = ledger.next_lease.max(id.0 + 1);
            if let Some(account) = ledger.accounts.get_mut(chunk.donor.0) {
                account.quarantined_bytes = account.quarantined_bytes.saturating_add(chunk.bytes);
                ledger.past_bytes[chunk.donor.0] = account.quarantined_bytes;
                ledger.orphans.insert(id, chunk);
            }
        }
        ledger
    }

    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    pub fn next_lease(&self) -> u64 {
        self.next_lease
    }

    /// Everything that a successor must know: leases and orphans.
    pub fn chunks(&self) -> impl Iterator<Item = (LeaseId, Chunk)> + '_ {
        let leased = self.leases.iter().map(|(&id, lease)| (id, lease.chunk));
        leased.chain(self.orphans.iter().map(|(&id, &chunk)| (id, chunk)))
    }

    /// Changes what a donor gives. What is lent stays lent: a donor that shrank below it lends nothing more until it is back.
    pub fn resize(&mut self, donor: Donor, capacity_bytes: u64) {
        if let Some(account) = self.accounts.get_mut(donor.0) {
            account.capacity_bytes = capacity_bytes;
        }
    }

    /// A lease of this very client.
    pub fn held(&self, client: Client, lease: LeaseId) -> Option<Chunk> {
        self.leases.get(&lease).filter(|lease| lease.client == client).map(|lease| lease.chunk)
    }

    /// Charges a chunk to `client` before it is created. The caller undoes it with [`Ledger::cancel`] when the driver refuses.
    pub fn lease(&mut self, client: Client, nonce: Nonce, want: Want) -> Result<(LeaseId, Chunk), Refusal> {
        if want.bytes == 0 || !want.bytes.is_multiple_of(CHUNK_UNIT) {
            return Err(Refusal::BadSize { bytes: want.bytes });
        }
        let leases = self.held.get(&client).copied().unwrap_or(0);
        if leases >= self.leases_max {
            return Err(Refusal::Limited { leases });
        }
        let donor = match want.donor {
            Some(donor) if donor.0 >= self.accounts.len() => {
                return Err(Refusal::NoSuchDonor { donor: donor.0 });
            }
            Some(donor) => donor,
            None => self.emptiest().ok_or(Refusal::OutOfMemory { bytes: want.bytes })?,
        };
        let account = &mut self.accounts[donor.0];
        let free = account.free_bytes() / CHUNK_UNIT * CHUNK_UNIT;
        if free == 0 || (want.exact && free < want.bytes) {
            return Err(Refusal::OutOfMemory { bytes: want.bytes });
        }
        let chunk = Chunk { nonce, donor, bytes: want.bytes.min(free) };
        account.leased_bytes += chunk.bytes;
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        self.insert(client, id, chunk);
        Ok((id, chunk))
    }

    /// Takes back a lease whose chunk was never created: its bytes are free at once.
    pub fn cancel(&mut self, client: Client, lease: LeaseId) -> Result<Chunk, Refusal> {
        let chunk = self.remove(client, lease)?;
        self.accounts[chunk.donor.0].leased_bytes -= chunk.bytes;
        Ok(chunk)
    }

    /// The client gave the chunk back: quarantined until the card shows it free.
    pub fn release(&mut self, client: Client, lease: LeaseId) -> Result<Chunk, Refusal> {
        let chunk = self.remove(client, lease)?;
        let account = &mut self.accounts[chunk.donor.0];
        account.leased_bytes -= chunk.bytes;
        account.quarantined_bytes += chunk.bytes;
        Ok(chunk)
    }

    /// The client's connection ended: everything it held is quarantined. Returns what it held.
    pub fn reclaim(&mut self, client: Client) -> Vec<(LeaseId, Chunk)> {
        if !self.held.contains_key(&client) {
            return Vec::new();
        }
        let held: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.client == client).map(|(&id, _)| id).collect();
        let ended: Vec<(LeaseId, Chunk)> = held
            .into_iter()
            .filter_map(|id| self.release(client, id).ok().map(|chunk| (id, chunk)))
            .collect();
        // A process that gave up on this connection may come by another and still hold them.
        for (_, chunk) in &ended {
            self.past_bytes[chunk.donor.0] += chunk.bytes;
        }
        ended
    }

    /// After a restart, a process claims a lease it still holds. What the ledger remembers must agree in owner, donor and size.
    /// A lease it does not remember (granted in the last moments of the predecessor) is accepted as far as what it left,
    /// or a connection that ended, explains it: registering never takes free bytes, nor what was given back to this process. A
    /// process that gave up on a connection before its end was noticed takes its leases over to the new one; nobody else knows its
    /// nonce.
    pub fn register(&mut self, client: Client, lease: LeaseId, claim: Chunk) -> Result<(), Refusal> {
        let refused = Refusal::NotYours { lease: lease.0 };
        let leases = self.held.get(&client).copied().unwrap_or(0);
        if leases >= self.leases_max {
            return Err(Refusal::Limited { leases });
        }
        if let Some(held) = self.leases.get(&lease) {
            if held.chunk != claim || held.client == client {
                return Err(refused);
            }
            let former = held.client;
            self.remove(former, lease)?;
            self.insert(client, lease, claim);
            return Ok(());
        }
        // No predecessor was so far ahead, and a number near the last one would leave none for later leases.
        let furthest = self.next_lease.saturating_add(self.leases_max as u64);
        if claim.bytes == 0 || lease.0 == 0 || lease.0 > furthest {
            return Err(refused);
        }
        if self.orphans.get(&lease).is_some_and(|orphan| *orphan != claim) {
            return Err(refused);
        }
        let Some(account) = self.accounts.get_mut(claim.donor.0) else {
            return Err(Refusal::NoSuchDonor { donor: claim.donor.0 });
        };
        let past_bytes = &mut self.past_bytes[claim.donor.0];
        if *past_bytes < claim.bytes {
            return Err(refused);
        }
        *past_bytes -= claim.bytes;
        account.quarantined_bytes -= claim.bytes;
        account.leased_bytes += claim.bytes;
        self.orphans.remove(&lease);
        self.next_lease = self.next_lease.max(lease.0.saturating_add(1));
        self.insert(client, lease, claim);
        Ok(())
    }

    /// A process gave a lease of the past back while no broker was there, and says so now. Its bytes stay quarantined, as all that is
    /// given back, and nobody claims them any more. `None`: no such lease of that process is remembered.
    pub fn disown(&mut self, nonce: Nonce, lease: LeaseId) -> Option<Chunk> {
        let chunk = self.orphans.get(&lease).filter(|chunk| chunk.nonce == nonce).copied()?;
        self.orphans.remove(&lease);
        // Whether its bytes are among those that the card still shows is not known: what may be claimed stays.
        Some(chunk)
    }

    /// The card shows `occupied_bytes` of pool memory on `donor` (its `used` less what was there before the pool). Whatever
    /// the leases do not explain stays quarantined; the rest of the quarantine is free. Returns the bytes freed.
    pub fn settle(&mut self, donor: Donor, occupied_bytes: u64) -> u64 {
        let Some(account) = self.accounts.get_mut(donor.0) else { return 0 };
        let unexplained = occupied_bytes.saturating_sub(account.leased_bytes);
        let kept = account.quarantined_bytes.min(unexplained);
        let freed = account.quarantined_bytes - kept;
        account.quarantined_bytes = kept;
        self.past_bytes[donor.0] = self.past_bytes[donor.0].min(kept);
        if kept == 0 {
            self.orphans.retain(|_, chunk| chunk.donor != donor);
        }
        freed
    }

    /// Bytes found on the card that no lease explains, at start.
    pub fn quarantine_unexplained(&mut self, donor: Donor, occupied_bytes: u64) {
        let Some(account) = self.accounts.get_mut(donor.0) else { return };
        let explained = account.leased_bytes + account.quarantined_bytes;
        account.quarantined_bytes += occupied_bytes.saturating_sub(explained);
        self.past_bytes[donor.0] = account.quarantined_bytes;
    }

    pub fn quarantined(&self) -> bool {
        self.accounts.iter().any(|account| account.quarantined_bytes > 0)
    }

    fn emptiest(&self) -> Option<Donor> {
        let roomy =
            self.accounts.iter().enumerate().filter(|(at, account)| {
                self.overflow != Some(Donor(*at)) && account.free_bytes() >= CHUNK_UNIT
            });
        // Ties go to the earlier donor: the config lists the faster ones first.
        roomy
            .max_by_key(|(at, account)| (account.free_bytes(), std::cmp::Reverse(*at)))
            .map(|(at, _)| Donor(at))
    }

    fn insert(&mut self, client: Client, id: LeaseId, chunk: Chunk) {
        self.leases.insert(id, Lease { client, chunk });
        *self.held.entry(client).or_default() += 1;
    }

    fn remove(&mut self, client: Client, id: LeaseId) -> Result<Chunk, Refusal> {
        if self.leases.get(&id).is_none_or(|lease| lease.client != client) {
            return Err(Refusal::NotYours { lease: id.0 });
        }
        let lease = self.leases.remove(&id).ok_or(Refusal::NotYours { lease: id.0 })?;
        if let Some(count) = self.held.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&client);
            }
        }
        Ok(lease.chunk)
    }
}

#[cfg(test)]
mod tests;
