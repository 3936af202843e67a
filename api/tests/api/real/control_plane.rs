//! A control plane in real time: in this process, or in one of its own that can be killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tarn_api::config::Config;
use tarn_api::serve::{self, Ambient, Server};
use tarn_api::workers::Worker;
use tarn_protocol::units::Timestamp;
use tarn_store::Store;
use tempfile::TempDir;

use super::customer::Customer;
use super::eventually;
use super::host::artefact;
use crate::database::Fresh;
use crate::harness;

pub struct ControlPlane {
    place: Place,
    address: SocketAddr,
    /// For the tests' own looks at the data.
    pub store: Store,
    data: TempDir,
    database_url: Option<String>,
}

enum Place {
    Here(#[expect(dead_code, reason = "serves as long as it is held")] Server),
    Apart(Option<Child>),
}

impl ControlPlane {
    pub async fn on_sqlite() -> Self {
        Self::here(None).await
    }

    pub async fn on_postgres() -> Self {
        Self::here(Some(Fresh::empty_postgres().await)).await
    }

    async fn here(database_url: Option<String>) -> Self {
        let data = TempDir::new().unwrap();
        let config = Config { workers: true, database_url: database_url.clone(), ..harness::config(&data) };
        let server = serve::serve_with(config, Ambient::of_system()).await.unwrap();
        let (address, store) = (server.address(), server.state().store.clone());
        Self { place: Place::Here(server), address, store, data, database_url }
    }

    /// `tarn serve` as an operator runs it.
    pub async fn apart() -> Self {
        Self::apart_on(None).await
    }

    /// The same on a PostgreSQL database, if there is one.
    pub async fn apart_on(database_url: Option<String>) -> Self {
        let data = TempDir::new().unwrap();
        // Taken and given back: the process has to come back at the same address.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let child = Some(spawn(data.path(), database_url.as_deref(), address, &[]));
        ready(address).await;
        let database =
            database_url.clone().unwrap_or_else(|| data.path().join("tarn.db").display().to_string());
        let store = Store::connect(&database).await.unwrap();
        Self { place: Place::Apart(child), address, store, data, database_url }
    }

    /// SIGKILL; returns once the process is gone.
    pub fn kill(&mut self) {
        let Place::Apart(child) = &mut self.place else { panic!("this one lives in the test's process") };
        let mut child = child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again on the same data.
    pub async fn start_again(&mut self) {
        self.begin_again(&[]);
        self.answers().await;
    }

    /// Starts it again with `more` arguments, and does not wait for it.
    pub fn begin_again(&mut self, more: &[&str]) {
        let Place::Apart(child) = &mut self.place else { panic!("this one lives in the test's process") };
        *child = Some(spawn(self.data.path(), self.database_url.as_deref(), self.address, more));
    }

    pub async fn answers(&self) {
        ready(self.address).await;
    }

    /// Waits until it has died by itself, as at a failpoint.
    pub async fn dies(&mut self, place: &str) {
        let Place::Apart(child) = &mut self.place else { panic!("this one lives in the test's process") };
        let mut dying = child.take().unwrap();
        eventually(place, 60, async || dying.try_wait().unwrap().map(drop)).await;
    }

    /// Makes the claims of a dead process expire now, as they would by themselves some seconds later.
    pub async fn claims_expire(&self) {
        let (never, now) = (Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX));
        for worker in Worker::ALL {
            let expired = self.store.write(move |tx| {
                Box::pin(async move { tx.claim_worker(worker.name(), "nobody", now, never).await })
            });
            assert!(expired.await.unwrap().is_some());
        }
    }

    pub fn data(&self) -> &Path {
        self.data.path()
    }

    pub fn database_url(&self) -> Option<String> {
        self.database_url.clone()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn customer(&self, name: &str) -> Customer {
        Customer::sign_up(&self.url(), name).await
    }

    pub async fn operator(&self) -> Customer {
        let operator = self.customer("operator").await;
        let id = operator.user_id.parse().unwrap();
        let made = self.store.write(move |tx| {
            let id = tarn_protocol::ids::UserId::clone(&id);
            Box::pin(async move { tx.set_operator(&id, true).await })
        });
        assert!(made.await.unwrap());
        operator
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("serve.log")).unwrap_or_default()
    }
}

fn spawn(data: &Path, database_url: Option<&str>, address: SocketAddr, more: &[&str]) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(data.join("serve.log")).unwrap();
    let mut command = Command::new(artefact("tarn"));
    command.arg("serve").arg("--data-dir").arg(data).args([
        "--listen",
        &address.to_string(),
        "--local-payments",
    ]);
    command.args(more).env_remove("DATABASE_URL").env_remove("RUST_LOG");
    if let Some(url) = database_url {
        command.env("DATABASE_URL", url);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

async fn ready(address: SocketAddr) {
    let url = format!("http://{address}/readyz");
    let http = reqwest::Client::new();
    eventually("the control plane to be ready", 30, async || {
        http.get(&url).send().await.ok().filter(|answer| answer.status().is_success()).map(drop)
    })
    .await;
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Place::Apart(Some(child)) = &mut self.place {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the control plane's log ---\n{}", self.log());
        }
    }
}
