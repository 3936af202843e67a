//! `tarn-sim`: makes a simulated host, breaks it on purpose, shows what it carries.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tarn_sim::{Fault, Host};

#[derive(Debug, Parser)]
#[command(version, about = "Simulated GPU hosts: create, break, look")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a directory a simulated host.
    Create {
        /// A shipped preset (see `presets`) or a path to a TOML file.
        #[arg(long)]
        preset: String,
        #[arg(long)]
        dir: PathBuf,
        /// UUIDs and serials follow from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where the driver libraries were built; default: beside this program.
        #[arg(long)]
        artefacts: Option<PathBuf>,
    },
    /// List the shipped presets.
    Presets,
    /// Show each card's use, processes and faults.
    Show {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Break something, or `clear` everything. Cards are indices or UUIDs.
    Fault {
        #[arg(long)]
        dir: PathBuf,
        #[command(subcommand)]
        fault: FaultCommand,
    },
}

#[derive(Debug, Subcommand)]
enum FaultCommand {
    Xid { gpu: String, code: u32 },
    CardLost { gpu: String },
    LinkLost { from: String, to: String },
    P2pWritesVanish { from: String, to: String },
    P2pEnableFails { from: String, to: String },
    AtomicsMissing { from: String, to: String },
    UpperHalfVanishes { from: String, to: String },
    VanishUnderLoad { from: String, to: String },
    KernelsHang { from: String, to: String },
    KernelsCrash { from: String, to: String },
    Temperature { gpu: String, celsius: u32 },
    SlowAlloc { gpu: String, milliseconds: u32 },
    HungNvml { gpu: String, milliseconds: u32 },
    Load { gpu: String, percent: u32 },
    Accounting { gpu: String },
    KeepsFreed { gpu: String },
    LinkDegrade { from: String, to: String, percent: u32 },
    Clear,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Create { preset, dir, seed, artefacts } => {
            let beside =
                std::env::current_exe()?.parent().context("this program has no directory")?.to_owned();
            let host = Host::create(&dir, &preset, seed, &artefacts.unwrap_or(beside))?;
            println!("{}", host.lib_dir().display());
        }
        Command::Presets => tarn_sim::preset::shipped().for_each(|name| println!("{name}")),
        Command::Show { dir, json } => show(&Host::open(&dir)?, json)?,
        Command::Fault { dir, fault } => {
            let host = Host::open(&dir)?;
            host.fault(resolve(&host, &fault)?)?;
        }
    }
    Ok(())
}

fn resolve(host: &Host, fault: &FaultCommand) -> anyhow::Result<Fault> {
    let card = |name: &str| {
        let index = name.parse().ok().or_else(|| host.machine().by_uuid(name));
        index.with_context(|| format!("no card {name:?}"))
    };
    Ok(match fault {
        FaultCommand::Xid { gpu, code } => Fault::Xid { gpu: card(gpu)?, code: *code },
        FaultCommand::CardLost { gpu } => Fault::CardLost { gpu: card(gpu)? },
        FaultCommand::LinkLost { from, to } => Fault::LinkLost { from: card(from)?, to: card(to)? },
        FaultCommand::P2pWritesVanish { from, to } => {
            Fault::P2pWritesVanish { from: card(from)?, to: card(to)? }
        }
        FaultCommand::P2pEnableFails { from, to } => {
            Fault::P2pEnableFails { from: card(from)?, to: card(to)? }
        }
        FaultCommand::AtomicsMissing { from, to } => {
            Fault::AtomicsMissing { from: card(from)?, to: card(to)? }
        }
        FaultCommand::UpperHalfVanishes { from, to } => {
            Fault::UpperHalfVanishes { from: card(from)?, to: card(to)? }
        }
        FaultCommand::VanishUnderLoad { from, to } => {
            Fault::VanishUnderLoad { from: card(from)?, to: card(to)? }
        }
        FaultCommand::KernelsHang { from, to } => Fault::KernelsHang { from: card(from)?, to: card(to)? },
        FaultCommand::KernelsCrash { from, to } => Fault::KernelsCrash { from: card(from)?, to: card(to)? },
        FaultCommand::Temperature { gpu, celsius } => {
            Fault::Temperature { gpu: card(gpu)?, celsius: *celsius }
        }
        FaultCommand::SlowAlloc { gpu, milliseconds } => {
            Fault::SlowAlloc { gpu: card(gpu)?, milliseconds: *milliseconds }
        }
        FaultCommand::HungNvml { gpu, milliseconds } => {
            Fault::HungNvml { gpu: card(gpu)?, milliseconds: *milliseconds }
        }
        FaultCommand::Load { gpu, percent } => Fault::Load { gpu: card(gpu)?, percent: *percent },
        FaultCommand::Accounting { gpu } => Fault::Accounting { gpu: card(gpu)? },
        FaultCommand::KeepsFreed { gpu } => Fault::KeepsFreed { gpu: card(gpu)? },
        FaultCommand::LinkDegrade { from, to, percent } => {
            Fault::LinkDegrade { from: card(from)?, to: card(to)?, percent: *percent }
        }
        FaultCommand::Clear => Fault::Clear,
    })
}

fn show(host: &Host, json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for gpu in host.gpus() {
        let processes = host.processes(gpu.index)?;
        let used_bytes = host.used_bytes(&gpu.uuid)?.unwrap_or(0);
        rows.push((gpu, used_bytes, processes, faults(host, gpu.index)?));
    }
    if json {
        let document: Vec<_> = rows
            .iter()
            .map(|(gpu, used_bytes, processes, faults)| {
                serde_json::json!({ "index": gpu.index, "uuid": gpu.uuid, "memory_bytes": gpu.memory_bytes,
                    "used_bytes": used_bytes, "processes": processes, "faults": faults })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    println!(
        "{:<4} {:<41} {:>11} {:>11}  processes (pid:MiB)  faults",
        "card", "uuid", "total MiB", "used MiB"
    );
    for (gpu, used_bytes, processes, faults) in rows {
        let processes: Vec<String> =
            processes.iter().map(|(pid, bytes)| format!("{pid}:{}", bytes >> 20)).collect();
        let processes = if processes.is_empty() { "-".to_owned() } else { processes.join(" ") };
        let faults = if faults.is_empty() { "-".to_owned() } else { faults.join(", ") };
        let (total, used) = (gpu.memory_bytes >> 20, used_bytes >> 20);
        println!("{:<4} {:<41} {total:>11} {used:>11}  {processes:<19}  {faults}", gpu.index, gpu.uuid);
    }
    Ok(())
}

fn faults(host: &Host, gpu: usize) -> anyhow::Result<Vec<String>> {
    let state = host.state()?;
    let card = &state.gpus[gpu];
    let mut faults = Vec::new();
    let mut note = |on: bool, text: String| faults.extend(on.then_some(text));
    note(card.lost != 0, "card-lost".to_owned());
    note(card.last_xid != 0, format!("xid {}", card.last_xid));
    note(card.temperature_c != 0, format!("temperature {}", card.temperature_c.saturating_sub(1)));
    note(card.slow_allocation_ms != 0, format!("slow-alloc {} ms", card.slow_allocation_ms));
    note(card.keeps_freed != 0, format!("keeps-freed, {} MiB dirty", card.dirty_bytes >> 20));
    note(card.hung_nvml_ms != 0, format!("hung-nvml {} ms", card.hung_nvml_ms));
    for to in 0..host.gpus().len() {
        let link = &state.links[gpu][to];
        note(link.lost != 0, format!("link-lost to {to}"));
        note(link.writes_vanish != 0, format!("p2p-writes-vanish to {to}"));
        note(link.enable_fails != 0, format!("p2p-enable-fails to {to}"));
        note(link.atomics_missing != 0, format!("atomics-missing to {to}"));
        note(link.upper_half_vanishes != 0, format!("upper-half-vanishes to {to}"));
        note(link.vanish_under_load != 0, format!("vanish-under-load to {to}"));
        note(link.kernels == tarn_sim::layout::KERNELS_HANG, format!("kernels-hang to {to}"));
        note(link.kernels == tarn_sim::layout::KERNELS_CRASH, format!("kernels-crash to {to}"));
        note(link.degraded_percent != 0, format!("link-degrade to {to} {} %", link.degraded_percent));
    }
    Ok(faults)
}
