//! A tenant's statement: the opening balance, every movement of a period, the closing balance.
//!
//! It is the ledger itself, read by instant: an entry belongs to the period in which it was posted. So the closing balance of one
//! period is the opening balance of the next, and the sum of all periods is the account. A movement is a transfer with its entries on
//! the tenant's accounts; one that moves money between two of them shows both.
//!
//! An entry carries the instant at which its transaction began, so one that is still being written may yet land a moment before now:
//! [`FINAL_SECONDS`] after its end a period is final.

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{GrantId, InstanceId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::reports::{LedgerPlace, StatementEntryRow};
use tarn_store::{StoreError, Tx};

use super::Period;

/// No transaction lives this long.
pub const FINAL_SECONDS: i64 = 120;

#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    #[error("the {0} account of a statement does not add up")]
    DoesNotAddUp(AccountKind),
    #[error(transparent)]
    Amount(#[from] OutOfRange),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A balance at both ends of a period and what moved between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balances {
    pub opening: Micros,
    /// What came in.
    pub credited: Micros,
    /// What went out, above zero.
    pub debited: Micros,
    pub closing: Micros,
}

impl Balances {
    fn plus(self, other: Self) -> Result<Self, OutOfRange> {
        Ok(Self {
            opening: self.opening.checked_add(other.opening)?,
            credited: self.credited.checked_add(other.credited)?,
            debited: self.debited.checked_add(other.debited)?,
            closing: self.closing.checked_add(other.closing)?,
        })
    }

    fn adds_up(self) -> Result<bool, OutOfRange> {
        Ok(self.opening.checked_add(self.credited)?.checked_sub(self.debited)? == self.closing)
    }
}

/// The frame of a statement: everything but its movements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub accounts: Vec<(AccountKind, Balances)>,
    pub total: Balances,
}

/// One transfer, from the side of the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    pub transfer_id: TransferId,
    pub kind: TransferKind,
    pub at: Timestamp,
    /// On the tenant's accounts; negative is out.
    pub entries: Vec<(AccountKind, Micros)>,
    /// The sum of its entries.
    pub amount: Micros,
    /// Of all the tenant's accounts together, right after it.
    pub balance: Micros,
    pub segment_id: Option<SegmentId>,
    pub instance_id: Option<InstanceId>,
    pub grant_id: Option<GrantId>,
    pub reverses: Option<TransferId>,
    pub memo: String,
}

impl Movement {
    /// Where the next page begins.
    pub fn place(&self) -> LedgerPlace {
        LedgerPlace { at: self.at, transfer_id: self.transfer_id.to_string() }
    }
}

pub async fn frame(tx: &mut Tx, scope: &TenantScope, period: Period) -> Result<Frame, StatementError> {
    let (mut accounts, mut total) = (Vec::new(), Balances::default());
    for account in Account::all_of(scope.tenant_id()) {
        let opening = tx.balance_at(scope, account.id(), &LedgerPlace::before(period.from)).await?;
        let turnover = tx.turnover(scope, account.id(), period.from, period.to).await?;
        let closing = tx.balance_at(scope, account.id(), &LedgerPlace::before(period.to)).await?;
        let balances =
            Balances { opening, credited: turnover.in_micros, debited: turnover.out_micros, closing };
        if !balances.adds_up()? {
            return Err(StatementError::DoesNotAddUp(account.kind()));
        }
        total = total.plus(balances)?;
        accounts.push((account.kind(), balances));
    }
    Ok(Frame { accounts, total })
}

/// Up to `limit` movements before `until` that come after `place`, oldest first.
pub async fn movements(
    tx: &mut Tx,
    scope: &TenantScope,
    (place, until): (&LedgerPlace, Timestamp),
    limit: u32,
) -> Result<Vec<Movement>, StatementError> {
    let (mut entries, mut balance) = (Vec::new(), Micros::ZERO);
    for account in Account::all_of(scope.tenant_id()) {
        balance = balance.checked_add(tx.balance_at(scope, account.id(), place).await?)?;
        // A transfer among the first `limit` has at most `limit - 1` before it on any one account.
        entries.extend(tx.statement_entries(scope, account.id(), place, until, limit).await?);
    }
    entries.sort_by(|one, other| {
        (one.created_at, &one.transfer_id).cmp(&(other.created_at, &other.transfer_id))
    });
    let mut movements: Vec<Movement> = Vec::new();
    for entry in entries {
        let amount = entry.amount_micros;
        let full = movements.len() == limit as usize;
        match movements.last_mut() {
            Some(last) if last.transfer_id == entry.transfer_id => {
                last.entries.push((entry.account_kind, amount));
                last.amount = last.amount.checked_add(amount)?;
            }
            _ if full => break,
            _ => movements.push(movement(entry)),
        }
    }
    for movement in &mut movements {
        balance = balance.checked_add(movement.amount)?;
        movement.balance = balance;
    }
    Ok(movements)
}

fn movement(entry: StatementEntryRow) -> Movement {
    Movement {
        transfer_id: entry.transfer_id,
        kind: entry.transfer_kind,
        at: entry.created_at,
        entries: vec![(entry.account_kind, entry.amount_micros)],
        amount: entry.amount_micros,
        balance: Micros::ZERO,
        segment_id: entry.segment_id,
        instance_id: entry.instance_id,
        grant_id: entry.grant_id,
        reverses: entry.reverses,
        memo: entry.memo,
    }
}
