//! Xids, as the driver tells them, to the board and the health book within the second.

use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::ids::GpuUuid;

/// How long one wait for an event lasts; only bounds how often the thread looks around.
const WAIT_MS: u32 = 1000;

/// Calls `heard` for every Xid, from a thread of its own, as long as the process lives. A driver without events leaves detection to
/// the samples.
pub fn listen(nvml: &Arc<Nvml>, heard: impl Fn(GpuUuid, u32) + Send + 'static) -> std::io::Result<()> {
    let nvml = Arc::clone(nvml);
    std::thread::Builder::new().name("xid".to_owned()).spawn(move || {
        if let Err(error) = run(&nvml, &heard) {
            tracing::warn!(%error, "no Xid events from this driver");
        }
    })?;
    Ok(())
}

fn run(nvml: &Nvml, heard: &impl Fn(GpuUuid, u32)) -> Result<(), NvmlError> {
    let mut set = nvml.create_event_set()?;
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| error.error)?;
    }
    loop {
        match set.wait(WAIT_MS) {
            Ok(event) => {
                let xid = match event.event_data {
                    Some(XidError::Value(value)) => u32::try_from(value).unwrap_or(999),
                    Some(XidError::Unknown) => 999,
                    None => continue,
                };
                if let Some(uuid) = event.device.uuid().ok().and_then(|text| GpuUuid::try_from(text).ok()) {
                    heard(uuid, xid);
                }
            }
            // Both are said again by the next sample of the card.
            Err(NvmlError::Timeout | NvmlError::GpuLost) => {}
            Err(error) => return Err(error),
        }
    }
}
