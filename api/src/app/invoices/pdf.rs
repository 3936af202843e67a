//! An invoice as a PDF: the same bytes for the same invoice, on every machine and at any time.
//!
//! One embedded font serves all text, so nothing depends on what a machine has installed; `api/assets/fonts/README.md` says what it
//! covers. What it lacks is printed as 〓. Dates and the document's id come from the invoice.

#![allow(clippy::float_arithmetic, reason = "points on a page, not money")]

use std::sync::LazyLock;

use krilla::color::luma;
use krilla::error::KrillaError;
use krilla::geom::{PathBuilder, Point};
use krilla::metadata::{DateTime, Metadata};
use krilla::page::PageSettings;
use krilla::paint::{Fill, Stroke};
use krilla::surface::Surface;
use krilla::text::{Font, TextDirection};
use krilla::{Data, Document};
use tarn_billing::invoice::Invoice;
use tarn_protocol::units::Timestamp;

use super::paper::{Entry, Paper};

static FONT: &[u8] = include_bytes!("../../../assets/fonts/wqy-microhei.ttc");
/// The proportional face of the collection.
const FACE: u32 = 0;
/// A4 in points.
const WIDTH: f32 = 595.28;
const HEIGHT: f32 = 841.89;
const MARGIN: f32 = 48.0;
const RIGHT: f32 = WIDTH - MARGIN;
/// Right edges of the columns of numbers, and left edges of those of words.
const SECONDS: f32 = 390.0;
const RATE: f32 = 460.0;
const LABEL: f32 = 170.0;
const LABEL_WIDTH: f32 = 160.0;
const WORDS: f32 = 9.0;
const SMALL: f32 = 7.0;
const MISSING: char = '\u{3013}';

#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    #[error("the embedded font is not readable")]
    Font,
    #[error("the document could not be written: {0:?}")]
    Document(KrillaError),
}

/// What is where on a page; `y` is a baseline, from the top.
#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Text { x: f32, y: f32, size: f32, text: String },
    Rule { y: f32 },
}

struct Measure {
    face: ttf_parser::Face<'static>,
}

static MEASURE: LazyLock<Option<Measure>> =
    LazyLock::new(|| Some(Measure { face: ttf_parser::Face::parse(FONT, FACE).ok()? }));

impl Measure {
    fn covers(&self, character: char) -> bool {
        self.face.glyph_index(character).is_some()
    }

    fn width(&self, text: &str, size: f32) -> f32 {
        let units: u32 = text
            .chars()
            .filter_map(|character| self.face.glyph_hor_advance(self.face.glyph_index(character)?))
            .map(u32::from)
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a line is far shorter than 2^24 units")]
        let units = units as f32;
        units * size / f32::from(self.face.units_per_em())
    }

    /// Without what cannot be printed, and cut to `width`.
    fn fitted(&self, text: &str, size: f32, width: f32) -> String {
        let known = |character: char| if self.covers(character) { character } else { MISSING };
        let mut kept: String = text.chars().filter(|character| !character.is_control()).map(known).collect();
        while self.width(&kept, size) > width && kept.pop().is_some() {}
        kept
    }
}

/// Fills pages from the top, and begins another where one is full.
struct Layout<'font> {
    measure: &'font Measure,
    pages: Vec<Vec<Mark>>,
    y: f32,
}

impl Layout<'_> {
    fn left(&mut self, x: f32, size: f32, text: &str, width: f32) {
        let text = self.measure.fitted(text, size, width);
        self.put(Mark::Text { x, y: self.y, size, text });
    }

    fn right(&mut self, edge: f32, size: f32, text: &str) {
        let text = self.measure.fitted(text, size, edge - MARGIN);
        let x = edge - self.measure.width(&text, size);
        self.put(Mark::Text { x, y: self.y, size, text });
    }

    fn put(&mut self, mark: Mark) {
        if let Some(page) = self.pages.last_mut() {
            page.push(mark);
        }
    }

    fn down(&mut self, by: f32) {
        self.y += by;
    }

    fn rule(&mut self) {
        self.put(Mark::Rule { y: self.y });
    }

    /// Room for `height` more, on this page or the next.
    fn room(&mut self, height: f32) -> bool {
        let full = self.y + height > HEIGHT - MARGIN - 20.0;
        if full {
            self.pages.push(Vec::new());
            self.y = MARGIN + 10.0;
        }
        full
    }
}

/// The file.
pub fn render(invoice: &Invoice) -> Result<Vec<u8>, PdfError> {
    let measure = MEASURE.as_ref().ok_or(PdfError::Font)?;
    let font = Font::new(Data::from(FONT), FACE).ok_or(PdfError::Font)?;
    let paper = Paper::of(invoice);
    let pages = layout(&paper, measure);
    let mut document = Document::new();
    document.set_metadata(metadata(invoice, &paper));
    for marks in &pages {
        let settings = PageSettings::from_wh(WIDTH, HEIGHT).ok_or(PdfError::Font)?;
        let mut page = document.start_page_with(settings);
        let mut surface = page.surface();
        for mark in marks {
            draw(&mut surface, &font, mark);
        }
        surface.finish();
        page.finish();
    }
    document.finish().map_err(PdfError::Document)
}

fn metadata(invoice: &Invoice, paper: &Paper) -> Metadata {
    Metadata::new()
        .title(format!("{} {}", paper.title, paper.number))
        .creator("Tarn".to_owned())
        .authors(vec![invoice.seller.name.clone()])
        .language("en".to_owned())
        .document_id(invoice.id.to_string())
        .creation_date(date(invoice.issued_at))
}

fn date(at: Timestamp) -> DateTime {
    let moment = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default();
    let civil = jiff::tz::TimeZone::UTC.to_datetime(moment);
    let small = |part: i8| part.unsigned_abs();
    DateTime::new(civil.year().unsigned_abs())
        .month(small(civil.month()))
        .day(small(civil.day()))
        .hour(small(civil.hour()))
        .minute(small(civil.minute()))
        .second(small(civil.second()))
        .utc_offset_hour(0)
        .utc_offset_minute(0)
}

fn draw(surface: &mut Surface<'_>, font: &Font, mark: &Mark) {
    match mark {
        Mark::Text { text, .. } if text.is_empty() => {}
        Mark::Text { x, y, size, text } => {
            surface.set_stroke(None);
            surface.set_fill(Some(Fill { paint: luma::Color::new(0).into(), ..Fill::default() }));
            surface.draw_text(
                Point::from_xy(*x, *y),
                font.clone(),
                *size,
                text,
                false,
                TextDirection::LeftToRight,
            );
        }
        Mark::Rule { y } => {
            let mut line = PathBuilder::new();
            line.move_to(MARGIN, *y);
            line.line_to(RIGHT, *y);
            surface.set_fill(None);
            surface.set_stroke(Some(Stroke {
                paint: luma::Color::new(150).into(),
                width: 0.5,
                ..Stroke::default()
            }));
            if let Some(path) = line.finish() {
                surface.draw_path(&path);
            }
        }
    }
}

fn layout(paper: &Paper, measure: &Measure) -> Vec<Vec<Mark>> {
    let mut at = Layout { measure, pages: vec![Vec::new()], y: MARGIN + 14.0 };
    at.left(MARGIN, 20.0, &format!("{} {}", paper.title, paper.number), RIGHT - MARGIN);
    at.down(24.0);
    for (name, value) in &paper.facts {
        at.left(MARGIN, WORDS, name, 80.0);
        at.left(MARGIN + 84.0, WORDS, value, RIGHT - MARGIN - 84.0);
        at.down(13.0);
    }
    at.down(10.0);
    parties(&mut at, paper);
    heading(&mut at);
    for entry in &paper.entries {
        if at.room(16.0 + 10.0 * 2.0) {
            heading(&mut at);
        }
        line(&mut at, entry);
    }
    // The totals stay together, with their remarks.
    at.room(14.0 * 8.0 + 36.0);
    at.rule();
    at.down(16.0);
    for (place, (name, value)) in paper.totals.iter().enumerate() {
        let size = if place + 1 == paper.totals.len() { 13.0 } else { WORDS };
        at.down(if place + 1 == paper.totals.len() { 6.0 } else { 0.0 });
        at.left(LABEL + 60.0, size, name, 200.0);
        at.right(RIGHT, size, value);
        at.down(14.0);
    }
    at.down(10.0);
    for remark in &paper.remarks {
        at.left(MARGIN, SMALL, remark, RIGHT - MARGIN);
        at.down(10.0);
    }
    numbered(at, &paper.number)
}

fn parties(at: &mut Layout<'_>, paper: &Paper) {
    let half = WIDTH / 2.0;
    let (width, top) = (half - MARGIN - 10.0, at.y);
    at.left(MARGIN, SMALL, "Seller", width);
    at.left(half, SMALL, "Buyer", width);
    let longest = paper.seller.len().max(paper.buyer.len());
    for place in 0..longest {
        at.down(12.0);
        for (x, lines) in [(MARGIN, &paper.seller), (half, &paper.buyer)] {
            if let Some(text) = lines.get(place) {
                at.left(x, WORDS, text, width);
            }
        }
    }
    debug_assert!(at.y >= top, "a page is filled downwards");
    at.down(22.0);
}

fn heading(at: &mut Layout<'_>) {
    at.left(MARGIN, SMALL, "Item", 100.0);
    at.left(LABEL, SMALL, "Label", LABEL_WIDTH);
    at.right(SECONDS, SMALL, "Seconds");
    at.right(RATE, SMALL, "Per hour");
    at.right(RIGHT, SMALL, "Amount");
    at.down(4.0);
    at.rule();
    at.down(13.0);
}

fn line(at: &mut Layout<'_>, entry: &Entry) {
    at.left(MARGIN, WORDS, &entry.what, LABEL - MARGIN - 6.0);
    at.left(LABEL, WORDS, &entry.label, LABEL_WIDTH);
    at.right(SECONDS, WORDS, &entry.seconds);
    at.right(RATE, WORDS, &entry.rate);
    at.right(RIGHT, WORDS, &entry.amount);
    for below in &entry.below {
        at.down(10.0);
        at.left(MARGIN + 8.0, SMALL, below, RIGHT - MARGIN - 8.0);
    }
    at.down(16.0);
}

fn numbered(mut at: Layout<'_>, number: &str) -> Vec<Vec<Mark>> {
    let (count, measure) = (at.pages.len(), at.measure);
    for (place, page) in at.pages.iter_mut().enumerate() {
        let text = format!("{number}, page {} of {count}", place + 1);
        let x = RIGHT - measure.width(&text, SMALL);
        page.push(Mark::Text { x, y: HEIGHT - MARGIN + 10.0, size: SMALL, text });
    }
    at.pages
}
