//! Search over offers: field, operator, value; all conditions hold together.
//!
//! Offers are few and their figures come from the fleet of the moment, so the filter runs over the answer, not in the database.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A search. `where` maps a field (`cards`, `price.per_hour`, `availability.count` …) to one or more conditions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"where": {"cards": {"gte": 2}, "availability.count": {"gt": 0}}, "order": ["price.per_hour.amount"]}))]
pub struct SearchOffers {
    #[serde(default, rename = "where")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, Object>>, example = json!({"cards": {"gte": 2}, "availability.count": {"gt": 0}}))]
    pub conditions: BTreeMap<String, BTreeMap<Operator, Value>>,
    /// Fields to order by, each with an optional leading `-` for descending.
    #[serde(default)]
    #[schema(example = json!(["price.per_hour.amount"]))]
    pub order: Vec<String>,
    #[serde(default)]
    #[schema(minimum = 1, maximum = 100)]
    pub limit: Option<usize>,
    /// Placement constraints that availability is computed under.
    #[serde(default)]
    pub constraints: crate::http::instances::request::Constraints,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    Eq,
    Neq,
    Gt,
    Lt,
    Gte,
    Lte,
    In,
    Notin,
}

/// The value at a dotted path; `Null` where there is none.
fn at<'document>(document: &'document Value, path: &str) -> &'document Value {
    path.split('.').fold(document, |value, name| value.get(name).unwrap_or(&Value::Null))
}

/// Orders two values of one kind; decimal strings by their amount. `None` when they cannot be compared.
fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => Some(a.as_i64()?.cmp(&b.as_i64()?)),
        (Value::String(a), Value::String(b)) => {
            use tarn_billing::money::Micros;
            match (a.parse::<Micros>(), b.parse::<Micros>()) {
                (Ok(a), Ok(b)) => Some(a.cmp(&b)),
                _ => Some(a.cmp(b)),
            }
        }
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

impl Operator {
    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = || compare(found, wanted);
        let among =
            || wanted.as_array().is_some_and(|list| list.iter().any(|one| Self::Eq.holds(found, one)));
        match self {
            Self::Eq => found == wanted || order() == Some(Ordering::Equal),
            Self::Neq => !Self::Eq.holds(found, wanted),
            Self::Gt => order() == Some(Ordering::Greater),
            Self::Lt => order() == Some(Ordering::Less),
            Self::Gte => order().is_some_and(Ordering::is_ge),
            Self::Lte => order().is_some_and(Ordering::is_le),
            Self::In => among(),
            Self::Notin => !among(),
        }
    }
}

impl SearchOffers {
    pub fn matches(&self, document: &Value) -> bool {
        self.conditions.iter().all(|(path, conditions)| {
            conditions.iter().all(|(operator, wanted)| operator.holds(at(document, path), wanted))
        })
    }

    /// Filters, orders and cuts `documents`.
    pub fn apply(&self, documents: Vec<Value>) -> Vec<Value> {
        let mut found: Vec<Value> = documents.into_iter().filter(|document| self.matches(document)).collect();
        found.sort_by(|one, other| {
            self.order
                .iter()
                .map(|field| {
                    let (path, descending) =
                        field.strip_prefix('-').map_or((field.as_str(), false), |path| (path, true));
                    let order = compare(at(one, path), at(other, path)).unwrap_or(Ordering::Equal);
                    if descending { order.reverse() } else { order }
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        found.truncate(self.limit.unwrap_or(100).clamp(1, 100));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn search(text: Value) -> SearchOffers {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn conditions_hold_together_and_money_compares_as_money() {
        let offers = vec![
            json!({"id": "a", "cards": 4, "price": {"per_hour": "10.40"}, "availability": {"count": 1}}),
            json!({"id": "b", "cards": 2, "price": {"per_hour": "9.40"}, "availability": {"count": 0}}),
            json!({"id": "c", "cards": 1, "price": {"per_hour": "0.90"}, "availability": {"count": 8}}),
        ];
        let ids = |text| -> Vec<String> {
            search(text)
                .apply(offers.clone())
                .iter()
                .map(|offer| offer["id"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(ids(json!({})), ["a", "b", "c"]);
        assert_eq!(ids(json!({"where": {"cards": {"gte": 2}, "availability.count": {"gt": 0}}})), ["a"]);
        assert_eq!(
            ids(json!({"where": {"price.per_hour": {"lt": "9.5"}}, "order": ["-price.per_hour"]})),
            ["b", "c"]
        );
        assert_eq!(ids(json!({"where": {"id": {"in": ["c", "x"]}}})), ["c"]);
        assert_eq!(ids(json!({"where": {"id": {"notin": ["c"]}}, "order": ["cards"], "limit": 1})), ["b"]);
        assert_eq!(ids(json!({"where": {"missing": {"eq": 1}}})), Vec::<String>::new());
    }
}
