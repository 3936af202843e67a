//! Transfers, their entries, and what they leave in the grants they name.

use std::collections::{BTreeMap, HashMap};

use tarn_protocol::ids::{AccountId, GrantId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use super::difference::{Difference, Rule, same, shown};
use crate::account::{Account, AccountKind};
use crate::grant::GrantTerms;
use crate::money::Micros;
use crate::transfer::{Subject, Transfer, TransferKind};

/// A grant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFact {
    pub terms: GrantTerms,
    pub remaining: Micros,
}

/// A transfer and what the entries of its two accounts say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferFact {
    pub id: TransferId,
    pub kind: TransferKind,
    pub debit: AccountId,
    pub credit: AccountId,
    pub amount: Micros,
    pub tenant_id: Option<TenantId>,
    pub segment_id: Option<SegmentId>,
    pub grant_id: Option<GrantId>,
    pub reverses: Option<TransferId>,
    pub at: Timestamp,
    /// How many entries name this transfer.
    pub entries: u64,
    pub debit_entry: Option<EntryFact>,
    pub credit_entry: Option<EntryFact>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryFact {
    pub amount: Micros,
    pub seq: Option<i64>,
    pub balance_after: Option<Micros>,
}

/// What a transfer does to the grant it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Gives it its whole amount, once.
    Fills,
    /// Takes from it.
    Draws,
    /// Puts back what was drawn.
    Returns,
}

impl Effect {
    /// Exhaustive, so that a new kind says what it does before it compiles.
    pub const fn of(kind: TransferKind) -> Self {
        match kind {
            TransferKind::TrialCredit
            | TransferKind::PromoCredit
            | TransferKind::TopUp
            | TransferKind::SlaCredit => Self::Fills,
            TransferKind::Usage
            | TransferKind::GrantExpiry
            | TransferKind::Payout
            | TransferKind::DebtPayment => Self::Draws,
            TransferKind::Reversal => Self::Returns,
        }
    }
}

#[derive(Debug)]
struct Bucket {
    fact: GrantFact,
    filled: i128,
    /// Signed: what draws and returns left of it beyond `filled`.
    moved: i128,
}

/// A window of tenants: all of their grants, then all of their transfers, those of one tenant together; then
/// [`Movements::end_of_tenants`]. Transfers of no tenant come in a window of their own.
#[derive(Debug, Default)]
pub struct Movements {
    system: Vec<Account>,
    tenant: Option<TenantId>,
    accounts: Vec<Account>,
    buckets: HashMap<GrantId, Bucket>,
    pub(super) grants: u64,
    pub(super) transfers: u64,
    pub(super) entries: u64,
    /// What was charged for segments.
    pub(super) used: i128,
    pub(super) totals: BTreeMap<AccountKind, i128>,
}

impl Movements {
    pub fn grant(&mut self, fact: GrantFact) {
        self.grants += 1;
        self.buckets.insert(fact.terms.id.clone(), Bucket { fact, filled: 0, moved: 0 });
    }

    pub fn transfer(&mut self, fact: &TransferFact) -> Result<(), Difference> {
        let (debit, credit) = (self.account(fact, &fact.debit)?, self.account(fact, &fact.credit)?);
        let kinds = (debit.kind(), credit.kind());
        allowed(fact, debit, credit)?;
        side(fact, kinds.0, fact.debit_entry, -i128::from(fact.amount.get()), "the debit's entry")?;
        side(fact, kinds.1, fact.credit_entry, i128::from(fact.amount.get()), "the credit's entry")?;
        same(Rule::EntriesBalance, || row(fact), "entries", 2, fact.entries)?;
        let amount = i128::from(fact.amount.get());
        *self.totals.entry(kinds.0).or_default() -= amount;
        *self.totals.entry(kinds.1).or_default() += amount;
        self.transfers += 1;
        self.entries += fact.entries;
        if fact.kind == TransferKind::Usage {
            same(Rule::Charge, || row(fact), "names a segment", true, fact.segment_id.is_some())?;
            self.used += amount;
        }
        if kinds.0.wallet() {
            self.touch(fact, kinds.0, -amount)?;
        }
        if kinds.1.wallet() {
            self.touch(fact, kinds.1, amount)?;
        }
        Ok(())
    }

    /// Every grant of the window holds what was put into it less what was taken.
    pub fn end_of_tenants(&mut self) -> Result<(), Difference> {
        let mut buckets: Vec<Bucket> = std::mem::take(&mut self.buckets).into_values().collect();
        buckets.sort_by(|one, other| one.fact.terms.id.cmp(&other.fact.terms.id));
        for Bucket { fact, filled, moved } in buckets {
            let row = || format!("grant {}", fact.terms.id);
            let granted = i128::from(fact.terms.amount.get());
            same(Rule::Grant, row, "micros that its funding moved", granted, filled)?;
            let remaining = i128::from(fact.remaining.get());
            same(Rule::Grant, row, "micros that its transfers leave", filled + moved, remaining)?;
            if remaining < 0 {
                return Err(Difference::new(Rule::Grant, row(), "micros left", "0 or more", remaining));
            }
        }
        Ok(())
    }

    /// The account of this id: Tarn's own, or one of the transfer's tenant.
    fn account(&mut self, fact: &TransferFact, id: &AccountId) -> Result<Account, Difference> {
        if self.system.is_empty() {
            self.system = Account::all_of_system();
        }
        if self.tenant != fact.tenant_id {
            self.accounts = fact.tenant_id.as_ref().map(Account::all_of).unwrap_or_default();
            self.tenant.clone_from(&fact.tenant_id);
        }
        let known = self.accounts.iter().chain(&self.system).find(|account| account.id() == id).cloned();
        known.ok_or_else(|| {
            let wanted = format!("an account of Tarn or of {}", shown(fact.tenant_id.as_ref()));
            Difference::new(Rule::Transfer, row(fact), "account", wanted, id)
        })
    }

    /// Money of a wallet is money of one of its tenant's grants.
    fn touch(&mut self, fact: &TransferFact, wallet: AccountKind, change: i128) -> Result<(), Difference> {
        let bucket = fact.grant_id.as_ref().and_then(|id| self.buckets.get_mut(id));
        let Some(bucket) = bucket else {
            let found = shown(fact.grant_id.as_ref());
            return Err(Difference::new(Rule::Grant, row(fact), "grant", "one of its tenant", found));
        };
        let terms = &bucket.fact.terms;
        same(Rule::Grant, || row(fact), "wallet of its grant", terms.kind.wallet(), wallet)?;
        let effect = Effect::of(fact.kind);
        match effect {
            Effect::Fills => bucket.filled += change,
            Effect::Draws | Effect::Returns => bucket.moved += change,
        }
        let outward = change < 0;
        same(Rule::Grant, || row(fact), "takes from its grant", effect == Effect::Draws, outward)
    }
}

fn row(fact: &TransferFact) -> String {
    format!("transfer {}", fact.id)
}

/// The rules of [`Transfer::new`], and the tenant that both accounts belong to.
fn allowed(fact: &TransferFact, debit: Account, credit: Account) -> Result<(), Difference> {
    let subject = Subject {
        grant_id: fact.grant_id.clone(),
        segment_id: fact.segment_id.clone(),
        reverses: fact.reverses.clone(),
    };
    let owned = debit.kind().of_tenant() || credit.kind().of_tenant();
    same(Rule::Transfer, || row(fact), "names a tenant", owned, fact.tenant_id.is_some())?;
    Transfer::new(fact.id.clone(), fact.kind, (debit, credit), fact.amount, subject, fact.at)
        .map(drop)
        .map_err(|broken| Difference::new(Rule::Transfer, row(fact), "rules", "a valid transfer", broken))
}

fn side(
    fact: &TransferFact,
    kind: AccountKind,
    entry: Option<EntryFact>,
    amount: i128,
    what: &'static str,
) -> Result<(), Difference> {
    let Some(entry) = entry else {
        return Err(Difference::new(Rule::EntriesBalance, row(fact), what, amount, "nothing"));
    };
    same(Rule::EntriesBalance, || row(fact), what, amount, i128::from(entry.amount.get()))?;
    let kept = (entry.seq.is_some(), entry.balance_after.is_some());
    if kept == (kind.wallet(), kind.wallet()) {
        return Ok(());
    }
    let wanted = if kind.wallet() { "sequence and running balance" } else { "neither" };
    let found =
        format!("sequence {}, balance {}", shown(entry.seq.as_ref()), shown(entry.balance_after.as_ref()));
    Err(Difference::new(Rule::RunningBalance, row(fact), what, wanted, found))
}
