//! beancount's format.
//!
//! Directives are sorted by date, and a balance holds at the beginning of its day, so the final balances are those of the day after
//! the last transfer. Their tolerance is zero: beancount would else allow a difference in the last digit.

use std::io::{self, Write};

use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;
use tarn_rows::ledger::TransferRow;

use super::{day, decimal, facts, one_line};

/// Before any transfer.
const OPENING: &str = "1970-01-01";

pub fn begin(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "; Tarn's ledger. Debits are positive, credits negative.")?;
    writeln!(
        out,
        "option \"title\" \"Tarn\"\noption \"operating_currency\" \"CNY\"\n{OPENING} commodity CNY\n"
    )
}

pub fn open(out: &mut dyn Write, account: &str) -> io::Result<()> {
    writeln!(out, "{OPENING} open {account} CNY")
}

pub fn transfer(out: &mut dyn Write, row: &TransferRow, debit: &str, credit: &str) -> io::Result<()> {
    let memo = one_line(&row.memo).replace('\\', "\\\\").replace('"', "\\\"");
    writeln!(out, "\n{} * \"{}\" \"{memo}\" ^{}", day(row.created_at, 0), row.kind, row.id)?;
    for (name, value) in facts(row) {
        writeln!(out, "  {name}: \"{value}\"")?;
    }
    let amount = i128::from(row.amount_micros.get());
    writeln!(out, "  {debit}  {} CNY", decimal(amount))?;
    writeln!(out, "  {credit}  {} CNY", decimal(-amount))
}

pub fn balance(out: &mut dyn Write, last_at: Timestamp, account: &str, held: Micros) -> io::Result<()> {
    let held = decimal(-i128::from(held.get()));
    writeln!(out, "{} balance {account}  {held} ~ 0.000000 CNY", day(last_at, 1))
}
