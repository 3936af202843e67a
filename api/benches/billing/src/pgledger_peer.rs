//! A ledger inside PostgreSQL in the shape of pgledger: accounts that carry their balance and version, a function that locks both
//! in one order, moves the money and writes a transfer and two entries with the balances before and after. The SQL is our own.

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::database::Fresh;
use crate::load::{Table, closed_loop};

const SCHEMA: &str = r"
CREATE TABLE account (
    id BIGINT PRIMARY KEY, balance NUMERIC NOT NULL DEFAULT 0, version BIGINT NOT NULL DEFAULT 0,
    below_zero BOOLEAN NOT NULL, updated_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE transfer (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, from_id BIGINT NOT NULL REFERENCES account (id),
    to_id BIGINT NOT NULL REFERENCES account (id), amount NUMERIC NOT NULL CHECK (amount > 0),
    created_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE entry (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account_id BIGINT NOT NULL REFERENCES account (id),
    transfer_id BIGINT NOT NULL REFERENCES transfer (id), amount NUMERIC NOT NULL, balance_before NUMERIC NOT NULL,
    balance_after NUMERIC NOT NULL, version BIGINT NOT NULL, created_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE INDEX ON transfer (from_id);
CREATE INDEX ON transfer (to_id);
CREATE INDEX ON entry (account_id);
CREATE INDEX ON entry (transfer_id);
CREATE FUNCTION move(a BIGINT, b BIGINT, sum NUMERIC) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE made BIGINT; source account; target account;
BEGIN
    PERFORM 1 FROM account WHERE id IN (a, b) ORDER BY id FOR UPDATE;
    INSERT INTO transfer (from_id, to_id, amount) VALUES (a, b, sum) RETURNING id INTO made;
    UPDATE account SET balance = balance - sum, version = version + 1, updated_at = now() WHERE id = a RETURNING * INTO source;
    IF source.balance < 0 AND NOT source.below_zero THEN RAISE EXCEPTION 'account % has too little', a; END IF;
    UPDATE account SET balance = balance + sum, version = version + 1, updated_at = now() WHERE id = b RETURNING * INTO target;
    INSERT INTO entry (account_id, transfer_id, amount, balance_before, balance_after, version) VALUES
        (a, made, -sum, source.balance + sum, source.balance, source.version),
        (b, made, sum, target.balance - sum, target.balance, target.version);
    RETURN made;
END $$;
INSERT INTO account (id, balance, below_zero) SELECT n, 1000000000, n > 100 FROM generate_series(1, 200) n;
";

pub async fn all(table: &mut Table) {
    let url = Fresh::empty_postgres().await;
    let db = PgPoolOptions::new().max_connections(8).connect(&url).await.unwrap();
    sqlx::raw_sql(SCHEMA).execute(&db).await.unwrap();
    for (clients, hot, name) in [
        (1, false, "pgledger-shaped, 1 client"),
        (8, false, "pgledger-shaped, 8 clients, spread"),
        (8, true, "pgledger-shaped, 8 clients, one hot account"),
    ] {
        let db = db.clone();
        let load = closed_loop(clients, 1, move |client, _| {
            let (from, to) = (1 + client as i64, if hot { 101 } else { 101 + client as i64 });
            moved(db.clone(), from, to, 1)
        });
        table.row(name, load.await);
    }
    let load = closed_loop(1, 100, move |_, _| moved(db.clone(), 1, 101, 100));
    table.row("pgledger-shaped, 1 client, 100 a transaction", load.await);
    Fresh::drop_postgres(&url).await;
}

async fn moved(db: PgPool, from: i64, to: i64, times: usize) {
    let mut tx = db.begin().await.unwrap();
    for _ in 0..times {
        sqlx::query("SELECT move($1, $2, 1)").bind(from).bind(to).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
}
