//! Instants as clients see them: RFC 3339, UTC, microseconds.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tarn_protocol::units::Timestamp;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// 0000-01-01, the first day that RFC 3339 can write.
const YEAR_ZERO_SECONDS: i64 = -62_167_219_200;

/// `2026-11-30T23:50:37.123456Z`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Timestamp);

impl From<Timestamp> for Instant {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = jiff::Timestamp::from_microsecond(self.0.as_micros()).map_err(|_| std::fmt::Error)?;
        write!(f, "{at:.6}")
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = jiff::Timestamp::from_microsecond(self.0.as_micros()).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{at:.6}"))
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let at: jiff::Timestamp =
            text.parse().map_err(|_| serde::de::Error::custom("not an RFC 3339 instant"))?;
        // The parser knows years before the first; RFC 3339 does not, and a period that begins before one could not be written.
        if at.as_second() < YEAR_ZERO_SECONDS {
            return Err(serde::de::Error::custom("not an RFC 3339 instant"));
        }
        Ok(Self(Timestamp::from_micros(at.as_microsecond())))
    }
}

impl PartialSchema for Instant {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("RFC 3339, UTC"))
            .examples(["2026-11-30T23:50:37.123456Z"]);
        text.into()
    }
}

impl ToSchema for Instant {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Instant")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_round_trip_to_the_microsecond() {
        let instant = Instant(Timestamp::from_micros(1_796_082_637_000_001));
        let text = serde_json::to_string(&instant).unwrap();
        assert_eq!(text, "\"2026-11-30T23:50:37.000001Z\"");
        assert_eq!(serde_json::from_str::<Instant>(&text).unwrap(), instant);
        for wrong in
            ["yesterday", "", "-009999-01-02T01:59:59Z", "-000001-12-31T23:59:59Z", "10000-01-01T00:00:00Z"]
        {
            assert!(serde_json::from_str::<Instant>(&format!("{wrong:?}")).is_err(), "{wrong}");
        }
        for right in ["0000-01-01T00:00:00Z", "9999-12-30T21:59:59Z"] {
            assert!(serde_json::from_str::<Instant>(&format!("{right:?}")).is_ok(), "{right}");
        }
    }
}
