//! The ledger as a plain-text journal for the bookkeeping programs hledger and beancount, so that someone who trusts neither Tarn nor
//! its audit can add it up.
//!
//! A journal opens every account, tells every transfer once, and ends with what Tarn says each account holds; the other program
//! refuses it if its own sum differs by a micro. Both formats name accounts alike ([`account_name`]) and use the bookkeeper's signs:
//! a debit is positive, a credit negative. So a wallet, which Tarn owes, is a liability with a negative balance, and every balance is
//! Tarn's own with the other sign.
//!
//! Words that people wrote (memos) are the only text here that Tarn did not choose. They stand in one place of each format, on one
//! line, with what that place would read as its own marks escaped or replaced.

mod beancount;
mod hledger;

use std::collections::HashMap;
use std::io::{self, Write};

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::audit::Difference;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{AccountId, TenantId};
use tarn_protocol::units::Timestamp;
use tarn_rows::audit::AuditAccountRow;
use tarn_rows::ledger::TransferRow;
use tarn_store::{Store, StoreError, Tx};

use super::pages::{LAST, Pages};

const MICROS_PER_UNIT: u128 = 1_000_000;

/// Whose journal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Hledger,
    Beancount,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportFailed {
    /// A row that cannot be told.
    #[error(transparent)]
    Different(#[from] Difference),
    #[error("transfer {transfer} moves money of account {account}, which is not there")]
    UnknownAccount { transfer: String, account: AccountId },
    #[error("the journal could not be written")]
    Write(#[from] io::Error),
    #[error("the ledger could not be read")]
    Store(#[from] StoreError),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    pub transfers: u64,
    pub accounts: u64,
}

/// `2026-12-01` (its beginning, UTC) or an RFC 3339 instant.
pub fn until(text: &str) -> Result<Timestamp, String> {
    let midnight = |day: jiff::civil::Date| {
        jiff::tz::Offset::UTC.to_timestamp(day.to_datetime(jiff::civil::Time::midnight()))
    };
    let instant = text.parse::<jiff::Timestamp>().or_else(|_| text.parse().and_then(midnight));
    let instant =
        instant.map_err(|_| "expected a date such as 2026-12-01, or an RFC 3339 instant".to_owned())?;
    Ok(Timestamp::from_micros(instant.as_microsecond()))
}

/// Writes every transfer made before `until` (all, if `None`) and the balances after them; gives the writer back.
pub async fn export<W>(
    store: &Store,
    format: Format,
    until: Option<Timestamp>,
    out: W,
) -> Result<(W, Exported), ExportFailed>
where
    W: Write + Send + 'static,
{
    store.snapshot(move |tx| Box::pin(async move { export_here(tx, format, until, out).await })).await
}

async fn export_here<W: Write + Send>(
    tx: &mut Tx,
    format: Format,
    until: Option<Timestamp>,
    mut out: W,
) -> Result<(W, Exported), ExportFailed> {
    format.begin(&mut out)?;
    let accounts = open_accounts(tx, format, &mut out).await?;
    let (transfers, last_at) = transfers(tx, format, until, &mut out).await?;
    balances(tx, format, until, last_at, &mut out).await?;
    out.flush()?;
    Ok((out, Exported { transfers, accounts }))
}

async fn open_accounts<W: Write>(tx: &mut Tx, format: Format, out: &mut W) -> Result<u64, ExportFailed> {
    let (mut pages, mut after, mut count) = (Pages::of("account"), String::new(), 0);
    loop {
        let read = tx.audit_accounts(&after, pages.limit).await;
        let Some(rows) = pages.read::<_, ExportFailed>(&after, read)? else { continue };
        for row in &rows {
            format.open(out, &account_name(row.kind, row.tenant_id.as_ref()))?;
            count += 1;
        }
        let Some(last) = rows.last().filter(|_| pages.full(&rows)) else { return Ok(count) };
        after = last.id.to_string();
    }
}

/// How many there were, and the newest instant.
async fn transfers<W: Write>(
    tx: &mut Tx,
    format: Format,
    until: Option<Timestamp>,
    out: &mut W,
) -> Result<(u64, Timestamp), ExportFailed> {
    let (mut pages, mut after) = (Pages::of("transfer"), String::new());
    let mut names = Names::default();
    let (mut count, mut last_at) = (0, Timestamp::from_micros(0));
    let until = until.unwrap_or(Timestamp::from_micros(i64::MAX));
    loop {
        let read = tx.journal_transfers(&after, until, pages.limit).await;
        let Some(rows) = pages.read::<_, ExportFailed>(&after, read)? else { continue };
        for row in &rows {
            let (debit, credit) =
                (names.of(row, &row.debit_account_id)?, names.of(row, &row.credit_account_id)?);
            format.transfer(out, row, &debit, &credit)?;
            (count, last_at) = (count + 1, last_at.max(row.created_at));
        }
        let Some(last) = rows.last().filter(|_| pages.full(&rows)) else { return Ok((count, last_at)) };
        after = last.id.to_string();
    }
}

/// What every account holds: of a wallet its stored balance, of all else, and of the past, the sum of its entries.
async fn balances<W: Write>(
    tx: &mut Tx,
    format: Format,
    until: Option<Timestamp>,
    last_at: Timestamp,
    out: &mut W,
) -> Result<(), ExportFailed> {
    let bound = until.unwrap_or(Timestamp::from_micros(i64::MAX));
    let rows = tx.journal_other_sums(bound).await?;
    let mut sums: HashMap<AccountId, Micros> =
        rows.into_iter().map(|row| (row.account_id, row.sum_micros)).collect();
    format.begin_balances(out, last_at)?;
    let (mut pages, mut after) = (Pages::of("account"), String::new());
    loop {
        let read = tx.audit_accounts(&after, pages.limit).await;
        let Some(rows) = pages.read::<_, ExportFailed>(&after, read)? else { continue };
        let end = rows.last().filter(|_| pages.full(&rows)).map(|row| row.id.to_string());
        if until.is_some() {
            let upto = end.as_deref().unwrap_or(LAST);
            let past = tx.journal_wallet_sums(&after, upto, bound).await?;
            sums.extend(past.into_iter().map(|row| (row.account_id, row.sum_micros)));
        }
        for row in &rows {
            let summed = sums.remove(&row.id).unwrap_or_default();
            let held = stored(row).filter(|_| until.is_none()).unwrap_or(summed);
            format.balance(out, last_at, &account_name(row.kind, row.tenant_id.as_ref()), held)?;
        }
        let Some(end) = end else { return Ok(()) };
        after = end;
    }
}

const fn stored(row: &AuditAccountRow) -> Option<Micros> {
    row.posted_micros
}

/// Where an account stands in a chart of accounts; the same in both formats: parts of letters, digits and hyphens, each beginning
/// with a capital.
pub fn account_name(kind: AccountKind, tenant_id: Option<&TenantId>) -> String {
    let place = match kind {
        AccountKind::WalletCash => "Liabilities:Tenants:Wallet-Cash",
        AccountKind::WalletPromo => "Liabilities:Tenants:Wallet-Promo",
        AccountKind::Receivable => "Assets:Tenants:Receivable",
        AccountKind::RevenueGpu => "Income:Revenue-Gpu",
        AccountKind::RevenueStorage => "Income:Revenue-Storage",
        AccountKind::TopupClearing => "Assets:Topup-Clearing",
        AccountKind::TrialGrants => "Expenses:Trial-Grants",
        AccountKind::PromoGrants => "Expenses:Promo-Grants",
        AccountKind::Refund => "Assets:Refund",
        AccountKind::Sla => "Expenses:Sla",
    };
    let Some(tenant_id) = tenant_id else { return place.to_owned() };
    let own = tenant_id.as_str().replacen("ten_", "Ten-", 1);
    match place.rsplit_once(':') {
        Some((above, last)) => format!("{above}:{own}:{last}"),
        None => format!("{place}:{own}"),
    }
}

/// Names of accounts by their ids: Tarn's own, and those of the tenant whose transfers come now.
#[derive(Debug, Default)]
struct Names {
    system: HashMap<AccountId, String>,
    tenant: Option<TenantId>,
    own: HashMap<AccountId, String>,
}

impl Names {
    fn of(&mut self, row: &TransferRow, id: &AccountId) -> Result<String, ExportFailed> {
        let named =
            |account: Account| (account.id().clone(), account_name(account.kind(), account.tenant_id()));
        if self.system.is_empty() {
            self.system = Account::all_of_system().into_iter().map(named).collect();
        }
        if self.tenant != row.tenant_id {
            self.own = row
                .tenant_id
                .as_ref()
                .map(Account::all_of)
                .unwrap_or_default()
                .into_iter()
                .map(named)
                .collect();
            self.tenant.clone_from(&row.tenant_id);
        }
        self.own
            .get(id)
            .or_else(|| self.system.get(id))
            .cloned()
            .ok_or_else(|| ExportFailed::UnknownAccount { transfer: row.id.to_string(), account: id.clone() })
    }
}

impl Format {
    fn begin(self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Hledger => hledger::begin(out),
            Self::Beancount => beancount::begin(out),
        }
    }

    fn open(self, out: &mut dyn Write, account: &str) -> io::Result<()> {
        match self {
            Self::Hledger => hledger::open(out, account),
            Self::Beancount => beancount::open(out, account),
        }
    }

    fn transfer(self, out: &mut dyn Write, row: &TransferRow, debit: &str, credit: &str) -> io::Result<()> {
        match self {
            Self::Hledger => hledger::transfer(out, row, debit, credit),
            Self::Beancount => beancount::transfer(out, row, debit, credit),
        }
    }

    fn begin_balances(self, out: &mut dyn Write, last_at: Timestamp) -> io::Result<()> {
        match self {
            Self::Hledger => hledger::begin_balances(out, last_at),
            Self::Beancount => Ok(()),
        }
    }

    /// `held` has Tarn's sign.
    fn balance(self, out: &mut dyn Write, last_at: Timestamp, account: &str, held: Micros) -> io::Result<()> {
        match self {
            Self::Hledger => hledger::balance(out, account, held),
            Self::Beancount => beancount::balance(out, last_at, account, held),
        }
    }
}

/// Six decimals, always, so that the other program keeps micros.
fn decimal(micros: i128) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let magnitude = micros.unsigned_abs();
    format!("{sign}{}.{:06}", magnitude / MICROS_PER_UNIT, magnitude % MICROS_PER_UNIT)
}

/// The UTC day of an instant, `days` later.
fn day(at: Timestamp, days: i64) -> String {
    let instant = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let date = jiff::tz::Offset::UTC.to_datetime(instant).date();
    date.saturating_add(jiff::Span::new().days(days)).to_string()
}

fn instant(at: Timestamp) -> String {
    let instant = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{instant:.6}")
}

/// Text on one line: whatever ends or hides a line becomes a space.
fn one_line(text: &str) -> String {
    let breaks = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    text.replace(breaks, " ").trim().to_owned()
}

/// What a transfer is about, in words that Tarn chose: ids, and a payment provider's name for it reduced to plain letters.
fn facts(row: &TransferRow) -> Vec<(&'static str, String)> {
    let plain = |text: &String| {
        text.replace(
            |letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')),
            "_",
        )
    };
    let known = [
        ("at", Some(instant(row.created_at))),
        ("segment", row.segment_id.as_ref().map(ToString::to_string)),
        ("grant", row.grant_id.as_ref().map(ToString::to_string)),
        ("reverses", row.reverses.as_ref().map(ToString::to_string)),
        ("provider", row.external_provider.as_ref().map(plain)),
        ("external", row.external_id.as_ref().map(plain)),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_to_the_micro() {
        let cases =
            [(0, "0.000000"), (-1, "-0.000001"), (9_999_333, "9.999333"), (-10_000_000, "-10.000000")];
        for (micros, text) in cases {
            assert_eq!(decimal(micros), text);
        }
        assert_eq!(decimal(i128::from(i64::MIN)), "-9223372036854.775808");
    }

    #[test]
    fn days_are_utc_days() {
        let at = until("2027-01-15T23:59:59.999999Z").unwrap();
        assert_eq!((day(at, 0), day(at, 1)), ("2027-01-15".to_owned(), "2027-01-16".to_owned()));
        assert_eq!(until("2027-01-16").unwrap().micros_since(at), 1);
        assert!(until("yesterday").is_err());
    }

    #[test]
    fn accounts_of_all_kinds_have_names_of_their_own() {
        let tenant = TenantId::new(Timestamp::from_micros(0), 1);
        let names: std::collections::BTreeSet<String> = AccountKind::ALL
            .map(|kind| account_name(kind, Some(&tenant).filter(|_| kind.of_tenant())))
            .into_iter()
            .collect();
        assert_eq!(names.len(), AccountKind::ALL.len());
        assert!(names.contains(&format!("Liabilities:Tenants:Ten-{}:Wallet-Cash", &tenant.as_str()[4..])));
    }
}
