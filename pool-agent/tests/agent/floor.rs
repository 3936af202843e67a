//! The libraries that go into tenants' images load beside a C library as old as glibc 2.17.

use std::process::Command;

use crate::host::artefact;

const FLOOR: (u32, u32) = (2, 17);

/// What a library wants of others: file or symbol, and the version of the C library.
fn wanted(library: &str) -> Vec<(String, (u32, u32))> {
    let read = |arguments: &[&str]| {
        let output = Command::new("readelf").args(arguments).arg(artefact(library)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = |text: &str| {
        let numbers = text.split("GLIBC_").nth(1)?;
        let end = numbers.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(numbers.len());
        let mut numbers = numbers[..end].split('.').map(|number| number.parse::<u32>().unwrap());
        Some((numbers.next()?, numbers.next()?))
    };
    // Symbols, and the list of versions that the loader checks before it looks at any symbol.
    let text = read(&["-W", "--dyn-syms"]) + &read(&["-W", "--version-info"]);
    let relative = |line: &&str| line.contains(" UND ") || line.contains("Name: GLIBC_");
    text.lines().filter(relative).filter_map(|line| Some((line.trim().to_owned(), version(line)?))).collect()
}

#[test]
fn the_stand_ins_ask_for_nothing_that_glibc_2_17_lacks() {
    for library in ["libtarn_standin_cuda.so", "libtarn_standin_nvml.so"] {
        let wanted = wanted(library);
        assert!(wanted.iter().any(|(line, _)| line.contains("malloc")), "{library}: {wanted:?}");
        let newer: Vec<_> = wanted.iter().filter(|(_, version)| *version > FLOOR).collect();
        assert!(newer.is_empty(), "{library} needs a newer C library: {newer:#?}");
    }
}

#[test]
fn other_artefacts_show_that_this_test_can_fail() {
    // The broker runs on the host and has no such floor; built here, it asks for more.
    let newest = wanted("tarn-broker").into_iter().map(|(_, version)| version).max().unwrap();
    assert!(newest > FLOOR, "{newest:?}");
}
