-- What 0004 has that a portable schema cannot express. Invoices are written once.
CREATE TRIGGER invoices_never_change BEFORE UPDATE OR DELETE ON invoices
FOR EACH ROW EXECUTE FUNCTION refuse_change('invoices_never_change');
CREATE TRIGGER invoice_lines_never_change BEFORE UPDATE OR DELETE ON invoice_lines
FOR EACH ROW EXECUTE FUNCTION refuse_change('invoice_lines_never_change');
CREATE TRIGGER credit_lines_never_change BEFORE UPDATE OR DELETE ON credit_lines
FOR EACH ROW EXECUTE FUNCTION refuse_change('credit_lines_never_change');
CREATE TRIGGER invoice_numbers_only_grow BEFORE UPDATE ON invoice_numbers
FOR EACH ROW WHEN (NEW.last <> OLD.last + 1 OR NEW.seller <> OLD.seller OR NEW.year <> OLD.year)
EXECUTE FUNCTION refuse_change('invoice_numbers_only_grow');
CREATE TRIGGER invoice_numbers_never_go BEFORE DELETE ON invoice_numbers
FOR EACH ROW EXECUTE FUNCTION refuse_change('invoice_numbers_only_grow');

-- No second of a disk is billed twice: half-open intervals of one instance and SKU never overlap.
ALTER TABLE storage_segments ADD CONSTRAINT storage_segments_never_overlap
    EXCLUDE USING gist (instance_id WITH =, sku WITH =, int8range(started_at, ended_at) WITH &&);
