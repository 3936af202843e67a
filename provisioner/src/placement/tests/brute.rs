//! The score of the best placement, worked out from the snapshot alone by trying everything.

use std::cmp::Reverse;

use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};

use crate::placement::Request;
use crate::snapshot::{GpuSnapshot, HostSnapshot, LinkSnapshot};

/// The lines of a score that say what a placement gives and leaves.
pub type Judgement = (u8, Reverse<(LinkClass, LinkGrade)>, [u8; 6]);

/// The best judgement of any legal set of any host.
pub fn best(hosts: &[HostSnapshot], request: &Request) -> Option<Judgement> {
    hosts.iter().filter_map(|host| best_on(host, request)).min()
}

fn best_on(host: &HostSnapshot, request: &Request) -> Option<Judgement> {
    let major: u32 = host.driver_version.split('.').next()?.parse().ok()?;
    if host.cordoned || host.unreachable || major < 550 {
        return None;
    }
    let free: Vec<&GpuSnapshot> =
        host.gpus.iter().filter(|gpu| gpu.lease.is_none() && gpu.health.accepts_placement()).collect();
    let floor = (request.link_class.max(LinkClass::PcieP2p), request.link_grade.max(LinkGrade::B));
    let fits = |set: &[&GpuSnapshot]| {
        let wanted = set.iter().all(|gpu| request.model.as_ref().is_none_or(|model| *model == gpu.model));
        if wanted { weakest(host, set, floor) } else { None }
    };
    let judge = |set: &[&GpuSnapshot]| {
        let weakest = fits(set)?;
        let left: Vec<&GpuSnapshot> = free.iter().copied().filter(|gpu| !set.contains(gpu)).collect();
        let (before, after) = (groups(host, &free), groups(host, &left));
        let warned = set.iter().filter(|gpu| matches!(gpu.health, GpuHealth::Degraded { .. })).count();
        let lost = std::array::from_fn(|at| before[at] - after[at]);
        Some((u8::try_from(warned).unwrap(), Reverse(weakest), lost))
    };
    subsets(&free, request.cards).iter().filter_map(|set| judge(set)).min()
}

/// The weakest link of the best primary, if the set makes a pool at all.
fn weakest(
    host: &HostSnapshot,
    set: &[&GpuSnapshot],
    floor: (LinkClass, LinkGrade),
) -> Option<(LinkClass, LinkGrade)> {
    let first = set.first()?;
    let pooled = set.len() > 1;
    let legal =
        |gpu: &&&GpuSnapshot| gpu.model == first.model && !gpu.mig_enabled && !(pooled && gpu.display_active);
    if set.iter().filter(legal).count() != set.len() {
        return None;
    }
    let star = |primary: &GpuSnapshot| {
        set.iter().filter(|gpu| gpu.uuid != primary.uuid).try_fold(
            (LinkClass::Nvlink, LinkGrade::A),
            |weakest, donor| {
                let there = link(host, primary, donor)?;
                let back = link(host, donor, primary)?;
                let (class, grade) = (there.class.min(back.class), there.grade.min(back.grade));
                (class >= floor.0 && grade >= floor.1).then_some(weakest.min((class, grade)))
            },
        )
    };
    set.iter().filter_map(|primary| star(primary)).max()
}

fn link<'a>(host: &'a HostSnapshot, from: &GpuSnapshot, to: &GpuSnapshot) -> Option<&'a LinkSnapshot> {
    host.links.iter().find(|link| link.from == from.uuid && link.to == to.uuid && link.certified())
}

/// Most disjoint eights, fours and twos, each over NVLink and over any peer link.
fn groups(host: &HostSnapshot, cards: &[&GpuSnapshot]) -> [u8; 6] {
    let sizes = [8, 8, 4, 4, 2, 2];
    std::array::from_fn(|at| {
        let class = if at % 2 == 0 { LinkClass::Nvlink } else { LinkClass::PcieP2p };
        most(host, cards, sizes[at], (class, LinkGrade::B))
    })
}

fn most(host: &HostSnapshot, cards: &[&GpuSnapshot], size: usize, floor: (LinkClass, LinkGrade)) -> u8 {
    let fitting = subsets(cards, size).into_iter().filter(|set| weakest(host, set, floor).is_some());
    fitting
        .map(|set| {
            let left: Vec<&GpuSnapshot> = cards.iter().copied().filter(|gpu| !set.contains(gpu)).collect();
            1 + most(host, &left, size, floor)
        })
        .max()
        .unwrap_or(0)
}

fn subsets<'a>(cards: &[&'a GpuSnapshot], size: usize) -> Vec<Vec<&'a GpuSnapshot>> {
    match (size, cards) {
        (0, _) => vec![Vec::new()],
        (_, []) => Vec::new(),
        (_, [first, rest @ ..]) => {
            let mut all = subsets(rest, size);
            for mut with in subsets(rest, size - 1) {
                with.push(first);
                all.push(with);
            }
            all
        }
    }
}
