//! What `/metrics` shows: a few counters, cheap enough for every request.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    method: String,
    route: String,
    status: u16,
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    answers: Family<Answer, Counter<u64, AtomicU64>>,
    seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tarn");
        let answers = Family::default();
        let seconds = Histogram::new([0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0]);
        registry.register("http_answers", "Answers by route and status", answers.clone());
        registry.register("http_answer_seconds", "Time to answer", seconds.clone());
        Self { registry, answers, seconds }
    }
}

impl Metrics {
    pub fn answered(&self, method: &str, route: &str, status: u16, micros: i64) {
        let answer = Answer { method: method.to_owned(), route: route.to_owned(), status };
        self.answers.get_or_create(&answer).inc();
        self.seconds.observe(std::time::Duration::from_micros(micros.max(0).cast_unsigned()).as_secs_f64());
    }

    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
