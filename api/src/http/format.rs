//! In which format a document is wanted: by the end of its path, by `?format=`, or by `Accept`, in this order.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::error::{ApiError, ApiResult, Code};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Csv,
    Pdf,
}

impl Format {
    const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Pdf];

    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Pdf => "pdf",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Pdf => "application/pdf",
        }
    }

    /// One of `offered`, the first of which is what a client gets that does not choose.
    pub fn wanted(name: Option<&str>, headers: &HeaderMap, offered: &[Self]) -> ApiResult<Self> {
        let refused = || {
            let names: Vec<&str> = offered.iter().map(|format| format.media_type()).collect();
            ApiError::new(Code::NotAcceptable, format!("ask for one of {}", names.join(", ")))
        };
        let named = |name: &str| Self::ALL.into_iter().find(|format| format.suffix() == name);
        if let Some(name) = name {
            return named(name).filter(|format| offered.contains(format)).ok_or_else(refused);
        }
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let mut ranges: Vec<(u32, &str)> = accept.split(',').filter_map(range).collect();
        ranges.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
        let matching = |range: &str| {
            offered.iter().copied().find(|format| {
                let (group, _) = format.media_type().split_once('/').unwrap_or_default();
                range == "*/*" || range == format.media_type() || range == format!("{group}/*")
            })
        };
        ranges.into_iter().find_map(|(_, range)| matching(range)).ok_or_else(refused)
    }

    /// A file of this format under this name.
    pub fn file(self, name: &str, bytes: Vec<u8>) -> Response {
        let text = match self {
            Self::Csv => "text/csv; charset=utf-8",
            other => other.media_type(),
        };
        let disposition = format!("attachment; filename=\"{name}.{}\"", self.suffix());
        let mut response = bytes.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text));
        if let Ok(disposition) = HeaderValue::from_str(&disposition) {
            headers.insert(header::CONTENT_DISPOSITION, disposition);
        }
        headers.insert(header::VARY, HeaderValue::from_static("accept"));
        response
    }
}

/// A media range with its quality in thousandths (RFC 9110, 12.5.1); `None` for one that is refused or unreadable.
fn range(text: &str) -> Option<(u32, &str)> {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1000), thousandths)?;
    (quality > 0).then_some((quality, range))
}

fn thousandths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{fraction:0<3}");
    let thousandths: u32 = digits.get(..3)?.parse().ok()?;
    Some((whole.parse::<u32>().ok()? * 1000 + thousandths).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_chosen_by_name_then_by_accept() {
        let all = [Format::Json, Format::Csv, Format::Pdf];
        let wanted = |name: Option<&str>, accept: Option<&str>, offered: &[Format]| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            }
            Format::wanted(name, &headers, offered).ok()
        };
        let cases = [
            (None, None, Some(Format::Json)),
            (None, Some("*/*"), Some(Format::Json)),
            (None, Some("application/pdf"), Some(Format::Pdf)),
            (None, Some("text/*;q=0.5, application/pdf;q=0.4"), Some(Format::Csv)),
            (None, Some("text/csv;q=0.1, application/pdf;q=0.45, image/png"), Some(Format::Pdf)),
            (None, Some("text/html,application/xhtml+xml,*/*;q=0.8"), Some(Format::Json)),
            (None, Some("image/png"), None),
            (None, Some("text/csv;q=0"), None),
            (Some("csv"), Some("application/pdf"), Some(Format::Csv)),
            (Some("docx"), None, None),
        ];
        for (name, accept, expected) in cases {
            assert_eq!(wanted(name, accept, &all), expected, "{name:?} {accept:?}");
        }
        assert_eq!(wanted(Some("pdf"), None, &[Format::Json, Format::Csv]), None);
    }
}
