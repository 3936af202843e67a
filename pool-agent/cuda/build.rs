//! The shape of the library file: its own name is the driver's, and it needs the real driver under another one.
//!
//! A program that loads `libcuda.so.1` gets this library; every symbol that it does not define resolves to
//! `libcuda-real.so.1` beside it. That file exists only where the library is installed, so linking uses an empty stub of its name.

use std::path::PathBuf;

include!("../floor/link.rs");

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let stub = stub(&out, "libcuda-real.so.1");
    for argument in floor(Path::new("../floor"), &out) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    for argument in [
        "-Wl,-soname,libcuda.so.1",
        "-Wl,--push-state,--no-as-needed",
        &stub,
        "-Wl,--pop-state",
        // RPATH, not RUNPATH: the tenant's LD_LIBRARY_PATH must not choose another driver.
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN",
        // Allocations outlive a dlclose.
        "-Wl,-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
