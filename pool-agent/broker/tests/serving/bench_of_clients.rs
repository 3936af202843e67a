//! A broker in a thread over memory files, and plain clients for it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tarn_broker::admission::Admission;
use tarn_broker::ledger::{CHUNK_UNIT, Donor};
use tarn_broker::memory::{DRIVER_OUT_OF_MEMORY, DonorMemory, DriverRefusal};
use tarn_broker::server::{Server, listen};
use tarn_broker::start::open_desk;
use tarn_broker::wire;
use tarn_protocol::broker_wire::{Op, Reply, Request};
use tarn_protocol::pool_config::PoolConfig;

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Cards whose memory is freed the moment it is released, or only when the test says so.
#[derive(Debug, Clone, Default)]
pub struct Cards(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    used: BTreeMap<usize, u64>,
    /// Released, but held by somebody.
    lingering: BTreeMap<usize, u64>,
    linger: bool,
}

impl Cards {
    pub fn linger(&self, linger: bool) {
        let mut books = self.0.lock().unwrap();
        books.linger = linger;
        if !linger {
            for (donor, bytes) in std::mem::take(&mut books.lingering) {
                *books.used.entry(donor).or_default() -= bytes;
            }
        }
    }
}

impl DonorMemory for Cards {
    type Handle = (usize, u64);

    fn create(&mut self, donor: Donor, bytes: u64) -> Result<(Self::Handle, OwnedFd), DriverRefusal> {
        let mut books = self.0.lock().unwrap();
        let used = books.used.entry(donor.0).or_default();
        if *used + bytes > 64 * CHUNK_UNIT {
            return Err(DriverRefusal { code: DRIVER_OUT_OF_MEMORY });
        }
        *used += bytes;
        Ok(((donor.0, bytes), memfd_create("chunk", MemfdFlags::CLOEXEC).unwrap()))
    }

    fn export(&self, _: &Self::Handle) -> Result<OwnedFd, DriverRefusal> {
        Ok(memfd_create("chunk", MemfdFlags::CLOEXEC).unwrap())
    }

    fn rdma(&self, _: Donor) -> bool {
        false
    }

    fn release(&mut self, (donor, bytes): Self::Handle) {
        let mut books = self.0.lock().unwrap();
        let books = &mut *books;
        let place = if books.linger { &mut books.lingering } else { &mut books.used };
        let entry = place.entry(donor).or_default();
        *entry = if books.linger { *entry + bytes } else { *entry - bytes };
    }

    fn used_bytes(&mut self, donor: Donor) -> Option<u64> {
        Some(self.0.lock().unwrap().used.get(&donor.0).copied().unwrap_or(0))
    }
}

pub fn config(donors: usize, units: u64) -> PoolConfig {
    let uuid = |n: usize| format!("GPU-00000000-0000-0000-0000-{n:012}");
    let donor = |n: usize| {
        serde_json::json!({
            "uuid": uuid(n), "pci_bus_id": "0", "minor": n, "reserved_bytes": units * CHUNK_UNIT,
            "link_class": "nvlink", "grade": "A", "read_mb_per_second": 1, "certificate_id": null,
        })
    };
    let mut document = serde_json::json!({
        "version": 1, "instance_id": "", "lease_id": "", "generation": 1,
        "primary": { "uuid": uuid(0), "pci_bus_id": "0", "minor": 0, "memory_bytes": 1, "cap_bytes": null },
        "donors": (1..=donors).map(donor).collect::<Vec<_>>(),
        "policy": { "placement": "local_first", "reserve_bytes": 0, "large_bytes": 0, "granule_bytes": CHUNK_UNIT },
        "broker_socket": "/", "standin_log": "/",
    });
    let at = tarn_protocol::units::Timestamp::from_micros(1);
    document["instance_id"] = tarn_protocol::ids::InstanceId::new(at, 1).to_string().into();
    document["lease_id"] = tarn_protocol::ids::LeaseId::new(at, 1).to_string().into();
    document["donors"].as_array_mut().unwrap().iter_mut().for_each(|donor| {
        donor["grade"] = serde_json::to_value(tarn_protocol::hardware::LinkGrade::A).unwrap();
    });
    serde_json::from_value(document).unwrap()
}

/// A broker serving in a thread until it is dropped.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub cards: Cards,
    stop: Arc<OwnedFd>,
    serving: Option<JoinHandle<()>>,
}

pub fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

pub fn tenants_like_us() -> Admission {
    Admission { tenant_uids: vec![own_uid()], observer_uid: own_uid(), ..Admission::default() }
}

impl Bench {
    pub fn new(config: &PoolConfig, admission: Admission) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let mut bench = Self { dir, cards: Cards::default(), stop, serving: None };
        bench.serve(config, admission);
        bench
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("broker.sock")
    }

    pub fn serve(&mut self, config: &PoolConfig, admission: Admission) {
        self.stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let desk =
            open_desk(config, &self.dir.path().join("ledger.json"), self.cards.clone(), |_, _| true).unwrap();
        let stop = Arc::clone(&self.stop);
        let mut server = Server::new(desk, admission, listen(&self.socket()).unwrap(), &*stop).unwrap();
        let start = Instant::now();
        self.serving = Some(std::thread::spawn(move || {
            let _watched = stop;
            server.run(|| start.elapsed()).unwrap();
        }));
    }

    /// Ends the broker as a kill would: every connection is cut, the ledger file stays.
    pub fn stop(&mut self) {
        rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).unwrap();
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop();
    }
}

pub struct Client(pub OwnedFd);

impl Client {
    pub fn connect(path: &Path) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(10))).unwrap();
        Self(socket)
    }

    pub fn hello(path: &Path, nonce: u64) -> Self {
        let client = Self::connect(path);
        let (reply, pages) = client.ask(Request { nonce, ..Request::new(Op::Hello) }).expect("an answer");
        assert!(reply.ok() && pages.len() == 2, "{reply:?}");
        client
    }

    pub fn send(&self, request: Request) {
        wire::send_request(self.0.as_fd(), request).unwrap();
    }

    /// `None` when the broker has hung up.
    pub fn ask(&self, request: Request) -> Option<(Reply, Vec<OwnedFd>)> {
        wire::send_request(self.0.as_fd(), request).ok()?;
        wire::receive_reply(self.0.as_fd()).ok()
    }

    pub fn lease(&self, units: u64) -> Reply {
        let (reply, _) =
            self.ask(Request { bytes: units * CHUNK_UNIT, exact: 1, ..Request::new(Op::Lease) }).unwrap();
        reply
    }

    pub fn hung_up(&self) -> bool {
        wire::receive_reply(self.0.as_fd()).is_err()
    }
}
