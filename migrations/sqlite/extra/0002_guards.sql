-- Guards that a portable schema cannot express.

-- The ledger is append-only.
CREATE TRIGGER transfers_never_change BEFORE UPDATE ON transfers
BEGIN SELECT RAISE(ABORT, 'transfers_never_change'); END;
CREATE TRIGGER transfers_never_go BEFORE DELETE ON transfers
BEGIN SELECT RAISE(ABORT, 'transfers_never_change'); END;
CREATE TRIGGER entries_never_change BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'entries_never_change'); END;
CREATE TRIGGER entries_never_go BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'entries_never_change'); END;
CREATE TRIGGER prices_never_change BEFORE UPDATE ON price_book
BEGIN SELECT RAISE(ABORT, 'prices_never_change'); END;
CREATE TRIGGER prices_never_go BEFORE DELETE ON price_book
BEGIN SELECT RAISE(ABORT, 'prices_never_change'); END;

-- No second is billed twice: half-open intervals of one card, and of one instance and SKU, never overlap. (Two open ones are the
-- affair of the unique indexes, which then name what is wrong.)
CREATE INDEX usage_segments_by_card ON usage_segments (meter_gpu_uuid, started_at);
CREATE TRIGGER segments_never_overlap_insert BEFORE INSERT ON usage_segments
WHEN NEW.ended_at IS NULL OR NEW.ended_at > NEW.started_at
BEGIN
    SELECT RAISE(ABORT, 'card_segments_never_overlap') FROM usage_segments s
    WHERE s.meter_gpu_uuid = NEW.meter_gpu_uuid AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
    SELECT RAISE(ABORT, 'sku_segments_never_overlap') FROM usage_segments s
    WHERE s.instance_id = NEW.instance_id AND s.sku = NEW.sku AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
END;
CREATE TRIGGER segments_never_overlap_update BEFORE UPDATE OF started_at, ended_at, meter_gpu_uuid ON usage_segments
WHEN NEW.ended_at IS NULL OR NEW.ended_at > NEW.started_at
BEGIN
    SELECT RAISE(ABORT, 'card_segments_never_overlap') FROM usage_segments s
    WHERE s.meter_gpu_uuid = NEW.meter_gpu_uuid AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
    SELECT RAISE(ABORT, 'sku_segments_never_overlap') FROM usage_segments s
    WHERE s.instance_id = NEW.instance_id AND s.sku = NEW.sku AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
END;
