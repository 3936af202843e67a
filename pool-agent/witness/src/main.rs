//! `tarn-witness`: an ordinary CUDA driver-API program that knows nothing of pools.
//!
//! It loads `libcuda.so.1` as any program does, takes nearly all memory that its one device reports, writes a pattern that
//! follows from each address into every 2 MiB, reads all of it back and says in one line of JSON what it found. Where the
//! bytes physically lie is not its business; that none is lost or doubled is.

mod cuda;
mod filling;
mod library;
mod smi;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;

use crate::cuda::Cuda;
use crate::filling::{Filling, Tally};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Fills the visible device's memory, verifies every address, reports one line of JSON"
)]
struct Arguments {
    /// Stop allocating at this share of the device's total.
    #[arg(long, default_value_t = 97)]
    fill_percent: u64,
    /// Size of one allocation; smaller ones fill what is left.
    #[arg(long, default_value_t = 8)]
    block_gib: u64,
    /// Keep verifying for this long.
    #[arg(long, default_value_t = 0)]
    loop_seconds: u64,
    /// After the report, keep the memory until SIGTERM.
    #[arg(long)]
    hold: bool,
    /// Print a table as nvidia-smi does.
    #[arg(long)]
    smi: bool,
    /// Print nothing but the JSON line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum WitnessError {
    #[error(transparent)]
    Library(#[from] library::LibraryError),
    #[error(transparent)]
    Cuda(#[from] cuda::CudaError),
    #[error(transparent)]
    Smi(#[from] smi::SmiError),
    #[error("no device is visible")]
    NoDevice,
    #[error("nothing could be allocated")]
    NothingAllocated,
    #[error("{0} words differ from what was written, the first at {1:#x}")]
    Mismatch(u64, u64),
}

fn main() -> ExitCode {
    match witness(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn-witness: {error}");
            ExitCode::FAILURE
        }
    }
}

fn witness(arguments: &Arguments) -> Result<(), WitnessError> {
    let cuda = Cuda::load()?;
    let devices = cuda.devices()?;
    let first = devices.first().ok_or(WitnessError::NoDevice)?;
    if !arguments.json {
        for (at, device) in devices.iter().enumerate() {
            println!("device {at}: {} {} {} MiB", device.name, device.uuid, device.total_bytes >> 20);
        }
    }
    let context = cuda.create_context(0)?;
    let mut filling =
        Filling::take(&cuda, first.total_bytes, arguments.fill_percent, arguments.block_gib << 30)?;
    let first_address = filling.first_address().ok_or(WitnessError::NothingAllocated)?;
    filling.write()?;
    let tally = verify(&filling, Duration::from_secs(arguments.loop_seconds))?;
    if arguments.smi {
        print!("{}", smi::table()?);
    }
    let report = json!({
        "devices": devices.len(),
        "name": first.name,
        "uuid": first.uuid,
        "total_bytes": first.total_bytes,
        "allocated_bytes": filling.allocated_bytes(),
        "blocks": filling.blocks(),
        "granules": tally.granules,
        "verified_bytes": tally.verified_bytes,
        "passes": tally.passes,
        "mismatches": tally.mismatches,
        "first_address": format!("{first_address:#x}"),
    });
    println!("{report}");
    if let Some(address) = tally.first_mismatch {
        return Err(WitnessError::Mismatch(tally.mismatches, address));
    }
    if arguments.hold {
        wait_for_sigterm();
    }
    filling.give_back()?;
    cuda.destroy_context(context)?;
    Ok(())
}

/// One pass, and further ones until the time is over.
#[allow(clippy::disallowed_methods)] // this is main: it owns the clock
fn verify(filling: &Filling<'_>, lasting: Duration) -> Result<Tally, WitnessError> {
    let started = Instant::now();
    let mut tally = filling.verify()?;
    while started.elapsed() < lasting && tally.mismatches == 0 {
        let passes = tally.passes + 1;
        tally = Tally { passes, ..filling.verify()? };
    }
    Ok(tally)
}

#[allow(unsafe_code)] // signals have no safe interface in std
fn wait_for_sigterm() {
    use std::io::Write;
    let _closed_output_is_no_error = std::io::stdout().flush();
    // SAFETY: the set is initialised by sigemptyset before use, and every pointer outlives its call.
    unsafe {
        let mut signals = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, libc::SIGTERM);
        libc::sigaddset(&raw mut signals, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
        let mut received = 0;
        libc::sigwait(&raw const signals, &raw mut received);
    }
}
