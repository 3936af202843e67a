use std::collections::BTreeSet;

use tarn_billing::account::AccountKind;
use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::{CreditLine, Draft, Invoice, InvoiceKind, InvoiceNumber, Line, Paid, Party};
use tarn_billing::meter::Item;
use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::*;
use tarn_protocol::units::Generation;
use tarn_rows::instances::InstanceRow;
use tarn_rows::invoices::{CreditLineRow, InvoiceLineRow, InvoiceRow, InvoiceRunRow};
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::segments::ChargeFilter;
use tarn_rows::storage::StorageSegmentRow;
use tarn_rows::wallet::GrantRow;
use tarn_rows::{Json, Page, TenantScope};
use tarn_store::{Constraint, Store, StoreError};

use crate::fixtures::*;

on_both_engines! {
    numbers_have_no_gap_however_many_issue_and_fail_at_once,
    a_second_is_on_one_invoice,
    a_reversal_is_on_one_credit_note,
    payments_are_cut_at_any_micro,
    a_disk_has_one_open_segment_and_none_overlap,
    disks_and_cards_are_listed_by_the_same_filter,
    a_run_is_kept_where_it_has_come,
}

/// A paper of `scope` under number `number`, with one line.
fn paper(scope: &TenantScope, number: i64, corrects: Option<(InvoiceId, InvoiceNumber)>) -> InvoiceRow {
    let number = InvoiceNumber { seller: "TARN".to_owned(), year: 2027, number };
    let credit = CreditLine {
        transfer_id: id!(TransferId),
        segment_id: id!(SegmentId),
        instance_id: id!(InstanceId),
        label: "训练".to_owned(),
        item: Item::Gpu,
        sku: "pool-96".parse().unwrap(),
        reason: "host fault".to_owned(),
        at: at(0),
        amount: Micros::new(-5),
        paid: vec![Paid { from: GrantKind::Cash, amount: Micros::new(-5) }],
    };
    let corrected = corrects.map(|(id, number)| tarn_billing::invoice::Corrected { id, number });
    let draft = Draft {
        id: id!(InvoiceId),
        tenant_id: scope.tenant_id().clone(),
        corrects: corrected.clone().or_else(|| {
            Some(tarn_billing::invoice::Corrected { id: id!(InvoiceId), number: number.clone() })
        }),
        seller: Party::default(),
        buyer: Party::default(),
        period_from: at(0),
        period_to: at(10),
        issued_at: at(20),
        lines: vec![Line::Credit(credit)],
    };
    let invoice = Invoice::new(draft, number).unwrap();
    InvoiceRow {
        id: invoice.id.clone(),
        tenant_id: scope.tenant_id().clone(),
        kind: if corrected.is_some() { InvoiceKind::CreditNote } else { InvoiceKind::Invoice },
        seller: invoice.number.seller.clone(),
        year: invoice.number.year,
        number: invoice.number.number,
        corrects: corrected.map(|corrected| corrected.id),
        period_from: at(0),
        period_to: at(10),
        total_micros: invoice.total,
        document: Json(invoice),
        issued_at: at(20),
    }
}

async fn issue(store: &Store, scope: &TenantScope, fails: bool) -> Result<InvoiceRow, StoreError> {
    let scope = scope.clone();
    change!(store, tx => {
        let number = tx.next_invoice_number("TARN", 2027).await?;
        let row = paper(&scope, number, None);
        tx.insert_invoice(&scope, &row).await?;
        if fails { Err(StoreError::Ended) } else { Ok(row) }
    })
    .await
}

async fn numbers_have_no_gap_however_many_issue_and_fail_at_once(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let mut issuing = tokio::task::JoinSet::new();
    for turn in 0..60 {
        let (store, scope) = (store.clone(), scope.clone());
        issuing.spawn(async move { issue(&store, &scope, turn % 3 == 0).await });
    }
    let issued = issuing.join_all().await.into_iter().filter_map(Result::ok);
    let numbers: BTreeSet<i64> = issued.map(|row| row.number).collect();
    assert_eq!(numbers, (1..=40).collect(), "no gap, none twice");
    let heads = store.reader().await.unwrap().invoices(&scope, Page::first(100)).await.unwrap();
    assert_eq!(heads.len(), 40);
    let other_year = change!(store, tx => tx.next_invoice_number("TARN", 2028).await).await.unwrap();
    let other_seller = change!(store, tx => tx.next_invoice_number("OTHER", 2027).await).await.unwrap();
    assert_eq!((other_year, other_seller), (1, 1));
}

fn line(invoice: &InvoiceId, place: u32, segment: &SegmentId, from: i64, to: i64) -> InvoiceLineRow {
    InvoiceLineRow {
        invoice_id: invoice.clone(),
        place,
        segment_id: segment.clone(),
        from_s: Seconds::new(from).unwrap(),
        to_s: Seconds::new(to).unwrap(),
        amount_micros: Micros::new(to - from),
    }
}

async fn a_second_is_on_one_invoice(store: Store, _url: String) {
    let scope = tenant(&store).await;
    let (one, two) =
        (issue(&store, &scope, false).await.unwrap(), issue(&store, &scope, false).await.unwrap());
    let segment = id!(SegmentId);
    let insert = async |row: InvoiceLineRow| change!(store, tx => tx.insert_invoice_line(&row).await).await;
    insert(line(&one.id, 0, &segment, 0, 100)).await.unwrap();
    insert(line(&two.id, 0, &segment, 100, 150)).await.unwrap();
    for from in [0, 100] {
        let refused = insert(line(&two.id, 1, &segment, from, 200)).await.unwrap_err();
        assert!(refused.breaks(Constraint::InvoicedSecond), "{refused:?}");
    }
    assert!(insert(line(&two.id, 2, &segment, 150, 150)).await.is_err(), "an empty line");
    let mut reader = store.reader().await.unwrap();
    assert_eq!(reader.invoiced_seconds(&scope, &segment).await.unwrap().get(), 150);
    assert_eq!(reader.invoice_lines_of_segment(&scope, &segment).await.unwrap().len(), 2);
    let stranger = tenant(&store).await;
    assert_eq!(reader.invoiced_seconds(&stranger, &segment).await.unwrap().get(), 0);
    assert!(reader.invoice(&stranger, &one.id).await.unwrap().is_none());
    assert_eq!(reader.invoice(&scope, &one.id).await.unwrap(), Some(one));
}

/// A grant of `scope` and the account that holds it.
async fn grant(store: &Store, scope: &TenantScope, kind: GrantKind) -> GrantId {
    let row = GrantRow {
        id: id!(GrantId),
        tenant_id: scope.tenant_id().clone(),
        kind,
        priority: 0,
        granted_micros: Micros::new(1_000),
        remaining_micros: Micros::new(1_000),
        expires_at: None,
        created_at: at(0),
    };
    let (id, scope) = (row.id.clone(), scope.clone());
    change!(store, tx => tx.insert_grant(&scope, &row).await).await.unwrap();
    id
}

async fn posted(store: &Store, row: TransferRow) -> TransferRow {
    let transfer = row.clone();
    let posting = change!(store, tx => tx.post_transfer(&transfer).await).await.unwrap();
    assert_eq!(posting, Posting::Posted);
    row
}

async fn a_reversal_is_on_one_credit_note(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 100).await;
    let revenue = system(AccountKind::RevenueGpu);
    let invoice = issue(&store, &scope, false).await.unwrap();
    let segment = id!(SegmentId);
    let spend = TransferRow {
        segment_id: Some(segment.clone()),
        ..transfer_row(TransferKind::Usage, &wallet, &revenue, 9)
    };
    let spend = posted(&store, spend).await;
    let back = TransferRow {
        segment_id: Some(segment.clone()),
        reverses: Some(spend.id.clone()),
        ..transfer_row(TransferKind::Reversal, &revenue, &wallet, 5)
    };
    let back = posted(&store, back).await;
    let due = async || store.reader().await.unwrap().reversals_to_credit(10).await.unwrap();
    assert!(due().await.is_empty(), "not before the segment is on an invoice");
    let usage = line(&invoice.id, 0, &segment, 0, 9);
    change!(store, tx => tx.insert_invoice_line(&usage).await).await.unwrap();
    assert_eq!(due().await, std::slice::from_ref(&back));
    let corrects = (invoice.id.clone(), invoice.document.0.number.clone());
    let credit = |place, note: InvoiceId| CreditLineRow {
        transfer_id: back.id.clone(),
        invoice_id: note,
        place,
        amount_micros: Micros::new(-5),
    };
    let note = paper(&scope, 2, Some(corrects));
    let (first, again, owner) = (credit(0, note.id.clone()), credit(1, note.id.clone()), scope.clone());
    change!(store, tx => {
        tx.insert_invoice(&owner, &note).await?;
        tx.insert_credit_line(&first).await
    })
    .await
    .unwrap();
    assert!(due().await.is_empty());
    let refused = change!(store, tx => tx.insert_credit_line(&again).await).await.unwrap_err();
    assert!(refused.breaks(Constraint::CreditedReversal), "{refused:?}");
}

async fn payments_are_cut_at_any_micro(store: Store, _url: String) {
    let (scope, wallet) = funded_tenant(&store, 1_000).await;
    let (trial, promo) =
        (grant(&store, &scope, GrantKind::Trial).await, grant(&store, &scope, GrantKind::Promo).await);
    let revenue = system(AccountKind::RevenueGpu);
    let (segment, other) = (id!(SegmentId), id!(SegmentId));
    let parts = [(&trial, 10), (&trial, 7), (&promo, 5), (&promo, 20), (&trial, 1)];
    let mut last = None;
    for (bucket, micros) in parts {
        let row = TransferRow {
            segment_id: Some(segment.clone()),
            grant_id: Some(bucket.clone()),
            ..transfer_row(TransferKind::Usage, &wallet, &revenue, micros)
        };
        last = Some(posted(&store, row).await.id);
    }
    let noise = TransferRow {
        segment_id: Some(other),
        grant_id: Some(promo.clone()),
        ..transfer_row(TransferKind::Usage, &wallet, &revenue, 99)
    };
    posted(&store, noise).await;
    // Micro by micro, in the order of the transfers.
    let whose: Vec<GrantKind> = parts
        .iter()
        .flat_map(|(bucket, micros)| {
            let kind = if *bucket == &trial { GrantKind::Trial } else { GrantKind::Promo };
            std::iter::repeat_n(kind, usize::try_from(*micros).unwrap())
        })
        .collect();
    let mut reader = store.reader().await.unwrap();
    for from in 0..=whose.len() {
        for to in from + 1..=whose.len() {
            let (low, high) = (i64::try_from(from).unwrap(), i64::try_from(to).unwrap());
            let rows =
                reader.paid_between(&scope, &segment, Micros::new(low), Micros::new(high)).await.unwrap();
            for kind in [GrantKind::Trial, GrantKind::Promo] {
                let expected = whose[from..to].iter().filter(|paid| **paid == kind).count();
                let found = rows.iter().find(|row| row.kind == kind).map_or(0, |row| row.amount_micros.get());
                assert_eq!(found, i64::try_from(expected).unwrap(), "{kind} in {low}..{high}");
            }
        }
    }
    let before = reader.charged_before(&scope, &segment, &last.unwrap()).await.unwrap();
    assert_eq!(before, Micros::new(42));
}

fn disk_row(instance: &InstanceRow, sku: &str, started: i64) -> StorageSegmentRow {
    StorageSegmentRow {
        id: id!(SegmentId),
        tenant_id: instance.tenant_id.clone(),
        instance_id: instance.id.clone(),
        generation: Generation::new(1),
        sku: sku.parse().unwrap(),
        gib: 30,
        price_version: PriceVersion::FIRST,
        micros_per_hour: Rate::per_hour(Micros::new(15_000)).unwrap(),
        started_at: at(started),
        ended_at: None,
        close_reason: None,
        settled_seconds: Seconds::ZERO,
        settled_micros: Micros::ZERO,
        row_version: 0,
        exhausts_at: None,
        updated_at: at(started),
    }
}

async fn insert_disk(store: &Store, row: &StorageSegmentRow) -> Result<(), StoreError> {
    let (scope, row) = (TenantScope::proven(row.tenant_id.clone()), row.clone());
    change!(store, tx => tx.insert_storage_segment(&scope, &row).await).await
}

async fn a_disk_has_one_open_segment_and_none_overlap(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let instance = instance(&store, &scope).await;
    let closed = |row: StorageSegmentRow, ended: i64| StorageSegmentRow {
        ended_at: Some(at(ended)),
        close_reason: Some(CloseReason::PriceChanged),
        ..row
    };
    let open = disk_row(&instance, "disk", 100);
    insert_disk(&store, &open).await.unwrap();
    insert_disk(&store, &disk_row(&instance, "disk-included", 100)).await.unwrap();
    let second = insert_disk(&store, &disk_row(&instance, "disk", 200)).await.unwrap_err();
    assert!(second.breaks(Constraint::OpenDisk), "{second:?}");
    let over = insert_disk(&store, &closed(disk_row(&instance, "disk", 50), 101)).await.unwrap_err();
    assert!(over.breaks(Constraint::DiskOverlap), "{over:?}");
    insert_disk(&store, &closed(disk_row(&instance, "disk", 50), 100)).await.unwrap();

    let update = async |row: StorageSegmentRow| {
        let scope = scope.clone();
        change!(store, tx => tx.update_storage_segment(&scope, &row).await).await.unwrap()
    };
    assert!(update(closed(open.clone(), 300)).await);
    assert!(!update(closed(open.clone(), 250)).await, "stale");
    let mut reader = store.reader().await.unwrap();
    let still = reader.open_storage_segments_of_instance(&scope, &instance.id).await.unwrap();
    assert_eq!(still.iter().map(|row| row.sku.as_str()).collect::<Vec<_>>(), ["disk-included"]);
    let stranger = tenant(&store).await;
    assert!(reader.storage_segment(&stranger, &open.id).await.unwrap().is_none());
}

async fn disks_and_cards_are_listed_by_the_same_filter(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 1).await;
    let (one, two) = (instance(&store, &scope).await, instance(&store, &scope).await);
    let card = segment_row(&one, &gpus[0].uuid, 100);
    let (owner, inserted) = (scope.clone(), card.clone());
    change!(store, tx => tx.insert_segment(&owner, &inserted).await).await.unwrap();
    let ended = StorageSegmentRow {
        ended_at: Some(at(200)),
        close_reason: Some(CloseReason::Terminated),
        ..disk_row(&two, "disk", 100)
    };
    insert_disk(&store, &ended).await.unwrap();
    let all = ChargeFilter::default();
    let cases = [
        (all.clone(), 1, 1),
        (ChargeFilter { instance_id: Some(one.id.clone()), ..all.clone() }, 1, 0),
        (ChargeFilter { instance_id: Some(two.id.clone()), ..all.clone() }, 0, 1),
        (ChargeFilter { label: Some("training".to_owned()), ..all.clone() }, 1, 1),
        (ChargeFilter { label: Some("other".to_owned()), ..all.clone() }, 0, 0),
        (ChargeFilter { from: at(200), ..all.clone() }, 1, 0),
        (ChargeFilter { from: at(199), to: at(200), ..all.clone() }, 1, 1),
        (ChargeFilter { to: at(100), ..all }, 0, 0),
    ];
    let mut reader = store.reader().await.unwrap();
    for (filter, cards, disks) in cases {
        assert_eq!(
            reader.charged_segments(&scope, &filter, Page::first(10)).await.unwrap().len(),
            cards,
            "{filter:?}"
        );
        assert_eq!(
            reader.charged_storage(&scope, &filter, Page::first(10)).await.unwrap().len(),
            disks,
            "{filter:?}"
        );
    }
    let labels = reader.instance_labels(&scope, at(0), at(1)).await.unwrap();
    assert_eq!(labels.len(), 2);
    assert_eq!(reader.instance_labels(&scope, at(-10), at(0)).await.unwrap(), []);
}

async fn a_run_is_kept_where_it_has_come(store: Store, _url: String) {
    let newest = async || store.reader().await.unwrap().newest_invoice_run().await.unwrap();
    assert_eq!(newest().await, None);
    let run = InvoiceRunRow { period_to: at(100), after_tenant: String::new(), finished_at: None };
    let put = async |run: &InvoiceRunRow| {
        let run = run.clone();
        change!(store, tx => tx.put_invoice_run(&run).await).await.unwrap();
    };
    put(&run).await;
    let finished = InvoiceRunRow { after_tenant: "ten_x".to_owned(), finished_at: Some(at(101)), ..run };
    put(&finished).await;
    put(&InvoiceRunRow { period_to: at(50), ..finished.clone() }).await;
    assert_eq!(newest().await, Some(finished));
}
