//! The OpenAPI document: what handlers cannot say themselves (title, security schemes, the answer of every error).

use serde_json::json;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as Document, Ref, RefOr, ResponseBuilder};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use crate::http::error::Problem;
use crate::http::extract::caller::API_KEY;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tarn",
        description = "Rent pooled GPUs: an instance sees several cards as one device and pays for one of them.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "sessions", description = "Signing up, in and out"),
        (name = "tenants", description = "Who pays, and who belongs to it"),
        (name = "keys", description = "API keys and SSH keys"),
        (name = "offers", description = "What can be rented"),
        (name = "instances", description = "What is rented"),
        (name = "money", description = "Wallet, charges and ledger"),
        (name = "admin", description = "The operator's side"),
        (name = "service", description = "Health and metrics"),
    ),
)]
struct Base;

/// The document before any route.
pub fn base() -> Document {
    let mut document = Base::openapi();
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("A session's access token, from `POST /v1/auth/login`."))
        .build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let key = ApiKeyValue::with_description(API_KEY, "An API key; also accepted as a bearer token.");
    components.add_security_scheme("api_key", SecurityScheme::ApiKey(ApiKey::Header(key)));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let mut nested = Vec::new();
    Problem::schemas(&mut nested);
    components.schemas.extend(nested);
    document
}

/// The document with what holds for every operation: any error is a [`Problem`].
pub fn completed(mut document: Document) -> Document {
    let reference = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    let content = ContentBuilder::new().schema(Some(reference)).build();
    let problem = ResponseBuilder::new()
        .description("Any error: RFC 9457, switch on `code`")
        .content("application/problem+json", content)
        .build();
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
            &mut item.head,
            &mut item.options,
            &mut item.trace,
        ];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert("default".to_owned(), RefOr::T(problem.clone()));
        }
    }
    document
}

/// The document as text, as it is checked in.
pub fn text() -> String {
    let mut document = json!(crate::http::document());
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let text = serde_json::to_string_pretty(&document).expect("an OpenAPI document is JSON");
    format!("{text}\n")
}
