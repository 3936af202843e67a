-- Guards that a portable schema cannot express.

-- The ledger is append-only.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation', CONSTRAINT = TG_ARGV[0];
END $$;
CREATE TRIGGER transfers_never_change BEFORE UPDATE OR DELETE ON transfers
FOR EACH ROW EXECUTE FUNCTION refuse_change('transfers_never_change');
CREATE TRIGGER entries_never_change BEFORE UPDATE OR DELETE ON entries
FOR EACH ROW EXECUTE FUNCTION refuse_change('entries_never_change');
CREATE TRIGGER prices_never_change BEFORE UPDATE OR DELETE ON price_book
FOR EACH ROW EXECUTE FUNCTION refuse_change('prices_never_change');

-- No second is billed twice: half-open intervals of one card, and of one instance and SKU, never overlap.
CREATE EXTENSION IF NOT EXISTS btree_gist;
ALTER TABLE usage_segments ADD CONSTRAINT card_segments_never_overlap
    EXCLUDE USING gist (meter_gpu_uuid WITH =, int8range(started_at, ended_at) WITH &&);
ALTER TABLE usage_segments ADD CONSTRAINT sku_segments_never_overlap
    EXCLUDE USING gist (instance_id WITH =, sku WITH =, int8range(started_at, ended_at) WITH &&);
