//! `cuDeviceGetAttribute`. What the description knows is answered from it, what every current card shares is a constant,
//! and the rest of the known range is 0.

use crate::code::Code;
use crate::driver::{Driver, driver};
use crate::entry::put;

/// The first number that no card answers.
const ATTRIBUTE_END: i32 = 148;

/// `NAME = number => value;`, with the numbers of `CUdevice_attribute`; a test compares them with the header.
macro_rules! attributes {
    (|$spec:ident, $gpu:ident, $major:ident, $minor:ident, $domain:ident, $bus:ident, $device:ident|
     $($name:ident = $number:literal => $value:expr;)*) => {
        #[allow(clippy::match_same_arms)] // one attribute a line
        fn answer(driver: &Driver, card: usize, attribute: i32) -> Option<i64> {
            let ($spec, $gpu) = (&driver.machine().card, &driver.machine().gpus[card]);
            let (($domain, $bus, $device), [$major, $minor]) = ($gpu.pci_numbers(), $spec.compute_capability);
            match attribute {
                $($number => Some($value),)*
                _ if (1..ATTRIBUTE_END).contains(&attribute) => Some(0),
                _ => None,
            }
        }

        #[cfg(test)]
        #[test]
        fn v14_attribute_numbers_are_the_headers() {
            use cudarc::driver::sys::CUdevice_attribute_enum as header;
            $(assert_eq!(header::$name as i32, $number, stringify!($name));)*
        }
    };
}

attributes! {
    |spec, gpu, major, minor, domain, bus, device|
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1 => 1024;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2 => 1024;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3 => 1024;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4 => 64;
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5 => i64::from(i32::MAX);
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6 => 65_535;
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7 => 65_535;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8 => 49_152;
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9 => 65_536;
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10 => 32;
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11 => i64::from(i32::MAX);
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12 => 65_536;
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13 => i64::from(spec.clock_mhz) * 1000;
    CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14 => 512;
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15 => 1;
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16 => i64::from(spec.multiprocessors);
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19 => 1;
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31 => 1;
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32 => i64::from(spec.ecc);
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33 => i64::from(bus);
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34 => i64::from(device);
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36 => i64::from(spec.memory_clock_mhz) * 1000;
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37 => i64::from(spec.memory_bus_bits);
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38 => i64::from(spec.l2_mib) << 20;
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39 => 1536 + 512 * i64::from(major >= 9);
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40 => 2;
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41 => 1;
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50 => i64::from(domain);
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75 => i64::from(major);
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76 => i64::from(minor);
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78 => 1;
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED = 79 => 1;
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED = 80 => 1;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81 => 102_400;
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82 => 65_536;
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83 => 1;
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87 => 32;
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89 => 1;
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED = 90 => 1;
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95 => 1;
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97 => 101_376;
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99 => 1;
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED = 102 => 1;
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103 => 1;
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106 => 24;
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110 => i64::from(spec.ecc); // data centre cards
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111 => 1024;
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115 => 1;
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116 => i64::from(spec.ecc);
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES = 119 => 0;
    CU_DEVICE_ATTRIBUTE_NUMA_ID = 131 => -1;
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134 => i64::from(gpu.numa);
}

driver_api! {
    ["cuDeviceGetAttribute" 2000] fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let number = answer(driver, card, attribute).ok_or(Code::INVALID_VALUE)?;
        put(value, i32::try_from(number).unwrap_or(i32::MAX))
    }
}
