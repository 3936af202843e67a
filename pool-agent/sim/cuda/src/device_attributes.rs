//! `cuDeviceGetAttribute`: numbers of `CUdevice_attribute`. What the description knows is answered from it; what every
//! current card shares is a constant; the rest of the known range is 0.

use crate::code::Code;
use crate::driver::{Driver, driver};
use crate::entry::put;

const ATTRIBUTE_MAX: i32 = 150;

fn answer(driver: &Driver, card: usize, attribute: i32) -> Option<i64> {
    let machine = driver.machine();
    let gpu = &machine.gpus[card];
    let (domain, bus, device) = gpu.pci_numbers();
    let spec = &machine.card;
    Some(match attribute {
        1 => 1024,                              // threads per block
        2 | 3 => 1024,                          // block x, y
        4 => 64,                                // block z
        5 => i64::from(i32::MAX),               // grid x
        6 | 7 => 65_535,                        // grid y, z
        8 => 49_152,                            // shared bytes per block
        9 | 12 => 65_536,                       // constant bytes; registers per block
        10 => 32,                               // warp
        11 => i64::from(i32::MAX),              // pitch
        13 => i64::from(spec.clock_mhz) * 1000, // kHz
        14 => 512,                              // texture alignment
        15 | 31 | 41 | 19 => 1, // overlap, concurrent kernels, unified addressing, map host memory
        16 => i64::from(spec.multiprocessors),
        32 => i64::from(spec.ecc),
        33 => i64::from(bus),
        34 => i64::from(device),
        36 => i64::from(spec.memory_clock_mhz) * 1000, // kHz
        37 => i64::from(spec.memory_bus_bits),
        38 => i64::from(spec.l2_mib) << 20,
        39 => 1536 + 512 * i64::from(spec.compute_capability[0] >= 9),
        40 => 2, // copy engines
        50 => i64::from(domain),
        75 => i64::from(spec.compute_capability[0]),
        76 => i64::from(spec.compute_capability[1]),
        78..=80 | 83 => 1, // stream priorities, L1 caches, managed memory
        81 => 102_400,     // shared bytes per multiprocessor
        82 => 65_536,      // registers per multiprocessor
        87 => 32,          // single to double ratio
        89 | 90 | 95 => 1, // concurrent managed access, preemption, cooperative launch
        97 => 101_376,     // opt-in shared bytes
        99 => 1,           // host registration
        102 | 103 => 1,    // virtual memory, POSIX descriptors
        115 | 119 => 1,    // memory pools; their handle types: POSIX descriptors
        106 => 24,         // blocks per multiprocessor
        111 => 1024,       // reserved shared bytes
        134 => i64::from(gpu.numa),
        _ if (1..ATTRIBUTE_MAX).contains(&attribute) => 0,
        _ => return None,
    })
}

driver_api! {
    ["cuDeviceGetAttribute" 2000] fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let number = answer(driver, card, attribute).ok_or(Code::INVALID_VALUE)?;
        put(value, i32::try_from(number).unwrap_or(i32::MAX))
    }
}
