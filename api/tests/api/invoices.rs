//! Charges, buckets and invoices, from outside, in virtual time.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};
use tarn_api::workers;
use tarn_billing::account::{Account, AccountKind};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{InstanceId, TransferId};
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tokio::io::AsyncWriteExt;

use crate::fleet::world::World;
use crate::harness::{Api, Got, Person};

on_both! {
    a_month_is_invoiced_once_and_says_the_same_in_every_format;
    invoices_on_demand_and_of_the_month_take_every_second_once;
    numbers_of_many_tenants_at_once_have_no_gap;
    what_is_given_back_after_its_invoice_is_a_credit_note;
    buckets_sum_to_the_lines_by_every_key;
}

const BUYER: &str = "杭州分析机科技有限公司";
const FEBRUARY: &str = "2027-02-01T00:00:00Z";
/// From the start of every test to an hour after the end of its month.
const TO_FEBRUARY_SECONDS: i64 = 16 * 86_400 + 17 * 3_600;

/// Someone who may also change billing details and issue invoices.
async fn customer(world: &World) -> Person {
    let person = world.api.person().await;
    let scopes =
        ["offers:read", "instances:read", "instances:write", "wallet:read", "wallet:write", "tenant:read"];
    let access = world.api.key(&person, &scopes).await;
    Person { access, ..person }
}

/// A run of `seconds` that is over, labelled.
async fn used(world: &mut World, person: &Person, label: &str, seconds: i64) -> InstanceId {
    let made = world.try_create(person, json!({"offer_id": "card-24", "label": label})).await.is(201);
    let id: InstanceId = made["id"].as_str().unwrap().parse().unwrap();
    world.pass(1).await;
    world.pass(seconds).await;
    world.terminate(person, &id).await;
    world.pass(1).await;
    world.pass(1).await;
    id
}

async fn get(world: &World, person: &Person, path: &str) -> Value {
    world.api.get(&person.access, path).await.is(200)
}

fn micros(amount: &Value) -> i64 {
    amount["amount"].as_str().unwrap().parse::<Micros>().unwrap().get()
}

fn sum<'a>(items: impl IntoIterator<Item = &'a Value>) -> i64 {
    items.into_iter().map(|item| micros(&item["amount"])).sum()
}

fn items(page: &Value) -> Vec<Value> {
    page["items"].as_array().unwrap().clone()
}

async fn bytes(world: &World, person: &Person, path: &str, accept: &str) -> (String, Vec<u8>) {
    let request = world.api.request("GET", path).bearer_auth(&person.access).header("accept", accept);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200, "{path} as {accept}");
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    (kind, response.bytes().await.unwrap().to_vec())
}

/// What a PDF says, by poppler.
async fn text_of(pdf: &[u8]) -> String {
    let mut reader = tokio::process::Command::new("pdftotext")
        .args(["-layout", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("pdftotext of Debian's poppler-utils: deploy/dev/install.sh test installs it");
    let mut stdin = reader.stdin.take().unwrap();
    let pdf = pdf.to_vec();
    let fed = tokio::spawn(async move { stdin.write_all(&pdf).await });
    let output = reader.wait_with_output().await.unwrap();
    fed.await.unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

async fn create(world: &World, person: &Person, key: &str, period_to: &str) -> Got {
    world.api.post_once(&person.access, "/v1/invoices", key, json!({"period_to": period_to})).await
}

fn csv_rows(csv: &[u8]) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_reader(csv);
    reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

async fn a_month_is_invoiced_once_and_says_the_same_in_every_format(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = customer(&world).await;
    let details =
        json!({"name": BUYER, "address": ["文三路 1 号", "310012 杭州"], "tax_id": "91330100MA00000000"});
    let put = world.api.request("PUT", "/v1/billing/details").bearer_auth(&person.access).json(&details);
    world.api.send(put).await.is(200);
    used(&mut world, &person, "训练 <一>", 1_000).await;
    used(&mut world, &person, "=cmd|x", 777).await;
    world.tick().await;
    assert_eq!(get(&world, &person, "/v1/invoices").await["items"], json!([]), "the month has not ended");

    world.api.clock.advance_seconds(TO_FEBRUARY_SECONDS);
    world.tick().await;
    world.tick().await;
    let listed = items(&get(&world, &person, "/v1/invoices").await);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let path = format!("/v1/invoices/{}", listed[0]["id"].as_str().unwrap());
    let invoice = get(&world, &person, &path).await;
    assert_eq!(
        (&invoice["number"], &invoice["kind"], &invoice["buyer"]["name"]),
        (&json!("TARN-2027-000001"), &json!("invoice"), &json!(BUYER)),
        "{invoice}"
    );
    assert_eq!(
        (&invoice["period_from"], &invoice["period_to"]),
        (&json!("2027-01-01T00:00:00.000000Z"), &json!("2027-02-01T00:00:00.000000Z"))
    );
    let charges = items(&get(&world, &person, "/v1/charges?limit=100").await);
    let lines = invoice["lines"].as_array().unwrap();
    assert_eq!((sum(lines), micros(&invoice["total"])), (sum(&charges), sum(&charges)));
    assert_eq!(sum(&charges), 250_000 + 194_250, "900,000 micros an hour for 1,000 s and 777 s: {charges:?}");
    assert_eq!(invoice["total_printed"], "0.44");
    assert_eq!(invoice["paid"][0]["from"], "trial");
    assert_eq!(sum(invoice["paid"].as_array().unwrap()), sum(&charges));
    let card = lines.iter().find(|line| line["instance_label"] == "训练 <一>").unwrap();
    assert_eq!(
        (&card["type"], &card["item"], &card["sku"], &card["seconds"], &card["price_version"]),
        (&json!("usage"), &json!("gpu"), &json!("card-24"), &json!(1_000), &json!(1)),
        "{card}"
    );
    assert!(card["primary_gpu_uuid"].as_str().unwrap().starts_with("GPU-"), "{card}");

    let (kind, csv) = bytes(&world, &person, &path, "text/csv").await;
    assert_eq!(kind, "text/csv; charset=utf-8");
    let rows = csv_rows(&csv);
    let total = rows.last().unwrap();
    assert_eq!((total[1].as_str(), total[15].as_str()), ("total", "0.44425"), "{total:?}");
    let of_lines: i64 =
        rows.iter().filter(|row| row[1] == "usage").map(|row| row[15].parse::<Micros>().unwrap().get()).sum();
    assert_eq!(of_lines, sum(&charges));
    assert!(rows.iter().any(|row| row[5] == "'=cmd|x"), "no spreadsheet runs a label: {rows:?}");

    let (kind, pdf) = bytes(&world, &person, &format!("{path}.pdf"), "*/*").await;
    assert_eq!(kind, "application/pdf");
    let text = text_of(&pdf).await;
    for said in [
        "Invoice TARN-2027-000001",
        BUYER,
        "文三路 1 号",
        "训练 <一>",
        "0.44425 CNY",
        "0.44 CNY",
        "777",
        "0.19425",
    ] {
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    let totals: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("Total ")).collect();
    assert_eq!(totals.len(), 1, "{text}");
    assert!(totals[0].ends_with("0.44 CNY"), "{totals:?}");
    world.api.clock.advance_seconds(86_400);
    for (accept, first) in [("application/pdf", &pdf), ("text/csv", &csv)] {
        let (_, again) = bytes(&world, &person, &path, accept).await;
        assert!(again == *first, "the same invoice is the same bytes: {accept}");
    }
    world
        .api
        .send(world.api.request("GET", &path).bearer_auth(&person.access).header("accept", "image/png"))
        .await
        .fails(406, "not_acceptable");
    let stranger = customer(&world).await;
    world.api.get(&stranger.access, &format!("{path}.pdf")).await.fails(404, "not_found");

    // What the tenant is called later changes nothing on paper.
    let renamed = world.api.request("PUT", "/v1/billing/details").bearer_auth(&person.access);
    world.api.send(renamed.json(&json!({"name": "Other"}))).await.is(200);
    assert_eq!(get(&world, &person, &path).await, invoice);
    create(&world, &person, "again", FEBRUARY).await.fails(409, "nothing_to_invoice");
}

async fn invoices_on_demand_and_of_the_month_take_every_second_once(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = customer(&world).await;
    let id = world.create(&person, "card-24").await;
    world.pass(1).await;
    world.pass(500).await;
    create(&world, &person, "early", "2027-03-01T00:00:00Z").await.fails(422, "invalid_request");
    // In the middle of the run, between two settlements.
    let first = create(&world, &person, "one", "2027-01-15T08:05:00Z").await.is(201);
    assert_eq!(
        create(&world, &person, "one", "2027-01-15T08:05:00Z").await.is(201),
        first,
        "one key, one invoice"
    );
    create(&world, &person, "two", "2027-01-15T08:05:00Z").await.fails(409, "nothing_to_invoice");
    create(&world, &person, "three", "2027-01-15T08:04:00Z").await.fails(422, "invalid_request");
    world.pass(500).await;
    world.terminate(&person, &id).await;
    world.pass(1).await;
    world.api.clock.advance_seconds(TO_FEBRUARY_SECONDS);
    world.tick().await;
    world.tick().await;
    let listed = items(&get(&world, &person, "/v1/invoices").await);
    let mut spans = Vec::new();
    let mut total = 0;
    for head in &listed {
        let invoice = get(&world, &person, &format!("/v1/invoices/{}", head["id"].as_str().unwrap())).await;
        total += micros(&invoice["total"]);
        for line in invoice["lines"].as_array().unwrap().iter().filter(|line| line["item"] == "gpu") {
            spans.push((line["from_second"].as_i64().unwrap(), line["to_second"].as_i64().unwrap()));
        }
    }
    spans.sort_unstable();
    let charge = items(&get(&world, &person, "/v1/charges").await);
    let card = charge.iter().find(|line| line["item"] == "gpu").unwrap();
    assert_eq!((listed.len(), spans.len(), spans[0].0), (2, 2, 0), "{spans:?}");
    assert_eq!(spans[0].1, spans[1].0, "no second between, none twice: {spans:?}");
    assert_eq!(spans[1].1, card["seconds"].as_i64().unwrap());
    assert_eq!(total, sum(&charge));
    assert_eq!(listed[0]["period_from"], listed[1]["period_to"], "periods follow each other");
    world.audit().await;
}

async fn numbers_of_many_tenants_at_once_have_no_gap(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let mut people = Vec::new();
    for _ in 0..4 {
        let person = customer(&world).await;
        used(&mut world, &person, "x", 60).await;
        people.push(person);
    }
    // Two calls of each tenant race; one of the two finds nothing left.
    let mut racing = tokio::task::JoinSet::new();
    for (turn, person) in people.iter().cycle().take(8).cloned().enumerate() {
        let body = json!({"period_to": "2027-01-15T08:00:00Z"});
        let request = world.api.request("POST", "/v1/invoices").bearer_auth(&person.access);
        let request = request.header("idempotency-key", format!("race-{turn}")).json(&body);
        // The usage lies after 08:00, so this period holds nothing of it.
        racing.spawn(async move { request.send().await.unwrap().status().as_u16() });
    }
    assert!(racing.join_all().await.iter().all(|status| *status == 409));
    let mut racing = tokio::task::JoinSet::new();
    for (turn, person) in people.iter().cycle().take(8).cloned().enumerate() {
        let body = json!({"period_to": "2027-01-15T08:03:00Z"});
        let request = world.api.request("POST", "/v1/invoices").bearer_auth(&person.access);
        let request = request.header("idempotency-key", format!("again-{turn}")).json(&body);
        racing.spawn(async move {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        });
    }
    let answers = racing.join_all().await;
    let numbers: Vec<&str> = answers
        .iter()
        .filter(|(status, _)| *status == 201)
        .map(|(_, body)| body["number"].as_str().unwrap())
        .collect();
    let expected: BTreeSet<String> =
        (1..=numbers.len()).map(|number| format!("TARN-2027-{number:06}")).collect();
    assert!(numbers.len() >= 2, "{answers:?}");
    assert_eq!(numbers.iter().map(|number| (*number).to_owned()).collect::<BTreeSet<_>>(), expected);
    assert!(answers.iter().all(|(status, _)| [201, 409].contains(status)), "{answers:?}");
}

/// Gives `amount` of the newest usage charge of `person` back, as a refund does.
async fn give_back(world: &World, person: &Person, amount: i64) {
    let state = world.api.server.state();
    let scope = TenantScope::proven(person.tenant_id.parse().unwrap());
    let now = world.now();
    let given = state.store.write(move |tx| {
        Box::pin(async move {
            let all = tx.transfers(&scope, tarn_rows::Page::first(100)).await?;
            let usage =
                all.into_iter().find(|row| row.kind == tarn_billing::transfer::TransferKind::Usage).unwrap();
            let revenue = Account::new(AccountKind::RevenueGpu, None).unwrap();
            assert_eq!(usage.credit_account_id, *revenue.id());
            let back = TransferRow {
                id: TransferId::new(now, 77),
                kind: tarn_billing::transfer::TransferKind::Reversal,
                debit_account_id: usage.credit_account_id,
                credit_account_id: usage.debit_account_id,
                amount_micros: Micros::new(amount),
                reverses: Some(usage.id),
                memo: "host fault".to_owned(),
                created_at: now,
                ..usage
            };
            tx.post_transfer(&back).await
        })
    });
    assert_eq!(given.await.unwrap(), Posting::Posted);
}

async fn what_is_given_back_after_its_invoice_is_a_credit_note(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = customer(&world).await;
    used(&mut world, &person, "x", 1_000).await;
    give_back(&world, &person, 100_000).await;
    world.tick().await;
    assert_eq!(
        get(&world, &person, "/v1/invoices").await["items"],
        json!([]),
        "what it corrects comes first"
    );
    world.api.clock.advance_seconds(TO_FEBRUARY_SECONDS);
    world.tick().await;
    world.tick().await;
    let listed = items(&get(&world, &person, "/v1/invoices").await);
    assert_eq!(listed.len(), 2, "{listed:?}");
    let note = listed.iter().find(|head| head["kind"] == "credit_note").unwrap();
    let invoice = listed.iter().find(|head| head["kind"] == "invoice").unwrap();
    assert_eq!((&note["number"], &note["corrects"]), (&json!("TARN-2027-000002"), &invoice["id"]));
    assert_eq!((micros(&invoice["total"]), micros(&note["total"])), (250_000, -100_000));
    let path = format!("/v1/invoices/{}", note["id"].as_str().unwrap());
    let document = get(&world, &person, &path).await;
    assert_eq!(document["lines"][0]["reason"], "host fault", "{document}");
    assert_eq!(
        (&document["paid"][0]["from"], micros(&document["paid"][0]["amount"])),
        (&json!("trial"), -100_000)
    );
    let (_, pdf) = bytes(&world, &person, &path, "application/pdf").await;
    let text = text_of(&pdf).await;
    for said in ["Credit note TARN-2027-000002", "TARN-2027-000001", "-0.10 CNY", "host fault"] {
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    let reports = workers::tick_all(world.api.server.state(), world.now()).await.unwrap();
    assert!(reports.iter().all(|(_, report)| report.failed == 0), "{reports:?}");
    assert_eq!(items(&get(&world, &person, "/v1/invoices").await).len(), 2, "credited once");
    world.audit().await;
}

async fn buckets_sum_to_the_lines_by_every_key(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = customer(&world).await;
    let first = used(&mut world, &person, "a", 5_000).await;
    used(&mut world, &person, "b", 3_333).await;
    used(&mut world, &person, "a", 77).await;
    let charges = items(&get(&world, &person, "/v1/charges?limit=100").await);
    let range = "from=2027-01-01T00:00:00Z&to=2027-02-01T00:00:00Z";
    for bucket in ["hour", "day", "week", "month", "year"] {
        for by in ["none", "item", "sku", "instance", "label"] {
            let path = format!("/v1/billing?bucket={bucket}&group_by={by}&{range}");
            let billing = get(&world, &person, &path).await;
            let groups = billing["groups"].as_array().unwrap();
            let buckets: i64 = groups.iter().map(|group| sum(group["buckets"].as_array().unwrap())).sum();
            assert_eq!(
                (micros(&billing["amount"]), sum(groups), buckets),
                (sum(&charges), sum(&charges), sum(&charges))
            );
        }
    }
    let labelled = get(&world, &person, &format!("/v1/billing?group_by=label&bucket=month&{range}")).await;
    let of = |label: &str| {
        let group =
            labelled["groups"].as_array().unwrap().iter().find(|group| group["label"] == label).unwrap();
        (group["buckets"].as_array().unwrap().len(), micros(&group["amount"]))
    };
    let listed = |label: &str| sum(charges.iter().filter(|line| line["instance_label"] == label));
    assert_eq!((of("a"), of("b")), ((1, listed("a")), (1, listed("b"))));
    let hours =
        get(&world, &person, &format!("/v1/billing/instances?bucket=hour&instance_id={first}&{range}")).await;
    let buckets = hours["groups"][0]["buckets"].as_array().unwrap();
    let seconds: Vec<i64> = buckets.iter().map(|bucket| bucket["seconds"].as_i64().unwrap()).collect();
    assert_eq!((seconds.len(), seconds.iter().sum::<i64>()), (2, 5_000), "{hours}");
    assert_eq!(buckets[1]["starts_at"], "2027-01-15T09:00:00.000000Z");

    let csv =
        bytes(&world, &person, &format!("/v1/billing?format=csv&bucket=day&group_by=label&{range}"), "*/*")
            .await
            .1;
    let of_rows: i64 = csv_rows(&csv).iter().map(|row| row[7].parse::<Micros>().unwrap().get()).sum();
    assert_eq!(of_rows, sum(&charges));
    let filtered = items(&get(&world, &person, "/v1/charges?label=a&limit=1").await);
    assert_eq!((filtered.len(), &filtered[0]["instance_label"]), (1, &json!("a")));
    let page = get(&world, &person, "/v1/charges?limit=1").await;
    let next = format!("/v1/charges?limit=100&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(items(&get(&world, &person, &next).await).len(), charges.len() - 1);
    for (query, pointer) in [
        ("bucket=minute", "?bucket"),
        ("group_by=x", "?group_by"),
        ("from=2027-02-01T00:00:00Z&to=2027-01-01T00:00:00Z", "?to"),
        ("bucket=hour&from=1990-01-01T00:00:00Z", "?from"),
    ] {
        let refused = world.api.get(&person.access, &format!("/v1/billing?{query}")).await;
        assert_eq!(refused.fails(422, "invalid_request")["errors"][0]["pointer"], pointer, "{query}");
    }
}
