//! A ledger in memory that does what the store does: commits plans under their guards, and audits itself.

use std::collections::BTreeMap;

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::evidence::names;
use tarn_billing::funds::Funds;
use tarn_billing::grant::Grant;
use tarn_billing::money::Micros;
use tarn_billing::price::PriceBook;
use tarn_billing::segment::{CloseReason, Segment, SegmentState};
use tarn_billing::settlement::{Settlement, due_price, settle};
use tarn_billing::transfer::Transfer;
use tarn_billing::wallet::{WalletBalance, WalletEntry};
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{AccountId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::world::{at, tenant};

#[derive(Debug)]
pub struct Ledger {
    pub book: PriceBook,
    pub segments: BTreeMap<SegmentId, Segment>,
    grants: Vec<Grant>,
    pub transfers: BTreeMap<TransferId, Transfer>,
    wallets: BTreeMap<AccountId, (WalletBalance, Vec<WalletEntry>)>,
}

impl Ledger {
    pub fn new() -> Self {
        let accounts = [Account::wallet_cash(&tenant()), Account::wallet_promo(&tenant())];
        let wallets = accounts
            .iter()
            .map(|account| (account.id().clone(), (WalletBalance::empty(account).unwrap(), vec![])))
            .collect();
        Self {
            book: PriceBook::default(),
            segments: BTreeMap::new(),
            grants: vec![],
            transfers: BTreeMap::new(),
            wallets,
        }
    }

    pub fn funds(&self) -> Funds {
        Funds::new(self.grants.clone(), Micros::ZERO).unwrap()
    }

    pub fn give(&mut self, grant: Grant) {
        self.post(&grant.funding().unwrap());
        self.grants.push(grant);
    }

    pub fn insert(&mut self, segment: Segment) {
        assert!(self.segments.insert(segment.id().clone(), segment).is_none(), "a segment opens once");
    }

    /// Offers evidence to every segment it names; returns how many milliseconds were new.
    pub fn prove(&mut self, evidence: &UsageEvidence, now: Timestamp) -> u64 {
        let named = self.segments.values_mut().filter(|segment| names(evidence, segment));
        named.map(|segment| segment.apply(evidence, now).unwrap().added_ms).sum()
    }

    /// Closes the open segments that `wanted` picks.
    pub fn close(&mut self, wanted: impl Fn(&Segment) -> bool, ended_at: Timestamp, reason: CloseReason) {
        for segment in self.segments.values_mut().filter(|segment| wanted(segment)) {
            *segment = segment.clone().close(ended_at, reason).unwrap();
        }
    }

    /// One tick of the settling worker: up to each grant's expiry first, then up to `now`.
    pub fn settle(&mut self, now: Timestamp) {
        self.take_back(now);
        self.settle_up_to(now);
    }

    /// Settles up to each expiry that has passed and takes back what is left of the grant.
    pub fn take_back(&mut self, now: Timestamp) {
        let start = Timestamp::from_micros(i64::MIN);
        while let Some(expires_at) = self.funds().next_expiry(start).filter(|expires_at| *expires_at <= now) {
            self.settle_up_to(expires_at.plus_micros(-1));
            for number in 0..self.grants.len() {
                if let Some((transfer, spent)) = self.grants[number].expiry(expires_at).unwrap() {
                    self.post(&transfer);
                    self.grants[number] = spent;
                }
            }
        }
    }

    /// Splits at due prices, then settles every segment. Plans are committed twice, and a stale plan is tried again later, to show
    /// that both change nothing.
    fn settle_up_to(&mut self, now: Timestamp) {
        let ids: Vec<SegmentId> = self.segments.keys().cloned().collect();
        for id in ids {
            self.split(id, now);
        }
        let plans: Vec<Settlement> = self
            .segments
            .values()
            .map(|segment| settle(segment, &self.book, &self.funds(), now).unwrap())
            .collect();
        for stale in &plans {
            let segment = &self.segments[&stale.segment_id];
            let plan = settle(segment, &self.book, &self.funds(), now).unwrap();
            self.commit(&plan);
            assert!(!plan.changes() || !self.commit(&plan), "a plan commits once");
            assert!(!stale.changes() || !self.commit(stale), "a stale plan changes nothing");
        }
    }

    fn split(&mut self, id: SegmentId, now: Timestamp) {
        let Some(price) = due_price(&self.segments[&id], &self.book, now).cloned() else { return };
        let (before, after) = self.segments[&id].clone().split(&price).unwrap();
        self.segments.insert(id, before);
        let next = after.id().clone();
        self.insert(after);
        self.split(next, now);
    }

    /// Commits a plan under its guards; false when it is stale.
    fn commit(&mut self, plan: &Settlement) -> bool {
        let segment = &self.segments[&plan.segment_id];
        let guarded = plan.charges.iter().all(|charge| self.grants.contains(&charge.draw.before));
        if segment.settled() != plan.before || !guarded {
            return false;
        }
        let settled = segment.clone().settle_to(plan.before, plan.after).unwrap();
        self.segments.insert(plan.segment_id.clone(), settled);
        for charge in &plan.charges {
            self.post(&charge.transfer);
            let grant = self.grants.iter_mut().find(|grant| grant.id() == charge.draw.grant_id()).unwrap();
            *grant = Grant::from_stored(grant.terms().clone(), charge.draw.remaining_after).unwrap();
        }
        true
    }

    fn post(&mut self, transfer: &Transfer) {
        let known = self.transfers.insert(transfer.id().clone(), transfer.clone());
        assert_eq!(known, None, "a transfer id is used once");
        for entry in transfer.entries() {
            if let Some((balance, entries)) = self.wallets.get_mut(&entry.account_id) {
                let (next, posted) = balance.post(transfer).unwrap();
                *balance = next;
                entries.push(posted);
            }
        }
    }

    /// What the ledger earned from cards.
    pub fn revenue(&self) -> Micros {
        let revenue = Account::new(AccountKind::RevenueGpu, None).unwrap();
        let earned = self.transfers.values().filter_map(|transfer| transfer.amount_on(revenue.id()));
        Micros::checked_sum(earned).unwrap()
    }

    /// M1, M2, M5 and what a segment says against what the ledger says.
    pub fn audit(&self) {
        for transfer in self.transfers.values() {
            let sum = Micros::checked_sum(transfer.entries().map(|entry| entry.amount)).unwrap();
            assert_eq!(sum, Micros::ZERO, "M1");
        }
        for (account_id, (balance, entries)) in &self.wallets {
            let all = self.transfers.values().filter_map(|transfer| transfer.amount_on(account_id));
            assert_eq!(Ok(balance.posted()), Micros::checked_sum(all), "M2: sum of entries");
            let last = entries.last().map_or(Micros::ZERO, |entry| entry.balance_after);
            assert_eq!(balance.posted(), last, "M2: last running balance");
            assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "M2: sequence");
            let left = self.grants.iter().filter(|grant| grant.wallet().id() == account_id);
            assert_eq!(Ok(balance.posted()), Micros::checked_sum(left.map(Grant::remaining)), "M2: buckets");
        }
        for segment in self.segments.values() {
            let charged = self
                .transfers
                .values()
                .filter(|transfer| transfer.subject().segment_id.as_ref() == Some(segment.id()));
            let charged = Micros::checked_sum(charged.map(Transfer::amount));
            assert_eq!(charged, Ok(segment.settled().micros), "ledger and segment agree");
        }
        self.no_second_twice();
    }

    /// M5: per card, and per instance and SKU, the windows of segments do not overlap.
    fn no_second_twice(&self) {
        let far = at(i64::from(u32::MAX));
        for one in self.segments.values() {
            let end = one.ended_at().unwrap_or(far);
            let clash = self.segments.values().find(|other| {
                let shares = one.terms().meter == other.terms().meter
                    || (one.terms().instance_id == other.terms().instance_id
                        && one.terms().offer_id == other.terms().offer_id);
                let overlaps = one.opened_at() < other.ended_at().unwrap_or(far) && other.opened_at() < end;
                one.id() != other.id() && shares && overlaps
            });
            assert_eq!(clash, None, "M5: overlaps {one:?}");
        }
    }

    pub fn open_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().filter(|segment| segment.state() == SegmentState::Open)
    }
}
