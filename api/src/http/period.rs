//! Periods of reports, as clients ask for them, and the tables that some reports also are.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tarn_protocol::units::Timestamp;
use utoipa::{IntoParams, ToSchema};

use crate::app::reports::Period;
use crate::http::error::{ApiError, ApiResult};
use crate::http::instant::Instant;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportFormat {
    #[default]
    Json,
    /// The whole report as one table, a header line first; amounts are exact.
    Csv,
}

#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PeriodParams {
    /// Begins here.
    #[param(value_type = Option<String>, example = "2026-11-01T00:00:00Z")]
    from: Option<Instant>,
    /// Ends before this; now, if absent, and never later.
    #[param(value_type = Option<String>, example = "2026-12-01T00:00:00Z")]
    to: Option<Instant>,
    #[serde(default)]
    #[param(inline)]
    pub format: ReportFormat,
}

impl PeriodParams {
    /// The period, whose start is `seconds_default` before its end if the client gives none.
    pub fn period(&self, now: Timestamp, seconds_default: i64) -> ApiResult<Period> {
        let to = self.to.map_or(now, |Instant(at)| at);
        let from = self.from.map_or_else(|| to.plus_seconds(-seconds_default), |Instant(at)| at);
        if to > now {
            return Err(ApiError::invalid("?to", "must not be in the future"));
        }
        if from >= to {
            return Err(ApiError::invalid("?from", "must be before `to`"));
        }
        Ok(Period { from, to })
    }
}

/// Lines of a table as bytes; what a cell says is quoted as it must be.
pub fn csv(records: impl IntoIterator<Item = Vec<String>>) -> ApiResult<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.write_record(record).map_err(ApiError::internal)?;
    }
    writer.into_inner().map_err(|error| ApiError::internal(error.to_string()))
}

/// A table as a file to keep.
pub fn table(name: &str, body: impl Into<Body>) -> Response {
    let mut response = body.into().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{name}.csv\"")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    response
}

/// An instant in a table.
pub fn cell(at: Timestamp) -> String {
    serde_json::to_value(Instant(at))
        .ok()
        .and_then(|text| text.as_str().map(str::to_owned))
        .unwrap_or_default()
}
