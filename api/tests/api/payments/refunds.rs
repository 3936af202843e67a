//! Unspent cash goes back by the way on which it came: never more than came (M17), however calls race and answers are lost.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tarn_api::till::sandbox::Faults;

use super::till::{TOPUPS, Till, with_till, yuan};
with_till! {
    unspent_cash_goes_back_by_the_way_on_which_it_came;
    m17_a_hundred_refunds_at_once_never_pay_out_more_than_came;
    a_refund_that_the_provider_cannot_pay_returns_to_its_bucket;
    a_refund_that_comes_back_after_it_was_paid_is_the_customers_again;
    a_refund_whose_answer_was_lost_is_paid_once;
    a_refund_whose_answer_is_lost_for_days_is_paid_once;
}

fn path(top_up: &Value) -> String {
    format!("{TOPUPS}/{}/refunds", top_up["id"].as_str().unwrap())
}

async fn unspent_cash_goes_back_by_the_way_on_which_it_came(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    let refund = till.api.post_once(&person.access, &path(&made), "r", yuan("20.00")).await.is(201);
    assert_eq!((&refund["state"], &refund["top_up_id"]), (&json!("pending"), &made["id"]), "{refund}");
    assert_eq!(till.cash(&person).await, "30.00", "out of the wallet at once");
    assert_eq!(till.sandbox.collected_fen(), 5_000);
    till.pass(5).await;
    assert_eq!(till.sandbox.collected_fen(), 3_000);
    let at = format!("/v1/refunds/{}", refund["id"].as_str().unwrap());
    let done = till.get(&person, &at).await.is(200);
    assert_eq!((&done["state"], done["resolved_at"].is_null()), (&json!("settled"), false), "{done}");
    // The same call again is the same refund; trial credit is never paid out.
    assert_eq!(till.api.post_once(&person.access, &path(&made), "r", yuan("20.00")).await.is(201), refund);
    till.api
        .post_once(&person.access, &path(&made), "more", yuan("30.01"))
        .await
        .fails(409, "not_refundable");
    let rest = till.api.post_once(&person.access, &path(&made), "rest", json!({})).await.is(201);
    assert_eq!(rest["amount"]["amount"], "30.00", "all that is left");
    till.api.post_once(&person.access, &path(&made), "none", json!({})).await.fails(409, "not_refundable");
    till.pass(5).await;
    assert_eq!((till.sandbox.collected_fen(), till.cash(&person).await.as_str()), (0, "0.00"));
    assert_eq!(till.get(&person, "/v1/wallet").await.is(200)["credit"]["amount"], "10.00");
    let open = till.top_up(&person, "open", yuan("5.00")).await;
    till.api.post_once(&person.access, &path(&open), "early", json!({})).await.fails(409, "wrong_state");
    till.audit().await;
}

async fn m17_a_hundred_refunds_at_once_never_pay_out_more_than_came(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    let keys: Vec<String> = (0..40).map(|number| format!("r{number}")).collect();
    let at = path(&made);
    let calls = keys.iter().map(|key| till.api.post_once(&person.access, &at, key, yuan("6.00")));
    let answers = join_all(calls).await;
    let accepted = answers.iter().filter(|got| got.status == 201).count();
    assert_eq!(accepted, 8, "8 × 6.00 of 50.00");
    for got in answers.into_iter().filter(|got| got.status != 201) {
        got.fails(409, "not_refundable");
    }
    till.pass(5).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.collected_fen()), ("2.00", 200));
    till.audit().await;
}

async fn a_refund_that_the_provider_cannot_pay_returns_to_its_bucket(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { slow_refunds: true, ..Faults::default() });
    let refund = till.api.post_once(&person.access, &path(&made), "r", yuan("50.00")).await.is(201);
    till.pass(5).await;
    assert_eq!(till.cash(&person).await, "0.00");
    till.sandbox.decide_refunds(false);
    // Its news comes by callback, twice.
    for event in till.sandbox.take_events().iter().filter(|event| event.kind == "refund.failed") {
        assert_eq!(till.deliver(event, 0).await, 204);
        assert_eq!(till.deliver(event, 1).await, 204);
    }
    till.pass(5).await;
    let at = format!("/v1/refunds/{}", refund["id"].as_str().unwrap());
    let failed = till.get(&person, &at).await.is(200);
    assert_eq!(
        (&failed["state"], &failed["failure"]),
        (&json!("failed"), &json!("expired_or_canceled_card"))
    );
    assert_eq!(till.cash(&person).await, "50.00");
    let grants = till.get(&person, "/v1/wallet").await.is(200)["grants"].clone();
    let cash: Vec<&Value> =
        grants.as_array().unwrap().iter().filter(|grant| grant["kind"] == "cash").collect();
    assert_eq!(
        (cash.len(), &cash[0]["remaining"]["amount"]),
        (1, &json!("50.00")),
        "the same bucket: {grants}"
    );
    // It can be tried again, whole.
    till.sandbox.set_faults(Faults::default());
    till.api.post_once(&person.access, &path(&made), "again", json!({})).await.is(201);
    till.pass(5).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.collected_fen()), ("0.00", 0));
    till.audit().await;
}

/// A bank may send a refund back for weeks after the provider called it paid: by callback, or found by asking.
async fn a_refund_that_comes_back_after_it_was_paid_is_the_customers_again(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    for (key, told) in [("r1", true), ("r2", false)] {
        let refund = till.api.post_once(&person.access, &path(&made), key, yuan("20.00")).await.is(201);
        let at = format!("/v1/refunds/{}", refund["id"].as_str().unwrap());
        till.pass(5).await;
        assert_eq!(till.get(&person, &at).await.is(200)["state"], "settled");
        assert_eq!((till.sandbox.collected_fen(), till.cash(&person).await.as_str()), (3_000, "30.00"));
        for _ in 0..9 {
            till.pass(24 * 3600).await;
        }
        drop(till.sandbox.take_events());
        till.sandbox.bounce_refunds();
        let events = till.sandbox.take_events();
        assert_eq!((events.len(), events[0].kind.as_str()), (1, "refund.failed"));
        if told {
            assert_eq!(till.deliver(&events[0], 0).await, 204);
            assert_eq!(till.deliver(&events[0], 1).await, 204);
            till.pass(5).await;
        } else {
            till.pass(24 * 3600).await;
        }
        let back = till.get(&person, &at).await.is(200);
        assert_eq!(
            (&back["state"], &back["failure"]),
            (&json!("failed"), &json!("expired_or_canceled_card")),
            "{back}"
        );
        assert_eq!((till.sandbox.collected_fen(), till.cash(&person).await.as_str()), (5_000, "50.00"));
        till.audit().await;
    }
    // Told late or again, it is not put back twice.
    till.pass(24 * 3600).await;
    assert_eq!(till.cash(&person).await, "50.00");
    till.api.post_once(&person.access, &path(&made), "whole", yuan("50.00")).await.is(201);
    till.pass(5).await;
    assert_eq!((till.sandbox.collected_fen(), till.cash(&person).await.as_str()), (0, "0.00"));
    // Nobody asks for ever.
    let asked = till.sandbox.refunds_asked();
    for _ in 0..40 {
        till.pass(24 * 3600).await;
    }
    let month = till.sandbox.refunds_asked() - asked;
    assert!((30..=36).contains(&month), "once a day for five weeks: {month}");
    till.audit().await;
}

async fn a_refund_whose_answer_was_lost_is_paid_once(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    let refund = till.api.post_once(&person.access, &path(&made), "r", yuan("20.00")).await.is(201);
    for _ in 0..3 {
        till.pass(3600).await;
    }
    assert_eq!(till.sandbox.collected_fen(), 3_000);
    till.sandbox.set_faults(Faults::default());
    till.pass(3600).await;
    let at = format!("/v1/refunds/{}", refund["id"].as_str().unwrap());
    assert_eq!(till.get(&person, &at).await.is(200)["state"], "settled");
    assert_eq!((till.sandbox.collected_fen(), till.cash(&person).await.as_str()), (3_000, "30.00"));
    till.audit().await;
}

/// The provider forgets our name of an order after a day; a part ordered again then would be paid out twice.
async fn a_refund_whose_answer_is_lost_for_days_is_paid_once(till: Till) {
    let person = till.person().await;
    let made = till.paid(&person, "k", yuan("50.00")).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    let refund = till.api.post_once(&person.access, &path(&made), "r", yuan("20.00")).await.is(201);
    for _ in 0..50 {
        till.pass(3600).await;
    }
    assert_eq!(till.sandbox.collected_fen(), 3_000);
    let at = format!("/v1/refunds/{}", refund["id"].as_str().unwrap());
    assert_eq!(till.get(&person, &at).await.is(200)["state"], "settled", "found in the provider's own list");
    assert_eq!(till.cash(&person).await, "30.00");
    till.audit().await;
}
