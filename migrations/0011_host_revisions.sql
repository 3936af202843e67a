-- What a host shall do changes in a row of its own. A report holds its host's row until it ends and then waits for segments; whoever changes
-- a segment and then what the host shall do must not wait for that row.
CREATE TABLE host_revisions (
    host_id TEXT NOT NULL PRIMARY KEY REFERENCES hosts (id),
    desired BIGINT NOT NULL              -- grows with every change of what should run there
);
INSERT INTO host_revisions (host_id, desired) SELECT id, desired_revision FROM hosts;
ALTER TABLE hosts DROP COLUMN desired_revision;
