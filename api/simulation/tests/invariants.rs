//! The table of invariants in `docs/invariants.md` says what the repository has.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    name: String,
    breaks: String,
    file: String,
    within: Option<String>,
    find: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn faults() -> Vec<Fault> {
    let text = std::fs::read_to_string(repository().join("api/simulation/mutants/faults.toml")).unwrap();
    toml::from_str::<Faults>(&text).unwrap().fault
}

/// Rows of the table as number, tests and faults.
fn rows() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(repository().join("docs/invariants.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| M"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_owned(), cells[3].to_owned(), cells[4].to_owned())
    })
    .collect()
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_invariants_names_tests_that_exist() {
    let worlds = "api/simulation/tests/simulation.rs: m1_to_m20_ten_thousand_worlds_end_at_the_truth";
    let rows = rows();
    let numbers: Vec<String> = (1..=20).map(|number| format!("M{number}")).collect();
    assert_eq!(rows.iter().map(|(number, ..)| number.clone()).collect::<Vec<_>>(), numbers);
    for (number, tests, _) in &rows {
        let named = quoted(tests);
        assert!(!named.is_empty(), "{number} has no test");
        for test in named.into_iter().chain([worlds]) {
            let (file, name) = test.split_once(": ").unwrap_or((test, ""));
            let path = repository().join(file);
            assert!(path.exists(), "{number}: {file} is not there");
            let text = if path.is_file() { std::fs::read_to_string(path).unwrap() } else { String::new() };
            assert!(
                name.is_empty() || text.contains(&format!("fn {name}(")),
                "{number}: {file} has no {name}"
            );
        }
    }
}

#[test]
fn the_table_of_invariants_names_the_faults_that_are_tried() {
    let faults = faults();
    let listed: BTreeSet<(String, String)> = rows()
        .iter()
        .flat_map(|(number, _, cell)| {
            quoted(cell).into_iter().map(|name| (number.clone(), name.to_owned())).collect::<Vec<_>>()
        })
        .collect();
    let tried: BTreeSet<(String, String)> =
        faults.iter().map(|fault| (fault.breaks.clone(), fault.name.clone())).collect();
    assert_eq!(listed, tried);
}

#[test]
fn the_table_of_invariants_has_faults_whose_place_is_still_there() {
    for fault in faults() {
        let text = std::fs::read_to_string(repository().join(&fault.file)).unwrap();
        let within = fault.within.as_deref().unwrap_or(&fault.find).trim_matches('\n');
        assert_eq!(text.matches(within).count(), 1, "{}: {}", fault.name, fault.file);
        assert_eq!(within.matches(fault.find.as_str()).count(), 1, "{}: {}", fault.name, fault.file);
    }
}
