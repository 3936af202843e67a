//! The checked-in document is the one that the routes make.

#[test]
fn the_checked_in_document_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let checked_in = std::fs::read_to_string(path).unwrap_or_default();
    let current = tarn_api::openapi::text();
    if checked_in != current {
        let line = checked_in.lines().zip(current.lines()).position(|(one, other)| one != other);
        panic!(
            "api/openapi.json is stale from line {line:?} on: write it again with `tarn openapi > api/openapi.json`"
        );
    }
}

#[test]
fn operations_have_unique_ids_a_tag_a_summary_and_their_security() {
    let document = serde_json::to_value(tarn_api::http::document()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in
            methods.as_object().unwrap().iter().filter(|(_, value)| value["responses"].is_object())
        {
            let name = format!("{method} {path}");
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{name}: operation id twice"
            );
            assert!(operation["tags"].as_array().is_some_and(|tags| tags.len() == 1), "{name}: one tag");
            assert!(operation["summary"].as_str().is_some(), "{name}: summary");
            assert!(operation["security"].is_array(), "{name}: says who may call");
        }
    }
}
