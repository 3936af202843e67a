//! From evidence to ledger: segments open, collect proof, settle and end. `tarn-billing` decides; this reads and writes rows.

pub mod caps;
pub mod debts;
pub mod evidence;
pub mod exhaustion;
pub mod expire;
pub mod purse;
pub mod segments;
pub mod settle;
pub mod storage;
pub mod stored;
