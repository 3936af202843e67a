//! Whether a tenant may hold more: every card of a pool counts, though only one is metered.

use serde::Serialize;
use tarn_protocol::units::Bytes;

/// What one instance takes out of a quota while it holds cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// Primary and donors.
    pub cards: u32,
    /// Pool bytes of all cards together.
    pub memory_bytes: Bytes,
    /// Cards that the price counts: the figure on the bill, not in the quota.
    pub metered_cards: u32,
}

impl Charge {
    /// A pool of whole cards, of which the primary is metered.
    pub const fn pool(cards: u32, card_memory_bytes: Bytes) -> Self {
        let memory_bytes = Bytes::new(card_memory_bytes.get() * cards as u64);
        Self { cards, memory_bytes, metered_cards: 1 }
    }
}

/// Limits of a tenant, or what is in use of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quota {
    pub cards: u32,
    pub memory_bytes: Bytes,
}

impl Quota {
    fn plus(self, charge: Charge) -> Self {
        Self {
            cards: self.cards.saturating_add(charge.cards),
            memory_bytes: Bytes::new(self.memory_bytes.get().saturating_add(charge.memory_bytes.get())),
        }
    }
}

/// Which limit it was, as a client reads it: `exceeded` is `cards` or `memory`, beside it the three figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "exceeded", rename_all = "snake_case")]
pub enum QuotaExceeded {
    #[error(
        "{used} of {limit} cards are in use and this takes {wanted} ({metered} metered)",
        used = used.cards, limit = limit.cards, wanted = charge.cards, metered = charge.metered_cards
    )]
    Cards { limit: Quota, used: Quota, charge: Charge },
    #[error(
        "{used} of {limit} bytes are in use and this takes {wanted}",
        used = used.memory_bytes, limit = limit.memory_bytes, wanted = charge.memory_bytes
    )]
    Memory { limit: Quota, used: Quota, charge: Charge },
}

/// What will be in use after `charge`, if the limits allow it. The store repeats the comparison in the statement that claims.
pub fn check(limit: Quota, used: Quota, charge: Charge) -> Result<Quota, QuotaExceeded> {
    let after = used.plus(charge);
    if after.cards > limit.cards {
        return Err(QuotaExceeded::Cards { limit, used, charge });
    }
    if after.memory_bytes > limit.memory_bytes {
        return Err(QuotaExceeded::Memory { limit, used, charge });
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Quota = Quota { cards: 4, memory_bytes: Bytes::gib(96) };

    #[test]
    fn s6_a_pool_of_four_fills_a_quota_of_four_cards_and_96_gib_and_meters_one() {
        let charge = Charge::pool(4, Bytes::gib(24));
        assert_eq!(charge.metered_cards, 1);
        let after = check(FOUR, Quota::default(), charge).unwrap();
        assert_eq!(after, FOUR);
        let refused = check(FOUR, after, Charge::pool(1, Bytes::gib(24))).unwrap_err();
        assert_eq!(refused.to_string(), "4 of 4 cards are in use and this takes 1 (1 metered)");
    }

    #[test]
    fn s6_memory_is_limited_by_itself() {
        let limit = Quota { cards: 8, memory_bytes: Bytes::gib(96) };
        let used = Quota { cards: 1, memory_bytes: Bytes::gib(24) };
        assert!(matches!(
            check(limit, used, Charge::pool(4, Bytes::gib(24))),
            Err(QuotaExceeded::Memory { .. })
        ));
        let overflow = Quota { cards: u32::MAX, memory_bytes: Bytes::new(u64::MAX) };
        assert!(check(limit, overflow, Charge::pool(4, Bytes::gib(24))).is_err());
    }
}
