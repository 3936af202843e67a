//! V11: every function of the driver headers is hooked, passed on purpose, or reported; and the table's rows are the headers' forms.

use std::collections::BTreeSet;

use super::*;

const FORMS: &str = include_str!("../../data/driver_forms.tsv");
const VERDICTS: &str = include_str!("../../data/verdicts.tsv");

fn lines(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

/// (name, since, per-thread form) of the headers.
fn forms() -> BTreeSet<(&'static str, i32, bool)> {
    lines(FORMS).map(|form| (form[0], form[1].parse().unwrap(), form[2] != "plain")).collect()
}

fn verdict(name: &str) -> Option<usize> {
    lines(VERDICTS)
        .position(|rule| rule[0].strip_suffix('*').map_or(rule[0] == name, |start| name.starts_with(start)))
}

#[test]
fn v11_every_function_of_the_headers_has_a_verdict() {
    let rules: Vec<Vec<&str>> = lines(VERDICTS).collect();
    let mut unused: BTreeSet<usize> = (0..rules.len()).collect();
    for name in forms().iter().map(|(name, ..)| *name).collect::<BTreeSet<_>>() {
        let at = verdict(name).unwrap_or_else(|| panic!("{name} has no verdict"));
        unused.remove(&at);
        let hooked = ROWS.iter().any(|row| row.base == name);
        assert_eq!(rules[at][1] == "hooked", hooked, "{name}");
        assert!(
            matches!(rules[at][1], "hooked" | "passed" | "reported") && !rules[at][2].is_empty(),
            "{name}"
        );
    }
    let unused: Vec<_> = unused.into_iter().map(|at| rules[at][0]).collect();
    assert!(unused.is_empty(), "rules for nothing: {unused:?}");
}

#[test]
fn v11_every_form_of_a_hooked_function_has_its_row_and_no_row_is_invented() {
    let rows: BTreeSet<_> = ROWS.iter().map(|row| (row.base, row.since, row.per_thread)).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row stands twice");
    let wanted: BTreeSet<_> =
        forms().into_iter().filter(|form| ROWS.iter().any(|row| row.base == form.0)).collect();
    let missing: Vec<_> = wanted.difference(&rows).collect();
    let invented: Vec<_> = rows.difference(&wanted).collect();
    assert!(missing.is_empty() && invented.is_empty(), "missing {missing:?}, invented {invented:?}");
}

#[test]
fn symbols_carry_their_flavour() {
    for row in ROWS {
        assert!(row.symbol.starts_with(row.base), "{row:?}");
        assert_eq!(row.per_thread, row.symbol.ends_with("_ptsz"), "{row:?}");
        assert!(!row.stand_in.is_null());
    }
}
