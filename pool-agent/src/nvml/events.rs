//! Xids, as the driver tells them, to the board and the health book within the second.

use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::ids::GpuUuid;

/// How long one wait for an event lasts; only bounds how often the thread looks around.
const WAIT_MS: u32 = 1000;

/// Calls `heard` for every Xid of every card, each card from a thread of its own (one that hangs silences no other), as long as the
/// process lives. A driver without events leaves detection to the samples.
pub fn listen(
    nvml: &Arc<Nvml>,
    cards: Vec<GpuUuid>,
    heard: impl Fn(&GpuUuid, u32) + Clone + Send + 'static,
) -> std::io::Result<()> {
    for card in cards {
        let (nvml, heard) = (Arc::clone(nvml), heard.clone());
        std::thread::Builder::new().name("xid".to_owned()).spawn(move || {
            if let Err(error) = run(&nvml, &card, &heard) {
                tracing::warn!(%error, %card, "no Xid events of this card");
            }
        })?;
    }
    Ok(())
}

fn run(nvml: &Nvml, card: &GpuUuid, heard: &impl Fn(&GpuUuid, u32)) -> Result<(), NvmlError> {
    let device = nvml.device_by_uuid(card.as_str())?;
    let set = nvml.create_event_set()?;
    let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| error.error)?;
    loop {
        match set.wait(WAIT_MS) {
            Ok(event) => {
                let xid = match event.event_data {
                    Some(XidError::Value(value)) => u32::try_from(value).unwrap_or(999),
                    Some(XidError::Unknown) => 999,
                    None => continue,
                };
                heard(card, xid);
            }
            // Both are said again by the next sample of the card.
            Err(NvmlError::Timeout | NvmlError::GpuLost) => {}
            Err(error) => return Err(error),
        }
    }
}
