//! What a tenant left on a card is zero before the next one gets it.
//!
//! Drivers scrub memory when it is freed, with exceptions and without proof. So after every instance, for each of its cards, primary
//! and donors, a process of its own ([`process`]) takes all memory that the card gives, looks at samples of it, sets it to zero, looks
//! again, and ends; the agent ([`card`]) logs bytes and rate, and keeps a card on which that failed out of every placement. A broker has
//! no context on its donors and cannot do it, and a process that is gone leaves nothing of its own behind.
//!
//! What is left out: the scrubber's own context (reported as `left_bytes`), and slices, whose card others go on using: there the
//! driver's own scrubbing is all there is.

pub mod card;
pub mod process;
