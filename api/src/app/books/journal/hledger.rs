//! hledger's journal format.
//!
//! Balance assertions are checked in order of date, then of place in the file, so one transaction at the end, dated with the last
//! one, asserts the final balances.

use std::io::{self, Write};

use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;
use tarn_rows::ledger::TransferRow;

use super::{day, decimal, facts, one_line};

pub fn begin(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "; Tarn's ledger. Debits are positive, credits negative.")?;
    writeln!(out, "decimal-mark .\ncommodity 1000.000000 CNY\n")
}

pub fn open(out: &mut dyn Write, account: &str) -> io::Result<()> {
    writeln!(out, "account {account}")
}

pub fn transfer(out: &mut dyn Write, row: &TransferRow, debit: &str, credit: &str) -> io::Result<()> {
    // A semicolon would begin a comment; with status and code before it, nothing else in a description means anything.
    let memo = one_line(&row.memo).replace(';', "；");
    writeln!(out, "\n{} * ({}) {} | {memo}", day(row.created_at, 0), row.id, row.kind)?;
    let tags: Vec<String> = facts(row).into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
    writeln!(out, "    ; {}", tags.join(", "))?;
    let amount = i128::from(row.amount_micros.get());
    writeln!(out, "    {debit}  {} CNY", decimal(amount))?;
    writeln!(out, "    {credit}  {} CNY", decimal(-amount))
}

pub fn begin_balances(out: &mut dyn Write, last_at: Timestamp) -> io::Result<()> {
    writeln!(out, "\n{} * balances", day(last_at, 0))
}

pub fn balance(out: &mut dyn Write, account: &str, held: Micros) -> io::Result<()> {
    writeln!(out, "    {account}  0.000000 CNY = {} CNY", decimal(-i128::from(held.get())))
}
