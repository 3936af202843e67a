//! Two programs that know nothing of Tarn add its ledger up, and agree.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tarn_api::app::books::journal::{self, Format};
use tarn_billing::money::Micros;
use tarn_protocol::units::Timestamp;
use tempfile::TempDir;

use super::bookkeepers::{accepts, balances};
use super::{busy, held};
use crate::fleet::world::World;
use crate::harness::Api;

on_both! {
    both_bookkeepers_accept_the_ledger_and_agree_on_every_balance;
    what_differs_by_a_micro_is_refused_by_both;
    a_journal_ends_where_it_is_told_to;
}

const FORMATS: [Format; 2] = [Format::Hledger, Format::Beancount];

async fn exported(world: &World, format: Format, until: Option<Timestamp>) -> String {
    let out = Vec::new();
    let (out, _) = journal::export(&world.api.server.state().store, format, until, out).await.unwrap();
    String::from_utf8(out).unwrap()
}

fn written(directory: &TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("ledger.journal");
    std::fs::write(&path, text).unwrap();
    path
}

async fn both_bookkeepers_accept_the_ledger_and_agree_on_every_balance(api: Api) {
    let world = busy(api).await;
    let directory = TempDir::new().unwrap();
    // Theirs have the bookkeeper's sign, and leave out what is empty.
    let ours = held(&world).await;
    let full = |accounts: BTreeMap<String, Micros>| -> BTreeMap<String, Micros> {
        accounts.into_iter().filter(|(_, micros)| *micros != Micros::ZERO).collect()
    };
    let wanted = full(ours.into_iter().map(|(name, held)| (name, held.checked_neg().unwrap())).collect());
    assert!(wanted.len() >= 6, "{wanted:?}");
    for format in FORMATS {
        let text = exported(&world, format, None).await;
        assert!(text.contains("中文 🦀"), "the memo is told");
        let path = written(&directory, &text);
        accepts(format, &path).unwrap_or_else(|said| panic!("{format:?}: {said}\n{text}"));
        assert_eq!(full(balances(format, &path)), wanted, "{format:?}");
    }
}

async fn what_differs_by_a_micro_is_refused_by_both(api: Api) {
    let world = busy(api).await;
    let directory = TempDir::new().unwrap();
    for format in FORMATS {
        let text = exported(&world, format, None).await;
        // The trial credit, on both of its sides: balanced, and a micro too much.
        for (spoilt, times) in [
            (text.replace("10.000000 CNY", "10.000001 CNY"), 4),
            (text.replacen("10.000000 CNY", "10.000001 CNY", 1), 1),
        ] {
            assert!(text.matches("10.000000 CNY").count() >= times);
            let said = accepts(format, &written(&directory, &spoilt));
            assert!(said.is_err(), "{format:?} took it");
        }
    }
}

async fn a_journal_ends_where_it_is_told_to(api: Api) {
    let world = busy(api).await;
    let directory = TempDir::new().unwrap();
    let until = crate::harness::START.plus_seconds(700);
    for format in FORMATS {
        let (all, early) =
            (exported(&world, format, None).await, exported(&world, format, Some(until)).await);
        let transfers = |text: &str| text.matches("trf_").count();
        assert!(transfers(&early) > 2 && transfers(&early) < transfers(&all), "{format:?}");
        accepts(format, &written(&directory, &early)).unwrap();
        let none = exported(&world, format, Some(Timestamp::from_micros(0))).await;
        assert_eq!(transfers(&none), 0);
        accepts(format, &written(&directory, &none)).unwrap();
    }
}
