//! V8, V17: several cards that are not a pool. The stand-ins lie before the driver and there is no pool config: the host's own truth is shown.

use std::path::Path;
use std::process::Command;

use tarn_protocol::units::Bytes;
use tarn_sim::machine::LinkClass;

use crate::rig::{PTX, Rig, Shape, Tenant, artefact, program, until};

/// Stand-ins for both libraries, and nothing that says what they stand for.
fn seat(preset: &'static str) -> Rig {
    let rig = Rig::without_broker(&Shape { preset, donors: vec![], ..Shape::default() });
    std::fs::remove_file(rig.lib().join("pool.json")).unwrap();
    let lib = rig.lib();
    std::os::unix::fs::symlink(artefact("libtarn_standin_nvml.so"), lib.join("libnvidia-ml.so.1")).unwrap();
    let real = rig.host.lib_dir().join("libnvidia-ml.so.1");
    std::os::unix::fs::symlink(real, lib.join("libnvidia-ml-real.so.1")).unwrap();
    rig
}

fn start(lib: &Path, name: &str, arguments: &[&str], visible: Option<&str>) -> Tenant {
    let mut command = Command::new(program(name, false));
    command.arg("dlopen").args(arguments).env_clear().env("LD_LIBRARY_PATH", lib);
    command.envs(visible.map(|list| ("CUDA_VISIBLE_DEVICES", list)));
    Tenant::start(command)
}

/// What a program in the instance sees is what it sees without us, and is the host's truth, and is what works.
fn topology(preset: &'static str, visible: Option<&str>, cards: &[usize]) {
    let rig = seat(preset);
    let answers = |lib: &Path| {
        let mut asks = start(lib, "topology", &[PTX], visible);
        asks.end();
        std::mem::take(&mut asks.facts)
    };
    let (ours, bare) = (answers(&rig.lib()), answers(&rig.host.lib_dir()));
    assert_eq!(ours, bare, "{preset} {visible:?}");
    assert_eq!(ours["devices"], cards.len().to_string(), "{preset} {visible:?}");
    for (ordinal, &card) in cards.iter().enumerate() {
        assert_eq!(ours[&format!("uuid {ordinal}")], rig.host.gpus()[card].uuid, "{preset} {visible:?}");
        let machine = rig.host.machine();
        let linked = (0..machine.gpus.len()).any(|to| machine.link(card, to).class == LinkClass::Nvlink);
        assert_eq!(ours[&format!("links {ordinal}")] != "0", linked, "{preset} {visible:?}: card {card}");
    }
    for (i, &from) in cards.iter().enumerate() {
        for (j, &to) in cards.iter().enumerate().filter(|(j, _)| *j != i) {
            let of = |what: &str| ours[&format!("{what} {i} {j}")].as_str();
            let link = rig.host.machine().link(from, to);
            let reaches = link.class != LinkClass::None;
            let (yes, works, code) = if reaches { ("1", "1", "0") } else { ("0", "0", "217") };
            let pair = format!("{preset} {visible:?}: card {from} to {to}, {link:?}");
            assert_eq!((of("can"), of("access")), (yes, yes), "{pair}");
            assert_eq!((of("enable"), of("grant"), of("wrote")), (code, code, works), "{pair}");
            assert_eq!(of("atomic"), if reaches && link.atomics { "1" } else { "0" }, "{pair}");
            // 0 is "it does", for reads, writes, NVLink and atomics.
            let nvml: Vec<bool> = of("nvml").split(',').map(|status| status == "0").collect();
            let nvlink = link.class == LinkClass::Nvlink;
            assert_eq!(nvml, [reaches, reaches, nvlink, reaches && link.atomics], "{pair}");
            let (one, other) = (&rig.host.gpus()[from], &rig.host.gpus()[to]);
            let ancestor = match (one.switch == other.switch, one.numa == other.numa) {
                (true, _) => "10",
                (false, true) => "40",
                (false, false) => "50",
            };
            assert_eq!(of("ancestor"), ancestor, "{pair}");
        }
    }
}

#[test]
fn v17_cards_that_are_no_pool_show_their_true_topology_and_capabilities_match_what_works() {
    let all: Vec<usize> = (0..8).collect();
    // Two switches that do not reach each other; no peer access at all; bridged pairs; every card to every other.
    for preset in ["rtx4090-x8-seed", "rtx4090-x8-stock", "rtx3090-x8-bridged", "h200-x8-nvswitch"] {
        topology(preset, None, &all);
    }
    topology("h200-x2", None, &[0, 1]);
    // Ordinals are what the tenant made them; pairs are still the cards'.
    topology("rtx4090-x8-seed", Some("6,1,0,5"), &[6, 1, 0, 5]);
}

#[test]
fn v17_an_instance_with_some_of_the_cards_sees_the_links_among_those() {
    let rig = seat("rtx3090-x8-bridged");
    for card in [0, 2, 3, 5, 7] {
        let node = rig.host.device_node(card);
        std::fs::rename(&node, node.with_extension("away")).unwrap();
    }
    let mut asks = start(&rig.lib(), "topology", &[PTX], None);
    asks.end();
    assert_eq!(asks.number("devices"), 3);
    for (i, from) in [1, 4, 6].into_iter().enumerate() {
        assert_eq!(asks.facts[&format!("uuid {i}")], rig.host.gpus()[from].uuid);
        for (j, to) in [1, 4, 6].into_iter().enumerate().filter(|(j, _)| *j != i) {
            let reaches = rig.host.machine().link(from, to).class != LinkClass::None;
            assert_eq!(asks.number(&format!("can {i} {j}")), u64::from(reaches));
            assert_eq!(asks.number(&format!("wrote {i} {j}")), u64::from(reaches));
        }
    }
}

/// Every rank has the sum, and every card what its own rank holds: ordinals are the cards that the tenant sees, in its order.
fn all_reduce(preset: &'static str, visible: &str, cards: &[usize]) {
    let rig = seat(preset);
    for way in ["handles", "ipc", "threads"] {
        let mut ranks = start(&rig.lib(), "ranks", &[way], Some(visible));
        ranks.read_until("waiting");
        assert_eq!(ranks.number("ranks"), cards.len() as u64, "{way}");
        let more = |rank: u64| (rank + 1) * Bytes::mib(100).get();
        let common = rig.used(cards[0]) - more(0);
        for (rank, &card) in (0..).zip(cards) {
            let of = |what: &str| ranks.number(&format!("{what} {rank}"));
            let (memory, case) =
                (rig.host.gpus()[card].memory_bytes, format!("{way}: rank {rank}, card {card}"));
            assert_eq!((of("bad"), of("total"), of("fell")), (0, memory, more(rank)), "{case}");
            assert_eq!(rig.used(card), common + more(rank), "{case}");
        }
        let idle = (0..rig.host.gpus().len()).filter(|card| !cards.contains(card));
        assert_eq!(idle.map(|card| rig.used(card)).sum::<u64>(), 0, "{way}: nothing on other cards");
        ranks.say("go on");
        ranks.end();
        until("the cards are empty", || cards.iter().all(|&card| rig.used(card) == 0));
    }
    assert!(!rig.lib().join("standin.log").exists());
}

#[test]
fn v8_ranks_on_two_four_and_eight_cards_reduce_to_the_same_sum() {
    all_reduce("h200-x2", "0,1", &[0, 1]);
    all_reduce("rtx4090-x8-seed", "3,1,0,2", &[3, 1, 0, 2]);
    all_reduce("h200-x8-nvswitch", "0,1,2,3,4,5,6,7", &[0, 1, 2, 3, 4, 5, 6, 7]);
}
