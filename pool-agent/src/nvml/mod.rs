//! The cards, through the driver's own management library.
//!
//! NVML calls can hang, card by card. So every card has a thread of its own that alone speaks about it ([`card`]); whoever asks
//! waits no longer than a deadline and then goes on with what was last known. [`host`] finds the cards, [`links`] asks what the
//! tools say of every pair, [`events`] listens for Xids, [`link_watch`] for
//! NVLinks that come and go.

pub mod card;
pub mod events;
pub mod host;
pub mod link_watch;
pub mod links;
