//! Links the stand-in as `libnvidia-ml.so.1` in front of the real library.
//!
//! The real library is found at run time as `libnvidia-ml-real.so.1` beside the stand-in. Linking needs a file of that
//! name, so an empty shared object is made here: a host without a driver can build.

use std::path::PathBuf;

include!("../floor/link.rs");

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let real = stub(&out, "libnvidia-ml-real.so.1");
    for argument in floor(Path::new("../floor"), &out) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    for argument in
        ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", real.as_str()]
    {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
