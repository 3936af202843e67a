-- What operators do: who did it, credit that takes two of them, and the ways to read reports.

-- One line for each thing an operator did, in the transaction that did it. Lines are chained: each carries the SHA-256 of itself and
-- of the line before it, so that a line changed, taken out or put in past the store shows. Append-only by each engine's own guards.
CREATE TABLE operator_log (
    seq BIGINT NOT NULL PRIMARY KEY,     -- 1, 2, 3 … without a gap
    operator_id TEXT REFERENCES users (id),   -- the person; NULL: the command line, or time itself (an expiry)
    credential_id TEXT NOT NULL,         -- with what: a user's session, an API key, command_line, worker
    request_id TEXT,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,               -- id of what was acted on
    detail TEXT NOT NULL,                -- JSON object
    created_at BIGINT NOT NULL,
    sha256 TEXT NOT NULL
);
CREATE INDEX operator_log_by_subject ON operator_log (subject, seq);

-- The newest line. Writers take turns on this row, so that the chain never forks.
CREATE TABLE operator_log_head (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    seq BIGINT NOT NULL,
    sha256 TEXT NOT NULL
);
INSERT INTO operator_log_head (id, seq, sha256) VALUES (1, 0, '');

-- Credit that operators give. Above a limit it waits for another operator, and the schema knows who that is not.
CREATE TABLE credit_requests (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    grant_expires_at BIGINT,             -- of the credit once given; NULL: never
    reason TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'given', 'rejected', 'expired')),
    four_eyes BOOLEAN NOT NULL,          -- takes another operator
    requested_by TEXT NOT NULL REFERENCES users (id),
    decided_by TEXT REFERENCES users (id),
    decision TEXT,                       -- why it was rejected
    grant_id TEXT REFERENCES credit_grants (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,          -- of the request
    decided_at BIGINT,
    CONSTRAINT another_operator_approves
        CHECK (state <> 'given' OR (decided_by IS NOT NULL AND (NOT four_eyes OR decided_by <> requested_by))),
    CONSTRAINT given_credit_is_in_the_wallet CHECK ((state = 'given') = (grant_id IS NOT NULL)),
    CONSTRAINT decided_once CHECK ((state = 'pending') = (decided_at IS NULL))
);
CREATE UNIQUE INDEX one_request_per_grant ON credit_requests (grant_id) WHERE grant_id IS NOT NULL;
CREATE INDEX credit_requests_pending ON credit_requests (expires_at) WHERE state = 'pending';
CREATE INDEX credit_requests_by_tenant ON credit_requests (tenant_id, id);
CREATE INDEX credit_requests_by_operator ON credit_requests (requested_by, created_at);

-- A statement reads one account's entries of one period and sums those before it, from this index alone.
CREATE INDEX entries_by_account ON entries (account_id, created_at, transfer_id, amount_micros);
-- Who runs what, for a price that is about to change.
CREATE INDEX usage_segments_open_by_sku ON usage_segments (sku, id) WHERE ended_at IS NULL;
-- The leases that overlap a period.
CREATE INDEX leases_by_release ON leases (released_at, id);
-- Evidence that takes time off the bill; most has none.
CREATE INDEX meter_events_excused ON meter_events (instance_id, generation) WHERE excused_ms > 0;
CREATE INDEX refresh_tokens_by_expiry ON refresh_tokens (expires_at);
