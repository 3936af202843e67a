//! How the demo looks on a terminal: plain lines, one thing each.

use super::keys::Keys;

pub(super) fn title(text: &str) {
    println!("{text}\n");
}

/// Something happened.
pub(super) fn step(text: &str) {
    println!("• {text}");
}

/// Text that a program inside the instance printed, set off from ours.
pub(super) fn quote(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// Rows of aligned columns; the first row is the heading.
pub(super) fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        println!("    {}", cells.join("  ").trim_end());
    }
}

/// Bytes as GiB with two digits, by integer arithmetic.
pub(super) fn gib(bytes: u64) -> String {
    let hundredths = u128::from(bytes) * 100 / (1 << 30);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

pub(super) fn credentials(url: &str, keys: &Keys) {
    println!();
    println!("Still serving. Press Ctrl-C to end.");
    println!("    status page    {url}/");
    println!("    API reference  {url}/docs");
    println!("    customer       {}  {}", keys.customer.email, keys.customer.password);
    println!("    operator       {}  {}", keys.operator.email, keys.operator.password);
    println!();
}
