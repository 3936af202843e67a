//! Who plays: an operator who lets the host join, and a customer with money to spend.

use std::path::Path;

use serde_json::json;

use super::client::Client;
use super::keys::{Keys, Login};
use super::{DemoError, screen};
use crate::app::operators::promote;
use crate::serve::Server;

/// One hour of a Pool-96 must be in the wallet to start one; a customer with less makes room for the next.
const START_MICROS: i64 = 2_400_000;

pub(super) struct Cast {
    pub keys: Keys,
    pub customer: Client,
    /// For the host's first start; `None` once it has joined.
    pub join_token: Option<String>,
}

impl Cast {
    pub async fn gather(server: &Server, data_dir: &Path) -> Result<Self, DemoError> {
        let state = server.state();
        let file = data_dir.join("demo.json");
        let client = Client::new(&server.url());
        let first = Keys::load(&file)?;
        let returning = first.is_some();
        let mut keys = first.unwrap_or_else(|| Keys::new(state.entropy.as_ref()));
        // Saved before anyone signs up, so that a run cut short can be continued.
        keys.save(&file)?;
        let invalid = || DemoError::Login { path: file.clone() };
        let email = keys.operator.email.parse().map_err(|_| invalid())?;
        let password = keys.operator.password.parse().map_err(|_| invalid())?;
        promote::promote(state, email, Some(password)).await?;
        let operator = sign_in(&client, &keys.operator).await?;
        let join_token = if operator.get("/v1/admin/hosts").await?.list("/items")?.is_empty() {
            let token = operator.post("/v1/admin/join-tokens", json!({"region": "demo"})).await?;
            Some(token.text("/token")?.to_owned())
        } else {
            None
        };
        let mut customer = sign_in_or_up(&client, &keys.customer).await?;
        if returning && available(&customer).await? < START_MICROS {
            screen::step(&format!(
                "{} has spent the trial credit: another customer signs up",
                keys.customer.email
            ));
            keys.next_customer(state.entropy.as_ref());
            keys.save(&file)?;
            customer = sign_in_or_up(&client, &keys.customer).await?;
        }
        Ok(Self { keys, customer, join_token })
    }
}

async fn available(customer: &Client) -> Result<i64, DemoError> {
    customer.get("/v1/wallet").await?.micros("/available")
}

async fn sign_in(client: &Client, login: &Login) -> Result<Client, DemoError> {
    let body = json!({"email": login.email, "password": login.password});
    let session = client.post("/v1/auth/login", body).await?;
    Ok(client.with_token(session.text("/access_token")?.to_owned()))
}

async fn sign_in_or_up(client: &Client, login: &Login) -> Result<Client, DemoError> {
    match sign_in(client, login).await {
        Err(DemoError::Refused { status: 401, .. }) => {
            let body = json!({"email": login.email, "password": login.password, "tenant_name": "Demo"});
            let session = client.post("/v1/auth/signup", body).await?;
            screen::step(&format!("{} signs up and receives trial credit", login.email));
            Ok(client.with_token(session.text("/access_token")?.to_owned()))
        }
        signed_in => signed_in,
    }
}
