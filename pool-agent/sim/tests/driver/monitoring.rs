//! NVML through `nvml-wrapper`, and its agreement with CUDA.

use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::error::NvmlError;
use tarn_sim::Fault;

use crate::driver::bench::{Bench, Running, artefacts, eventually};

fn nvml(bench: &Bench) -> Nvml {
    Nvml::builder().lib_path(bench.host.lib_dir().join("libnvidia-ml.so.1").as_os_str()).init().unwrap()
}

#[test]
fn identity_agrees_by_every_route() {
    let bench = Bench::new("rtx4090-x8-seed");
    let nvml = nvml(&bench);
    assert_eq!(nvml.device_count().unwrap(), 8);
    for gpu in bench.host.gpus() {
        let device = nvml.device_by_uuid(gpu.uuid.as_str()).unwrap();
        assert_eq!(device.index().unwrap() as usize, gpu.index);
        assert_eq!(device.uuid().unwrap(), gpu.uuid);
        assert_eq!(device.name().unwrap(), "NVIDIA GeForce RTX 4090");
        assert_eq!(device.serial().unwrap(), gpu.serial);
        let pci = device.pci_info().unwrap();
        assert_eq!(nvml.device_by_pci_bus_id(pci.bus_id).unwrap().uuid().unwrap(), gpu.uuid);
        assert_eq!(device.memory_info().unwrap().total, gpu.memory_bytes);
        assert_eq!(device.bar1_memory_info().unwrap().total, 32 << 30);
    }
    assert!(matches!(
        nvml.device_by_uuid("GPU-00000000-0000-0000-0000-000000000000"),
        Err(NvmlError::NotFound)
    ));
    std::fs::remove_file(bench.host.device_node(3)).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 7);
    assert!(matches!(nvml.device_by_uuid(bench.host.gpus()[3].uuid.as_str()), Err(NvmlError::NotFound)));
}

#[test]
fn m10_a_tenants_bytes_are_the_same_in_nvml_and_in_the_ledger() {
    let bench = Bench::new("rtx4090-x8-seed");
    let nvml = nvml(&bench);
    let mut command = bench.command(&artefacts().join("tarn-witness"));
    command.args(["--json", "--hold"]);
    let mut witness = Running::start(command);
    witness.until("{");
    let device = nvml.device_by_index(0).unwrap();
    let memory = device.memory_info().unwrap();
    let reserved = bench.host.gpus()[0].reserved_bytes;
    assert_eq!(memory.used >> 20, bench.used_mib(0));
    assert_eq!(memory.used + memory.free + reserved, memory.total);
    let processes = device.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid, witness.child.id());
    witness.kill();
    assert_eq!(device.memory_info().unwrap().used, 0);
    assert!(device.running_compute_processes().unwrap().is_empty());
}

#[test]
fn an_xid_reaches_a_registered_set_and_a_lost_card_says_so() {
    let bench = Bench::new("rtx4090-x8-seed");
    let nvml = nvml(&bench);
    let device = nvml.device_by_index(2).unwrap();
    let set = nvml.create_event_set().unwrap();
    let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap();
    assert!(matches!(set.wait(20), Err(NvmlError::Timeout)));
    bench.host.fault(Fault::Xid { gpu: 1, code: 31 }).unwrap();
    bench.host.fault(Fault::Xid { gpu: 2, code: 48 }).unwrap();
    let event = set.wait(1000).unwrap();
    assert_eq!(event.device.index().unwrap(), 2);
    bench.host.fault(Fault::CardLost { gpu: 2 }).unwrap();
    assert!(matches!(device.memory_info(), Err(NvmlError::GpuLost)));
    assert!(nvml.device_by_index(1).unwrap().memory_info().is_ok());
}

#[test]
fn h3_a_hung_call_hangs_that_card_only_and_ends_when_cleared() {
    let bench = Bench::new("rtx4090-x8-seed");
    let nvml = nvml(&bench);
    let (hung, sound) = (nvml.device_by_index(3).unwrap(), nvml.device_by_index(0).unwrap());
    bench.host.fault(Fault::HungNvml { gpu: 3, milliseconds: 600_000 }).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hung.memory_info().is_ok());
        for _ in 0..20 {
            assert!(sound.memory_info().is_ok());
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        bench.host.fault(Fault::Clear).unwrap();
        eventually("the call returns", || waiting.is_finished());
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn temperature_and_links_follow_the_host() {
    let bench = Bench::new("rtx4090-x8-seed");
    let nvml = nvml(&bench);
    let device = nvml.device_by_index(0).unwrap();
    let sensor = nvml_wrapper::enum_wrappers::device::TemperatureSensor::Gpu;
    assert_eq!(device.temperature(sensor).unwrap(), 38);
    bench.host.fault(Fault::Temperature { gpu: 0, celsius: 97 }).unwrap();
    assert_eq!(device.temperature(sensor).unwrap(), 97);
    assert!(device.link_wrapper_for(0).is_active().unwrap());
    assert!(device.link_wrapper_for(4).is_active().is_err());
    bench.host.fault(Fault::LinkLost { from: 0, to: 1 }).unwrap();
    assert!(!device.link_wrapper_for(0).is_active().unwrap());
    let stock = Bench::new("rtx4090-x8-stock");
    let card = self::nvml(&stock);
    assert!(matches!(
        card.device_by_index(0).unwrap().link_wrapper_for(0).is_active(),
        Err(NvmlError::NotSupported)
    ));
}
