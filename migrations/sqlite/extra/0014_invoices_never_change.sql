-- What 0004 has that a portable schema cannot express. Invoices are written once.
CREATE TRIGGER invoices_never_change BEFORE UPDATE ON invoices
BEGIN SELECT RAISE(ABORT, 'invoices_never_change'); END;
CREATE TRIGGER invoices_never_go BEFORE DELETE ON invoices
BEGIN SELECT RAISE(ABORT, 'invoices_never_change'); END;
CREATE TRIGGER invoice_lines_never_change BEFORE UPDATE ON invoice_lines
BEGIN SELECT RAISE(ABORT, 'invoice_lines_never_change'); END;
CREATE TRIGGER invoice_lines_never_go BEFORE DELETE ON invoice_lines
BEGIN SELECT RAISE(ABORT, 'invoice_lines_never_change'); END;
CREATE TRIGGER credit_lines_never_change BEFORE UPDATE ON credit_lines
BEGIN SELECT RAISE(ABORT, 'credit_lines_never_change'); END;
CREATE TRIGGER credit_lines_never_go BEFORE DELETE ON credit_lines
BEGIN SELECT RAISE(ABORT, 'credit_lines_never_change'); END;
CREATE TRIGGER invoice_numbers_only_grow BEFORE UPDATE ON invoice_numbers
WHEN NEW.last <> OLD.last + 1 OR NEW.seller <> OLD.seller OR NEW.year <> OLD.year
BEGIN SELECT RAISE(ABORT, 'invoice_numbers_only_grow'); END;
CREATE TRIGGER invoice_numbers_never_go BEFORE DELETE ON invoice_numbers
BEGIN SELECT RAISE(ABORT, 'invoice_numbers_only_grow'); END;

-- No second of a disk is billed twice: half-open intervals of one instance and SKU never overlap.
CREATE TRIGGER storage_segments_never_overlap_insert BEFORE INSERT ON storage_segments
WHEN NEW.ended_at IS NULL OR NEW.ended_at > NEW.started_at
BEGIN
    SELECT RAISE(ABORT, 'storage_segments_never_overlap') FROM storage_segments s
    WHERE s.instance_id = NEW.instance_id AND s.sku = NEW.sku AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
END;
CREATE TRIGGER storage_segments_never_overlap_update BEFORE UPDATE OF started_at, ended_at ON storage_segments
WHEN NEW.ended_at IS NULL OR NEW.ended_at > NEW.started_at
BEGIN
    SELECT RAISE(ABORT, 'storage_segments_never_overlap') FROM storage_segments s
    WHERE s.instance_id = NEW.instance_id AND s.sku = NEW.sku AND s.id <> NEW.id
        AND (s.ended_at > s.started_at OR (s.ended_at IS NULL AND NEW.ended_at IS NOT NULL))
        AND s.started_at < COALESCE(NEW.ended_at, 9223372036854775807)
        AND COALESCE(s.ended_at, 9223372036854775807) > NEW.started_at;
END;
