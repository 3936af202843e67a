-- How a payment provider fares, for the alerts about it.
CREATE TABLE payment_providers (
    provider TEXT NOT NULL PRIMARY KEY,
    probe_at BIGINT NOT NULL,                 -- when to ask next whether it answers
    failing_since BIGINT,                     -- NULL: it answered when it was last asked
    refused_at BIGINT                         -- the last of many callbacks that were refused; NULL: they are not many
);
