-- Ways to read the whole ledger in order: for the audit, and for whoever asks for one run's evidence or one charge's reversals.
-- (Where an engine has one of them already, it is that one.)

CREATE INDEX IF NOT EXISTS meter_events_by_run ON meter_events (instance_id, generation, seq);
CREATE INDEX IF NOT EXISTS transfers_by_original ON transfers (reverses, id) WHERE reverses IS NOT NULL;
CREATE INDEX IF NOT EXISTS usage_segments_by_card ON usage_segments (meter_gpu_uuid, started_at);
CREATE INDEX IF NOT EXISTS usage_segments_by_item ON usage_segments (instance_id, sku, started_at);
