//! Scrubs cards from outside: a process each, a deadline, and a verdict.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tarn_protocol::ids::GpuUuid;

use super::process::Scrubbed;
use crate::donor_guard::allowed::Allowed;

const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct Scrubber {
    pub own_executable: PathBuf,
    pub driver_dir: Option<PathBuf>,
    /// Told of the process before it touches the card.
    pub allowed: Arc<Allowed>,
    pub deadline: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    #[error("the scrubber cannot be started")]
    Spawn(#[source] std::io::Error),
    #[error("the scrubber did not end within {0:?}")]
    Late(Duration),
    #[error("the scrubber failed: {0}")]
    Failed(String),
    #[error("{0} of the bytes that were looked at are not zero after scrubbing")]
    Unclean(u64),
}

impl Scrubber {
    /// Scrubs one card that nobody uses.
    pub fn scrub(&self, card: &GpuUuid) -> Result<Scrubbed, ScrubError> {
        let mut command = Command::new(&self.own_executable);
        command.args(["scrub-card", "--card", card.as_str()]);
        command.env_clear().env("CUDA_VISIBLE_DEVICES", card.as_str());
        if let Some(directory) = &self.driver_dir {
            command.env("LD_LIBRARY_PATH", directory);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(ScrubError::Spawn)?;
        self.allowed.admit(child.id());
        let mut waited = Duration::ZERO;
        while matches!(child.try_wait(), Ok(None)) {
            if waited >= self.deadline {
                let _gone = child.kill();
                let _reaped = child.wait();
                return Err(ScrubError::Late(self.deadline));
            }
            std::thread::sleep(POLL);
            waited += POLL;
        }
        // It is dead, so neither pipe waits; it wrote less than one holds.
        let text = |pipe: Option<&mut dyn Read>| {
            let mut text = String::new();
            pipe.map(|pipe| pipe.read_to_string(&mut text));
            text
        };
        let out = text(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
        let Ok(scrubbed) = serde_json::from_str::<Scrubbed>(out.trim()) else {
            let complaint = text(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
            return Err(ScrubError::Failed(complaint.lines().last().unwrap_or("no word").to_owned()));
        };
        match scrubbed.unclean_bytes {
            0 => Ok(scrubbed),
            unclean => Err(ScrubError::Unclean(unclean)),
        }
    }
}

impl Scrubbed {
    /// Decimal megabytes per second.
    pub fn mb_per_second(&self) -> u64 {
        self.bytes.saturating_mul(1000) / self.nanos.max(1)
    }
}
