-- The operators' log is append-only, and what was decided of credit stays decided.
CREATE TRIGGER operator_log_never_changes BEFORE UPDATE ON operator_log
BEGIN SELECT RAISE(ABORT, 'operator_log_never_changes'); END;
CREATE TRIGGER operator_log_never_goes BEFORE DELETE ON operator_log
BEGIN SELECT RAISE(ABORT, 'operator_log_never_changes'); END;
CREATE TRIGGER credit_requests_stay_decided BEFORE UPDATE ON credit_requests
WHEN OLD.state <> 'pending' OR OLD.requested_by <> NEW.requested_by OR OLD.four_eyes <> NEW.four_eyes
    OR OLD.amount_micros <> NEW.amount_micros OR OLD.tenant_id <> NEW.tenant_id OR OLD.kind <> NEW.kind
BEGIN SELECT RAISE(ABORT, 'credit_requests_stay_decided'); END;
CREATE TRIGGER credit_requests_never_go BEFORE DELETE ON credit_requests
BEGIN SELECT RAISE(ABORT, 'credit_requests_stay_decided'); END;
