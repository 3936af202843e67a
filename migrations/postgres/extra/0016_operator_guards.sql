-- The operators' log is append-only, and what was decided of credit stays decided.
CREATE TRIGGER operator_log_never_changes BEFORE UPDATE OR DELETE ON operator_log
FOR EACH ROW EXECUTE FUNCTION refuse_change('operator_log_never_changes');
CREATE TRIGGER credit_requests_stay_decided BEFORE UPDATE ON credit_requests
FOR EACH ROW WHEN (OLD.state <> 'pending' OR OLD.requested_by <> NEW.requested_by OR OLD.four_eyes <> NEW.four_eyes
    OR OLD.amount_micros <> NEW.amount_micros OR OLD.tenant_id <> NEW.tenant_id OR OLD.kind <> NEW.kind)
EXECUTE FUNCTION refuse_change('credit_requests_stay_decided');
CREATE TRIGGER credit_requests_never_go BEFORE DELETE ON credit_requests
FOR EACH ROW EXECUTE FUNCTION refuse_change('credit_requests_stay_decided');
