-- What a customer reads: invoices that never change, and storage as an item of its own.

-- Who a tenant is on its invoices; each invoice keeps a copy.
CREATE TABLE billing_details (
    tenant_id TEXT NOT NULL PRIMARY KEY REFERENCES tenants (id),
    party TEXT NOT NULL,                 -- JSON, tarn_billing::invoice::Party
    updated_at BIGINT NOT NULL
);

-- The last number given, taken in the transaction that stores the invoice: no gap, however many issue at once.
CREATE TABLE invoice_numbers (
    seller TEXT NOT NULL,
    year BIGINT NOT NULL,                -- of the issue, in UTC
    last BIGINT NOT NULL CHECK (last >= 1),
    PRIMARY KEY (seller, year)
);

CREATE TABLE invoices (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL CHECK (kind IN ('invoice', 'credit_note')),
    seller TEXT NOT NULL,
    year BIGINT NOT NULL,
    number BIGINT NOT NULL CHECK (number >= 1),
    corrects TEXT REFERENCES invoices (id),   -- of a credit note
    period_from BIGINT NOT NULL,
    period_to BIGINT NOT NULL,
    total_micros BIGINT NOT NULL,
    document TEXT NOT NULL,              -- JSON, tarn_billing::invoice::Invoice: all that it says
    issued_at BIGINT NOT NULL,
    UNIQUE (seller, year, number),
    CHECK (period_from < period_to),
    CHECK ((corrects IS NULL) = (kind = 'invoice'))
);
CREATE INDEX invoices_by_tenant ON invoices (tenant_id, id);

-- Which billed seconds of a segment (of a card or a disk) are on which invoice: each at most once.
CREATE TABLE invoice_lines (
    invoice_id TEXT NOT NULL REFERENCES invoices (id),
    place BIGINT NOT NULL,
    segment_id TEXT NOT NULL,
    from_s BIGINT NOT NULL CHECK (from_s >= 0),
    to_s BIGINT NOT NULL,
    amount_micros BIGINT NOT NULL CHECK (amount_micros >= 0),
    PRIMARY KEY (invoice_id, place),
    UNIQUE (segment_id, from_s),
    CHECK (to_s > from_s)
);

-- Which reversals are on which credit note: each at most once.
CREATE TABLE credit_lines (
    transfer_id TEXT NOT NULL PRIMARY KEY REFERENCES transfers (id),
    invoice_id TEXT NOT NULL REFERENCES invoices (id),
    place BIGINT NOT NULL,
    amount_micros BIGINT NOT NULL CHECK (amount_micros < 0),
    UNIQUE (invoice_id, place)
);
CREATE INDEX transfers_reversals ON transfers (id) WHERE kind = 'reversal';

-- How far the monthly issue has come: every tenant up to `after_tenant` has its invoice of the month that ended at `period_to`.
CREATE TABLE invoice_runs (
    period_to BIGINT NOT NULL PRIMARY KEY,
    after_tenant TEXT NOT NULL,
    finished_at BIGINT
);

-- Disks are segments of their own table: no card, no host's clock, no evidence. Every moment from `started_at` to `ended_at` counts,
-- because the control plane itself witnesses both. What one owes is floor(micros_per_hour x seconds / 3600), as of a card's segment.
CREATE TABLE storage_segments (
    id TEXT NOT NULL PRIMARY KEY,        -- seg_...; never equal to one of usage_segments
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    instance_id TEXT NOT NULL REFERENCES instances (id),
    generation BIGINT NOT NULL,          -- the run that first showed it
    sku TEXT NOT NULL,                   -- of the price book, priced per GiB-hour
    gib BIGINT NOT NULL CHECK (gib > 0),
    price_version BIGINT NOT NULL,
    micros_per_hour BIGINT NOT NULL,     -- of all of it: the price times gib
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    close_reason TEXT,
    settled_seconds BIGINT NOT NULL CHECK (settled_seconds >= 0),
    settled_micros BIGINT NOT NULL CHECK (settled_micros >= 0),
    row_version BIGINT NOT NULL,         -- compare-and-set guard
    exhausts_at BIGINT,
    updated_at BIGINT NOT NULL,
    CHECK (ended_at >= started_at)
);
CREATE UNIQUE INDEX one_open_disk ON storage_segments (instance_id, sku) WHERE ended_at IS NULL;
CREATE INDEX storage_segments_by_tenant ON storage_segments (tenant_id, id);
CREATE INDEX storage_segments_due ON storage_segments (exhausts_at) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS usage_segments_by_item ON usage_segments (instance_id, sku, started_at);
