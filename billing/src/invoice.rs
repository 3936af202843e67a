//! Invoices: what was used in a period, said once and for ever.
//!
//! An invoice takes from each segment the settled seconds that no invoice has taken yet, up to the end of its period. Billed seconds
//! of a segment are counted from its opening, so the parts of a segment on several invoices are `[0, a)`, `[a, b)` …, their amounts are
//! differences of the same cumulative floor, and they sum to what was settled, to the micro. Seconds that are proven after their
//! period was invoiced are on the next one. Nothing on an invoice is ever changed: what is given back later is a credit note of its
//! own number, with the amounts below zero.
//!
//! The document carries all that it needs (seller, buyer, SKU, card, seconds, rate, price version, what paid for it), so it outlives
//! the instance, the price book and the tenant's details. It is exact; [`fen`] rounds, in print only and only the totals.

use std::fmt;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{GpuUuid, InstanceId, InvoiceId, OfferId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::charge::ChargeLine;
use crate::grant::GrantKind;
use crate::meter::{Item, Meter};
use crate::money::{Currency, Micros, OutOfRange};
use crate::price::PriceVersion;
use crate::rate::{Rate, Seconds};
use crate::segment::Segment;

/// Most lines of one invoice; what is over goes on the next one of the same period.
pub const LINES_MAX: usize = 2_000;

const MICROS_PER_FEN: i64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvoiceKind {
    Invoice,
    CreditNote,
}

/// A text that names no kind of invoice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of invoice")]
pub struct UnknownInvoiceKind;

/// `TARN-2027-000042`: without a gap for each seller and year, invoices and credit notes in one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceNumber {
    pub seller: String,
    /// Of the issue, in UTC.
    pub year: i64,
    /// From 1.
    pub number: i64,
}

/// Someone on an invoice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    pub name: String,
    /// Line by line.
    #[serde(default)]
    pub address: Vec<String>,
    #[serde(default)]
    pub tax_id: Option<String>,
    #[serde(default)]
    pub email: Option<String>,
}

/// What paid for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paid {
    pub from: GrantKind,
    pub amount: Micros,
}

/// Billed seconds `[from, to)` of one segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    pub segment_id: SegmentId,
    pub instance_id: InstanceId,
    /// The instance's label when this was issued.
    pub label: String,
    pub item: Item,
    pub sku: OfferId,
    /// Of a card.
    pub card: Option<GpuUuid>,
    /// Of a disk.
    pub gib: Option<u32>,
    pub price_version: PriceVersion,
    pub rate: Rate,
    pub opened_at: Timestamp,
    /// `None`: ran on.
    pub ended_at: Option<Timestamp>,
    pub from: Seconds,
    pub to: Seconds,
    pub amount: Micros,
    pub paid: Vec<Paid>,
}

/// A usage charge that was given back, in part or whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditLine {
    /// The reversal in the ledger.
    pub transfer_id: TransferId,
    pub segment_id: SegmentId,
    pub instance_id: InstanceId,
    pub label: String,
    pub item: Item,
    pub sku: OfferId,
    pub reason: String,
    pub at: Timestamp,
    /// Below zero.
    pub amount: Micros,
    /// The bucket that it went back to.
    pub paid: Vec<Paid>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    Usage(UsageLine),
    Credit(CreditLine),
}

/// The invoice that a credit note corrects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Corrected {
    pub id: InvoiceId,
    pub number: InvoiceNumber,
}

/// All that an invoice says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoice {
    pub id: InvoiceId,
    pub tenant_id: TenantId,
    pub number: InvoiceNumber,
    pub kind: InvoiceKind,
    pub corrects: Option<Corrected>,
    pub seller: Party,
    pub buyer: Party,
    pub currency: Currency,
    /// Half-open, UTC.
    pub period_from: Timestamp,
    pub period_to: Timestamp,
    pub issued_at: Timestamp,
    pub lines: Vec<Line>,
    /// Exact.
    pub total: Micros,
    /// By bucket of the wallet; sums to `total`. Nothing is left to pay: wallets are prepaid.
    pub paid: Vec<Paid>,
}

/// What is known of an invoice before it has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub id: InvoiceId,
    pub tenant_id: TenantId,
    pub corrects: Option<Corrected>,
    pub seller: Party,
    pub buyer: Party,
    pub period_from: Timestamp,
    pub period_to: Timestamp,
    pub issued_at: Timestamp,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInvoice {
    #[error("an invoice without lines")]
    Empty,
    #[error("line {0} is not paid exactly")]
    NotPaid(usize),
    #[error("a credit note names what it corrects and holds credits only; an invoice neither")]
    MixedKinds,
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl Invoice {
    /// The document under this number; refuses what does not add up.
    pub fn new(draft: Draft, number: InvoiceNumber) -> Result<Self, InvalidInvoice> {
        let credits = draft.lines.iter().filter(|line| matches!(line, Line::Credit(_))).count();
        let kind = match (&draft.corrects, credits) {
            _ if draft.lines.is_empty() => return Err(InvalidInvoice::Empty),
            (None, 0) => InvoiceKind::Invoice,
            (Some(_), credits) if credits == draft.lines.len() => InvoiceKind::CreditNote,
            _ => return Err(InvalidInvoice::MixedKinds),
        };
        for (place, line) in draft.lines.iter().enumerate() {
            if Micros::checked_sum(line.paid().iter().map(|paid| paid.amount))? != line.amount() {
                return Err(InvalidInvoice::NotPaid(place));
            }
        }
        let total = Micros::checked_sum(draft.lines.iter().map(Line::amount))?;
        let paid = by_bucket(&draft.lines.iter().flat_map(Line::paid))?;
        let Draft { id, tenant_id, corrects, seller, buyer, period_from, period_to, issued_at, lines } =
            draft;
        let currency = Currency::Cny;
        Ok(Self {
            id,
            tenant_id,
            number,
            kind,
            corrects,
            seller,
            buyer,
            currency,
            period_from,
            period_to,
            issued_at,
            lines,
            total,
            paid,
        })
    }
}

fn by_bucket<'paid>(parts: &(impl Iterator<Item = &'paid Paid> + Clone)) -> Result<Vec<Paid>, OutOfRange> {
    let mut sums = Vec::new();
    for kind in GrantKind::ALL {
        let of_kind = parts.clone().filter(|paid| paid.from == kind);
        let amount = Micros::checked_sum(of_kind.map(|paid| paid.amount))?;
        if amount != Micros::ZERO {
            sums.push(Paid { from: kind, amount });
        }
    }
    Ok(sums)
}

impl Line {
    pub const fn amount(&self) -> Micros {
        match self {
            Self::Usage(line) => line.amount,
            Self::Credit(line) => line.amount,
        }
    }

    pub fn paid(&self) -> &[Paid] {
        match self {
            Self::Usage(line) => &line.paid,
            Self::Credit(line) => &line.paid,
        }
    }
}

impl UsageLine {
    /// What an invoice up to `period_to` takes of `segment`, of which `invoiced` seconds are on earlier ones; not yet paid. `None`:
    /// nothing new.
    pub fn next(segment: &Segment, label: String, invoiced: Seconds, period_to: Timestamp) -> Option<Self> {
        let charge = ChargeLine::of(segment);
        let to = segment.confirmed(period_to).min(charge.seconds);
        if to <= invoiced {
            return None;
        }
        let amount = Micros::new(charge.rate.charged(to).get() - charge.rate.charged(invoiced).get());
        let gib = match charge.meter {
            Meter::Card(_) => None,
            Meter::Disk { gib } => Some(gib),
        };
        Some(Self {
            segment_id: charge.segment_id,
            instance_id: charge.instance_id,
            label,
            item: charge.meter.item(),
            sku: charge.offer_id,
            card: charge.meter.card().cloned(),
            gib,
            price_version: charge.price_version,
            rate: charge.rate,
            opened_at: charge.opened_at,
            ended_at: segment.ended_at(),
            from: invoiced,
            to,
            amount,
            paid: Vec::new(),
        })
    }

    /// The micros of the segment's charge that this line is, counted from its opening: which of its payments are this line's.
    pub fn span(&self) -> (Micros, Micros) {
        (self.rate.charged(self.from), self.rate.charged(self.to))
    }

    pub fn seconds(&self) -> Seconds {
        self.to.since(self.from)
    }
}

impl InvoiceKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invoice => "invoice",
            Self::CreditNote => "credit_note",
        }
    }
}

impl std::str::FromStr for InvoiceKind {
    type Err = UnknownInvoiceKind;
    fn from_str(text: &str) -> Result<Self, UnknownInvoiceKind> {
        [Self::Invoice, Self::CreditNote]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(UnknownInvoiceKind)
    }
}

impl fmt::Display for InvoiceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:06}", self.seller, self.year, self.number)
    }
}

/// Two decimals, half a fen away from zero. For print: nothing is computed from the result.
pub fn fen(amount: Micros) -> String {
    let (sign, micros) = (if amount.get() < 0 { "-" } else { "" }, i128::from(amount.get()).abs());
    let per_fen = i128::from(MICROS_PER_FEN);
    let rounded = (micros + per_fen / 2) / per_fen;
    let sign = if rounded == 0 { "" } else { sign };
    format!("{sign}{}.{:02}", rounded / 100, rounded % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_rounds_half_a_fen_away_from_zero() {
        let cases = [
            (0, "0.00"),
            (4_999, "0.00"),
            (5_000, "0.01"),
            (-4_999, "0.00"),
            (-5_000, "-0.01"),
            (9_999_333, "10.00"),
            (9_994_999, "9.99"),
            (1_234_567_890, "1234.57"),
            (i64::MAX, "9223372036854.78"),
            (i64::MIN, "-9223372036854.78"),
        ];
        for (micros, text) in cases {
            assert_eq!(fen(Micros::new(micros)), text, "{micros}");
        }
        let number = InvoiceNumber { seller: "TARN".to_owned(), year: 2027, number: 42 };
        assert_eq!(number.to_string(), "TARN-2027-000042");
    }

    #[test]
    fn an_invoice_adds_up_or_is_refused() {
        let at = Timestamp::from_micros;
        let line = |amount: i64, paid: &[(GrantKind, i64)]| {
            Line::Credit(CreditLine {
                transfer_id: TransferId::new(at(0), 1),
                segment_id: SegmentId::new(at(0), 1),
                instance_id: InstanceId::new(at(0), 1),
                label: "x".to_owned(),
                item: Item::Gpu,
                sku: "card-24".parse().unwrap(),
                reason: "host fault".to_owned(),
                at: at(0),
                amount: Micros::new(amount),
                paid: paid
                    .iter()
                    .map(|(from, part)| Paid { from: *from, amount: Micros::new(*part) })
                    .collect(),
            })
        };
        let number = InvoiceNumber { seller: "TARN".to_owned(), year: 2027, number: 2 };
        let corrects =
            Corrected { id: InvoiceId::new(at(0), 1), number: InvoiceNumber { number: 1, ..number.clone() } };
        let draft = Draft {
            id: InvoiceId::new(at(0), 2),
            tenant_id: TenantId::new(at(0), 1),
            corrects: Some(corrects),
            seller: Party::default(),
            buyer: Party::default(),
            period_from: at(0),
            period_to: at(1),
            issued_at: at(2),
            lines: vec![
                line(-30, &[(GrantKind::Trial, -10), (GrantKind::Cash, -20)]),
                line(-5, &[(GrantKind::Cash, -5)]),
            ],
        };
        let note = Invoice::new(draft.clone(), number.clone()).unwrap();
        assert_eq!((note.kind, note.total), (InvoiceKind::CreditNote, Micros::new(-35)));
        let paid: Vec<(GrantKind, i64)> =
            note.paid.iter().map(|paid| (paid.from, paid.amount.get())).collect();
        assert_eq!(paid, [(GrantKind::Trial, -10), (GrantKind::Cash, -25)]);

        let refused = |change: fn(&mut Draft)| {
            let mut wrong = draft.clone();
            change(&mut wrong);
            Invoice::new(wrong, number.clone()).unwrap_err()
        };
        assert_eq!(refused(|draft| draft.lines.clear()), InvalidInvoice::Empty);
        assert_eq!(refused(|draft| draft.corrects = None), InvalidInvoice::MixedKinds);
        let unpaid = |draft: &mut Draft| {
            if let Line::Credit(line) = &mut draft.lines[1] {
                line.amount = Micros::new(-6);
            }
        };
        assert_eq!(refused(unpaid), InvalidInvoice::NotPaid(1));
    }
}
