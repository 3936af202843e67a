//! Many processes at once.

use crate::driver::bench::{Bench, number};

#[test]
fn m19_256_processes_start_together() {
    let facts = Bench::new("rtx4090-x8-seed").run("crowd", &["256"]);
    assert_eq!(number(&facts, "refused"), 0);
    // The bar for what the stand-in adds is 50 ms; the driver below it must leave room on two busy cores.
    assert!(number(&facts, "worst_us") < 5_000_000, "{facts:?}");
}
