//! The one list of intercepted symbols.
//!
//! A row names the symbol, under which name and from which CUDA version `cuGetProcAddress` finds it, whether it is the
//! per-thread-stream form, its signature, and the function of [`crate::entry`] that stands in for it. From the rows derive the
//! exported functions, the address map of the resolver, and the coverage test against the driver headers.

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{
    AccessDesc, AllocationProp, Code, Device, DevicePtr, Handle, IpcHandle, NOT_FOUND, Opaque, PoolPropsHead,
    UNKNOWN,
};
use crate::entry::{alloc, capture, context, device, ipc, opening, pointer, resolver, stream_ordered, vmm};
use crate::real::{Symbol, c_name};

/// What is known of an intercepted symbol.
#[derive(Debug)]
pub(crate) struct Row {
    /// The exported name.
    pub(crate) symbol: &'static str,
    /// The name that `cuGetProcAddress` takes.
    pub(crate) base: &'static str,
    /// First CUDA version of this form.
    pub(crate) since: i32,
    /// The form for the per-thread default stream.
    pub(crate) per_thread: bool,
    pub(crate) stand_in: *const c_void,
}

// SAFETY: the pointer is the address of a function.
unsafe impl Sync for Row {}

/// Runs a stand-in: a panic inside becomes an error code and a line in the log.
pub(crate) fn enter(call: impl FnOnce() -> Code) -> Code {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(UNKNOWN)
}

macro_rules! intercept {
    ($( [$base:literal $since:literal $flavour:ident]
        $symbol:ident ($($argument:ident : $type:ty),*) => $stand_in:path; )*) => {
        $(
            /// # Safety
            /// As the driver's documentation of the symbol: pointers are null or valid for its use of them.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($argument: $type),*) -> Code {
                static SYMBOL: Symbol = Symbol::new(c_name(concat!(stringify!($symbol), "\0")));
                enter(|| {
                    let Some(address) = SYMBOL.get() else { return NOT_FOUND };
                    // SAFETY: the real driver exports the symbol with this signature (CUDA headers).
                    let real: unsafe extern "C" fn($($type),*) -> Code = unsafe { std::mem::transmute(address) };
                    // SAFETY: passed on from the caller.
                    unsafe { $stand_in(real, $($argument),*) }
                })
            }
        )*

        pub(crate) static ROWS: &[Row] = &[$( Row {
            symbol: stringify!($symbol),
            base: $base,
            since: $since,
            per_thread: intercept!(@per_thread $flavour),
            stand_in: $symbol as *const c_void,
        } ),*];
    };
    (@per_thread plain) => { false };
    (@per_thread ptsz) => { true };
}

intercept! {
    ["cuInit" 2000 plain] cuInit(flags: u32) => device::init;
    ["cuGetProcAddress" 11030 plain]
    cuGetProcAddress(symbol: *const c_char, address: *mut *mut c_void, version: i32, flags: u64) => resolver::v1;
    ["cuGetProcAddress" 12000 plain]
    cuGetProcAddress_v2(symbol: *const c_char, address: *mut *mut c_void, version: i32, flags: u64, found: *mut i32) => resolver::v2;

    ["cuDeviceTotalMem" 2000 plain] cuDeviceTotalMem(bytes: *mut u32, device: Device) => device::total_v1;
    ["cuDeviceTotalMem" 3020 plain] cuDeviceTotalMem_v2(bytes: *mut usize, device: Device) => device::total;
    ["cuMemGetInfo" 2000 plain] cuMemGetInfo(free: *mut u32, total: *mut u32) => device::info_v1;
    ["cuMemGetInfo" 3020 plain] cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => device::info;

    ["cuMemAlloc" 2000 plain] cuMemAlloc(at: *mut u32, bytes: u32) => alloc::alloc_v1;
    ["cuMemAlloc" 3020 plain] cuMemAlloc_v2(at: *mut DevicePtr, bytes: usize) => alloc::alloc;
    ["cuMemAllocPitch" 2000 plain]
    cuMemAllocPitch(at: *mut u32, pitch: *mut u32, width: u32, height: u32, element: u32) => alloc::pitch_v1;
    ["cuMemAllocPitch" 3020 plain]
    cuMemAllocPitch_v2(at: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: u32) => alloc::pitch;
    ["cuMemAllocManaged" 6000 plain] cuMemAllocManaged(at: *mut DevicePtr, bytes: usize, flags: u32) => alloc::managed;
    ["cuMemFree" 2000 plain] cuMemFree(at: u32) => alloc::free_v1;
    ["cuMemFree" 3020 plain] cuMemFree_v2(at: DevicePtr) => alloc::free;

    ["cuMemAllocAsync" 11020 plain]
    cuMemAllocAsync(at: *mut DevicePtr, bytes: usize, stream: Opaque) => stream_ordered::alloc;
    ["cuMemAllocAsync" 11020 ptsz]
    cuMemAllocAsync_ptsz(at: *mut DevicePtr, bytes: usize, stream: Opaque) => stream_ordered::alloc_ptsz;
    ["cuMemAllocFromPoolAsync" 11020 plain]
    cuMemAllocFromPoolAsync(at: *mut DevicePtr, bytes: usize, pool: Opaque, stream: Opaque) => stream_ordered::alloc_from;
    ["cuMemAllocFromPoolAsync" 11020 ptsz]
    cuMemAllocFromPoolAsync_ptsz(at: *mut DevicePtr, bytes: usize, pool: Opaque, stream: Opaque) => stream_ordered::alloc_from_ptsz;
    ["cuMemFreeAsync" 11020 plain] cuMemFreeAsync(at: DevicePtr, stream: Opaque) => stream_ordered::free;
    ["cuMemFreeAsync" 11020 ptsz] cuMemFreeAsync_ptsz(at: DevicePtr, stream: Opaque) => stream_ordered::free_ptsz;
    ["cuMemPoolCreate" 11020 plain]
    cuMemPoolCreate(pool: *mut Opaque, props: *const PoolPropsHead) => stream_ordered::pool_create;
    ["cuMemPoolTrimTo" 11020 plain] cuMemPoolTrimTo(pool: Opaque, keep: usize) => stream_ordered::pool_trim;
    ["cuMemPoolDestroy" 11020 plain] cuMemPoolDestroy(pool: Opaque) => stream_ordered::pool_destroy;

    ["cuMemCreate" 10020 plain]
    cuMemCreate(handle: *mut Handle, bytes: usize, prop: *const AllocationProp, flags: u64) => vmm::create;
    ["cuMemRelease" 10020 plain] cuMemRelease(handle: Handle) => vmm::release;
    ["cuMemRetainAllocationHandle" 11000 plain]
    cuMemRetainAllocationHandle(handle: *mut Handle, at: *mut c_void) => vmm::retain;
    ["cuMemMap" 10020 plain]
    cuMemMap(at: DevicePtr, bytes: usize, offset: usize, handle: Handle, flags: u64) => vmm::map;
    ["cuMemUnmap" 10020 plain] cuMemUnmap(at: DevicePtr, bytes: usize) => vmm::unmap;
    ["cuMemSetAccess" 10020 plain]
    cuMemSetAccess(at: DevicePtr, bytes: usize, access: *const AccessDesc, count: usize) => opening::set_access;
    ["cuMemExportToShareableHandle" 10020 plain]
    cuMemExportToShareableHandle(shareable: *mut c_void, handle: Handle, kind: i32, flags: u64) => vmm::export;
    ["cuMemGetAllocationPropertiesFromHandle" 10020 plain]
    cuMemGetAllocationPropertiesFromHandle(prop: *mut AllocationProp, handle: Handle) => vmm::properties;

    ["cuMemGetAddressRange" 2000 plain]
    cuMemGetAddressRange(base: *mut u32, bytes: *mut u32, at: u32) => pointer::range_v1;
    ["cuMemGetAddressRange" 3020 plain]
    cuMemGetAddressRange_v2(base: *mut DevicePtr, bytes: *mut usize, at: DevicePtr) => pointer::range;
    ["cuPointerGetAttribute" 4000 plain]
    cuPointerGetAttribute(data: *mut c_void, attribute: i32, at: DevicePtr) => pointer::attribute;
    ["cuPointerGetAttributes" 7000 plain]
    cuPointerGetAttributes(count: u32, attributes: *mut i32, data: *mut *mut c_void, at: DevicePtr) => pointer::attributes;
    ["cuPointerSetAttribute" 6000 plain]
    cuPointerSetAttribute(value: *const c_void, attribute: i32, at: DevicePtr) => pointer::set_attribute;
    ["cuIpcGetMemHandle" 4010 plain] cuIpcGetMemHandle(handle: *mut IpcHandle, at: DevicePtr) => ipc::get;
    ["cuIpcOpenMemHandle" 4010 plain]
    cuIpcOpenMemHandle(at: *mut DevicePtr, handle: IpcHandle, flags: u32) => ipc::open_handle;
    ["cuIpcOpenMemHandle" 11000 plain]
    cuIpcOpenMemHandle_v2(at: *mut DevicePtr, handle: IpcHandle, flags: u32) => ipc::open_handle;
    ["cuIpcCloseMemHandle" 4010 plain] cuIpcCloseMemHandle(at: DevicePtr) => ipc::close_handle;
    ["cuMemGetHandleForAddressRange" 11070 plain]
    cuMemGetHandleForAddressRange(handle: *mut c_void, at: DevicePtr, bytes: usize, kind: i32, flags: u64) => pointer::range_handle;

    ["cuStreamBeginCapture" 10000 plain] cuStreamBeginCapture(stream: Opaque) => capture::begin_v1;
    ["cuStreamBeginCapture" 10000 ptsz] cuStreamBeginCapture_ptsz(stream: Opaque) => capture::begin_v1;
    ["cuStreamBeginCapture" 10010 plain] cuStreamBeginCapture_v2(stream: Opaque, mode: i32) => capture::begin;
    ["cuStreamBeginCapture" 10010 ptsz] cuStreamBeginCapture_v2_ptsz(stream: Opaque, mode: i32) => capture::begin;
    ["cuStreamBeginCaptureToGraph" 12030 plain]
    cuStreamBeginCaptureToGraph(stream: Opaque, graph: Opaque, dependencies: *const Opaque, edges: Opaque, count: usize, mode: i32) => capture::begin_to_graph;
    ["cuStreamBeginCaptureToGraph" 12030 ptsz]
    cuStreamBeginCaptureToGraph_ptsz(stream: Opaque, graph: Opaque, dependencies: *const Opaque, edges: Opaque, count: usize, mode: i32) => capture::begin_to_graph;
    ["cuStreamEndCapture" 10000 plain] cuStreamEndCapture(stream: Opaque, graph: *mut Opaque) => capture::end;
    ["cuStreamEndCapture" 10000 ptsz] cuStreamEndCapture_ptsz(stream: Opaque, graph: *mut Opaque) => capture::end;
    ["cuGraphInstantiate" 10000 plain]
    cuGraphInstantiate(made: *mut Opaque, graph: Opaque, node: *mut Opaque, log: *mut u8, room: usize) => capture::instantiate;
    ["cuGraphInstantiate" 11000 plain]
    cuGraphInstantiate_v2(made: *mut Opaque, graph: Opaque, node: *mut Opaque, log: *mut u8, room: usize) => capture::instantiate;
    ["cuGraphInstantiateWithFlags" 11040 plain]
    cuGraphInstantiateWithFlags(made: *mut Opaque, graph: Opaque, flags: u64) => capture::instantiate_with_flags;
    ["cuGraphInstantiateWithParams" 12000 plain]
    cuGraphInstantiateWithParams(made: *mut Opaque, graph: Opaque, params: Opaque) => capture::instantiate_with_params;
    ["cuGraphInstantiateWithParams" 12000 ptsz]
    cuGraphInstantiateWithParams_ptsz(made: *mut Opaque, graph: Opaque, params: Opaque) => capture::instantiate_with_params;

    ["cuCheckpointProcessCheckpoint" 12080 plain]
    cuCheckpointProcessCheckpoint(pid: i32, arguments: Opaque) => context::checkpoint;

    ["cuCtxDestroy" 2000 plain] cuCtxDestroy(context: Opaque) => context::destroy;
    ["cuCtxDestroy" 4000 plain] cuCtxDestroy_v2(context: Opaque) => context::destroy;
    ["cuDevicePrimaryCtxRelease" 7000 plain] cuDevicePrimaryCtxRelease(device: Device) => context::primary_release;
    ["cuDevicePrimaryCtxRelease" 11000 plain] cuDevicePrimaryCtxRelease_v2(device: Device) => context::primary_release;
    ["cuDevicePrimaryCtxReset" 7000 plain] cuDevicePrimaryCtxReset(device: Device) => context::primary_reset;
    ["cuDevicePrimaryCtxReset" 11000 plain] cuDevicePrimaryCtxReset_v2(device: Device) => context::primary_reset;
}

#[cfg(test)]
mod tests;
