//! What an operator sees of payments that go wrong: one alert for each thing, closed when it is over.

use secrecy::SecretString;
use serde_json::{Value, json};
use tarn_api::clock::Clock;
use tarn_api::till::sandbox::{Faults, Paying};

use super::till::{CALLBACKS, TOPUPS, Till, with_till, yuan};
use crate::harness::Person;

with_till! {
    a_provider_that_is_away_for_long_is_one_alert_until_it_answers;
    callbacks_that_prove_nothing_are_an_alert_when_they_are_many;
    a_refund_that_cannot_be_ordered_is_an_alert_until_it_is_paid;
    a_refund_that_is_taken_and_never_paid_is_an_alert;
    a_refund_of_another_amount_is_an_alert;
    a_payment_that_nobody_can_decide_is_an_alert_until_it_is;
}

/// Open and closed alerts of one kind, newest first.
async fn alerts(till: &Till, operator: &Person, kind: &str) -> Vec<(Value, bool)> {
    let page = till.get(operator, "/v1/admin/alerts?limit=100").await.is(200);
    let of = page["items"].as_array().unwrap().iter().filter(|alert| alert["kind"] == kind);
    of.map(|alert| (alert.clone(), alert["cleared_at"].is_null())).collect()
}

async fn a_provider_that_is_away_for_long_is_one_alert_until_it_answers(till: Till) {
    let operator = till.operator().await;
    let failing = async |till: &Till| alerts(till, &operator, "payment_provider_failing").await;
    till.pass(60).await;
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    // Nobody pays, and it shows all the same.
    for _ in 0..14 {
        till.pass(61).await;
    }
    assert_eq!(failing(&till).await, [], "a quarter of an hour is not over");
    for _ in 0..5 {
        till.pass(61).await;
    }
    let told = failing(&till).await;
    assert_eq!((told.len(), told[0].1), (1, true), "{told:?}");
    assert_eq!(told[0].0["subject"], "stripe");
    assert!(told[0].0["detail"]["error"].as_str().unwrap().contains("503"), "{told:?}");
    till.sandbox.set_faults(Faults::default());
    till.pass(61).await;
    let told = failing(&till).await;
    assert_eq!((told.len(), told[0].1), (1, false), "closed when it is over: {told:?}");
    // A short one afterwards is counted from its own beginning.
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    till.pass(61).await;
    till.pass(61).await;
    assert_eq!(failing(&till).await.len(), 1);
}

async fn callbacks_that_prove_nothing_are_an_alert_when_they_are_many(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let refused = async |till: &Till| alerts(till, &operator, "payment_callbacks_refused").await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    let events = till.pay(&made, Paying::Pays);
    let url = format!("{}{CALLBACKS}", till.api.server.url());
    let forged = SecretString::from("whsec_of_someone_else");
    for sent in 1..=25 {
        let status = events[1].deliver(&till.http, &url, &forged, till.api.clock.now()).await.unwrap();
        assert_eq!(status, 400);
        assert_eq!(refused(&till).await.len(), usize::from(sent >= 10), "after {sent}");
    }
    let told = refused(&till).await;
    assert_eq!(told[0].0["detail"]["why"], "wrong_signature", "{told:?}");
    assert!(!told[0].0.to_string().contains("cs_test"), "nothing of what came is written down: {told:?}");
    till.pass(1800).await;
    assert!(refused(&till).await[0].1, "still open");
    assert_eq!(till.deliver(&events[1], 0).await, 204, "genuine ones are taken all the same");
    till.pass(1900).await;
    let told = refused(&till).await;
    assert_eq!((told.len(), told[0].1), (1, false), "quiet for an hour: {told:?}");
}

async fn a_refund_that_cannot_be_ordered_is_an_alert_until_it_is_paid(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let stuck = async |till: &Till| alerts(till, &operator, "refund_stuck").await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { refuses_refunds: true, ..Faults::default() });
    let path = format!("{TOPUPS}/{}/refunds", made["id"].as_str().unwrap());
    let refund = till.api.post_once(&person.access, &path, "r", yuan("20.00")).await.is(201);
    for _ in 0..5 {
        till.pass(3600).await;
    }
    assert_eq!(stuck(&till).await, []);
    for _ in 0..26 {
        till.pass(3600).await;
    }
    let told = stuck(&till).await;
    assert_eq!((told.len(), told[0].1), (1, true), "{told:?}");
    assert_eq!((&told[0].0["subject"], &told[0].0["detail"]["amount"]), (&refund["id"], &json!("20.00")));
    assert!(told[0].0["detail"]["why"].as_str().unwrap().contains("insufficient_funds"), "{told:?}");
    till.sandbox.set_faults(Faults::default());
    // The provider remembers its refusal for a day, under our name of the order.
    for _ in 0..26 {
        till.pass(3600).await;
    }
    let told = stuck(&till).await;
    assert_eq!((told.len(), told[0].1, till.sandbox.collected_fen()), (1, false, 3_000), "{told:?}");
    till.audit().await;
}

async fn a_refund_that_is_taken_and_never_paid_is_an_alert(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let stuck = async |till: &Till| alerts(till, &operator, "refund_stuck").await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { slow_refunds: true, ..Faults::default() });
    let path = format!("{TOPUPS}/{}/refunds", made["id"].as_str().unwrap());
    till.api.post_once(&person.access, &path, "r", yuan("20.00")).await.is(201);
    till.pass(5).await;
    for _ in 0..13 {
        till.pass(24 * 3600).await;
    }
    assert_eq!(stuck(&till).await, [], "banks take their time");
    till.pass(2 * 24 * 3600).await;
    let told = stuck(&till).await;
    assert_eq!((told.len(), told[0].1), (1, true), "{told:?}");
    till.sandbox.decide_refunds(true);
    till.pass(3600).await;
    assert!(!stuck(&till).await[0].1);
    till.audit().await;
}

async fn a_refund_of_another_amount_is_an_alert(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { refunds_more: 100, ..Faults::default() });
    let path = format!("{TOPUPS}/{}/refunds", made["id"].as_str().unwrap());
    let refund = till.api.post_once(&person.access, &path, "r", yuan("20.00")).await.is(201);
    till.pass(5).await;
    let told = alerts(&till, &operator, "refund_amount_differs").await;
    assert_eq!(told.len(), 1);
    let detail = &told[0].0["detail"];
    assert_eq!(
        (&told[0].0["subject"], &detail["left_the_wallet"], &detail["paid_back"]),
        (&refund["id"], &json!("20.00"), &json!("21.00"))
    );
    till.audit().await;
}

async fn a_payment_that_nobody_can_decide_is_an_alert_until_it_is(till: Till) {
    let (person, operator) = (till.person().await, till.operator().await);
    let stuck = async |till: &Till| alerts(till, &operator, "payment_stuck").await;
    let made = till.top_up(&person, "k", yuan("50.00")).await;
    drop(till.pay(&made, Paying::Pays));
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    for _ in 0..24 {
        till.pass(3600).await;
    }
    assert_eq!(stuck(&till).await, []);
    for _ in 0..4 {
        till.pass(3600).await;
    }
    let told = stuck(&till).await;
    assert_eq!((told.len(), &told[0].0["subject"], told[0].1), (1, &made["id"], true), "{told:?}");
    till.sandbox.set_faults(Faults::default());
    till.pass(3601).await;
    assert!(!stuck(&till).await[0].1);
    assert_eq!(till.cash(&person).await, "50.00");
    till.audit().await;
}
