//! Authenticated reads per second: the real server on SQLite and on PostgreSQL, and a bare handler that returns a constant, in one
//! run on one machine, so that the ratio means something where the absolute numbers do not.
//!
//! A closed loop: each of [`CONNECTIONS`] keeps one request under way. Client and server share the machine's cores, so a server
//! alone would do better.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot unwrap has failed")]
#![allow(clippy::float_arithmetic, reason = "rates of a measurement")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tarn_api::config::{Config, Rates};
use tarn_api::serve::{self, Server};
use tempfile::TempDir;

use crate::client::Load;
use crate::database::Fresh;

mod client;
#[path = "../../../migrations/store/tests/store/database.rs"]
#[expect(dead_code, reason = "shared with the store's tests, which use all of it")]
mod database;

const CONNECTIONS: usize = 32;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
/// Of every authenticated read, on two cores.
const WANTED_PER_SECOND: f64 = 5_000.0;
const PATHS: [&str; 5] = ["/v1/auth/me", "/v1/instances", "/v1/ssh-keys", "/v1/ledger", "/v1/wallet"];

#[tokio::main]
async fn main() {
    let bare = bare().await;
    let constant = measure(bare, "/", "").await;
    println!("{:<38} {:>10} {:>8} {:>8} {:>8}", "", "requests/s", "p50 µs", "p99 µs", "of bare");
    show("bare handler, constant", &constant, &constant);
    let mut slowest = f64::INFINITY;
    for engine in ["sqlite", "postgres"] {
        let data = TempDir::new().unwrap();
        let server = server(engine, &data).await;
        let (token, key) = credentials(&server).await;
        for (credential, name) in [(&token, "session"), (&key, "API key")] {
            for path in PATHS {
                let load = measure(server.address(), path, credential).await;
                slowest = slowest.min(load.per_second);
                show(&format!("{engine}, {name}, GET {path}"), &load, &constant);
            }
        }
        server.stop().await;
    }
    println!("slowest authenticated read: {slowest:.0}/s, wanted {WANTED_PER_SECOND:.0}/s");
}

fn show(name: &str, load: &Load, constant: &Load) {
    let share = 100.0 * load.per_second / constant.per_second;
    println!(
        "{name:<38} {:>10.0} {:>8} {:>8} {share:>7.0}%",
        load.per_second, load.p50_micros, load.p99_micros
    );
}

async fn measure(address: SocketAddr, path: &str, credential: &str) -> Load {
    client::run(address, path, credential, CONNECTIONS, WARM_UP).await;
    client::run(address, path, credential, CONNECTIONS, MEASURED).await
}

async fn bare() -> SocketAddr {
    let app = axum::Router::new().route("/", axum::routing::get(async || axum::Json(json!({"answer": 42}))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn server(engine: &str, data: &TempDir) -> Server {
    let database_url = if engine == "postgres" { Some(Fresh::empty_postgres().await) } else { None };
    let often = u32::MAX;
    let rates = Rates { per_address: often, per_credential: often, per_tenant: often, sign_in: often };
    let listen = "127.0.0.1:0".parse().unwrap();
    serve::serve(Config { listen, database_url, rates, ..Config::local(data.path().to_owned()) })
        .await
        .unwrap()
}

async fn credentials(server: &Server) -> (String, String) {
    let http = reqwest::Client::new();
    let body = json!({"email": "ada@example.com", "password": "correct horse battery"});
    let session = http.post(format!("{}/v1/auth/signup", server.url())).json(&body).send().await.unwrap();
    let session: Value = session.json().await.unwrap();
    let token = session["access_token"].as_str().unwrap().to_owned();
    let body = json!({"name": "bench", "scopes": ["wallet:read", "ssh-keys:read", "instances:read"]});
    let made = http
        .post(format!("{}/v1/api-keys", server.url()))
        .bearer_auth(&token)
        .json(&body)
        .send()
        .await
        .unwrap();
    let made: Value = made.json().await.unwrap();
    (token, made["secret"].as_str().unwrap().to_owned())
}
