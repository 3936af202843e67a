//! M15: callbacks that come 0..n times, in any order, late, forged or wrong; credited at most once, and never unasked.

use futures_util::future::join_all;
use secrecy::SecretString;
use serde_json::{Value, json};
use tarn_api::clock::Clock;
use tarn_api::till::sandbox::{Faults, Paying};

use super::till::{CALLBACKS, TOPUPS, Till, with_till, yuan};

with_till! {
    m15_any_number_and_order_of_callbacks_credits_once;
    m15_a_callback_that_never_comes_is_found_by_asking;
    m15_what_a_callback_says_is_not_believed;
    m15_what_the_provider_collected_is_credited_and_a_difference_is_told;
    forged_and_stale_callbacks_are_refused;
    a_provider_that_is_down_loses_nothing;
    a_payment_whose_answer_was_lost_is_one_payment;
    a_payment_that_fails_or_expires_credits_nothing;
    no_secret_is_in_an_answer;
}

/// A small generator, so that a failing shuffle is the same again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

async fn m15_any_number_and_order_of_callbacks_credits_once(till: Till) {
    let person = till.person().await;
    let mut dice = Dice(15);
    let mut expected = 0;
    for round in 0..12 {
        let made = till.top_up(&person, &format!("round-{round}"), yuan("50.00")).await;
        assert_eq!((&made["state"], made["transfer_id"].is_null()), (&json!("pending"), true), "{made}");
        assert!(made["pay_url"].as_str().unwrap().contains("/pay/cs_"), "{made}");
        let early = till.sandbox.take_events();
        assert_eq!(early, [], "nothing has happened yet");
        let events = till.pay(&made, Paying::Pays);
        assert_eq!(events.len(), 2, "the payment's event and the page's");
        // Each event 0 to 4 times, with lies among them, in any order, at once, at either replica.
        let mut sent = Vec::new();
        for event in &events {
            for _ in 0..dice.roll(5) {
                sent.push(event.clone());
            }
        }
        sent.push(events[1].with_amount(999_999));
        sent.push(events[1].claiming("checkout.session.expired"));
        for place in (1..sent.len()).rev() {
            sent.swap(place, dice.roll(place + 1));
        }
        let replicas: Vec<usize> = sent.iter().map(|_| dice.roll(2)).collect();
        let answers =
            join_all(sent.iter().zip(replicas).map(|(event, replica)| till.deliver(event, replica))).await;
        assert!(answers.iter().all(|status| *status == 204), "{answers:?}");
        expected += 50;
        assert_eq!(till.cash(&person).await, format!("{expected}.00"), "round {round}");
        assert_eq!(till.state_of(&person, &made).await, "settled");
        // And once more, long after.
        assert_eq!(till.deliver(&events[1], round).await, 204);
        assert_eq!(till.cash(&person).await, format!("{expected}.00"));
    }
    let ledger = till.get(&person, "/v1/ledger?limit=100").await.is(200);
    let credited: Vec<&Value> =
        ledger["items"].as_array().unwrap().iter().filter(|line| line["kind"] == "top_up").collect();
    assert_eq!(credited.len(), 12);
    assert_eq!(till.sandbox.collected_fen(), 12 * 5_000, "the ledger has what the provider has");
    till.audit().await;
}

async fn m15_a_callback_that_never_comes_is_found_by_asking(till: Till) {
    let person = till.person().await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    till.pass(61).await;
    assert_eq!(till.state_of(&person, &made).await, "pending", "not paid yet");
    drop(till.pay(&made, Paying::Pays));
    assert_eq!(till.cash(&person).await, "0.00");
    till.pass(119).await;
    assert_eq!(till.cash(&person).await, "0.00", "asked a minute ago; again after two");
    till.pass(2).await;
    assert_eq!(
        (till.state_of(&person, &made).await.as_str(), till.cash(&person).await.as_str()),
        ("settled", "50.00")
    );
    till.pass(3600).await;
    assert_eq!(till.cash(&person).await, "50.00");
    till.audit().await;
}

async fn m15_what_a_callback_says_is_not_believed(till: Till) {
    let person = till.person().await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    let failed = till.pay(&made, Paying::Fails);
    let other = till.top_up(&person, "other", yuan("20.00")).await;
    // Signed, and untrue: "paid" of a payment that failed, and of one that nobody has paid.
    let lie = failed.last().unwrap().claiming("checkout.session.completed");
    let mut untouched = lie.clone();
    untouched.body["data"]["object"]["id"] = other["external_id"].clone();
    untouched.body["data"]["object"]["client_reference_id"] = other["id"].clone();
    for (number, event) in [&untouched, &lie, &untouched].into_iter().enumerate() {
        assert_eq!(till.deliver(event, number).await, 204);
    }
    assert_eq!(till.cash(&person).await, "0.00");
    assert_eq!(till.state_of(&person, &made).await, "failed");
    assert_eq!(till.state_of(&person, &other).await, "pending");
    // A payment of nobody here is none of ours.
    let mut stranger = lie.clone();
    stranger.body["data"]["object"]["id"] = json!("cs_test_unknown");
    stranger.body["data"]["object"]["client_reference_id"] = json!("top_01jf3z6v5w9x8y7z6a5b4c3d2e");
    assert_eq!(till.deliver(&stranger, 0).await, 204);
    till.audit().await;
}

async fn m15_what_the_provider_collected_is_credited_and_a_difference_is_told(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    let events = till.pay(&made, Paying::PaysAnother(4_500));
    assert_eq!(till.deliver(&events[1], 0).await, 204);
    assert_eq!(till.cash(&person).await, "45.00", "what came, not what was hoped for");
    let alerts = till.get(&operator, "/v1/admin/alerts").await.is(200);
    let alert =
        alerts["items"].as_array().unwrap().iter().find(|alert| alert["kind"] == "payment_amount_differs");
    assert_eq!(alert.unwrap()["subject"], made["id"], "{alerts}");
    till.audit().await;
}

async fn forged_and_stale_callbacks_are_refused(till: Till) {
    let person = till.person().await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    let events = till.pay(&made, Paying::Pays);
    let url = format!("{}{CALLBACKS}", till.api.server.url());
    let now = till.api.clock.now();
    let forged = SecretString::from("whsec_of_someone_else");
    assert_eq!(events[1].deliver(&till.http, &url, &forged, now).await.unwrap(), 400);
    let genuine = super::till::secret();
    assert_eq!(events[1].deliver(&till.http, &url, &genuine, now.plus_seconds(-301)).await.unwrap(), 400);
    assert_eq!(events[1].deliver(&till.http, &url, &genuine, now.plus_seconds(302)).await.unwrap(), 400);
    till.api.post_openly(CALLBACKS, events[1].body.clone()).await.fails(400, "callback_refused");
    // Signed for another body.
    let signed = tarn_api::till::stripe::signature::sign(&genuine, b"{}", now);
    let request =
        till.api.request("POST", CALLBACKS).header("stripe-signature", signed).json(&events[1].body);
    till.api.send(request).await.fails(400, "callback_refused");
    till.api.post_openly("/v1/payments/callbacks/other", json!({})).await.fails(404, "not_found");
    assert_eq!(till.cash(&person).await, "0.00");
    assert_eq!(till.deliver(&events[1], 0).await, 204);
    assert_eq!(till.cash(&person).await, "50.00");
}

async fn a_provider_that_is_down_loses_nothing(till: Till) {
    let person = till.person().await;
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    let refused = till.api.post_once(&person.access, TOPUPS, "k", yuan("50.00")).await;
    assert_eq!(refused.header("retry-after"), "5");
    refused.fails(503, "payments_unavailable");
    till.sandbox.set_faults(Faults::default());
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    let listed = till.get(&person, TOPUPS).await.is(200);
    assert_eq!(listed["items"], json!([made]), "one top-up, however often it was tried");

    // Down when the callback comes: the provider is told to send it again, and the worker asks besides.
    let events = till.pay(&made, Paying::Pays);
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    assert_eq!(till.deliver(&events[1], 0).await, 503);
    till.pass(61).await;
    assert_eq!(till.cash(&person).await, "0.00");
    till.sandbox.set_faults(Faults::default());
    till.pass(3600).await;
    assert_eq!(till.cash(&person).await, "50.00");
    assert_eq!(till.deliver(&events[1], 1).await, 204);
    assert_eq!(till.cash(&person).await, "50.00");
    till.audit().await;
}

async fn a_payment_whose_answer_was_lost_is_one_payment(till: Till) {
    let person = till.person().await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    for _ in 0..3 {
        till.api
            .post_once(&person.access, TOPUPS, "k", yuan("50.00"))
            .await
            .fails(503, "payments_unavailable");
    }
    assert_eq!(till.sandbox.open_pages().len(), 1, "the same name made the same page");
    till.sandbox.set_faults(Faults::default());
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    assert_eq!(made["external_id"], json!(till.sandbox.open_pages()[0]));
    // The page is paid and the callback names it while a client still retries.
    let events = till.pay(&made, Paying::Pays);
    assert_eq!(till.deliver(&events[0], 0).await, 204);
    assert_eq!(till.cash(&person).await, "50.00", "the payment's own event names the top-up too");
    assert_eq!(till.top_up(&person, "k", yuan("50.00")).await, made, "the first answer again");

    // A page that nobody ever saw ends by itself.
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    till.api
        .post_once(&person.access, TOPUPS, "unseen", yuan("7.00"))
        .await
        .fails(503, "payments_unavailable");
    for _ in 0..30 {
        till.pass(3600).await;
    }
    let listed = till.get(&person, TOPUPS).await.is(200);
    assert_eq!(listed["items"][0]["state"], "expired", "{listed}");
    till.audit().await;
}

async fn a_payment_that_fails_or_expires_credits_nothing(till: Till) {
    let person = till.person().await;
    for (key, how, ends) in [("f", Paying::Fails, "failed"), ("e", Paying::LetsExpire, "expired")] {
        let made = till.top_up(&person, key, yuan("50.00")).await;
        for event in till.pay(&made, how) {
            assert_eq!(till.deliver(&event, 0).await, 204);
        }
        let path = format!("{TOPUPS}/{}", made["id"].as_str().unwrap());
        let ended = till.get(&person, &path).await.is(200);
        assert_eq!((&ended["state"], ended["pay_url"].is_null()), (&json!(ends), true), "{ended}");
        assert_eq!(ended["failure"].is_null(), how == Paying::LetsExpire, "{ended}");
    }
    assert_eq!(till.cash(&person).await, "0.00");
    till.audit().await;
}

async fn no_secret_is_in_an_answer(till: Till) {
    let person = till.person().await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    let refused = till.api.post_once(&person.access, TOPUPS, "x", yuan("50.00")).await;
    let state = format!("{:?}", till.api.server.state());
    for text in [made.to_string(), refused.body.to_string(), state] {
        assert!(!text.contains("sk_test_of") && !text.contains("whsec_of"), "{text}");
    }
}
