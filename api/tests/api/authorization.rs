//! Walks the OpenAPI document: every operation refuses whoever may not call it, or is in a list that people review.
//!
//! The document says who may call (`security`) and shows a body that is right (`example`), so a new operation is walked without a
//! line here. What cannot be walked is named, with its reason, in `allowed/`; a name there that is not needed fails too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::foreign;
use crate::harness::{Api, Got, Person};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const ABSENT: &str = "01jf3z6v5w9x8y7z6a5b4c3d2e";

#[derive(Debug)]
struct Operation {
    id: String,
    method: String,
    path: String,
    /// Accepted schemes with the scopes they need; empty: open to all.
    security: BTreeMap<String, Vec<String>>,
    body: Option<Value>,
}

/// `operation_id  reason`, one a line.
fn allowed(list: &str) -> BTreeSet<String> {
    let lines = list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn operations() -> Vec<Operation> {
    let document = serde_json::to_value(tarn_api::http::document()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS.into_iter().filter(|method| item.get(method).is_some()) {
            let operation = &item[method];
            let requirements = operation["security"].as_array().cloned().unwrap_or_default();
            let schemes =
                requirements.iter().flat_map(|requirement| requirement.as_object().unwrap().clone());
            found.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                path: path.clone(),
                security: schemes
                    .map(|(name, scopes)| (name, serde_json::from_value(scopes).unwrap()))
                    .collect(),
                body: body_of(&document, operation),
            });
        }
    }
    assert!(found.len() > 20, "the document lost its operations");
    found
}

/// The example of the request body.
fn body_of(document: &Value, operation: &Value) -> Option<Value> {
    let schema = operation["requestBody"]["content"]["application/json"]["schema"].as_object()?;
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.rsplit('/').next());
    let schema = name.map_or_else(
        || Value::Object(schema.clone()),
        |name| document["components"]["schemas"][name].clone(),
    );
    let id = &operation["operationId"];
    assert!(!schema["example"].is_null(), "{id}: give its request body an example");
    Some(schema["example"].clone())
}

impl Operation {
    fn open(&self) -> bool {
        self.security.is_empty()
    }

    /// Only for operators: named by its scope or its path.
    fn for_operators(&self) -> bool {
        self.path.starts_with("/v1/admin")
    }

    fn parameters(&self) -> Vec<String> {
        let parts = self.path.split('{').skip(1);
        parts.map(|part| part.split('}').next().unwrap().to_owned()).collect()
    }

    /// The path with a value for each parameter.
    fn path_with(&self, value: impl Fn(&str) -> String) -> String {
        self.parameters()
            .iter()
            .fold(self.path.clone(), |path, name| path.replace(&format!("{{{name}}}"), &value(name)))
    }

    async fn call(&self, api: &Api, credential: Option<&str>, path: &str) -> Got {
        let mut request =
            api.request(&self.method, path).header("idempotency-key", format!("{}-{path}", self.id));
        if let Some(credential) = credential {
            request = request.bearer_auth(credential);
        }
        api.send(if let Some(body) = &self.body { request.json(body) } else { request }).await
    }

    fn absent_path(&self) -> String {
        self.path_with(|name| foreign::absent(name, ABSENT))
    }
}

#[tokio::test]
async fn open_operations_are_in_the_reviewed_list() {
    let open: BTreeSet<String> =
        operations().into_iter().filter(Operation::open).map(|operation| operation.id).collect();
    assert_eq!(open, allowed(include_str!("allowed/open.txt")));
}

#[tokio::test]
async fn without_a_valid_credential_nothing_answers() {
    let api = Api::start().await;
    let expired = api.operator().await.access;
    api.clock.advance_seconds(3600);
    let revoked = revoked_key(&api).await;
    let unsigned = format!("{}.", expired.rsplit_once('.').unwrap().0);
    let never_made = "tarn_4nDT0fQxqGYqCvGdkVlnoCZuzgQUgh0jVdBg";
    for operation in operations().iter().filter(|operation| !operation.open()) {
        for credential in
            [None, Some("garbage"), Some(expired.as_str()), Some(&unsigned), Some(&revoked), Some(never_made)]
        {
            let got = operation.call(&api, credential, &operation.absent_path()).await;
            assert_eq!(got.status, 401, "{} with {credential:?}: {}", operation.id, got.body);
            got.fails(401, "unauthenticated");
        }
    }
}

async fn revoked_key(api: &Api) -> String {
    let person = api.person().await;
    let key = api
        .post(&person.access, "/v1/api-keys", serde_json::json!({"name": "x", "scopes": ["wallet:read"]}))
        .await
        .is(201);
    api.delete(&person.access, &format!("/v1/api-keys/{}", key["id"].as_str().unwrap())).await;
    key["secret"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_without_the_scope_is_refused() {
    let api = Api::start().await;
    let operator = api.operator().await;
    let every: Vec<&str> = tarn_api::auth::scope::Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    for operation in operations().iter().filter(|operation| operation.security.contains_key("bearer")) {
        let Some(needed) = operation.security.get("api_key") else {
            let key = api.key(&operator, &every).await;
            operation.call(&api, Some(&key), &operation.absent_path()).await.fails(403, "forbidden");
            continue;
        };
        for scope in needed {
            let others: Vec<&str> = every.iter().copied().filter(|other| other != scope).collect();
            let key = api.key(&operator, &others).await;
            operation.call(&api, Some(&key), &operation.absent_path()).await.fails(403, "scope_missing");
        }
    }
}

#[tokio::test]
async fn scopeless_operations_are_in_the_reviewed_list() {
    let scopeless = operations()
        .into_iter()
        .filter(|operation| operation.security.get("api_key").is_some_and(Vec::is_empty));
    let scopeless: BTreeSet<String> = scopeless.map(|operation| operation.id).collect();
    assert_eq!(scopeless, allowed(include_str!("allowed/scopeless.txt")));
}

#[tokio::test]
async fn a_tenant_never_administers() {
    let api = Api::start().await;
    let owner = api.person().await;
    for operation in operations().iter().filter(|operation| operation.for_operators()) {
        assert_eq!(operation.security.get("api_key"), Some(&vec!["admin".to_owned()]), "{}", operation.id);
        operation.call(&api, Some(&owner.access), &operation.absent_path()).await.fails(403, "scope_missing");
    }
}

/// A problem without what differs between any two requests.
fn comparable(got: Got) -> (u16, Value) {
    let mut body = got.body;
    if let Some(problem) = body.as_object_mut() {
        problem.remove("instance");
        problem.remove("request_id");
    }
    (got.status, body)
}

#[tokio::test]
async fn another_tenants_ids_look_like_absent_ones() {
    let api = Api::start().await;
    let victim = api.person().await;
    let ids = foreign::ids(&api, &victim).await;
    let unowned = allowed(include_str!("allowed/unowned.txt"));
    let mut not_needed = unowned.clone();
    for operation in operations()
        .iter()
        .filter(|operation| !operation.for_operators() && !operation.parameters().is_empty())
    {
        if operation.open() || !operation.security.contains_key("bearer") {
            continue;
        }
        if unowned.contains(&operation.id) {
            not_needed.remove(&operation.id);
            continue;
        }
        let stranger: Person = api.person().await;
        let known = |name: &str| {
            let id = ids.get(name).unwrap_or_else(|| panic!("{}: foreign.rs makes no {name}", operation.id));
            id.clone()
        };
        let theirs = operation.call(&api, Some(&stranger.access), &operation.path_with(known)).await;
        let absent = operation.call(&api, Some(&stranger.access), &operation.absent_path()).await;
        assert_eq!(theirs.status, 404, "{}: {}", operation.id, theirs.body);
        assert_eq!(comparable(theirs), comparable(absent), "{}", operation.id);
    }
    assert!(not_needed.is_empty(), "no longer needed in allowed/unowned.txt: {not_needed:?}");
    foreign::untouched(&api, &victim, &ids).await;
}
