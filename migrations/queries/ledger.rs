//! The ledger: accounts, transfers, entries, wallet balances. Nothing else writes these tables, but for the engines' own way of writing
//! a transfer with its entries (`posting.rs` of each).

use std::sync::LazyLock;

use sqlx::{query, query_as};
use tarn_billing::account::{Account, AccountKind};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{AccountId, SegmentId, TransferId};
use tarn_rows::ledger::{
    AccountRow, AuditRaw, AuditRow, EntryRaw, EntryRow, LedgerLineRaw, LedgerLineRow, Posting, TransferRaw,
    TransferRow,
};
use tarn_rows::wallet::{BalanceRaw, BalanceRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};
use crate::posting;

macro_rules! select_transfer {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            TransferRaw,
            "SELECT id, kind, debit_account_id, credit_account_id, amount_micros, tenant_id, segment_id, grant_id,
                 reverses, external_provider, external_id, memo, created_at
             FROM transfers " + $tail
            $(, $arg)*
        )
    };
}

macro_rules! select_balance {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            BalanceRaw,
            "SELECT b.account_id, a.kind, b.posted_micros, b.held_micros, b.version
             FROM wallet_balances b JOIN accounts a ON a.id = b.account_id " + $tail
            $(, $arg)*
        )
    };
}

/// Opens an account, and its balance if it is a wallet, unless it is there: for sign-up and start-up.
pub async fn ensure_account(conn: &mut Conn, account: &AccountRow) -> Result<()> {
    let row = put(account)?;
    query!(
        "INSERT INTO accounts (id, tenant_id, kind, currency, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO NOTHING",
        row.id,
        row.tenant_id,
        row.kind,
        row.currency,
        row.created_at
    )
    .execute(&mut *conn)
    .await?;
    if account.kind.wallet() {
        query!(
            "INSERT INTO wallet_balances (account_id, posted_micros, held_micros, version) VALUES ($1, 0, 0, 0)
             ON CONFLICT (account_id) DO NOTHING",
            row.id
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}

/// Posts a transfer: the movement, its two entries, and the running balance of a wallet it touches, which never falls below what is
/// held. Whatever the answer but [`Posting::Posted`], nothing changed, so the same transfer may be posted any number of times.
pub async fn post_transfer(conn: &mut Conn, transfer: &TransferRow) -> Result<Posting> {
    let [debit, credit] = changes(transfer);
    let sides = [(&transfer.debit_account_id, debit), (&transfer.credit_account_id, credit)];
    // Wallets first: their rows are the lock under which two attempts at one transfer come one after the other.
    let mut moved: [Option<(i64, i64)>; 2] = [None, None];
    for (side, (account, change)) in sides.into_iter().enumerate().filter(|(_, side)| !TARNS.contains(side.0))
    {
        moved[side] = move_wallet(conn, account, change, 1).await?;
        if moved[side].is_none() && is_wallet(conn, account).await? {
            undo(conn, sides, moved).await?;
            return Ok(posted_before(conn, transfer).await?.unwrap_or(Posting::Insufficient));
        }
    }
    if !posting::insert(conn, transfer, moved).await? {
        undo(conn, sides, moved).await?;
        return Ok(posted_before(conn, transfer).await?.unwrap_or(Posting::Conflicting));
    }
    Ok(Posting::Posted)
}

/// Posts charges, each of which draws on a wallet for Tarn: every wallet moves once for all of its charges, and its entries number and
/// balance are those that one after the other would have given. `false`: one is there already, or a wallet does not cover all; part of
/// it is written then, and the transaction must be given up.
pub async fn post_charges(conn: &mut Conn, charges: &[TransferRow]) -> Result<bool> {
    let mut wallets: Vec<(&AccountId, Vec<&TransferRow>)> = Vec::new();
    for charge in charges {
        match wallets.iter_mut().find(|(wallet, _)| **wallet == charge.debit_account_id) {
            Some((_, drawn)) => drawn.push(charge),
            None => wallets.push((&charge.debit_account_id, vec![charge])),
        }
    }
    for (wallet, charges) in wallets {
        let total: i64 = charges.iter().map(|charge| changes(charge)[0].get()).sum();
        let count = i64::try_from(charges.len()).unwrap_or(i64::MAX);
        let Some((last_seq, last_balance)) = move_wallet(conn, wallet, Micros::new(total), count).await?
        else {
            return Ok(false);
        };
        let mut running = (last_seq - count, last_balance - total);
        for charge in charges {
            running = (running.0 + 1, running.1 + changes(charge)[0].get());
            if !posting::insert(conn, charge, [Some(running), None]).await? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// By how much the debit and the credit side change.
pub(crate) const fn changes(transfer: &TransferRow) -> [Micros; 2] {
    let amount = transfer.amount_micros;
    [Micros::new(-amount.get()), amount]
}

/// The accounts that are nobody's but Tarn's, none of which is a wallet: nothing has to be looked up for them.
static TARNS: LazyLock<Vec<AccountId>> = LazyLock::new(|| {
    let accounts = AccountKind::ALL.into_iter().filter_map(|kind| Account::new(kind, None).ok());
    accounts.map(|account| account.id().clone()).collect()
});

/// An account that is not there is none, and fails the insert.
async fn is_wallet(conn: &mut Conn, account: &AccountId) -> Result<bool> {
    let kind =
        query!(r#"SELECT kind FROM accounts WHERE id = $1"#, account.as_str()).fetch_optional(conn).await?;
    Ok(kind.map(|row| take::<AccountKind>(row.kind)).transpose()?.is_some_and(AccountKind::wallet))
}

/// Moves a wallet for so many entries: the last one's seq and balance, or `None` if the wallet does not cover it.
async fn move_wallet(
    conn: &mut Conn,
    account: &AccountId,
    change: Micros,
    entries: i64,
) -> Result<Option<(i64, i64)>> {
    let moved = query!(
        r#"UPDATE wallet_balances SET posted_micros = posted_micros + $2, version = version + $3
           WHERE account_id = $1 AND posted_micros + $2 >= held_micros
           RETURNING version AS "seq!: i64", posted_micros AS "balance!: i64""#,
        account.as_str(),
        change.get(),
        entries
    );
    Ok(moved.fetch_optional(conn).await?.map(|row| (row.seq, row.balance)))
}

/// Puts wallets back as they were; their rows are still locked, so nobody saw the difference.
async fn undo(
    conn: &mut Conn,
    sides: [(&AccountId, Micros); 2],
    moved: [Option<(i64, i64)>; 2],
) -> Result<()> {
    for ((account, change), moved) in sides.into_iter().zip(moved) {
        if moved.is_some() {
            query!(
                "UPDATE wallet_balances SET posted_micros = posted_micros - $2, version = version - 1
                 WHERE account_id = $1",
                account.as_str(),
                change.get()
            )
            .execute(&mut *conn)
            .await?;
        }
    }
    Ok(())
}

/// Whether a transfer of this id is there, and is the same movement (text and instant of a retry may differ).
async fn posted_before(conn: &mut Conn, wanted: &TransferRow) -> Result<Option<Posting>> {
    let Some(found) = transfer(conn, &wanted.id).await? else { return Ok(None) };
    let retried = TransferRow { memo: found.memo.clone(), created_at: found.created_at, ..wanted.clone() };
    Ok(Some(if found == retried { Posting::Replayed } else { Posting::Conflicting }))
}

/// For workers: of any tenant.
pub async fn transfer(conn: &mut Conn, id: &TransferId) -> Result<Option<TransferRow>> {
    select_transfer!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// Newest first.
pub async fn transfers(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, TransferId>,
) -> Result<Vec<TransferRow>> {
    let raws = select_transfer!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a segment was charged, and what of it was given back, oldest first.
pub async fn transfers_of_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
) -> Result<Vec<TransferRow>> {
    let raws = select_transfer!(
        "WHERE tenant_id = $1 AND segment_id = $2 ORDER BY id",
        scope.as_str(),
        segment.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Of those, the usage charges whose ids lie between two, oldest first: ids of charges sort by the second that they begin with.
pub async fn usage_between(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
    (from, to): (&TransferId, &TransferId),
) -> Result<Vec<TransferRow>> {
    let raws = select_transfer!(
        "WHERE tenant_id = $1 AND segment_id = $2 AND kind = 'usage' AND id >= $3 AND id <= $4 ORDER BY id",
        scope.as_str(),
        segment.as_str(),
        from.as_str(),
        to.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The last usage charge of a segment below an id.
pub async fn usage_below(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
    id: &TransferId,
) -> Result<Option<TransferRow>> {
    let raw = select_transfer!(
        "WHERE tenant_id = $1 AND segment_id = $2 AND kind = 'usage' AND id < $3 ORDER BY id DESC LIMIT 1",
        scope.as_str(),
        segment.as_str(),
        id.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The first usage charge of a segment above an id.
pub async fn usage_above(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
    id: &TransferId,
) -> Result<Option<TransferRow>> {
    let raw = select_transfer!(
        "WHERE tenant_id = $1 AND segment_id = $2 AND kind = 'usage' AND id > $3 ORDER BY id LIMIT 1",
        scope.as_str(),
        segment.as_str(),
        id.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The lines of a tenant's accounts, newest first.
pub async fn ledger_lines(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, TransferId>,
) -> Result<Vec<LedgerLineRow>> {
    let raws = query_as!(
        LedgerLineRaw,
        "SELECT e.transfer_id, a.kind AS account_kind, t.kind AS transfer_kind, e.amount_micros,
             e.balance_after_micros, t.segment_id, t.grant_id, t.memo, t.created_at
         FROM transfers t JOIN entries e ON e.transfer_id = t.id JOIN accounts a ON a.id = e.account_id
         WHERE t.tenant_id = $1 AND a.tenant_id = $1 AND t.id < $2 ORDER BY t.id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Both sides of one transfer, for the audit.
pub async fn entries_of_transfer(conn: &mut Conn, id: &TransferId) -> Result<Vec<EntryRow>> {
    let raws = query_as!(
        EntryRaw,
        "SELECT transfer_id, account_id, amount_micros, seq, balance_after_micros, created_at
         FROM entries WHERE transfer_id = $1 ORDER BY amount_micros",
        id.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// A tenant's wallets.
pub async fn balances(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<BalanceRow>> {
    take_all(select_balance!("WHERE a.tenant_id = $1 ORDER BY a.kind", scope.as_str()).fetch_all(conn).await?)
}

pub async fn balance(
    conn: &mut Conn,
    scope: &TenantScope,
    account: &AccountId,
) -> Result<Option<BalanceRow>> {
    let raw =
        select_balance!("WHERE a.tenant_id = $1 AND b.account_id = $2", scope.as_str(), account.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Locks a tenant's wallets until the transaction ends, in one order, so that what is read of grants and balances stays true.
pub async fn lock_wallets(conn: &mut Conn, scope: &TenantScope) -> Result<()> {
    query!(
        "UPDATE wallet_balances SET version = version
         WHERE account_id IN (SELECT id FROM accounts WHERE tenant_id = $1)",
        scope.as_str()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The ledger's own invariants, counted: everything but `transfers` and `wallets` must be zero.
pub async fn ledger_audit(conn: &mut Conn) -> Result<AuditRow> {
    let raw = query_as!(
        AuditRaw,
        r#"SELECT (SELECT COUNT(*) FROM transfers) AS "transfers!: i64",
               (SELECT COUNT(*) FROM transfers t WHERE
                    (SELECT COUNT(*) FROM entries e WHERE e.transfer_id = t.id) <> 2
                    OR (SELECT SUM(e.amount_micros) FROM entries e WHERE e.transfer_id = t.id) <> 0
               ) AS "unbalanced_transfers!: i64",
               (SELECT COUNT(*) FROM wallet_balances) AS "wallets!: i64",
               (SELECT COUNT(*) FROM wallet_balances b WHERE b.posted_micros <>
                    (SELECT COALESCE(SUM(e.amount_micros), 0) FROM entries e WHERE e.account_id = b.account_id)
                    OR b.version <> (SELECT COUNT(*) FROM entries e WHERE e.account_id = b.account_id)
                    OR b.posted_micros <> COALESCE((SELECT e.balance_after_micros FROM entries e
                        WHERE e.account_id = b.account_id AND e.seq = b.version), 0)
               ) AS "wrong_wallets!: i64",
               (SELECT COUNT(*) FROM wallet_balances b WHERE b.held_micros <>
                    (SELECT COALESCE(SUM(h.amount_micros), 0) FROM holds h
                     WHERE h.account_id = b.account_id AND h.state = 'pending')
               ) AS "wrong_holds!: i64""#
    );
    take(raw.fetch_one(conn).await?)
}
