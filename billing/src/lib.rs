//! Money, ledger rules, pricing, metering, settlement and exhaustion, without I/O.
