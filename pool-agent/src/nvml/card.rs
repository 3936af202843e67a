//! One card and the thread that speaks about it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::control::GpuTelemetry;
use tarn_protocol::hardware::{Gpu, GpuHealth};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

/// Questions that wait for one card: the workers of its slices, a report, a probe.
const QUESTIONS_MAX: usize = 64;

/// What a card is; does not change while the driver lives.
#[derive(Debug, Clone)]
pub struct CardFacts {
    pub gpu: Gpu,
    pub nvlink: Nvlink,
}

/// Active NVLinks of one card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nvlink {
    /// PCI bus id of each link's other end, where the driver tells it.
    pub ends: Vec<Option<String>>,
    /// Decimal megabytes per second and direction of one link; 0 when it cannot be told.
    pub mb_per_second: u64,
}

/// What a card shows at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardSample {
    /// In use beyond what the driver keeps for itself.
    pub used_bytes: u64,
    pub free_bytes: u64,
    pub reserved_bytes: u64,
    pub utilization_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    /// Compute processes: pid and bytes.
    pub processes: Vec<(u32, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    #[error("NVML does not answer for this card")]
    Unresponsive,
    #[error("the card is lost")]
    Lost,
    #[error("NVML refuses: {detail}")]
    Nvml { detail: String },
}

impl From<NvmlError> for CardError {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::GpuLost => Self::Lost,
            other => Self::Nvml { detail: other.to_string() },
        }
    }
}

type Answer = Result<CardSample, CardError>;

/// The side of the thread that others hold.
#[derive(Debug)]
pub struct Card {
    pub facts: CardFacts,
    ask: SyncSender<SyncSender<Answer>>,
    asked: AtomicU64,
    answered: Arc<AtomicU64>,
    /// As many answers have to be given before the card is asked again: up to then its thread hangs.
    late_until: AtomicU64,
    last: Mutex<Option<CardSample>>,
}

impl Card {
    /// Starts the thread of a card that has already told what it is.
    pub fn watch(nvml: &Arc<Nvml>, facts: CardFacts) -> std::io::Result<Self> {
        let (ask, asked) = sync_channel(QUESTIONS_MAX);
        let answered = Arc::new(AtomicU64::new(0));
        let (nvml, answers) = (Arc::clone(nvml), Arc::clone(&answered));
        let uuid = facts.gpu.uuid.clone();
        std::thread::Builder::new().name(format!("card-{}", facts.gpu.minor)).spawn(move || {
            answer(&nvml, &uuid, &asked, &answers);
        })?;
        Ok(Self {
            facts,
            ask,
            asked: AtomicU64::new(0),
            answered,
            late_until: AtomicU64::new(0),
            last: Mutex::new(None),
        })
    }

    pub fn uuid(&self) -> &GpuUuid {
        &self.facts.gpu.uuid
    }

    /// A fresh sample, or why there is none within `deadline`.
    pub fn sample(&self, deadline: Duration) -> Answer {
        if self.answered.load(Ordering::Relaxed) < self.late_until.load(Ordering::Relaxed) {
            return Err(CardError::Unresponsive);
        }
        let (reply, replied) = sync_channel(1);
        match self.ask.try_send(reply) {
            Ok(()) => {}
            // So many ask at once only when nobody is answered.
            Err(TrySendError::Full(_)) => return Err(CardError::Unresponsive),
            Err(TrySendError::Disconnected(_)) => return Err(CardError::Lost),
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let answer = replied.recv_timeout(deadline).unwrap_or_else(|_| {
            self.late_until.fetch_max(number, Ordering::Relaxed);
            Err(CardError::Unresponsive)
        });
        if let Ok(sample) = &answer {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample.clone());
        }
        answer
    }

    /// The last good sample, however old.
    pub fn last(&self) -> Option<CardSample> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The card's line in a report, and its health if that is not what it seemed.
    pub fn telemetry(&self, deadline: Duration) -> (GpuTelemetry, Option<GpuHealth>) {
        let answer = self.sample(deadline);
        let health = match &answer {
            Ok(_) => None,
            Err(CardError::Lost) => Some(GpuHealth::OutOfService { reason: "card lost".to_owned() }),
            Err(error) => Some(GpuHealth::Unresponsive { reason: error.to_string() }),
        };
        let responsive = answer.is_ok();
        let sample = answer.ok().or_else(|| self.last()).unwrap_or_default();
        let telemetry = GpuTelemetry {
            uuid: self.uuid().clone(),
            used_bytes: Bytes::new(sample.used_bytes),
            utilization_percent: sample.utilization_percent,
            temperature_celsius: sample.temperature_celsius,
            power_milliwatts: sample.power_milliwatts,
            responsive,
        };
        (telemetry, health)
    }
}

fn answer(nvml: &Nvml, uuid: &GpuUuid, asked: &Receiver<SyncSender<Answer>>, answers: &AtomicU64) {
    while let Ok(reply) = asked.recv() {
        let answer = sample(nvml, uuid);
        answers.fetch_add(1, Ordering::Relaxed);
        // Whoever asked may have stopped waiting.
        let _late = reply.try_send(answer);
    }
}

fn sample(nvml: &Nvml, uuid: &GpuUuid) -> Answer {
    let device = nvml.device_by_uuid(uuid.as_str())?;
    let memory = device.memory_info()?;
    let processes = device.running_compute_processes().unwrap_or_default();
    Ok(CardSample {
        used_bytes: memory.used,
        free_bytes: memory.free,
        reserved_bytes: memory.reserved,
        utilization_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        power_milliwatts: device.power_usage().ok(),
        processes: processes
            .into_iter()
            .map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => (process.pid, bytes),
                UsedGpuMemory::Unavailable => (process.pid, 0),
            })
            .collect(),
    })
}
