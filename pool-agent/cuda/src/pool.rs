//! This process's view of its pool: the config, the broker link, what has been allocated, and the totals frozen at first need.
//!
//! One value a process, made lazily. A forked child makes its own: it drops the inherited connection without a word (the parent
//! owns the leases) and starts with nothing allocated, as the driver itself does.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use tarn_protocol::pool_config::PoolConfig;

use crate::abi::{Opaque, SUCCESS};
use crate::account::Account;
use crate::blocks::Blocks;
use crate::compound::Compounds;
use crate::growth::Growth;
use crate::handles::Handles;
use crate::link::{Link, monotonic_ms};
use crate::placement::{Cards, Rules, UNIT};
use crate::pooled::Pooled;
use crate::{hints, log, reach, real, seat};

/// Buffer ids of spilled blocks start here, out of the way of the driver's own.
const FIRST_BLOCK_ID: u64 = 1 << 62;

/// What the tenant is told for the life of the process.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) total_bytes: u64,
    /// Donors that this process proved to reach, as indices into the config, fastest first.
    pub(crate) donors: Vec<usize>,
    /// The host tier's place, if this process reaches it; in no total.
    pub(crate) host: Option<usize>,
}

impl Frozen {
    /// Whether anything lies beyond the primary.
    pub(crate) fn spills(&self) -> bool {
        !self.donors.is_empty() || self.host.is_some()
    }

    const fn alone(total_bytes: u64) -> Self {
        Self { total_bytes, donors: Vec::new(), host: None }
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    pid: u32,
    pub(crate) config: &'static PoolConfig,
    pub(crate) rules: Rules,
    growth: Mutex<Growth>,
    pub(crate) link: Link,
    pub(crate) account: Account,
    blocks: Mutex<Blocks>,
    handles: Mutex<Handles>,
    compounds: Mutex<Compounds>,
    /// Memory pools that the tenant created on the device, as numbers.
    memory_pools: Mutex<Vec<usize>>,
    /// What stream-ordered pools keep of the primary.
    pub(crate) pooled: Pooled,
    frozen: OnceLock<Frozen>,
    /// The primary alone.
    bare: Frozen,
    next_block: AtomicU64,
    turn: AtomicUsize,
}

static CURRENT: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

/// The pool of this process; `None` where no pool config lies beside the library: then every call is the driver's.
pub(crate) fn current() -> Option<&'static Pool> {
    let config = seat::config()?;
    if same_process() {
        // SAFETY: null or a leaked box, never freed.
        if let Some(pool) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
            return Some(pool);
        }
    }
    let pid = std::process::id();
    loop {
        let known = CURRENT.load(Ordering::Acquire);
        // SAFETY: null or a leaked box, never freed.
        if let Some(pool) = unsafe { known.as_ref() } {
            if pool.pid == pid {
                mark_process();
                return Some(pool);
            }
            // A child made without the fork handler (a raw clone).
            pool.link.abandon();
        }
        watch_forks();
        let fresh = Box::into_raw(Box::new(Pool::new(config, pid)));
        match CURRENT.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked, never freed from here on.
            Ok(_) => {
                mark_process();
                return Some(unsafe { &*fresh });
            }
            // SAFETY: nobody else has seen this box.
            Err(_) => drop(unsafe { Box::from_raw(fresh) }),
        }
    }
}

/// A word that the kernel zeroes in every forked child, however it was made: looking at it costs no system call.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

fn same_process() -> bool {
    // SAFETY: null or a page that is never unmapped.
    unsafe { MARK.load(Ordering::Acquire).as_ref() }.is_some_and(|mark| mark.load(Ordering::Relaxed) != 0)
}

/// Sets the mark for this process; without one (an old kernel) every call asks for the process's number.
fn mark_process() {
    let known = MARK.load(Ordering::Acquire);
    let page = if known.is_null() { wiped_on_fork() } else { known };
    // SAFETY: null or a page that is never unmapped.
    if let Some(mark) = unsafe { page.as_ref() } {
        mark.store(1, Ordering::Relaxed);
        MARK.store(page, Ordering::Release);
    }
}

/// A page of zeroes that children get as zeroes again, or null.
fn wiped_on_fork() -> *mut AtomicU32 {
    const BYTES: usize = 4096;
    // SAFETY: a new private mapping at an address of the kernel's choice disturbs no other memory.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return std::ptr::null_mut();
        }
        if libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, BYTES);
            return std::ptr::null_mut();
        }
        page.cast()
    }
}

fn watch_forks() {
    static WATCHING: Once = Once::new();
    extern "C" fn forked() {
        let inherited = CURRENT.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null or a leaked box; `abandon` only closes a descriptor, which is allowed after fork.
        if let Some(pool) = unsafe { inherited.as_ref() } {
            pool.link.abandon();
        }
    }
    // SAFETY: the handler is a plain function of this library, which is never unloaded.
    WATCHING.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
}

impl Pool {
    fn new(config: &'static PoolConfig, pid: u32) -> Self {
        Self {
            pid,
            config,
            rules: Rules::from(config).adjusted(hints::variable, log::warn),
            growth: Mutex::default(),
            link: Link::new(config.broker_socket.clone(), config.host_place()),
            account: Account::default(),
            blocks: Mutex::default(),
            handles: Mutex::default(),
            compounds: Mutex::default(),
            memory_pools: Mutex::default(),
            pooled: Pooled::default(),
            frozen: OnceLock::new(),
            bare: Frozen::alone(config.primary_bytes().get()),
            next_block: AtomicU64::new(FIRST_BLOCK_ID),
            turn: AtomicUsize::new(0),
        }
    }

    /// Never held across a driver call or a broker round trip.
    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Pool::blocks`].
    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Pool::blocks`].
    pub(crate) fn compounds(&self) -> MutexGuard<'_, Compounds> {
        self.compounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Pool::blocks`].
    pub(crate) fn memory_pools(&self) -> MutexGuard<'_, Vec<usize>> {
        self.memory_pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_block_id(&self) -> u64 {
        self.next_block.fetch_add(1, Ordering::Relaxed)
    }

    /// No block has this id yet.
    pub(crate) fn upcoming_block_id(&self) -> u64 {
        self.next_block.load(Ordering::Relaxed)
    }

    pub(crate) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`Pool::blocks`].
    pub(crate) fn growth(&self) -> MutexGuard<'_, Growth> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules for a request of the calling thread, which counts as growth.
    pub(crate) fn rules_for(&self, bytes: u64) -> Rules {
        let rules = self.rules.hinted(hints::scope());
        if !rules.watched || !self.frozen().spills() {
            return rules;
        }
        if bytes < UNIT {
            return rules.sized(false);
        }
        rules.sized(self.growth().meet(bytes, rules, monotonic_ms()))
    }

    /// A block of `bytes` is gone.
    pub(crate) fn shrunk(&self, bytes: u64) {
        if bytes >= UNIT {
            self.growth().freed(bytes);
        }
    }

    /// What the request of these rules leaves free on the primary, now that its free bytes are known.
    pub(crate) fn keeping(&self, rules: Rules, bytes: u64, cards: &Cards) -> Rules {
        if !rules.watched {
            return rules;
        }
        let keep = self.growth().keep(bytes, cards.local_bytes, rules);
        Rules { reserve_bytes: keep, ..rules }
    }

    pub(crate) fn cap_bytes(&self) -> Option<u64> {
        self.config.primary.cap_bytes.map(tarn_protocol::units::Bytes::get)
    }

    /// Charges local bytes; false when the cap has no room.
    pub(crate) fn charge_local(&self, bytes: u64) -> bool {
        if self.cap_bytes().is_some() {
            // Other processes' bytes are only known through the broker's page.
            self.link.alive(&self.account);
        }
        let (cap, pages) = (self.cap_bytes(), self.link.pages());
        // Without a page the card is asked before the charge is made, which is not on the card yet.
        let on_card = (cap.is_some() && pages.is_none()).then(|| self.others_bytes());
        let others = || on_card.unwrap_or_else(|| self.others_bytes());
        let charge = || self.account.charge_local(bytes, cap, pages, others).is_ok();
        // What pools keep for later gives way to what is wanted now.
        charge() || (self.pooled.trim_all(self) && charge())
    }

    pub(crate) fn return_local(&self, bytes: u64) {
        self.account.return_local(bytes, self.link.pages());
    }

    /// What the tenant may count on, fixed at first need of an initialised driver. Before that nothing can be allocated, and the
    /// answer is the primary alone.
    pub(crate) fn frozen(&self) -> &Frozen {
        if let Some(frozen) = self.frozen.get() {
            return frozen;
        }
        if !real::initialised() {
            return &self.bare;
        }
        // Several threads may probe at once; the first to finish decides. No lock is held meanwhile.
        let frozen = self.measure();
        self.frozen.get_or_init(|| frozen)
    }

    fn measure(&self) -> Frozen {
        let mut order: Vec<usize> = (0..self.config.donors.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.config.donors[at].read_mb_per_second));
        let mut total_bytes = self.config.primary_bytes().get();
        let host = self.config.host_place();
        if order.is_empty() && host.is_none() {
            return Frozen::alone(total_bytes);
        }
        let Ok(reached) = reach::reached(&self.link, &self.account) else {
            log::warn("cuda: no broker answers: showing the primary alone");
            return Frozen::alone(total_bytes);
        };
        let capacities: Vec<u64> = self
            .link
            .pages()
            .map(|pages| pages.donors().map(|donor| donor.capacity_bytes).collect())
            .unwrap_or_default();
        let there = |at: usize| {
            capacities.get(at).copied().filter(|capacity| *capacity > 0 && reached & (1 << at) != 0)
        };
        let host = host.filter(|&at| {
            let there = there(at).is_some();
            if !there {
                log::warn("cuda: the host tier is out of reach and not used");
            }
            there
        });
        order.retain(|&at| {
            let found = there(at);
            if let Some(capacity) = found {
                total_bytes += capacity;
            } else {
                let uuid = &self.config.donors[at].uuid;
                log::warn(&format!("cuda: donor {uuid} is out of reach and not counted"));
            }
            found.is_some()
        });
        Frozen { total_bytes, donors: order, host }
    }

    /// Bytes free now at these places of the broker: nothing when it is gone.
    fn free_at(&self, places: &[usize]) -> Vec<(usize, u64)> {
        if places.is_empty() || !self.link.alive(&self.account) {
            return Vec::new();
        }
        let Some(pages) = self.link.pages() else { return Vec::new() };
        let free: Vec<u64> =
            pages.donors().map(tarn_protocol::broker_wire::DonorFigures::free_bytes).collect();
        places.iter().filter_map(|&at| Some((at, *free.get(at)?))).collect()
    }

    /// Donor bytes free now, over the donors that this process reaches: nothing when the broker is gone.
    pub(crate) fn donors_free(&self) -> Vec<(usize, u64)> {
        self.free_at(&self.frozen().donors)
    }

    fn host_free(&self) -> Option<(usize, u64)> {
        self.free_at(self.frozen().host.as_slice()).pop()
    }

    /// Looks at everything but the primary again, after the broker has taken in what was given back.
    pub(crate) fn settle(&self, cards: &mut Cards) {
        if self.frozen().spills() {
            self.link.settle(&self.account);
        }
        cards.donors = self.donors_free();
        cards.host = self.host_free();
    }

    /// Bytes of the primary that the tenant may still take, given what the driver says is free on the card.
    pub(crate) fn local_allowance(&self, driver_free_bytes: u64) -> u64 {
        let Some(cap) = self.cap_bytes() else { return driver_free_bytes };
        driver_free_bytes
            .min(cap.saturating_sub(self.account.local_bytes()).saturating_sub(self.others_bytes()))
    }

    /// What the tenant's other processes hold of the primary. A process to which no broker has ever answered cannot tell, so there
    /// everything in use on the card counts: a cap holds then too, if it must by refusing too much.
    fn others_bytes(&self) -> u64 {
        if self.link.pages().is_none() {
            self.link.alive(&self.account);
        }
        if let Some(pages) = self.link.pages() {
            return pages.local_bytes_of_others();
        }
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the out-pointers outlive the call.
        if unsafe { real::mem_info(&raw mut free, &raw mut total) } != SUCCESS {
            return u64::MAX;
        }
        (total.saturating_sub(free) as u64).saturating_sub(self.account.local_bytes())
    }

    /// Free bytes of every card now.
    pub(crate) fn cards(&self) -> Cards {
        let (donors, host) = (self.donors_free(), self.host_free());
        Cards { local_bytes: self.local_allowance(self.driver_free()), donors, host }
    }

    /// The driver's figure for the primary. A thread without a context cannot ask, so it reckons with what the tenant took.
    fn driver_free(&self) -> u64 {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the out-pointers outlive the call.
        if unsafe { real::mem_info(&raw mut free, &raw mut total) } == SUCCESS {
            return free as u64;
        }
        let others = self.link.pages().map_or(0, crate::pages::Pages::local_bytes_of_others);
        let taken = self.account.local_bytes().saturating_add(others);
        self.config.primary.memory_bytes.get().saturating_sub(taken)
    }

    /// Everything that belonged to a context that the driver has destroyed.
    pub(crate) fn context_gone(&self, context: Opaque) {
        let (spilled, native_bytes) = self.blocks().take_of_context(context as usize);
        self.return_local(native_bytes);
        for block in spilled {
            crate::stitch::tear_down(self, &block);
        }
    }
}

/// The descriptor's number for a driver call that takes it in place of a pointer; the driver closes nothing.
pub(crate) fn as_pointer(descriptor: &impl AsRawFd) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX))
}
