//! JSON bodies, in and out.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::error::{ApiError, Code};

/// A JSON document: a body that follows the contract, or an answer.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = read(request, state).await?;
        parse(&body).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// A JSON document of an agent. What workloads print may be anything, also a NUL character; no text of a report may be the reason why
/// all of it is refused, so each becomes U+FFFD.
#[derive(Debug, Clone)]
pub struct AgentJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for AgentJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let mut body = read(request, state).await?.to_vec();
        let mut from = 0;
        while let Some(place) = nul(&body, from) {
            from = place + NUL.len();
            // As long as what it replaces.
            body[place..from].copy_from_slice(b"\\ufffd");
        }
        parse(&body).map(Self)
    }
}

/// How JSON writes a NUL character. PostgreSQL takes no text that holds one.
const NUL: &[u8] = b"\\u0000";

/// Where the next NUL character of a text is, from a place that is not amid an escape.
fn nul(body: &[u8], mut from: usize) -> Option<usize> {
    while let Some(found) = body.get(from..)?.iter().position(|byte| *byte == b'\\') {
        let place = from + found;
        if body[place..].starts_with(NUL) {
            return Some(place);
        }
        // What is escaped may be a backslash itself.
        from = place + 2;
    }
    None
}

/// The raw bytes of a JSON body.
pub async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(Code::UnsupportedMediaType, "the content type must be application/json"));
    }
    Bytes::from_request(request, state)
        .await
        .map_err(|rejection| ApiError::of_status(rejection.status()).caused_by(rejection))
}

/// Broken JSON is 400; JSON that is not the document is 422 with the place. No text holds a NUL character.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let pointer = pointer_of(error.path());
        let inner = error.into_inner();
        match inner.classify() {
            serde_json::error::Category::Data => ApiError::invalid(pointer, without_position(&inner)),
            _ => ApiError::new(Code::MalformedRequest, format!("not JSON: {inner}")),
        }
    })?;
    deserializer
        .end()
        .map_err(|error| ApiError::new(Code::MalformedRequest, format!("not JSON: {error}")))?;
    if nul(body, 0).is_some() {
        return Err(ApiError::invalid("", "a text holds a NUL character"));
    }
    Ok(value)
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(format!("/{index}")),
            Segment::Map { key } => Some(format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Enum { variant } => Some(format!("/{variant}")),
            Segment::Unknown => None,
        })
        .collect()
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(words, _)| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wish {
        #[expect(dead_code, reason = "only parsed")]
        cards: Vec<u8>,
    }

    #[test]
    fn a_nul_character_is_found_and_an_escaped_backslash_is_none() {
        assert_eq!(nul(br#"{"a":"b\\u0000"}"#, 0), None);
        assert_eq!(nul(br#"{"a":"\\\u0000"}"#, 0), Some(8));
        assert_eq!(nul(br#"{"a":"\"\u0000"}"#, 0), Some(8));
        assert_eq!((nul(b"", 0), nul(b"\\", 0)), (None, None));
        assert_eq!(parse::<String>(br#""\u0000""#).unwrap_err().code(), Code::InvalidRequest);
        assert_eq!(parse::<String>(br#""\\u0000""#).unwrap(), "\\u0000");
    }

    #[test]
    fn each_fault_has_its_own_answer() {
        let cases = [
            ("{\"cards\":[1,2]", Code::MalformedRequest, None),
            ("{\"cards\":[]} x", Code::MalformedRequest, None),
            ("{\"cards\":[1,\"2\"]}", Code::InvalidRequest, Some("/cards/1")),
            ("{\"cards\":[],\"price\":0}", Code::InvalidRequest, Some("/price")),
            ("{}", Code::InvalidRequest, Some("")),
            ("{\"cards\":[],\"\\u0000\":0}", Code::InvalidRequest, Some("/\0")),
        ];
        for (body, code, pointer) in cases {
            let error = parse::<Wish>(body.as_bytes()).unwrap_err();
            assert_eq!(error.code(), code, "{body}");
            let errors = error.problem("", "").errors;
            assert_eq!(errors.first().map(|error| error.pointer.as_str()), pointer, "{body}");
        }
    }
}
