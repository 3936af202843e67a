//! `tarn demo`: the whole story on one machine, told by a real API client.
//!
//! It starts a control plane and a simulated host (the real agent, broker and stand-ins on the simulated driver), signs a
//! customer up, rents a Pool-96, lets an ordinary CUDA program fill and verify the pool, stops it and reads the bill. Every figure
//! it prints was observed through the API or computed here from the published rule; nothing is assumed to have happened.
//!
//! * [`cast`]: operator and customer, signed in.
//! * [`client`]: the API as a customer's program uses it.
//! * [`host`]: the simulated machine and its agent process.
//! * [`keys`]: what a second run on the same data needs to continue.
//! * [`story`], [`bill`]: the steps, and what they cost.
//! * [`facts`]: what was observed, and the last line.
//! * [`starts`]: how long starts take, when asked.
//! * [`screen`]: how it looks.

mod bill;
mod cast;
mod client;
mod facts;
mod host;
mod keys;
mod screen;
mod starts;
mod story;

use std::path::{Path, PathBuf};

use self::facts::Facts;
use self::host::AgentStart;
use self::story::Teller;
use crate::app::operators::promote::PromoteError;
use crate::config::Config;
use crate::serve::{self, Server};

/// What `tarn demo` was asked.
#[derive(Debug)]
pub struct Options {
    pub config: Config,
    /// End after the story.
    pub once: bool,
    /// After the story, measure this many starts.
    pub starts: usize,
    /// Where `tarn-agent`, `tarn-broker`, `tarn-witness` and the libraries lie; the directory of this program.
    pub artefacts: PathBuf,
}

/// Runs the story, then serves until `stopped` resolves unless `once`.
pub async fn run(options: Options, stopped: impl Future<Output = ()>) -> Result<(), DemoError> {
    let Options { config, once, starts, artefacts } = options;
    host::require_artefacts(&artefacts)?;
    let data_dir = config.data_dir.clone();
    std::fs::create_dir_all(&data_dir)
        .map_err(|source| DemoError::Data { path: data_dir.clone(), source })?;
    screen::title("Tarn: four cards, one device, one bill");
    let server = serve::serve(config).await?;
    screen::step(&format!("control plane at {}, state in {}", server.url(), data_dir.display()));
    let told = tell_and_serve(&server, &data_dir, &artefacts, Afterwards { once, starts }, stopped).await;
    server.stop().await;
    println!("{}", told?.last_line());
    Ok(())
}

/// What happens when the story is told.
#[derive(Debug, Clone, Copy)]
struct Afterwards {
    once: bool,
    starts: usize,
}

async fn tell_and_serve(
    server: &Server,
    data_dir: &Path,
    artefacts: &Path,
    afterwards: Afterwards,
    stopped: impl Future<Output = ()>,
) -> Result<Facts, DemoError> {
    let cast = cast::Cast::gather(server, data_dir).await?;
    let machine = host::machine(data_dir, artefacts)?;
    let start = AgentStart {
        artefacts,
        data_dir,
        driver_dir: &machine.lib_dir(),
        url: &server.url(),
        join_token: cast.join_token.as_deref(),
    };
    start.end_leftover().await;
    let mut agent = start.spawn()?;
    let state = server.state();
    let customer = cast.customer.clone();
    let (clock, entropy) = (state.clock.as_ref(), state.entropy.as_ref());
    let mut stopped = std::pin::pin!(stopped);
    let mut teller = Teller { customer, artefacts, clock, entropy, agent: &mut agent };
    let told = tokio::select! {
        told = teller.tell() => told,
        () = &mut stopped => Err(DemoError::Interrupted),
    };
    let mut facts = told.and_then(|facts| facts.check().map(|()| facts));
    if facts.is_ok() && afterwards.starts > 0 {
        let measured = starts::measure(&cast.customer, clock, entropy, afterwards.starts).await;
        facts = measured.and(facts);
    }
    if facts.is_ok() && !afterwards.once {
        screen::credentials(&server.url(), &cast.keys);
        stopped.await;
    }
    // However the story ended, nothing is left running at the customer's cost.
    if let Err(error) = story::clear(&cast.customer).await {
        tracing::warn!(%error, "an instance may still be running; the next run on this data ends it");
    }
    agent.stop().await;
    facts
}

/// Why the demo could not go on. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{file} is not beside this program in {directory}: run `make build` first")]
    Artefact { file: &'static str, directory: PathBuf },
    #[error("cannot use {path}: choose another directory with TARN_DATA_DIR")]
    Data { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a file of this demo: move it away or choose another TARN_DATA_DIR")]
    Keys { path: PathBuf, source: serde_json::Error },
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error("cannot make the simulated host")]
    Host(#[from] tarn_sim::host::HostError),
    #[error("cannot start {program}")]
    Start { program: PathBuf, source: std::io::Error },
    #[error("the agent ended early ({status}): see {log}")]
    AgentEnded { status: std::process::ExitStatus, log: PathBuf },
    #[error("cannot reach the control plane for {call}")]
    Unreachable { call: String, source: reqwest::Error },
    #[error("{call} answered {status}: {detail}")]
    Refused { call: String, status: u16, code: String, detail: String },
    #[error("the answer to {call} lacks {field}")]
    Shape { call: String, field: &'static str },
    #[error("gave up after {seconds} s waiting for {what}{hint}")]
    Timeout { what: String, seconds: u64, hint: String },
    #[error("interrupted")]
    Interrupted,
    #[error("the story does not hold: {0}")]
    Untrue(String),
    #[error("cannot make the demo's operator")]
    Promote(#[from] PromoteError),
    #[error("{path} holds a sign-in that is not valid: move it away or choose another TARN_DATA_DIR")]
    Login { path: PathBuf },
}
