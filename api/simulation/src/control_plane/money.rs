//! The ledger's tables of one tenant, with the guards that their statements carry.

use std::collections::BTreeMap;

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::funds::{Draw, Funds};
use tarn_billing::grant::{Grant, GrantKind, GrantTerms};
use tarn_billing::hold::{Hold, HoldTerms};
use tarn_billing::money::Micros;
use tarn_billing::transfer::{Transfer, TransferKind};
use tarn_billing::wallet::{WalletBalance, WalletEntry};
use tarn_protocol::ids::{GrantId, HoldId, InstanceId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use super::ControlPlane;

/// Trial credit of every tenant, in micros: ten yuan.
const TRIAL: i64 = 10_000_000;
const HOLD_SECONDS: i64 = 24 * 3600;

#[derive(Debug)]
pub struct Ledger {
    pub tenant_id: TenantId,
    pub grants: Vec<Grant>,
    pub transfers: BTreeMap<TransferId, Transfer>,
    pub wallets: BTreeMap<AccountKind, (WalletBalance, Vec<WalletEntry>)>,
    /// Holds with the account that keeps the money.
    pub holds: Vec<(AccountKind, Hold)>,
}

/// The wallet does not cover a transfer and what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insufficient;

impl Ledger {
    pub fn new(tenant: usize, at: Timestamp) -> Self {
        let number = u128::try_from(tenant).expect("few tenants");
        let tenant_id = TenantId::new(at, number);
        let wallets = [Account::wallet_cash(&tenant_id), Account::wallet_promo(&tenant_id)];
        let wallets = wallets
            .iter()
            .map(|account| (account.kind(), (WalletBalance::empty(account).expect("a wallet"), Vec::new())));
        Self {
            tenant_id: tenant_id.clone(),
            grants: Vec::new(),
            transfers: BTreeMap::new(),
            wallets: wallets.collect(),
            holds: Vec::new(),
        }
    }

    /// What the store reads for a plan. An expired hold holds until the sweep resolves it.
    pub fn funds(&self) -> Funds {
        let held = self.holds.iter().map(|(_, hold)| pending(hold));
        let held = Micros::checked_sum(held).expect("holds fit");
        Funds::new(self.grants.clone(), held).expect("grants fit")
    }

    fn held_on(&self, account: AccountKind) -> i64 {
        self.holds.iter().filter(|(kind, _)| *kind == account).map(|(_, hold)| pending(hold).get()).sum()
    }

    /// One transfer with its entries. Nothing changes when a wallet does not cover it.
    pub fn post(&mut self, transfer: &Transfer) -> Result<(), Insufficient> {
        assert!(!self.transfers.contains_key(transfer.id()), "a transfer is posted twice: {transfer:?}");
        let mut moved = Vec::new();
        for kind in [transfer.debit().kind(), transfer.credit().kind()] {
            let held = self.held_on(kind);
            let Some((balance, _)) = self.wallets.get(&kind) else { continue };
            let (next, entry) = balance.post(transfer).map_err(|_| Insufficient)?;
            if next.posted().get() < held {
                return Err(Insufficient);
            }
            moved.push((kind, next, entry));
        }
        for (kind, next, entry) in moved {
            let wallet = self.wallets.get_mut(&kind).expect("just read");
            wallet.0 = next;
            wallet.1.push(entry);
        }
        self.transfers.insert(transfer.id().clone(), transfer.clone());
        Ok(())
    }

    /// Draws a grant, if it is still as the plan read it.
    pub fn draw(&mut self, draw: &Draw) {
        let grant =
            self.grants.iter_mut().find(|grant| grant.id() == draw.grant_id()).expect("a grant drawn on");
        assert_eq!(*grant, draw.before, "a plan is carried out in order");
        *grant =
            Grant::from_stored(grant.terms().clone(), draw.remaining_after).expect("drawn within its amount");
    }

    pub fn drain(&mut self, id: &GrantId) {
        let grant = self.grants.iter_mut().find(|grant| grant.id() == id).expect("a grant that expires");
        *grant = Grant::from_stored(grant.terms().clone(), Micros::ZERO).expect("nothing is left");
    }

    pub fn fund(&mut self, grant: Grant) {
        let funding = grant.funding().expect("a grant has a source");
        self.post(&funding).expect("money comes in");
        self.grants.push(grant);
    }

    pub fn hold(&mut self, id: HoldId, instance: &InstanceId, part: (AccountKind, Micros), now: Timestamp) {
        let (account, amount) = part;
        let posted = self.wallets[&account].0.posted().get();
        assert!(posted - self.held_on(account) >= amount.get(), "M3: a hold that the wallet does not cover");
        let terms = HoldTerms {
            id,
            tenant_id: self.tenant_id.clone(),
            instance_id: instance.clone(),
            amount,
            expires_at: now.plus_seconds(HOLD_SECONDS),
        };
        self.holds.push((account, Hold::new(terms).expect("a hold of something")));
    }

    /// A start that is over, one way or the other, needs no money kept back.
    pub fn void_holds(&mut self, instance: &InstanceId, now: Timestamp) -> bool {
        let mut voided = false;
        for (_, hold) in &mut self.holds {
            if hold.terms().instance_id == *instance && pending(hold) > Micros::ZERO {
                *hold = hold.clone().void(now).expect("it is pending");
                voided = true;
            }
        }
        voided
    }

    pub fn expire_holds(&mut self, now: Timestamp) -> bool {
        let due = self
            .holds
            .iter_mut()
            .filter(|(_, hold)| pending(hold) > Micros::ZERO && hold.terms().expires_at <= now);
        let expired = due.map(|(_, hold)| *hold = hold.clone().expire(now).expect("it is due"));
        expired.count() > 0
    }

    pub fn earned(&self) -> i64 {
        let usage = self.transfers.values().filter(|transfer| transfer.kind() == TransferKind::Usage);
        usage.map(|transfer| transfer.amount().get()).sum()
    }
}

fn pending(hold: &Hold) -> Micros {
    hold.holding(Timestamp::from_micros(i64::MIN))
}

impl ControlPlane {
    /// What a tenant begins with.
    pub(super) fn welcome(&mut self, tenant: usize, now: Timestamp) {
        self.give(tenant, GrantKind::Trial, TRIAL, None, now);
        if self.setup.cash > 0 {
            self.give(tenant, GrantKind::Cash, self.setup.cash, None, now);
        }
    }

    /// Cash or credit comes in, after everything that is due has drawn on what was there before.
    pub fn credit(&mut self, tenant: usize, kind: GrantKind, amount: i64, lasts_ms: Option<i64>) {
        let now = self.now();
        self.settle(tenant, now);
        self.give(tenant, kind, amount, lasts_ms, now);
        self.rearm.insert(tenant);
        self.rearm_changed(now);
    }

    fn give(&mut self, tenant: usize, kind: GrantKind, amount: i64, lasts_ms: Option<i64>, now: Timestamp) {
        let terms = GrantTerms {
            id: GrantId::new(now, self.bits()),
            tenant_id: self.ledgers[tenant].tenant_id.clone(),
            kind,
            priority: if kind == GrantKind::Promo { 10 } else { 0 },
            amount: Micros::new(amount),
            granted_at: now,
            expires_at: lasts_ms.map(|ms| now.plus_micros(ms * 1000)),
        };
        self.ledgers[tenant].fund(Grant::new(terms).expect("a grant of the script"));
    }
}
