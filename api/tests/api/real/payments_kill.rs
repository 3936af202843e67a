//! `kill -9` of a real control plane around every call to a payment provider: whatever was under way, each payment is made once, credited
//! once, and given back at most once; what the provider has collected is what the wallets hold.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tarn_api::clock::{Clock, SystemClock};
use tarn_api::till::sandbox::{Faults, Paying, Sandbox};
use tempfile::TempDir;
use tokio::sync::watch;

use super::chaos::Dice;
use super::control_plane::ControlPlane;
use super::customer::Customer;
use super::{eventually, every_item};
use crate::database::Fresh;
use crate::harness::Got;

const ROUNDS: u64 = 12;
const CUSTOMERS: u64 = 3;
const AUTOMATIC_A_DAY: i64 = 2;
/// A minute of tries.
const TRIES_MAX: u32 = 2_400;
const PAUSE: Duration = Duration::from_millis(25);
const KEY: &str = "sk_test_of_the_kills";
const HOOK: &str = "whsec_of_the_kills";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_survive_kill_9_around_the_provider_on_sqlite() {
    survive(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_survive_kill_9_around_the_provider_on_postgres() {
    survive(Some(Fresh::empty_postgres().await)).await;
}

/// A provider, and the flags under which a control plane uses it.
struct Provider {
    sandbox: Sandbox,
    clock: Arc<SystemClock>,
    _files: TempDir,
    flags: Vec<String>,
}

impl Provider {
    async fn start() -> Self {
        let clock = Arc::new(SystemClock::default());
        let listen = "127.0.0.1:0".parse().unwrap();
        let sandbox = Sandbox::start(listen, SecretString::from(KEY), clock.clone()).await.unwrap();
        let files = TempDir::new().unwrap();
        let file = |name: &str, text: &str| -> PathBuf {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (key, hook) = (file("key", KEY), file("hook", HOOK));
        let flags = vec![
            "--stripe-key-file".to_owned(),
            key.display().to_string(),
            "--stripe-webhook-secret-file".to_owned(),
            hook.display().to_string(),
            "--stripe-address".to_owned(),
            sandbox.url(),
        ];
        Self { sandbox, clock, _files: files, flags }
    }

    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// Delivers everything that happened, each until somebody took it, some of it twice.
    async fn deliver(&self, url: &str, dice: &mut Dice) {
        let (http, at) = (reqwest::Client::new(), format!("{url}/v1/payments/callbacks/stripe"));
        for event in self.sandbox.take_events() {
            for _ in 0..=dice.roll() % 2 {
                let mut tries = 0;
                loop {
                    let sent = event.deliver(&http, &at, &SecretString::from(HOOK), self.clock.now()).await;
                    if sent.is_ok_and(|status| status == 204) {
                        break;
                    }
                    tries += 1;
                    assert!(tries < TRIES_MAX, "nobody takes {event:?}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// The same call until it is answered by more than a fault.
async fn certainly(customer: &Customer, method: &str, path: &str, key: &str, body: &Value) -> Got {
    for _ in 0..TRIES_MAX {
        let request = customer.request(method, path).header("idempotency-key", key).json(body);
        if let Some(got) = customer.try_send(request).await {
            let busy = got.status >= 500 || got.status == 429;
            if !busy && got.body["code"] != "idempotency_key_in_flight" {
                return got;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("nobody answers {method} {path}");
}

/// One who pays, gives up and wants money back until it is over: how many top-ups were asked for.
async fn shop(
    customer: Customer,
    provider: Arc<Provider>,
    url: String,
    seed: u64,
    over: watch::Receiver<bool>,
) -> usize {
    let mut dice = Dice::new(seed);
    let mut asked = 0;
    while !*over.borrow() {
        asked += 1;
        let key = format!("top-up-{asked}");
        let amount = format!("{}.{:02}", 5 + dice.roll() % 20, dice.roll() % 100);
        let body = json!({"amount": {"amount": amount, "currency": "CNY"}, "save_method": asked == 1});
        let made = certainly(&customer, "POST", "/v1/wallet/topups", &key, &body).await.is(201);
        let pays = asked == 1 || !dice.roll().is_multiple_of(4);
        if pays {
            provider.sandbox.pay(made["external_id"].as_str().unwrap(), Paying::Pays).unwrap();
        }
        provider.deliver(&url, &mut dice).await;
        if asked == 1 {
            let wish = json!({
                "threshold": {"amount": "9000.00", "currency": "CNY"}, "amount": {"amount": "7.00", "currency": "CNY"},
                "per_day_max": AUTOMATIC_A_DAY,
            });
            let set = certainly(&customer, "PUT", "/v1/wallet/auto-topup", "auto", &wish).await;
            assert!(set.status < 300, "{}", set.body);
        } else if pays && dice.roll().is_multiple_of(2) {
            let path = format!("/v1/wallet/topups/{}/refunds", made["id"].as_str().unwrap());
            let part =
                json!({"amount": {"amount": format!("{}.00", 1 + dice.roll() % 5), "currency": "CNY"}});
            let back = certainly(&customer, "POST", &path, &format!("back-{asked}"), &part).await;
            // Another event may not have come yet, and then there is nothing to give back.
            assert!(matches!(back.status, 201 | 409), "{}", back.body);
        }
    }
    asked
}

async fn survive(database_url: Option<String>) {
    let mut dice = Dice::new(u64::from(std::process::id()));
    let provider = Arc::new(Provider::start().await);
    let mut control_plane = ControlPlane::apart_on(database_url).await;
    let operator = control_plane.operator().await;
    control_plane.kill();
    control_plane.begin_again(&provider.flags());
    control_plane.answers().await;
    let (end, over) = watch::channel(false);
    let mut shoppers = Vec::new();
    for number in 0..CUSTOMERS {
        let customer = control_plane.customer(&format!("payer-{number}")).await;
        let (provider, url) = (Arc::clone(&provider), control_plane.url());
        let task = tokio::spawn(shop(customer.clone(), provider, url, dice.roll(), over.clone()));
        shoppers.push((customer, task));
    }
    for _ in 0..ROUNDS {
        let loses_answers = dice.roll().is_multiple_of(3);
        provider.sandbox.set_faults(Faults { loses_answers, ..Faults::default() });
        tokio::time::sleep(Duration::from_millis(150 + dice.roll() % 900)).await;
        control_plane.kill();
        control_plane.claims_expire().await;
        control_plane.begin_again(&provider.flags());
        control_plane.answers().await;
    }
    provider.sandbox.set_faults(Faults::default());
    end.send_replace(true);
    let mut held = 0;
    for (customer, task) in shoppers {
        let asked = task.await.unwrap();
        provider.deliver(&control_plane.url(), &mut dice).await;
        let top_ups = eventually("every payment to be decided", 90, async || {
            provider.deliver(&control_plane.url(), &mut Dice::new(1)).await;
            let items = every_item("/v1/wallet/topups", async |page| customer.get(&page).await).await;
            let automatic = items.iter().filter(|item| item["cause"] == "auto");
            let settled = automatic.filter(|item| item["state"] == "settled").count();
            (i64::try_from(settled).unwrap() == AUTOMATIC_A_DAY).then_some(items)
        })
        .await;
        let automatic = top_ups.iter().filter(|item| item["cause"] == "auto").count();
        assert_eq!(top_ups.len(), asked + automatic, "one payment for each call, however often it was made");
        // One whose order was answered with a fault is tried again after a minute.
        eventually("every refund to be paid", 150, async || {
            let items = every_item("/v1/refunds", async |page| customer.get(&page).await).await;
            items.iter().all(|item| item["state"] == "settled").then_some(())
        })
        .await;
        let cash = customer.get("/v1/wallet").await["cash"]["amount"].as_str().unwrap().to_owned();
        let (yuan, fen) = cash.split_once('.').unwrap();
        held += yuan.parse::<i64>().unwrap() * 100 + fen.parse::<i64>().unwrap();
    }
    assert_eq!(provider.sandbox.collected_fen(), held, "what was collected is what is in the wallets");
    let charged = usize::try_from(AUTOMATIC_A_DAY).unwrap() * usize::try_from(CUSTOMERS).unwrap();
    assert_eq!(provider.sandbox.charges_made(), charged, "no card is charged twice");
    let audit = operator.get("/v1/admin/audit").await;
    assert_eq!(audit["consistent"], true, "{audit}");
}
