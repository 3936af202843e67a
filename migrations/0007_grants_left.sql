-- What a tenant can still draw on, without its many grants that are empty.
CREATE INDEX credit_grants_left ON credit_grants (tenant_id) WHERE remaining_micros > 0;
