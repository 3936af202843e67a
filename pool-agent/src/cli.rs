//! The command line. `run` is for people; the rest is what the agent starts by itself, and `exec` for operators.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tarn_protocol::ids::{GpuUuid, InstanceId};

use crate::donor_guard::driver::DonorMode;
use crate::donor_guard::sentry::EscapePolicy;

#[derive(Debug, Parser)]
#[command(name = "tarn-agent", version, about = "Runs a host's rented instances and proves what ran")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Join the control plane and serve this host.
    Run(Box<RunArguments>),
    /// Run a command inside an instance that is running here.
    Exec {
        #[arg(long)]
        state_dir: PathBuf,
        instance_id: InstanceId,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Set aside what binds this host to its control plane, so that it can join anew: for state that is damaged. Ends nothing.
    Rejoin {
        #[arg(long)]
        state_dir: PathBuf,
    },
    /// Prove links between this host's cards with data, and print a certificate of each as JSON. Changes nothing.
    Probe(ProbeArguments),
    /// Show on one idle card that the donor guard finds and ends a process that may not compute there. Prints JSON.
    GuardCheck {
        /// Default: the first card.
        #[arg(long)]
        card: Option<GpuUuid>,
        /// Seconds to wait for the guard.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Directory of libcuda.so.1 and libnvidia-ml.so.1; default: the system's.
        #[arg(long, env = "TARN_DRIVER_DIR")]
        driver_dir: Option<PathBuf>,
    },
    /// Set everything that is free on a card to zero, look whether it is, and print what was done as JSON. For idle cards.
    ScrubCard {
        #[arg(long)]
        card: GpuUuid,
    },
    /// A process of that check: a context on a card, until it is ended.
    #[command(hide = true)]
    HoldContext {
        #[arg(long)]
        card: GpuUuid,
    },
    /// One of the two processes of a link probe; its socket is on stdin.
    #[command(hide = true)]
    ProbeLink {
        #[arg(long)]
        role: ProbeRole,
        #[arg(long)]
        card: GpuUuid,
        #[arg(long)]
        bytes: u64,
    },
    /// The process that stands for an instance, or the first one inside it.
    #[command(hide = true)]
    RuntimeInit {
        #[arg(long)]
        run_dir: PathBuf,
        #[arg(long)]
        inner: bool,
        #[arg(long)]
        own_pids: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProbeRole {
    Exporter,
    Importer,
}

#[derive(Debug, clap::Args)]
pub struct ProbeArguments {
    /// The card that reads and writes; with `--to`. Default: every ordered pair, or a single card with itself.
    #[arg(long, requires = "to")]
    pub from: Option<GpuUuid>,
    /// The card that owns the memory.
    #[arg(long, requires = "from")]
    pub to: Option<GpuUuid>,
    /// Bytes of memory with which a link is probed; the largest chunk that a pool may use by default.
    #[arg(long, default_value_t = 256 << 20)]
    pub bytes: u64,
    /// Seconds after which a probe is given up.
    #[arg(long, default_value_t = 60)]
    pub deadline_seconds: u64,
    /// Directory of libcuda.so.1 and libnvidia-ml.so.1; default: the system's.
    #[arg(long, env = "TARN_DRIVER_DIR")]
    pub driver_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// Address of the control plane.
    #[arg(long, env = "TARN_SERVER")]
    pub server: String,
    /// Where the agent keeps what it must not forget.
    #[arg(long, env = "TARN_AGENT_STATE_DIR")]
    pub state_dir: PathBuf,
    /// File with the single-use join token; only read until the host has joined.
    #[arg(long)]
    pub join_token_file: Option<PathBuf>,
    /// The token itself; a file is better.
    #[arg(long, env = "TARN_JOIN_TOKEN", hide_env_values = true)]
    pub join_token: Option<String>,
    /// How the host is called; default: its host name.
    #[arg(long)]
    pub name: Option<String>,
    /// Directory of libcuda.so.1 and libnvidia-ml.so.1; default: the system's.
    #[arg(long, env = "TARN_DRIVER_DIR")]
    pub driver_dir: Option<PathBuf>,
    /// Directory of the cards' device nodes; default: `dev` beside the driver directory, else /dev.
    #[arg(long)]
    pub device_dir: Option<PathBuf>,
    /// Where the stand-ins and the broker lie; default: beside this executable.
    #[arg(long)]
    pub artefacts: Option<PathBuf>,
    /// Seconds between reports when nothing changes, until the control plane says otherwise.
    #[arg(long, default_value_t = 2)]
    pub report_seconds: u32,
    /// Milliseconds of running time in one piece of usage evidence.
    #[arg(long, default_value_t = 2000)]
    pub usage_interval_ms: u64,
    /// Seconds that an instance gets between SIGTERM and SIGKILL.
    #[arg(long, default_value_t = 5)]
    pub drain_seconds: u64,
    /// Bytes of memory with which a link is probed: the largest chunk that a pool may use.
    #[arg(long, default_value_t = 256 << 20)]
    pub probe_bytes: u64,
    /// Seconds after which a probe is given up.
    #[arg(long, default_value_t = 60)]
    pub probe_deadline_seconds: u64,
    /// Do not probe every link at the start.
    #[arg(long)]
    pub no_probe_on_start: bool,
    /// What is done to a tenant's process that computes on a card it did not rent.
    #[arg(long, value_enum, default_value_t = EscapePolicy::Stop)]
    pub donor_escape: EscapePolicy,
    /// Compute mode of a pool's donors while it runs. Needs root; the driver has to allow context-free memory on such cards.
    #[arg(long, value_enum, default_value_t = DonorMode::Untouched)]
    pub donor_mode: DonorMode,
    /// Bytes that an instance's own processes may hold on each donor, by the kernel's dmem controller; default: not limited.
    #[arg(long)]
    pub donor_dmem_max: Option<u64>,
    /// Seconds that scrubbing one card may take after an instance.
    #[arg(long, default_value_t = 60)]
    pub scrub_deadline_seconds: u64,
    /// Bytes of this host's memory that each pool may overflow into once all its cards are full. It is never shown or sold as device
    /// memory. Default: none.
    #[arg(long, env = "TARN_AGENT_HOST_TIER_MAX")]
    pub host_tier_max: Option<u64>,
    /// Stands in for the kernel's boot id; for tests.
    #[arg(long, hide = true)]
    pub boot_id: Option<String>,
    /// Die at this named place; for tests.
    #[arg(long, hide = true)]
    pub failpoint: Option<String>,
}
