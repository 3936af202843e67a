//! What an Xid means for the card and its tenants: the driver's catalog as one table.

/// Whose fault it is and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The tenant's own program failed: tell, bill on.
    Tenant,
    /// The card serves its running instance and gets no new one.
    NoNewPlacement,
    /// The card's instance is restarted and credited; three in seven days drain the card.
    RestartInstance,
    /// Memory cannot be trusted: stop what runs, drain, reset. A second one retires the card.
    StopAndDrain,
    /// Drain, reset and retest; what runs may finish.
    DrainAndRetest,
    /// Links of the card are in doubt: pools drain, single cards may run.
    DrainPools,
    /// Beyond repair by reset.
    Retire,
    /// Fell off the bus: nothing on it runs any more.
    CardLost,
    /// Usable memory may have shrunk: measure before the next placement.
    Remeasure,
    Watch,
}

pub const fn action(xid: u32) -> Action {
    match xid {
        13 | 31 | 43 | 45 | 69 => Action::Tenant,
        48 | 95 | 140 => Action::StopAndDrain,
        63 => Action::NoNewPlacement,
        64 => Action::Retire,
        74 | 136 | 144..=150 | 155 => Action::DrainPools,
        79 => Action::CardLost,
        94 => Action::RestartInstance,
        109 | 119 | 120 | 143 | 154 | 158 => Action::DrainAndRetest,
        156 | 157 | 168 => Action::Remeasure,
        _ => Action::Watch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_catalog_has_its_action() {
        let rows: &[(&[u32], Action)] = &[
            (&[13, 31, 43, 45, 69], Action::Tenant),
            (&[48, 95, 140], Action::StopAndDrain),
            (&[63], Action::NoNewPlacement),
            (&[64], Action::Retire),
            (&[74, 136, 144, 145, 146, 147, 148, 149, 150, 155], Action::DrainPools),
            (&[79], Action::CardLost),
            (&[94], Action::RestartInstance),
            (&[109, 119, 120, 143, 154, 158], Action::DrainAndRetest),
            (&[156, 157, 168], Action::Remeasure),
            (&[92, 121, 137, 999], Action::Watch),
        ];
        for (xids, expected) in rows {
            for xid in *xids {
                assert_eq!(action(*xid), *expected, "xid {xid}");
            }
        }
    }
}
