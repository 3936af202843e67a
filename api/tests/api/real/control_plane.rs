//! A control plane in real time: in this process, or in one of its own that can be killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tarn_api::config::Config;
use tarn_api::serve::{self, Ambient, Server};
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
        let config = Config { workers: true, database_url, ..harness::config(&data) };
        let server = serve::serve_with(config, Ambient::of_system()).await.unwrap();
        let (address, store) = (server.address(), server.state().store.clone());
        Self { place: Place::Here(server), address, store, data }
    }

    /// `tarn serve` as an operator runs it.
    pub async fn apart() -> Self {
        let data = TempDir::new().unwrap();
        // Taken and given back: the process has to come back at the same address.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let child = Some(spawn(data.path(), address));
        ready(address).await;
        let store = Store::connect(&data.path().join("tarn.db").display().to_string()).await.unwrap();
        Self { place: Place::Apart(child), address, store, data }
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
        let Place::Apart(child) = &mut self.place else { panic!("this one lives in the test's process") };
        *child = Some(spawn(self.data.path(), self.address));
        ready(self.address).await;
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

fn spawn(data: &Path, address: SocketAddr) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(data.join("serve.log")).unwrap();
    let mut command = Command::new(artefact("tarn"));
    command.arg("serve").arg("--data-dir").arg(data).args([
        "--listen",
        &address.to_string(),
        "--local-payments",
    ]);
    command.env_remove("DATABASE_URL").env_remove("RUST_LOG");
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
