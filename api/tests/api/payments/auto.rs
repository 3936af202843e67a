//! Automatic top-ups: below the threshold, so many a day, never on after declines.

use serde_json::{Value, json};
use tarn_api::till::sandbox::Faults;

use super::till::{TOPUPS, Till, with_till};
use crate::harness::Person;

with_till! {
    cash_comes_by_itself_below_the_threshold_and_so_often_a_day;
    two_declines_in_a_row_end_it_until_it_is_set_again;
    a_charge_whose_answer_was_lost_is_made_once;
    a_charge_whose_answer_is_lost_for_days_is_made_once;
    a_charge_that_arrived_is_credited_though_its_card_is_gone;
    another_card_is_not_charged_for_what_the_first_one_paid;
    a_charge_that_never_arrived_ends_and_no_decline_is_counted;
    a_rule_that_is_lifted_or_lowered_charges_nothing_on_an_older_wish;
    without_a_saved_method_nothing_is_charged;
}

const RULE: &str = "/v1/wallet/auto-topup";

fn rule(threshold: &str, amount: &str, per_day: u32) -> Value {
    let cny = |amount: &str| json!({"amount": amount, "currency": "CNY"});
    json!({"threshold": cny(threshold), "amount": cny(amount), "per_day_max": per_day})
}

/// A customer with 5.00 of cash, 10.00 of trial credit, and a saved card.
async fn saver(till: &Till) -> Person {
    let person = till.person().await;
    let body = json!({"amount": {"amount": "5.00", "currency": "CNY"}, "save_method": true});
    till.paid(&person, "first", body).await;
    person
}

async fn kinds(till: &Till, person: &Person) -> Vec<String> {
    let page = till.get(person, "/v1/notices").await.is(200);
    page["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
}

async fn cash_comes_by_itself_below_the_threshold_and_so_often_a_day(till: Till) {
    let person = saver(&till).await;
    let method = till.get(&person, "/v1/wallet/payment-method").await.is(200);
    assert_eq!(method["label"], "visa ending in 4242");
    assert!(!method.to_string().contains("pm_"), "the provider's names stay inside: {method}");
    till.get(&person, RULE).await.fails(404, "not_found");
    till.api.put(&person.access, RULE, rule("10.00", "20.00", 2)).await.is(200);
    till.pass(5).await;
    assert_eq!(till.cash(&person).await, "5.00", "15.00 are above the threshold");
    let set = till.api.put(&person.access, RULE, rule("40.00", "10.00", 2)).await.is(200);
    assert_eq!((&set["active"], &set["payment_method"]), (&json!(true), &json!("visa ending in 4242")));
    till.pass(5).await;
    assert_eq!(till.cash(&person).await, "15.00");
    till.pass(5).await;
    assert_eq!(till.cash(&person).await, "25.00");
    for _ in 0..3 {
        till.pass(5).await;
    }
    assert_eq!(till.cash(&person).await, "25.00", "twice a day and no more");
    assert_eq!(kinds(&till, &person).await, ["auto_top_up.limit"], "told once");
    till.pass(24 * 3600).await;
    assert_eq!(till.cash(&person).await, "35.00", "the next day begins afresh");
    let listed = till.get(&person, TOPUPS).await.is(200);
    assert_eq!(listed["items"][0]["cause"], "auto");
    assert_eq!(till.api.delete(&person.access, RULE).await.status, 204);
    till.get(&person, RULE).await.fails(404, "not_found");
    till.audit().await;
}

async fn two_declines_in_a_row_end_it_until_it_is_set_again(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { declines: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("40.00", "10.00", 20)).await.is(200);
    for _ in 0..6 {
        till.pass(5).await;
    }
    assert_eq!(till.cash(&person).await, "5.00");
    assert_eq!(till.sandbox.charges_made(), 2, "a declined card is not tried on and on");
    let stopped = till.get(&person, RULE).await.is(200);
    assert_eq!(
        (&stopped["active"], &stopped["stopped_reason"]),
        (&json!(false), &json!("declined")),
        "{stopped}"
    );
    assert_eq!(kinds(&till, &person).await, ["auto_top_up.declined"; 2]);
    let failed = till.get(&person, TOPUPS).await.is(200)["items"][0].clone();
    assert_eq!(failed["state"], "failed");
    assert!(failed["failure"].as_str().unwrap().contains("insufficient_funds"), "{failed}");
    till.sandbox.set_faults(Faults::default());
    till.pass(3600).await;
    assert_eq!(till.cash(&person).await, "5.00");
    till.api.put(&person.access, RULE, rule("40.00", "10.00", 20)).await.is(200);
    till.pass(5).await;
    assert_eq!(till.cash(&person).await, "15.00");
    till.audit().await;
}

async fn a_charge_whose_answer_was_lost_is_made_once(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
    for _ in 0..4 {
        till.pass(5).await;
    }
    assert_eq!(till.cash(&person).await, "5.00", "nobody here knows yet");
    assert_eq!(till.sandbox.charges_made(), 1);
    till.sandbox.set_faults(Faults::default());
    // The callback names the payment before the worker asks again.
    let events = till.sandbox.take_events();
    assert_eq!(till.deliver(events.last().unwrap(), 1).await, 204);
    assert_eq!(till.cash(&person).await, "15.00");
    till.pass(3600).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("15.00", 1));
    till.audit().await;
}

async fn hours(till: &Till, hours: u32) {
    for _ in 0..hours {
        till.pass(3600).await;
    }
}

/// The provider forgets our name of a call after a day; repeated then, it would be another charge.
async fn a_charge_whose_answer_is_lost_for_days_is_made_once(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
    hours(&till, 22).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("5.00", 1));
    hours(&till, 30).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("15.00", 1));
    till.audit().await;
}

async fn a_charge_that_arrived_is_credited_though_its_card_is_gone(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
    till.pass(5).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("5.00", 1));
    assert_eq!(till.api.delete(&person.access, "/v1/wallet/payment-method").await.status, 204);
    till.sandbox.set_faults(Faults::default());
    hours(&till, 2).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("15.00", 1));
    till.audit().await;
}

async fn another_card_is_not_charged_for_what_the_first_one_paid(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { loses_answers: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
    till.pass(5).await;
    till.sandbox.set_faults(Faults::default());
    drop(till.sandbox.take_events());
    // The customer saves another card before anybody here knows of the charge.
    let body = json!({"amount": {"amount": "1.00", "currency": "CNY"}, "save_method": true});
    assert_eq!(till.api.delete(&person.access, "/v1/wallet/payment-method").await.status, 204);
    till.paid(&person, "second", body).await;
    for more in [2, 26] {
        hours(&till, more).await;
        assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("16.00", 1));
    }
    till.audit().await;
}

async fn a_charge_that_never_arrived_ends_and_no_decline_is_counted(till: Till) {
    let person = saver(&till).await;
    till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
    till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
    hours(&till, 30).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("5.00", 0));
    till.sandbox.set_faults(Faults::default());
    hours(&till, 3).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("15.00", 1));
    let listed = till.get(&person, TOPUPS).await.is(200);
    let states: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["settled", "expired", "settled"], "given up, and charged under a new name: {listed}");
    let rule = till.get(&person, RULE).await.is(200);
    assert_eq!(rule["active"], true, "{rule}");
    assert_eq!(kinds(&till, &person).await, [""; 0], "an outage is no decline");
    till.audit().await;
}

/// The provider is away when the rule wants cash, and back when the customer has changed their mind.
async fn a_rule_that_is_lifted_or_lowered_charges_nothing_on_an_older_wish(till: Till) {
    let person = saver(&till).await;
    for lifted in [true, false] {
        till.sandbox.set_faults(Faults { down: true, ..Faults::default() });
        till.api.put(&person.access, RULE, rule("20.00", "100.00", 20)).await.is(200);
        hours(&till, 2).await;
        if lifted {
            assert_eq!(till.api.delete(&person.access, RULE).await.status, 204);
        } else {
            till.api.put(&person.access, RULE, rule("20.00", "10.00", 20)).await.is(200);
        }
        till.sandbox.set_faults(Faults::default());
        hours(&till, 4).await;
        assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("5.00", 0), "{lifted}");
        if lifted {
            hours(&till, 30).await;
        }
    }
    hours(&till, 30).await;
    assert_eq!(
        (till.cash(&person).await.as_str(), till.sandbox.charges_made()),
        ("15.00", 1),
        "the old wish is over, the lower one is carried out"
    );
    till.audit().await;
}

async fn without_a_saved_method_nothing_is_charged(till: Till) {
    let person = till.person().await;
    till.paid(&person, "first", json!({"amount": {"amount": "5.00", "currency": "CNY"}})).await;
    till.get(&person, "/v1/wallet/payment-method").await.fails(404, "not_found");
    till.api.put(&person.access, RULE, rule("40.00", "10.00", 2)).await.is(200);
    till.pass(5).await;
    assert_eq!((till.cash(&person).await.as_str(), till.sandbox.charges_made()), ("5.00", 0));
    for wrong in [
        rule("-1.00", "10.00", 1),
        rule("1.00", "0.50", 1),
        rule("1.00", "10.001", 1),
        rule("1.00", "10.00", 25),
    ] {
        till.api.put(&person.access, RULE, wrong).await.fails(422, "invalid_request");
    }
}
