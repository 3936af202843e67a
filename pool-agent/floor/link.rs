// Shared by the build scripts of both stand-ins: binds the library to what glibc 2.17 has (see floor.c). Not a module of any crate.

use std::path::Path;
use std::process::Command;

/// Compiles the floor into `out`; returns linker arguments. `source` is where this file lies.
fn floor(source: &Path, out: &Path) -> Vec<String> {
    let c = source.join("floor.c");
    println!("cargo::rerun-if-changed={}", c.display());
    println!("cargo::rerun-if-changed={}", source.join("link.rs").display());
    let object = out.join("floor.o");
    let flags = ["-c", "-O2", "-fPIC", "-fno-builtin", "-fno-stack-protector", "-Wall", "-Wextra", "-Werror", "-o"];
    run(Command::new("cc").args(flags).arg(&object).arg(&c));
    let mut arguments = vec![object.display().to_string(), "-Wl,--push-state,--no-as-needed".to_owned()];
    // Until glibc 2.34 these held what floor.c binds; since then they are empty and still there.
    for library in ["libdl.so.2", "libpthread.so.0"] {
        arguments.push(stub(out, library));
    }
    arguments.push("-Wl,--pop-state".to_owned());
    arguments
}

/// An empty library of this name, to link against.
fn stub(out: &Path, name: &str) -> String {
    let (source, library) = (out.join("stub.c"), out.join(name));
    std::fs::write(&source, "").expect("OUT_DIR is writable");
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", &format!("-Wl,-soname,{name}"), "-o"])
        .arg(&library)
        .arg(&source));
    library.to_str().expect("OUT_DIR is UTF-8").to_owned()
}

fn run(command: &mut Command) {
    let status = command.status().expect("a C compiler is installed");
    assert!(status.success(), "{command:?} failed");
}
