use tarn_billing::money::Micros;
use tarn_billing::rate::Seconds;
use tarn_billing::segment::CloseReason;
use tarn_protocol::units::{BootId, MonoMillis, Sequence};
use tarn_rows::segments::{MeterEventRow, SegmentRow};
use tarn_store::{Constraint, Store, StoreError};

use crate::fixtures::*;

on_both_engines! {
    a_card_and_an_instance_have_one_open_segment,
    closed_segments_of_a_card_never_overlap,
    closed_segments_of_an_instance_never_overlap,
    evidence_settlement_and_close_do_not_overtake_each_other,
    exhausted_segments_are_found_in_order,
    evidence_counts_once,
}

async fn insert(store: &Store, segment: &SegmentRow) -> Result<(), StoreError> {
    let scope = tarn_rows::TenantScope::proven(segment.tenant_id.clone());
    let segment = segment.clone();
    change!(store, tx => tx.insert_segment(&scope, &segment).await).await
}

fn closed(segment: SegmentRow, ended: i64) -> SegmentRow {
    SegmentRow { ended_at: Some(at(ended)), close_reason: Some(CloseReason::UserRequest), ..segment }
}

async fn a_card_and_an_instance_have_one_open_segment(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 2).await;
    let (one, two) = (instance(&store, &scope).await, instance(&store, &scope).await);
    insert(&store, &segment_row(&one, &gpus[0].uuid, 0)).await.unwrap();
    let same_card = insert(&store, &segment_row(&two, &gpus[0].uuid, 0)).await.unwrap_err();
    assert!(same_card.breaks(Constraint::OpenCard), "{same_card:?}");
    let same_instance = insert(&store, &segment_row(&one, &gpus[1].uuid, 0)).await.unwrap_err();
    assert!(same_instance.breaks(Constraint::OpenSku), "{same_instance:?}");
    insert(&store, &segment_row(&two, &gpus[1].uuid, 0)).await.unwrap();
}

async fn closed_segments_of_a_card_never_overlap(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 1).await;
    let card = &gpus[0].uuid;
    let mut of = vec![];
    for _ in 0..6 {
        of.push(instance(&store, &scope).await);
    }
    insert(&store, &closed(segment_row(&of[0], card, 100), 200)).await.unwrap();
    for (from, to) in [(150, 160), (50, 101), (199, 300), (50, 300), (100, 200)] {
        let refused = insert(&store, &closed(segment_row(&of[1], card, from), to)).await.unwrap_err();
        assert!(refused.breaks(Constraint::CardOverlap), "{from}..{to}: {refused:?}");
    }
    let refused = insert(&store, &segment_row(&of[1], card, 199)).await.unwrap_err();
    assert!(refused.breaks(Constraint::CardOverlap), "open inside: {refused:?}");
    // Half-open intervals may touch, and an empty one is nowhere.
    insert(&store, &closed(segment_row(&of[2], card, 50), 100)).await.unwrap();
    insert(&store, &closed(segment_row(&of[3], card, 150), 150)).await.unwrap();
    let open = segment_row(&of[4], card, 200);
    insert(&store, &open).await.unwrap();
    let later = closed(segment_row(&of[5], card, 250), 260);
    assert!(insert(&store, &later).await.unwrap_err().breaks(Constraint::CardOverlap));
    let ended = closed(open, 250);
    assert!(change!(store, tx => tx.update_segment(&scope, &ended).await).await.unwrap());
    insert(&store, &later).await.unwrap();
    let backwards = closed(segment_row(&of[1], card, 500), 400);
    assert!(insert(&store, &backwards).await.is_err());
}

async fn closed_segments_of_an_instance_never_overlap(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 2).await;
    let instance = instance(&store, &scope).await;
    insert(&store, &closed(segment_row(&instance, &gpus[0].uuid, 0), 100)).await.unwrap();
    let replaced = segment_row(&instance, &gpus[1].uuid, 99);
    let refused = insert(&store, &closed(replaced.clone(), 150)).await.unwrap_err();
    assert!(refused.breaks(Constraint::SkuOverlap), "{refused:?}");
    // An end moved into a neighbour is refused like an insert.
    let next = segment_row(&instance, &gpus[1].uuid, 100);
    insert(&store, &next).await.unwrap();
    let first =
        store.reader().await.unwrap().segments_of_instance(&scope, &instance.id).await.unwrap().remove(0);
    let longer = SegmentRow { ended_at: Some(at(101)), ..first };
    let refused = change!(store, tx => tx.update_segment(&scope, &longer).await).await.unwrap_err();
    assert!(refused.breaks(Constraint::SkuOverlap), "{refused:?}");
}

async fn evidence_settlement_and_close_do_not_overtake_each_other(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 1).await;
    let instance = instance(&store, &scope).await;
    let row = segment_row(&instance, &gpus[0].uuid, 0);
    insert(&store, &row).await.unwrap();
    let mut proven = row.clone();
    proven.covered.0.insert(1_000, 11_000).unwrap();
    let settled = SegmentRow {
        settled_seconds: Seconds::new(10).unwrap(),
        settled_micros: Micros::new(6_666),
        ..row.clone()
    };
    let (id, instance_id) = (row.id.clone(), instance.id.clone());
    change!(store, tx => {
        assert!(tx.update_segment(&scope, &proven).await?);
        assert!(!tx.update_segment(&scope, &settled).await?, "planned before the evidence came");
        let current = tx.segment(&scope, &id).await?.unwrap();
        assert_eq!((current.row_version, &current.covered), (1, &proven.covered));
        assert!(tx.update_segment(&scope, &closed(current, 10)).await?);
        assert_eq!(tx.open_segment_of_instance(&scope, &instance_id).await?, None);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn exhausted_segments_are_found_in_order(store: Store, _url: String) {
    let scope = tenant(&store).await;
    offer(&store).await;
    let (_, gpus) = host(&store, 3).await;
    let mut ids = vec![];
    for (gpu, exhausts) in gpus.iter().zip([30, 10, 20]) {
        let instance = instance(&store, &scope).await;
        let row = SegmentRow { exhausts_at: Some(at(exhausts)), ..segment_row(&instance, &gpu.uuid, 0) };
        insert(&store, &row).await.unwrap();
        ids.push(row.id);
    }
    let mut reader = store.reader().await.unwrap();
    assert_eq!(reader.next_exhaustion().await.unwrap(), Some(at(10)));
    let due: Vec<_> =
        reader.segments_exhausted(at(20), 10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(due, [ids[1].clone(), ids[2].clone()]);
    assert_eq!(reader.segments_exhausted(at(9), 10).await.unwrap(), []);
}

async fn evidence_counts_once(store: Store, _url: String) {
    let (host, gpus) = host(&store, 1).await;
    let event = MeterEventRow {
        host_id: host.id,
        boot_id: BootId::new("boot"),
        seq: Sequence::new(1),
        instance_id: id!(InstanceId),
        generation: tarn_protocol::units::Generation::new(1),
        gpu_uuid: gpus[0].uuid.clone(),
        from_mono_ms: MonoMillis::new(0),
        to_mono_ms: MonoMillis::new(10_000),
        excused_ms: 0,
        segment_id: None,
        received_at: at(0),
    };
    let beyond = MeterEventRow { seq: Sequence::new(u64::MAX), ..event.clone() };
    change!(store, tx => {
        assert!(tx.insert_meter_event(&event).await?);
        assert!(!tx.insert_meter_event(&event).await?);
        // What a host claims beyond any column is refused before any SQL, and leaves the transaction whole.
        let refused = tx.insert_meter_event(&beyond).await;
        assert!(matches!(refused, Err(StoreError::Unstorable(_))), "{refused:?}");
        Done::Ok(())
    })
    .await
    .unwrap();
}
