//! A table as `nvidia-smi` prints it, from the NVML library that the loader finds.

#![allow(unsafe_code)] // calls through C function pointers

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write;

use crate::library::{Library, LibraryError};

type Status = u32;
type Handle = *mut c_void;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SmiError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{0} failed with {1}")]
    Call(&'static str, Status),
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Process {
    pid: u32,
    used_bytes: u64,
    instances: [u32; 2],
}

struct Nvml(Library);

fn check(call: &'static str, code: Status) -> Result<(), SmiError> {
    if code == 0 { Ok(()) } else { Err(SmiError::Call(call, code)) }
}

impl Nvml {
    fn text(&self, call: &'static str, handle: Handle) -> Result<String, SmiError> {
        let mut text = [0 as c_char; 96];
        // SAFETY: the type is the header's for name and UUID, and the length is the array's.
        unsafe {
            let function: unsafe extern "C" fn(Handle, *mut c_char, u32) -> Status = self.0.function(call)?;
            check(call, function(handle, text.as_mut_ptr(), 96))?;
            Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    }

    fn driver(&self) -> Result<String, SmiError> {
        let mut text = [0 as c_char; 96];
        let call = "nvmlSystemGetDriverVersion";
        // SAFETY: the type is the header's, and the length is the array's.
        unsafe {
            let function: unsafe extern "C" fn(*mut c_char, u32) -> Status = self.0.function(call)?;
            check(call, function(text.as_mut_ptr(), 96))?;
            Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    }

    fn handles(&self) -> Result<Vec<Handle>, SmiError> {
        let mut count = 0;
        // SAFETY: the types are the header's, and out-parameters outlive their calls.
        unsafe {
            let init: unsafe extern "C" fn() -> Status = self.0.function("nvmlInit_v2")?;
            let counting: unsafe extern "C" fn(*mut u32) -> Status =
                self.0.function("nvmlDeviceGetCount_v2")?;
            let get: unsafe extern "C" fn(u32, *mut Handle) -> Status =
                self.0.function("nvmlDeviceGetHandleByIndex_v2")?;
            check("nvmlInit_v2", init())?;
            check("nvmlDeviceGetCount_v2", counting(&raw mut count))?;
            let mut handles = Vec::new();
            for index in 0..count {
                let mut handle = std::ptr::null_mut();
                check("nvmlDeviceGetHandleByIndex_v2", get(index, &raw mut handle))?;
                handles.push(handle);
            }
            Ok(handles)
        }
    }

    fn memory(&self, handle: Handle) -> Result<Memory, SmiError> {
        let mut memory = Memory::default();
        let call = "nvmlDeviceGetMemoryInfo";
        // SAFETY: the type is the header's, and the out-parameter outlives the call.
        unsafe {
            let function: unsafe extern "C" fn(Handle, *mut Memory) -> Status = self.0.function(call)?;
            check(call, function(handle, &raw mut memory))?;
        }
        Ok(memory)
    }

    fn processes(&self, handle: Handle) -> Result<Vec<Process>, SmiError> {
        let mut rows = vec![Process::default(); 64];
        let mut count = 64;
        let call = "nvmlDeviceGetComputeRunningProcesses_v3";
        // SAFETY: the type is the header's, and the array has the room that `count` says.
        unsafe {
            let function: unsafe extern "C" fn(Handle, *mut u32, *mut Process) -> Status =
                self.0.function(call)?;
            check(call, function(handle, &raw mut count, rows.as_mut_ptr()))?;
        }
        rows.truncate(count as usize);
        Ok(rows)
    }
}

/// The whole table.
pub(crate) fn table() -> Result<String, SmiError> {
    let nvml = Nvml(Library::load("libnvidia-ml.so.1")?);
    let handles = nvml.handles()?;
    let mut table = String::new();
    let mut processes = String::new();
    let line = format!("+{}+\n", "-".repeat(78));
    let title = format!("NVIDIA-SMI  Driver Version: {}", nvml.driver()?);
    let _never_fails = write!(table, "{line}| {title:<76} |\n{line}");
    for (at, handle) in handles.into_iter().enumerate() {
        let (name, uuid) = (nvml.text("nvmlDeviceGetName", handle)?, nvml.text("nvmlDeviceGetUUID", handle)?);
        let memory = nvml.memory(handle)?;
        let used = format!("{}MiB / {}MiB", memory.used >> 20, memory.total >> 20);
        let _never_fails = write!(table, "| {at:>3}  {name:<44} {used:>26} |\n|      {uuid:<71} |\n{line}");
        for process in nvml.processes(handle)? {
            let bytes = format!("{}MiB", process.used_bytes >> 20);
            let _never_fails = writeln!(processes, "| {at:>3}  {:>10}  C  {bytes:>56} |", process.pid);
        }
    }
    if processes.is_empty() {
        processes = format!("| {:<76} |\n", "No running processes found");
    }
    let _never_fails =
        write!(table, "| {:<76} |\n{processes}{line}", "GPU         PID  Type  GPU Memory Usage");
    Ok(table)
}
