//! Clients that hang up: whatever was cut off happened once or not at all, and its key tells which.

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Api, Person};

on_both! {
    sockets_closed_in_mid_request_lose_and_double_nothing;
}

const SOCKETS: usize = 2_000;
const AT_ONCE: usize = 64;
const PEOPLE: usize = 20;

/// Where the client leaves.
#[derive(Debug, Clone, Copy)]
enum Cut {
    InTheHead,
    InTheBody,
    /// All is sent, nothing is read.
    BeforeTheAnswer,
    /// With a reset, as when a process is killed.
    AtTheFirstByteOfTheAnswer,
}

impl Cut {
    const ALL: [Self; 4] =
        [Self::InTheHead, Self::InTheBody, Self::BeforeTheAnswer, Self::AtTheFirstByteOfTheAnswer];
}

fn credit(person: &Person) -> Value {
    let amount = json!({"amount": "0.01", "currency": "CNY"});
    json!({"tenant_id": person.tenant_id, "kind": "promo", "amount": amount, "reason": "goodwill"})
}

async fn hang_up(api: &Api, operator: &Person, body: &str, key: &str, cut: Cut) {
    let address = api.server.address();
    let head = format!(
        "POST /v1/admin/credits HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        operator.access,
        body.len()
    );
    let whole = format!("{head}{body}");
    let sent = match cut {
        Cut::InTheHead => head.len() / 2,
        Cut::InTheBody => head.len() + body.len() / 2,
        Cut::BeforeTheAnswer | Cut::AtTheFirstByteOfTheAnswer => whole.len(),
    };
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&whole.as_bytes()[..sent]).await.unwrap();
    if matches!(cut, Cut::AtTheFirstByteOfTheAnswer) {
        socket.read_u8().await.unwrap();
        socket.set_zero_linger().unwrap();
    }
}

async fn sockets_closed_in_mid_request_lose_and_double_nothing(api: Api) {
    let operator = api.operator().await;
    let mut people = vec![];
    for _ in 0..PEOPLE {
        people.push(api.person().await);
    }
    let bodies: Vec<Value> = people.iter().map(credit).collect();
    stream::iter(0..SOCKETS)
        .for_each_concurrent(AT_ONCE, async |number| {
            let (body, cut) =
                (bodies[number % PEOPLE].to_string(), Cut::ALL[number / PEOPLE % Cut::ALL.len()]);
            hang_up(&api, &operator, &body, &format!("k{number}"), cut).await;
        })
        .await;
    // Each client comes back with its key, as it should after a broken connection.
    let made = stream::iter(0..SOCKETS)
        .map(async |number| {
            loop {
                let key = format!("k{number}");
                let got = api
                    .post_once(&operator.access, "/v1/admin/credits", &key, bodies[number % PEOPLE].clone())
                    .await;
                // The first attempt may still be at work.
                if got.status != 409 {
                    break got.is(201)["id"].as_str().unwrap().to_owned();
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect::<std::collections::BTreeSet<String>>()
        .await;
    assert_eq!(made.len(), SOCKETS, "every key made one credit of its own");
    for person in &people {
        let wallet = api.get(&person.access, "/v1/wallet").await.is(200);
        assert_eq!(wallet["credit"]["amount"], "11.00", "10.00 of trial credit and 100 times 0.01");
    }
    let audit = api.server.state().store.reader().await.unwrap().ledger_audit().await.unwrap();
    assert_eq!((audit.unbalanced_transfers, audit.wrong_wallets, audit.wrong_holds), (0, 0, 0));
}
