//! An invoice as people read it: which words, in which columns, rounded where print rounds.
//!
//! Lines are exact to the micro; only the total is rounded to fen, once, here.

use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::{CreditLine, Invoice, InvoiceKind, Line, Party, UsageLine, fen};
use tarn_billing::meter::Item;
use tarn_protocol::units::Timestamp;

/// One line of the table, with what is said of it below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub what: String,
    pub label: String,
    pub seconds: String,
    pub rate: String,
    pub amount: String,
    pub below: Vec<String>,
}

/// Everything that is printed, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paper {
    pub title: String,
    pub number: String,
    /// Name and value.
    pub facts: Vec<(String, String)>,
    pub seller: Vec<String>,
    pub buyer: Vec<String>,
    pub entries: Vec<Entry>,
    /// Name and value; the last is the one that counts.
    pub totals: Vec<(String, String)>,
    pub remarks: Vec<String>,
}

impl Paper {
    pub fn of(invoice: &Invoice) -> Self {
        let currency = invoice.currency;
        let title = match invoice.kind {
            InvoiceKind::Invoice => "Invoice",
            InvoiceKind::CreditNote => "Credit note",
        };
        let mut facts = vec![
            ("Number".to_owned(), invoice.number.to_string()),
            ("Issued".to_owned(), minute(invoice.issued_at)),
            (
                "Period".to_owned(),
                format!("{} to {}", minute(invoice.period_from), minute(invoice.period_to)),
            ),
            ("Document".to_owned(), invoice.id.to_string()),
        ];
        if let Some(corrected) = &invoice.corrects {
            facts.insert(1, ("Corrects".to_owned(), format!("{} ({})", corrected.number, corrected.id)));
        }
        let mut totals = vec![("Exact total".to_owned(), format!("{} {currency}", invoice.total))];
        let verb = if invoice.kind == InvoiceKind::Invoice { "Paid from" } else { "Given back to" };
        for paid in &invoice.paid {
            totals.push((format!("{verb} {}", bucket(paid.from)), format!("{} {currency}", paid.amount)));
        }
        totals.push(("Total".to_owned(), format!("{} {currency}", fen(invoice.total))));
        Self {
            title: title.to_owned(),
            number: invoice.number.to_string(),
            facts,
            seller: party(&invoice.seller),
            buyer: party(&invoice.buyer),
            entries: invoice.lines.iter().map(entry).collect(),
            totals,
            remarks: vec![
                "Nothing is due: this was taken from the prepaid wallet as it was used.".to_owned(),
                "Each amount is the floor of rate x seconds / 3600 in millionths; only the total is rounded, to 0.01.".to_owned(),
                "All times are UTC. Seconds are counted within a segment: [from, to).".to_owned(),
            ],
        }
    }
}

fn party(party: &Party) -> Vec<String> {
    let tax = party.tax_id.as_ref().map(|id| format!("Tax number {id}"));
    std::iter::once(party.name.clone())
        .chain(party.address.iter().cloned())
        .chain(tax)
        .chain(party.email.clone())
        .collect()
}

const fn bucket(kind: GrantKind) -> &'static str {
    match kind {
        GrantKind::Trial => "trial credit",
        GrantKind::Promo => "promotional credit",
        GrantKind::Sla => "service credit",
        GrantKind::Cash => "cash",
    }
}

fn entry(line: &Line) -> Entry {
    match line {
        Line::Usage(line) => usage(line),
        Line::Credit(line) => credit(line),
    }
}

fn usage(line: &UsageLine) -> Entry {
    let what = match (line.item, line.gib) {
        (Item::Disk, Some(gib)) => format!("{} {gib} GiB", line.sku),
        _ => line.sku.to_string(),
    };
    let ended = line.ended_at.map_or_else(|| "still there".to_owned(), second);
    let card = line.card.as_ref().map(|card| format!("card {card}, "));
    Entry {
        what,
        label: line.label.clone(),
        seconds: line.seconds().get().to_string(),
        rate: line.rate.hourly().to_string(),
        amount: line.amount.to_string(),
        below: vec![
            format!("{}instance {}", card.unwrap_or_default(), line.instance_id),
            format!(
                "{} to {ended}, seconds [{}, {}) of {}, price version {}",
                second(line.opened_at),
                line.from.get(),
                line.to.get(),
                line.segment_id,
                line.price_version
            ),
        ],
    }
}

fn credit(line: &CreditLine) -> Entry {
    Entry {
        what: line.sku.to_string(),
        label: line.label.clone(),
        seconds: String::new(),
        rate: String::new(),
        amount: line.amount.to_string(),
        below: vec![
            format!("{}: {}", second(line.at), line.reason),
            format!("reversal {} on {}, instance {}", line.transfer_id, line.segment_id, line.instance_id),
        ],
    }
}

fn printed(at: Timestamp, format: &str) -> String {
    let moment = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default();
    moment.strftime(format).to_string()
}

fn minute(at: Timestamp) -> String {
    printed(at, "%Y-%m-%d %H:%M")
}

fn second(at: Timestamp) -> String {
    printed(at, "%Y-%m-%d %H:%M:%S")
}
