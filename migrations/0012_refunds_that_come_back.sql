-- A refund that was paid out may come back from the bank for weeks: it is asked about again, now and then.
CREATE INDEX refunds_paid_due ON refunds (ask_at) WHERE state = 'settled' AND top_up_id IS NOT NULL;
