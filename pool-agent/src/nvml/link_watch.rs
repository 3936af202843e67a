//! NVLinks that come and go while the host runs. The driver raises an Xid for some of it and nothing for the rest.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::ids::GpuUuid;

use super::host::active_nvlinks;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Calls `changed` with the card and its active links before and now, each card from a thread of its own (one that hangs keeps no other
/// from being looked at).
pub fn watch(
    nvml: &Arc<Nvml>,
    cards: Vec<GpuUuid>,
    changed: impl Fn(&GpuUuid, usize, usize) + Clone + Send + 'static,
) -> std::io::Result<()> {
    for card in cards {
        let (nvml, changed) = (Arc::clone(nvml), changed.clone());
        std::thread::Builder::new().name("links".to_owned()).spawn(move || {
            // What cannot be asked has not changed: a lost card is told by its samples.
            let mut before = count(&nvml, &card).ok();
            loop {
                std::thread::sleep(LOOK_EVERY);
                let Ok(now) = count(&nvml, &card) else { continue };
                if let Some(before) = before.filter(|before| *before != now) {
                    changed(&card, before, now);
                }
                before = Some(now);
            }
        })?;
    }
    Ok(())
}

fn count(nvml: &Nvml, card: &GpuUuid) -> Result<usize, NvmlError> {
    Ok(active_nvlinks(&nvml.device_by_uuid(card.as_str())?).count())
}
