//! Links proven by data, never by what the tools say.
//!
//! One ordered pair `from → to` is probed by two throw-away processes through the path that the product takes: the exporter makes
//! memory on `to`, and hands its descriptor to the importer, which sees only `from`, maps it, and reads and writes it by copies, by kernels
//! and by atomics, idle and with the link busy, over the whole of a chunk. Then the exporter looks at its own memory *from its own card*: writes that vanished on the way are found
//! there and nowhere else. Whatever happens to the two (a crash, a hang, an error, a doubt) is a failed probe and nothing more.

pub mod advice;
pub mod atomics;
pub mod circumstances;
pub mod command;
pub mod cuda;
pub mod errands;
pub mod exporter;
pub mod grade;
pub mod importer;
pub mod measure;
pub mod pair;
pub mod pattern;
pub mod pcie_path;
pub mod schedule;
pub mod stream;
pub mod words;
