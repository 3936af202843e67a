-- Money as a customer meets it: payments through a provider, refunds, limits, notices, credits for promises not kept.

-- Cash on its way in. Written before the provider is asked, so that whatever happens then is found again.
CREATE TABLE top_ups (
    id TEXT NOT NULL PRIMARY KEY,             -- also the provider's idempotency key
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    reference TEXT NOT NULL UNIQUE,           -- of the call that asked for it: a retry finds this row
    provider TEXT NOT NULL,
    external_id TEXT,                         -- the provider's name of it, once it answered
    payment_ref TEXT,                         -- what a refund names, once it is paid
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    cause TEXT NOT NULL CHECK (cause IN ('customer', 'auto')),
    save_method BOOLEAN NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'settled', 'failed', 'expired')),
    failure TEXT,
    pay_url TEXT,
    transfer_id TEXT REFERENCES transfers (id),
    grant_id TEXT REFERENCES credit_grants (id),
    created_by TEXT,
    created_at BIGINT NOT NULL,
    asks BIGINT NOT NULL,                     -- how often the provider was asked about it
    ask_at BIGINT NOT NULL,                   -- when to ask next, while pending
    resolved_at BIGINT
);
CREATE UNIQUE INDEX one_top_up_per_external ON top_ups (provider, external_id) WHERE external_id IS NOT NULL;
CREATE UNIQUE INDEX one_pending_auto_top_up ON top_ups (tenant_id) WHERE state = 'pending' AND cause = 'auto';
CREATE INDEX top_ups_by_tenant ON top_ups (tenant_id, id);
CREATE INDEX top_ups_due ON top_ups (ask_at) WHERE state = 'pending';

-- A method of payment that a customer left with the provider: the provider's names for it, never a card's number.
CREATE TABLE payment_methods (
    tenant_id TEXT NOT NULL PRIMARY KEY REFERENCES tenants (id),
    provider TEXT NOT NULL,
    customer_ref TEXT NOT NULL,
    method_ref TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE auto_top_ups (
    tenant_id TEXT NOT NULL PRIMARY KEY REFERENCES tenants (id),
    threshold_micros BIGINT NOT NULL CHECK (threshold_micros >= 0),
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    per_day_max BIGINT NOT NULL CHECK (per_day_max BETWEEN 1 AND 24),
    declines BIGINT NOT NULL,                 -- in a row
    stopped_reason TEXT,                      -- NULL: active
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE refunds (
    id TEXT NOT NULL PRIMARY KEY,             -- also the provider's idempotency key
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    segment_id TEXT,                          -- of a charge (a card's or a disk's): back into the wallet
    top_up_id TEXT REFERENCES top_ups (id),   -- of cash: back to where it came from
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    state TEXT NOT NULL CHECK (state IN ('pending', 'settled', 'failed')),
    failure TEXT,
    external_id TEXT,
    reason TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    asks BIGINT NOT NULL,
    ask_at BIGINT NOT NULL,
    resolved_at BIGINT,
    CHECK ((segment_id IS NULL) <> (top_up_id IS NULL))
);
CREATE INDEX refunds_by_tenant ON refunds (tenant_id, id);
CREATE INDEX refunds_due ON refunds (ask_at) WHERE state = 'pending';

-- How much of a transfer is taken back: never more than it moved, whoever races.
CREATE TABLE reversed_transfers (
    transfer_id TEXT NOT NULL PRIMARY KEY REFERENCES transfers (id),
    original_micros BIGINT NOT NULL,
    reversed_micros BIGINT NOT NULL CHECK (reversed_micros >= 0),
    CHECK (reversed_micros <= original_micros)
);

-- What a tenant owes: minus the sum of the entries on its receivable account.
CREATE TABLE debts (
    tenant_id TEXT NOT NULL PRIMARY KEY REFERENCES tenants (id),
    owed_micros BIGINT NOT NULL CHECK (owed_micros >= 0)
);

-- Proven seconds of an ended segment that its tenant's money did not reach: owed up to a bound, the rest charged to nobody.
CREATE TABLE waived_seconds (
    segment_id TEXT NOT NULL PRIMARY KEY REFERENCES usage_segments (id),
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    seconds BIGINT NOT NULL CHECK (seconds >= 0),
    owed_seconds BIGINT NOT NULL CHECK (owed_seconds >= 0),   -- of this segment, charged to the receivable
    updated_at BIGINT NOT NULL
);
CREATE INDEX waived_seconds_by_tenant ON waived_seconds (tenant_id);

CREATE TABLE spend_caps (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    period TEXT NOT NULL CHECK (period IN ('day', 'month')),
    subject_kind TEXT NOT NULL CHECK (subject_kind IN ('tenant', 'api_key', 'label')),
    subject TEXT NOT NULL,                    -- a key's id, a label, or nothing
    limit_micros BIGINT NOT NULL CHECK (limit_micros >= 0),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX one_spend_cap_per_subject ON spend_caps (tenant_id, period, subject_kind, subject);

-- What a tenant was told. `crossing` names what happened once, so that it is told once.
CREATE TABLE notices (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,
    crossing TEXT NOT NULL,
    detail TEXT NOT NULL,                     -- JSON object
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX one_notice_per_crossing ON notices (tenant_id, crossing);
CREATE INDEX notices_by_tenant ON notices (tenant_id, id);

-- Thresholds that were crossed and told, until they are armed again.
CREATE TABLE notice_marks (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,
    fired_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, kind)
);

CREATE TABLE sla_incidents (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    instance_id TEXT NOT NULL REFERENCES instances (id),
    host_id TEXT REFERENCES hosts (id),
    kind TEXT NOT NULL,
    generation BIGINT NOT NULL,
    from_at BIGINT NOT NULL,
    to_at BIGINT NOT NULL,
    micros_per_hour BIGINT NOT NULL,
    share_percent BIGINT NOT NULL,
    amount_micros BIGINT NOT NULL CHECK (amount_micros >= 0),
    grant_id TEXT REFERENCES credit_grants (id),
    evidence TEXT NOT NULL,                   -- JSON object
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX one_incident ON sla_incidents (instance_id, kind, from_at);
CREATE INDEX sla_incidents_by_tenant ON sla_incidents (tenant_id, id);

-- For the worker that looks for broken promises.
CREATE INDEX instance_events_by_kind ON instance_events (kind, created_at);
