use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tarn_billing::money::Micros;
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::Rate;
use tarn_protocol::hardware::{LinkClass, LinkGrade, LinkProbe, ProbeOutcome};
use tarn_protocol::units::{BootId, Bytes, Generation, MonoMillis, Sequence};
use tarn_rows::alerts::AlertRow;
use tarn_rows::gpus::GpuRow;
use tarn_rows::hosts::{HostReport, JoinTokenRow};
use tarn_rows::links::{CertificateRow, ProbeOrderRow};
use tarn_rows::offers::PriceRow;
use tarn_rows::{Json, Page};
use tarn_store::{Constraint, Store};
use tokio::task::JoinSet;

use crate::database::Fresh;
use crate::fixtures::*;

on_both_engines! {
    older_reports_change_nothing,
    a_join_token_is_used_once,
    a_host_is_flagged_only_while_it_is_silent,
    a_new_certificate_supersedes_the_old_one_and_its_order,
    an_upsert_keeps_the_quarantine_and_the_owner,
    one_alert_is_open_for_a_subject,
    a_worker_has_one_holder_and_its_fence_grows,
    a_price_holds_from_its_instant,
    counts_of_an_empty_fleet_are_zero,
}

async fn older_reports_change_nothing(store: Store, _url: String) {
    let (host, _) = host(&store, 0).await;
    let report = |boot: &str, seq: u64| HostReport {
        host_id: host.id.clone(),
        boot_id: BootId::new(boot),
        seq: Sequence::new(seq),
        mono_ms: MonoMillis::new(seq * 1000),
        received_at: at(0),
    };
    let cases =
        [("a", 1, true), ("a", 1, false), ("a", 5, true), ("a", 4, false), ("b", 1, true), ("b", 2, true)];
    let reports: Vec<_> = cases.map(|(boot, seq, fresh)| (report(boot, seq), fresh)).into();
    change!(store, tx => {
        for (report, fresh) in &reports {
            assert_eq!(tx.accept_report(report).await?, *fresh, "{report:?}");
        }
        assert_eq!(tx.bump_desired_revision(&host.id).await?, Some(1));
        assert_eq!(tx.bump_epoch(&host.id).await?, Some(Generation::new(2)));
        assert_eq!(tx.desired_revision(&host.id).await?, Some(2));
        Done::Ok(())
    })
    .await
    .unwrap();
}

/// A report holds its host until it ends. What changes a segment and then the wish for its host would wait for the report, and the
/// report for the segment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wish_waits_for_no_report_on_postgres() {
    let fresh = Fresh::postgres().await;
    let (host, _) = host(&fresh.store, 0).await;
    let mut report = PgConnection::connect(&fresh.url).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut report).await.unwrap();
    let held =
        sqlx::query("UPDATE hosts SET report_seq = report_seq + 1").execute(&mut report).await.unwrap();
    assert_eq!(held.rows_affected(), 1);
    let wish = change!(fresh.store, tx => tx.bump_desired_revision(&host.id).await);
    let wished = tokio::time::timeout(Duration::from_secs(20), wish).await;
    assert_eq!(wished.expect("no wait for the report").unwrap(), Some(1));
    report.close().await.unwrap();
    fresh.remove().await;
}

async fn a_join_token_is_used_once(store: Store, _url: String) {
    let token = JoinTokenRow {
        id: id!(JoinTokenId),
        secret_sha256: digest(),
        region: "cn-east".to_owned(),
        created_at: at(0),
        expires_at: at(100),
        used_at: None,
        used_by_host: None,
        used_nonce: None,
    };
    let inserted = token.clone();
    change!(store, tx => tx.insert_join_token(&inserted).await).await.unwrap();
    let mut joins = JoinSet::new();
    for nonce in 0..16 {
        let (store, id) = (store.clone(), token.id.clone());
        joins.spawn(async move {
            let host = host_row();
            change!(store, tx => {
                tx.insert_host(&host).await?;
                Done::Ok(tx.consume_join_token(&id, &host.id, &format!("nonce {nonce}"), at(1)).await?.then_some(nonce))
            })
            .await
            .unwrap()
        });
    }
    let winners: Vec<_> = joins.join_all().await.into_iter().flatten().collect();
    let stored = store.reader().await.unwrap().join_token(&token.secret_sha256).await.unwrap().unwrap();
    assert_eq!(winners.len(), 1);
    assert_eq!(stored.used_nonce, Some(format!("nonce {}", winners[0])));
}

async fn a_host_is_flagged_only_while_it_is_silent(store: Store, _url: String) {
    let (host, _) = host(&store, 0).await;
    let report = |seq, seconds| HostReport {
        host_id: host.id.clone(),
        boot_id: BootId::new("a"),
        seq: Sequence::new(seq),
        mono_ms: MonoMillis::new(0),
        received_at: at(seconds),
    };
    let (first, second) = (report(1, 0), report(2, 20));
    change!(store, tx => {
        assert!(tx.hosts_silent_since(at(10)).await?.is_empty(), "never reported");
        tx.accept_report(&first).await?;
        assert_eq!(tx.hosts_silent_since(at(10)).await?.len(), 1);
        assert!(tx.set_unreachable(&host.id, at(10), at(15)).await?);
        assert!(tx.hosts_silent_since(at(10)).await?.is_empty());
        tx.accept_report(&second).await?;
        assert_eq!(tx.host(&host.id).await?.unwrap().unreachable_since, None);
        assert!(!tx.set_unreachable(&host.id, at(10), at(25)).await?);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn a_new_certificate_supersedes_the_old_one_and_its_order(store: Store, _url: String) {
    let (host, gpus) = host(&store, 2).await;
    let (from, to) = (gpus[0].uuid.clone(), gpus[1].uuid.clone());
    let certificate = |seconds| CertificateRow {
        id: id!(CertificateId),
        host_id: host.id.clone(),
        from_uuid: from.clone(),
        to_uuid: to.clone(),
        class: LinkClass::Nvlink,
        grade: LinkGrade::A,
        passed: true,
        reason: None,
        read_mb_per_second: 50_000,
        write_mb_per_second: 50_000,
        latency_nanos: 900,
        driver_version: "580.1".to_owned(),
        boot_id: BootId::new("a"),
        probe: Json(LinkProbe {
            from: from.clone(),
            to: to.clone(),
            class: LinkClass::Nvlink,
            grade: LinkGrade::A,
            outcome: ProbeOutcome::Passed { atomics_native: true },
            read_mb_per_second: 50_000,
            write_mb_per_second: 50_000,
            latency_nanos: 900,
            driver_version: "580.1".to_owned(),
            iommu: None,
            bytes_tested: Bytes::mib(64),
            evidence: None,
        }),
        created_at: at(seconds),
        superseded_at: None,
    };
    let (old, new) = (certificate(1), certificate(2));
    let order = ProbeOrderRow {
        from_uuid: from.clone(),
        to_uuid: to.clone(),
        host_id: host.id.clone(),
        created_at: at(0),
    };
    change!(store, tx => {
        tx.insert_certificate(&old).await?;
        assert!(tx.insert_probe_order(&order).await?);
        assert!(!tx.insert_probe_order(&order).await?);
        assert_eq!(tx.probe_orders_of_host(&host.id).await?, [order]);
        tx.insert_certificate(&new).await?;
        assert!(tx.probe_orders_of_host(&host.id).await?.is_empty());
        assert_eq!(tx.certificates_of_host(&host.id).await?, [new]);
        assert_eq!(tx.certificate(&old.id).await?.unwrap().superseded_at, Some(at(2)));
        assert_eq!(tx.fleet_links().await?.len(), 1);
        assert_eq!(tx.revoke_certificates_of_gpu(&to, "xid", at(3)).await?, 1);
        assert!(tx.fleet_links().await?.is_empty());
        assert_eq!(tx.certificates(Page::first(9)).await?.len(), 2);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn an_upsert_keeps_the_quarantine_and_the_owner(store: Store, _url: String) {
    let (_, gpus) = host(&store, 1).await;
    let (other, _) = host(&store, 0).await;
    let gpu = gpus[0].clone();
    let moved = GpuRow { host_id: other.id, ..gpu.clone() };
    let seen = GpuRow { minor: 7, ..gpu.clone() };
    change!(store, tx => {
        assert!(tx.set_gpu_quarantined(&gpu.uuid, true, at(1)).await?);
        assert!(!tx.upsert_gpu(&moved).await?);
        assert_eq!(tx.set_gpus_absent(&gpu.host_id, at(2)).await?, 1);
        assert!(tx.fleet_gpus().await?.is_empty());
        assert!(tx.upsert_gpu(&seen).await?);
        let stored = tx.gpu(&gpu.uuid).await?.unwrap();
        assert!(stored.quarantined && stored.present && stored.minor == 7 && stored.host_id == gpu.host_id);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn one_alert_is_open_for_a_subject(store: Store, _url: String) {
    let alert = || AlertRow {
        id: id!(EventId),
        kind: "host_silent".to_owned(),
        subject: "hst_1".to_owned(),
        detail: Json(serde_json::json!({ "since": 1 })),
        created_at: at(0),
        cleared_at: None,
    };
    let (first, second, third) = (alert(), alert(), alert());
    change!(store, tx => {
        assert!(tx.open_alert(&first).await?);
        assert!(!tx.open_alert(&second).await?);
        assert!(tx.clear_alert("host_silent", "hst_1", at(1)).await?);
        assert!(!tx.clear_alert("host_silent", "hst_1", at(1)).await?);
        assert!(tx.open_alert(&third).await?);
        assert_eq!(tx.alerts_open(Page::first(9)).await?, [third]);
        assert_eq!(tx.alerts(Page::first(9)).await?.len(), 2);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn a_worker_has_one_holder_and_its_fence_grows(store: Store, _url: String) {
    let mut replicas = JoinSet::new();
    for replica in 0..8 {
        let store = store.clone();
        replicas.spawn(async move {
            let holder = format!("replica {replica}");
            change!(store, tx => tx.claim_worker("settle", &holder, at(0), at(10)).await).await.unwrap()
        });
    }
    let claims: Vec<_> = replicas.join_all().await.into_iter().flatten().collect();
    assert_eq!(claims.len(), 1);
    let first = claims[0].clone();
    change!(store, tx => {
        let renewed = tx.claim_worker("settle", &first.holder, at(5), at(15)).await?.unwrap();
        assert_eq!((renewed.fence, renewed.expires_at), (first.fence, at(15)));
        assert!(tx.holds_claim("settle", first.fence).await?);
        assert_eq!(tx.claim_worker("settle", "other", at(14), at(30)).await?, None);
        let taken = tx.claim_worker("settle", "other", at(15), at(30)).await?.unwrap();
        assert!(taken.fence > first.fence);
        assert!(!tx.holds_claim("settle", first.fence).await?, "the old holder can write no more");
        assert!(!tx.release_claim("settle", first.fence, at(16)).await?);
        assert!(tx.release_claim("settle", taken.fence, at(16)).await?);
        assert!(tx.claim_worker("settle", "third", at(16), at(30)).await?.unwrap().fence > taken.fence);
        Done::Ok(())
    })
    .await
    .unwrap();
}

async fn a_price_holds_from_its_instant(store: Store, _url: String) {
    let sku = offer(&store).await;
    let price = |version, from, micros| PriceRow {
        version: PriceVersion::new(version),
        sku: sku.clone(),
        micros_per_hour: Rate::per_hour(Micros::new(micros)).unwrap(),
        effective_from: at(from),
        created_by: None,
        created_at: at(0),
    };
    let (first, second) = (price(1, 10, 2_400_000), price(2, 20, 3_000_000));
    let same_instant = price(3, 20, 1);
    let (one, two) = (first.clone(), second.clone());
    change!(store, tx => {
        tx.append_price(&one).await?;
        tx.append_price(&two).await?;
        for (instant, expected) in [(9, None), (10, Some(&one)), (19, Some(&one)), (20, Some(&two))] {
            assert_eq!(tx.price_at(&one.sku, at(instant)).await?.as_ref(), expected);
        }
        Done::Ok(())
    })
    .await
    .unwrap();
    let refused = change!(store, tx => tx.append_price(&same_instant).await).await.unwrap_err();
    assert!(refused.breaks(Constraint::PriceInstant), "{refused:?}");
    assert_eq!(store.reader().await.unwrap().prices().await.unwrap(), [first, second]);
}

async fn counts_of_an_empty_fleet_are_zero(store: Store, _url: String) {
    let counts = store.reader().await.unwrap().fleet_counts().await.unwrap();
    assert_eq!((counts.hosts, counts.gpus, counts.segments_open, counts.tenants), (0, 0, 0, 0));
    host(&store, 2).await;
    let counts = store.reader().await.unwrap().fleet_counts().await.unwrap();
    assert_eq!((counts.hosts, counts.gpus, counts.gpus_held), (1, 2, 0));
}
