//! Links the stand-in as `libnvidia-ml.so.1` in front of the real library.
//!
//! The real library is found at run time as `libnvidia-ml-real.so.1` beside the stand-in. Linking needs a file of that
//! name, so an empty shared object is made here: a host without a driver can build.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let empty = out.join("empty.c");
    std::fs::write(&empty, "").expect("OUT_DIR is writable");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libnvidia-ml-real.so.1", "-o"])
        .arg(out.join("libnvidia-ml-real.so.1"))
        .arg(&empty)
        .status()
        .expect("a C compiler is installed");
    assert!(status.success(), "the C compiler could not make an empty shared object");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-cdylib-link-arg={}", out.join("libnvidia-ml-real.so.1").display());
    println!("cargo:rerun-if-changed=build.rs");
}
