//! A running control plane, in this process: what `tarn serve`, the demo and the tests start and stop.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::money::wallet;
use crate::app::offers::seed::{self, SeedError};
use crate::app::once::InFlight;
use crate::auth::proofs;
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::entropy::{Entropy, OsEntropy};
use crate::failpoint::Failpoints;
use crate::http;
use crate::http::rate_limit::RateLimits;
use crate::metrics::Metrics;
use crate::state::{AppState, Auth, AuthError};
use crate::till::local::LocalPayments;
use crate::till::stripe::Stripe;
use crate::till::{NoPayments, PaymentProvider};
use crate::wakeups::Wakeups;
use crate::workers;

/// How long open requests may finish after a stop was asked for.
const DRAIN_MAX: Duration = Duration::from_secs(10);
const FORGET_EVERY: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot use the data directory {path}")]
    Data { path: PathBuf, source: std::io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot open the database")]
    Store(#[from] StoreError),
    #[error("cannot prepare authentication")]
    Auth(#[from] AuthError),
    #[error("cannot store the built-in offers")]
    Seed(#[from] SeedError),
    #[error("cannot prepare the payment provider")]
    Payments(#[from] reqwest::Error),
}

/// Where time and randomness come from.
#[derive(Debug, Clone)]
pub struct Ambient {
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
}

impl Ambient {
    /// The machine's own.
    pub fn of_system() -> Self {
        Self { clock: Arc::new(SystemClock::default()), entropy: Arc::new(OsEntropy) }
    }
}

#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: AppState,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// Opens the store, brings its schema up to date and answers requests until [`Server::stop`].
pub async fn serve(config: Config) -> Result<Server, ServeError> {
    serve_with(config, Ambient::of_system()).await
}

pub async fn serve_with(config: Config, ambient: Ambient) -> Result<Server, ServeError> {
    let address = config.listen;
    let unusable = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let state = open(config, ambient).await?;
    let (stop, stopping) = watch::channel(false);
    let app = http::app(state.clone()).into_make_service_with_connect_info::<SocketAddr>();
    let requests = tokio::spawn(answer(listener, app, stopping.clone()));
    let idle = tokio::spawn(forget_idle_clients(state.clone(), stopping.clone()));
    let proofs = tokio::spawn(forget_proofs(state.clone(), stopping));
    tracing::info!(%address, "serving");
    let mut tasks = vec![requests, idle, proofs];
    if state.config.workers {
        tasks.extend(workers::spawn_workers(&state, &stop.subscribe()));
    }
    Ok(Server { address, state, stop, tasks })
}

/// Everything but the listener: for commands that work on the same data.
pub async fn open(config: Config, ambient: Ambient) -> Result<AppState, ServeError> {
    // Password hashes and the signing key live in it.
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.data_dir).map_err(|source| {
        let path = config.data_dir.clone();
        ServeError::Data { path, source }
    })?;
    let auth = Auth::new(&config, ambient.entropy.as_ref())?;
    let store = Store::connect(&config.database()).await?;
    store.migrate().await?;
    let now = ambient.clock.now();
    store.write(move |tx| Box::pin(async move { wallet::open_system_accounts(tx, now).await })).await?;
    seed::seed(&store, now).await?;
    let payments = payments(&config)?;
    let failpoints = Failpoints::new(config.failpoint.as_deref());
    Ok(AppState {
        failpoints,
        store,
        payments,
        refused_callbacks: Arc::default(),
        in_flight: Arc::new(InFlight::default()),
        placing: Arc::default(),
        auditing: Arc::default(),
        limits: Arc::new(RateLimits::new(config.rates)),
        config: Arc::new(config),
        clock: ambient.clock,
        entropy: ambient.entropy,
        wakeups: Arc::new(Wakeups::default()),
        auth: Arc::new(auth),
        metrics: Arc::new(Metrics::default()),
    })
}

/// The database alone, as it is: for commands that only read it. The schema is left as it was found.
pub async fn open_books(config: &Config) -> Result<Store, ServeError> {
    if config.database_url.is_none() {
        let path = PathBuf::from(config.database());
        std::fs::metadata(&path).map_err(|source| ServeError::Data { path, source })?;
    }
    Ok(Store::connect(&config.database()).await?)
}

fn payments(config: &Config) -> Result<Arc<dyn PaymentProvider>, ServeError> {
    Ok(match &config.stripe {
        Some(stripe) => Arc::new(Stripe::new(stripe.clone())?),
        None if config.local_payments => Arc::new(LocalPayments),
        None => Arc::new(NoPayments),
    })
}

type App = axum::extract::connect_info::IntoMakeServiceWithConnectInfo<axum::Router, SocketAddr>;

async fn answer(listener: TcpListener, app: App, mut stopping: watch::Receiver<bool>) {
    let mut deadline = stopping.clone();
    let drained = async move {
        let _ = deadline.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN_MAX).await;
    };
    let serving = axum::serve(listener, app).with_graceful_shutdown(async move {
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    tokio::select! {
        served = serving => if let Err(error) = served { tracing::error!(%error, "stopped answering") },
        () = drained => tracing::warn!("closed connections that were still open"),
    }
}

async fn forget_idle_clients(state: AppState, mut stopping: watch::Receiver<bool>) {
    let mut turns = tokio::time::interval(FORGET_EVERY);
    loop {
        tokio::select! {
            _ = turns.tick() => state.limits.forget_idle(),
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

async fn forget_proofs(state: AppState, mut stopping: watch::Receiver<bool>) {
    let mut turns = tokio::time::interval(proofs::LIFETIME);
    loop {
        tokio::select! {
            _ = turns.tick() => state.auth.proofs.forget(),
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

impl Server {
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub const fn state(&self) -> &AppState {
        &self.state
    }

    /// Stops taking requests and waits until those under way are answered, at most [`DRAIN_MAX`].
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the server ended badly");
            }
        }
    }
}
