-- The first shape of Tarn's database. One text for SQLite and PostgreSQL: TEXT ids and JSON, BIGINT microseconds and
-- micro-currency, BOOLEAN. What one engine alone can express lives in that engine's own migrations.

-- People and who pays -------------------------------------------------------------------------------------------------

CREATE TABLE tenants (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    quota_cards BIGINT NOT NULL CHECK (quota_cards >= 0),
    quota_bytes BIGINT NOT NULL CHECK (quota_bytes >= 0),
    created_at BIGINT NOT NULL
);

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,          -- lower case
    password_hash TEXT NOT NULL,         -- argon2id, PHC string
    operator BOOLEAN NOT NULL,           -- may use /v1/admin
    token_epoch BIGINT NOT NULL,         -- grows to revoke every access token at once
    created_at BIGINT NOT NULL
);

CREATE TABLE memberships (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    user_id TEXT NOT NULL REFERENCES users (id),
    role TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, user_id)
);
CREATE INDEX memberships_by_user ON memberships (user_id);

CREATE TABLE refresh_tokens (
    id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL,            -- one login; reuse of a rotated token revokes the whole session
    user_id TEXT NOT NULL REFERENCES users (id),
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    secret_sha256 TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    rotated_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX refresh_tokens_by_session ON refresh_tokens (session_id);

CREATE TABLE api_keys (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    created_by TEXT NOT NULL REFERENCES users (id),
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,                -- JSON array
    secret_sha256 TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant_id, id);

CREATE TABLE ssh_keys (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    name TEXT NOT NULL,
    public_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (tenant_id, fingerprint)
);

-- The stored answer of a mutating call, kept with its effect in one commit.
CREATE TABLE idempotency_keys (
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    key TEXT NOT NULL,
    route TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    status BIGINT NOT NULL,
    response TEXT NOT NULL,              -- JSON; never holds a secret that is shown once
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- The fleet -----------------------------------------------------------------------------------------------------------

CREATE TABLE hosts (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    credential_sha256 TEXT NOT NULL UNIQUE,
    epoch BIGINT NOT NULL,               -- fencing: grows when the host is fenced or rejoined
    boot_id TEXT,
    report_seq BIGINT NOT NULL,          -- highest accepted sequence of boot_id
    reported_at BIGINT,                  -- control plane's receipt of the newest fresh report
    reported_mono_ms BIGINT,
    agent_version TEXT NOT NULL,
    driver_version TEXT,
    inventory TEXT,                      -- JSON, tarn_protocol::hardware::Inventory
    cordoned BOOLEAN NOT NULL,
    unreachable_since BIGINT,            -- a flag, never a state
    quarantine_reason TEXT,              -- cloned identity and the like
    desired_revision BIGINT NOT NULL,    -- grows with every change of what should run there
    created_at BIGINT NOT NULL
);

-- Every boot of a host that reported, so that a late report is told from a second machine with the same credential.
CREATE TABLE host_boots (
    host_id TEXT NOT NULL REFERENCES hosts (id),
    boot_id TEXT NOT NULL,
    first_at BIGINT NOT NULL,            -- receipt of its first accepted report
    seq BIGINT NOT NULL,                 -- of its newest accepted report, as the two below
    last_at BIGINT NOT NULL,
    last_mono_ms BIGINT NOT NULL,
    PRIMARY KEY (host_id, boot_id)
);

CREATE TABLE join_tokens (
    id TEXT NOT NULL PRIMARY KEY,
    secret_sha256 TEXT NOT NULL UNIQUE,
    region TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT,
    used_by_host TEXT REFERENCES hosts (id),
    used_nonce TEXT                      -- a retried join with the same nonce gets the same host
);

CREATE TABLE gpus (
    uuid TEXT NOT NULL PRIMARY KEY,
    host_id TEXT NOT NULL REFERENCES hosts (id),
    model TEXT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    bar1_bytes BIGINT NOT NULL,
    pci_bus_id TEXT NOT NULL,
    minor BIGINT NOT NULL,
    numa_node BIGINT,
    pcie_switch TEXT,
    compute_capability TEXT NOT NULL,
    mig_enabled BOOLEAN NOT NULL,
    display_active BOOLEAN NOT NULL,
    health TEXT NOT NULL,                -- JSON, tarn_protocol::hardware::GpuHealth
    quarantined BOOLEAN NOT NULL,        -- by an operator; persists over agent restarts
    telemetry TEXT,                      -- JSON, newest sample
    present BOOLEAN NOT NULL,            -- in the newest inventory
    updated_at BIGINT NOT NULL
);
CREATE INDEX gpus_by_host ON gpus (host_id);

CREATE TABLE link_certificates (
    id TEXT NOT NULL PRIMARY KEY,
    host_id TEXT NOT NULL REFERENCES hosts (id),
    from_uuid TEXT NOT NULL REFERENCES gpus (uuid),
    to_uuid TEXT NOT NULL REFERENCES gpus (uuid),
    class TEXT NOT NULL,
    grade TEXT NOT NULL,
    passed BOOLEAN NOT NULL,
    reason TEXT,                         -- why it failed or was revoked
    read_mb_per_second BIGINT NOT NULL,
    write_mb_per_second BIGINT NOT NULL,
    latency_nanos BIGINT NOT NULL,
    driver_version TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    probe TEXT NOT NULL,                 -- JSON, tarn_protocol::hardware::LinkProbe
    created_at BIGINT NOT NULL,
    superseded_at BIGINT                 -- NULL: the current verdict on this ordered pair
);
CREATE UNIQUE INDEX one_current_certificate ON link_certificates (from_uuid, to_uuid) WHERE superseded_at IS NULL;
CREATE INDEX link_certificates_by_host ON link_certificates (host_id, created_at);

CREATE TABLE probe_orders (
    from_uuid TEXT NOT NULL REFERENCES gpus (uuid),
    to_uuid TEXT NOT NULL REFERENCES gpus (uuid),
    host_id TEXT NOT NULL REFERENCES hosts (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (from_uuid, to_uuid)
);

CREATE TABLE gpu_events (
    id TEXT NOT NULL PRIMARY KEY,
    host_id TEXT NOT NULL REFERENCES hosts (id),
    gpu_uuid TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    mono_ms BIGINT NOT NULL,
    xid BIGINT NOT NULL,
    detail TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (boot_id, gpu_uuid, mono_ms, xid)
);

-- What is sold --------------------------------------------------------------------------------------------------------

CREATE TABLE offers (
    id TEXT NOT NULL PRIMARY KEY,        -- pool-96, pool-48, card-24
    title TEXT NOT NULL,
    cards BIGINT NOT NULL CHECK (cards BETWEEN 1 AND 16),
    metered_cards BIGINT NOT NULL CHECK (metered_cards = 1),
    card_memory_bytes BIGINT NOT NULL,   -- nominal memory of one card of this shape
    model_contains TEXT,                 -- NULL: any model of that memory
    link_class_min TEXT NOT NULL,        -- none for single cards
    listed BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE price_book (
    version BIGINT NOT NULL,
    sku TEXT NOT NULL,                   -- an offer id
    micros_per_hour BIGINT NOT NULL CHECK (micros_per_hour >= 0),
    effective_from BIGINT NOT NULL,
    created_by TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (version, sku)
);
CREATE UNIQUE INDEX one_price_at_an_instant ON price_book (sku, effective_from);

-- What is rented ------------------------------------------------------------------------------------------------------

CREATE TABLE instances (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    created_by TEXT,                     -- user or API key
    label TEXT NOT NULL,
    tags TEXT NOT NULL,                  -- JSON object
    offer_id TEXT NOT NULL REFERENCES offers (id),
    spec TEXT NOT NULL,                  -- JSON: command, env, policy, link_class_min, region, ssh_keys
    desired_state TEXT NOT NULL,         -- running | stopped | terminated
    desired_reason TEXT NOT NULL,        -- why it is wanted
    desired_since BIGINT NOT NULL,       -- accepted at: billing ends there, not when the host obeys
    state TEXT NOT NULL,                 -- recorded
    state_since BIGINT NOT NULL,
    phase TEXT,                          -- provisioning step, for people
    reason_code TEXT,
    reason_detail TEXT,
    generation BIGINT NOT NULL,          -- grows with every start; fences older work
    row_version BIGINT NOT NULL,         -- compare-and-set guard for every update
    placement_attempts BIGINT NOT NULL,
    host_id TEXT REFERENCES hosts (id),
    pool_bytes BIGINT,                   -- as the tenant sees it, observed
    residency TEXT,                      -- JSON, newest observation
    observed_phase TEXT,                 -- JSON, tarn_protocol::control::Phase
    observed_at BIGINT,
    log_tail TEXT NOT NULL,
    ttl_at BIGINT,
    created_at BIGINT NOT NULL,
    terminated_at BIGINT
);
CREATE INDEX instances_by_tenant ON instances (tenant_id, id);
CREATE INDEX instances_by_host ON instances (host_id);
CREATE INDEX instances_live ON instances (state) WHERE terminated_at IS NULL;

CREATE TABLE leases (
    id TEXT NOT NULL PRIMARY KEY,
    instance_id TEXT NOT NULL REFERENCES instances (id),
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    host_id TEXT NOT NULL REFERENCES hosts (id),
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    released_at BIGINT,
    UNIQUE (instance_id, generation)
);
CREATE UNIQUE INDEX one_live_lease ON leases (instance_id) WHERE released_at IS NULL;

CREATE TABLE lease_gpus (
    lease_id TEXT NOT NULL REFERENCES leases (id),
    gpu_uuid TEXT NOT NULL REFERENCES gpus (uuid),
    place BIGINT NOT NULL,               -- 0 is the primary, donors from 1 in order of bandwidth
    link_class TEXT NOT NULL,
    grade TEXT NOT NULL,
    read_mb_per_second BIGINT NOT NULL,
    certificate_id TEXT,
    released_at BIGINT,
    PRIMARY KEY (lease_id, gpu_uuid),
    UNIQUE (lease_id, place)
);
-- A GPU is in at most one live lease, whoever asks and however many ask at once.
CREATE UNIQUE INDEX one_live_lease_per_gpu ON lease_gpus (gpu_uuid) WHERE released_at IS NULL;

-- What the planner remembers of an instance between two plans; written only together with the instance.
CREATE TABLE instance_plans (
    instance_id TEXT NOT NULL PRIMARY KEY REFERENCES instances (id),
    published_generation BIGINT,         -- the goal that the host was last told, NULL: none yet
    published_goal TEXT,
    published_revision BIGINT,           -- of the host's desired document that first carried it
    failed_sets TEXT NOT NULL,           -- JSON: sets of cards that failed since the last start
    progress_at BIGINT NOT NULL          -- last sign of progress while not yet ready
);

-- Copies that a host shows and must not keep (moved or terminated instances): published with the goal absent until gone.
CREATE TABLE evictions (
    host_id TEXT NOT NULL REFERENCES hosts (id),
    instance_id TEXT NOT NULL REFERENCES instances (id),
    generation BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (host_id, instance_id)
);

-- Placements take turns on this row, so that many at once neither choose the same cards nor retry each other to death.
CREATE TABLE placement_turns (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    turns BIGINT NOT NULL
);
INSERT INTO placement_turns (id, turns) VALUES (1, 0);

CREATE TABLE instance_events (
    id TEXT NOT NULL PRIMARY KEY,
    instance_id TEXT NOT NULL REFERENCES instances (id),
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,                -- JSON object
    created_at BIGINT NOT NULL
);
CREATE INDEX instance_events_by_instance ON instance_events (instance_id, id);

-- Alerts for operators: silent agents, terminations that wait for proof, orphans, stale writes.
CREATE TABLE alerts (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    cleared_at BIGINT
);
CREATE UNIQUE INDEX one_open_alert ON alerts (kind, subject) WHERE cleared_at IS NULL;

-- Money ---------------------------------------------------------------------------------------------------------------

CREATE TABLE accounts (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT REFERENCES tenants (id),   -- NULL for system accounts
    kind TEXT NOT NULL,
    currency TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX one_account_per_tenant_kind ON accounts (tenant_id, kind, currency) WHERE tenant_id IS NOT NULL;
CREATE UNIQUE INDEX one_system_account ON accounts (kind, currency) WHERE tenant_id IS NULL;

CREATE TABLE transfers (
    id TEXT NOT NULL PRIMARY KEY,             -- chosen before the first attempt
    kind TEXT NOT NULL,
    debit_account_id TEXT NOT NULL REFERENCES accounts (id),
    credit_account_id TEXT NOT NULL REFERENCES accounts (id),
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    tenant_id TEXT REFERENCES tenants (id),
    segment_id TEXT,
    grant_id TEXT,
    reverses TEXT REFERENCES transfers (id),
    external_provider TEXT,
    external_id TEXT,
    memo TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CHECK (debit_account_id <> credit_account_id)
);
CREATE INDEX transfers_by_tenant ON transfers (tenant_id, id);
CREATE INDEX transfers_by_segment ON transfers (segment_id);
CREATE UNIQUE INDEX one_transfer_per_external ON transfers (external_provider, external_id) WHERE external_id IS NOT NULL;

-- Signed: a debit of a tenant's wallet is negative. seq and balance_after are kept for tenant accounts only.
CREATE TABLE entries (
    transfer_id TEXT NOT NULL REFERENCES transfers (id),
    account_id TEXT NOT NULL REFERENCES accounts (id),
    amount_micros BIGINT NOT NULL CHECK (amount_micros <> 0),
    seq BIGINT,
    balance_after_micros BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (transfer_id, account_id)
);
CREATE UNIQUE INDEX one_entry_per_seq ON entries (account_id, seq) WHERE seq IS NOT NULL;

CREATE TABLE wallet_balances (
    account_id TEXT NOT NULL PRIMARY KEY REFERENCES accounts (id),
    posted_micros BIGINT NOT NULL CHECK (posted_micros <= 4000000000000000000),
    held_micros BIGINT NOT NULL CHECK (held_micros >= 0),
    version BIGINT NOT NULL,                  -- also the seq of the newest entry
    CHECK (posted_micros >= held_micros)      -- a wallet is never below zero, and a hold is never unfunded
);

CREATE TABLE credit_grants (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    kind TEXT NOT NULL,                       -- trial | promo | sla | cash
    priority BIGINT NOT NULL,
    granted_micros BIGINT NOT NULL CHECK (granted_micros > 0),
    remaining_micros BIGINT NOT NULL CHECK (remaining_micros >= 0),
    expires_at BIGINT,
    created_at BIGINT NOT NULL,
    CHECK (remaining_micros <= granted_micros)
);
CREATE INDEX credit_grants_by_tenant ON credit_grants (tenant_id, priority, expires_at, id);

CREATE TABLE holds (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    account_id TEXT NOT NULL REFERENCES accounts (id),
    instance_id TEXT,
    amount_micros BIGINT NOT NULL CHECK (amount_micros > 0),
    state TEXT NOT NULL,                      -- pending | posted | voided | expired
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    resolved_at BIGINT
);
CREATE INDEX holds_pending ON holds (tenant_id) WHERE state = 'pending';

CREATE TABLE usage_segments (
    id TEXT NOT NULL PRIMARY KEY,
    tenant_id TEXT NOT NULL REFERENCES tenants (id),
    instance_id TEXT NOT NULL REFERENCES instances (id),
    generation BIGINT NOT NULL,
    sku TEXT NOT NULL,
    meter_gpu_uuid TEXT NOT NULL,             -- always the primary
    price_version BIGINT NOT NULL,
    micros_per_hour BIGINT NOT NULL,
    boot_id TEXT NOT NULL,
    anchor_mono_ms BIGINT NOT NULL,           -- the host's clock at started_at
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    close_reason TEXT,
    covered TEXT NOT NULL,                    -- JSON: proven intervals, compact
    settled_seconds BIGINT NOT NULL CHECK (settled_seconds >= 0),
    settled_micros BIGINT NOT NULL CHECK (settled_micros >= 0),
    row_version BIGINT NOT NULL,              -- compare-and-set guard: evidence, settlement and close never overtake each other
    run_until_mono_ms BIGINT,                 -- the paid-until instant last published to the host
    exhausts_at BIGINT,
    updated_at BIGINT NOT NULL,
    CHECK (ended_at >= started_at)            -- true while ended_at is NULL
);
CREATE UNIQUE INDEX one_open_sku ON usage_segments (instance_id, sku) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX one_open_card ON usage_segments (meter_gpu_uuid) WHERE ended_at IS NULL;
CREATE INDEX usage_segments_by_tenant ON usage_segments (tenant_id, id);
CREATE INDEX usage_segments_due ON usage_segments (exhausts_at) WHERE ended_at IS NULL;

-- Every piece of evidence once: sent twice, it changes nothing.
CREATE TABLE meter_events (
    host_id TEXT NOT NULL REFERENCES hosts (id),
    boot_id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    instance_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    gpu_uuid TEXT NOT NULL,
    from_mono_ms BIGINT NOT NULL,
    to_mono_ms BIGINT NOT NULL,
    excused_ms BIGINT NOT NULL,
    segment_id TEXT,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (host_id, boot_id, seq)
);

-- Workers share work by fenced rows: who holds a row with which token until when.
CREATE TABLE worker_claims (
    worker TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    fence BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
