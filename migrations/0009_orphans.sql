-- Workloads that a host shows and this record does not know, and the destructive steps that nobody asked for.

-- Kept from first sight, forgotten when the host shows it no longer. There is no instance of that id here, so none is referred to.
CREATE TABLE orphans (
    host_id TEXT NOT NULL REFERENCES hosts (id),
    instance_id TEXT NOT NULL,
    generation BIGINT NOT NULL,          -- the highest that was shown
    first_seen_at BIGINT NOT NULL,
    removal_ordered_at BIGINT,           -- NULL: kept for an operator to look at
    PRIMARY KEY (host_id, instance_id)
);
CREATE INDEX orphans_kept ON orphans (first_seen_at) WHERE removal_ordered_at IS NULL;

-- A step is taken with its row or not at all. A window has few slots: when none is left, the brake holds until the next.
CREATE TABLE automatic_steps (
    window_at BIGINT NOT NULL,           -- when the window began
    slot BIGINT NOT NULL CHECK (slot >= 1),
    kind TEXT NOT NULL,
    host_id TEXT,
    instance_id TEXT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (window_at, slot)
);
