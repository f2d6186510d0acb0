//! What one lock guards: the ledgers of a family and the queue before them.
//!
//! A ledger may be a share of another: what it holds, its parent holds too.
//! All ledgers of one family lie under one lock, so that a request on a share
//! is granted by both or by none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::error::{BudgetError, Shortage, TOP_HOLDERS};
use crate::usage::{Consumer, Holder, largest_first};
use crate::wait::Priority;

/// One ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) name: Arc<str>,
    pub(crate) limit_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
    /// Bytes of the limit that only requests of the highest priority are granted.
    pub(crate) kept_bytes: u64,
    pub(crate) parent: Option<usize>,
    pub(crate) holders: Vec<Holder>,
}

impl Ledger {
    /// Bytes that somebody at `standing` may hold together with all others.
    pub(crate) fn limit_for(&self, standing: Standing) -> u64 {
        self.limit_bytes.saturating_sub(self.kept_from(standing))
    }

    /// Bytes of the limit that are kept from somebody at `standing`.
    fn kept_from(&self, standing: Standing) -> u64 {
        match standing.is_urgent() {
            true => 0,
            false => self.kept_bytes.min(self.limit_bytes),
        }
    }

    /// More than somebody at `standing` may ever have.
    fn too_large(&self, standing: Standing, consumer: Consumer, asked_bytes: u64) -> BudgetError {
        BudgetError::TooLarge {
            ledger: Arc::clone(&self.name),
            consumer,
            asked_bytes,
            limit_bytes: self.limit_bytes,
            kept_bytes: self.kept_from(standing),
        }
    }

    /// Bytes that have to come back before somebody at `standing` can have so many.
    fn lack_for(&self, standing: Standing, bytes: u128) -> u128 {
        let wanted_bytes = u128::from(self.used_bytes) + bytes;
        wanted_bytes.saturating_sub(u128::from(self.limit_for(standing)))
    }
}

/// Place in the queue: more urgent first, then earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    urgency: Reverse<Priority>,
    arrival: u64,
}

impl Key {
    /// Behind everybody of `priority` who waits already.
    #[inline]
    pub(crate) fn newcomer(priority: Priority) -> Self {
        Self {
            urgency: Reverse(priority),
            arrival: u64::MAX,
        }
    }

    /// Before everybody but those of the highest priority.
    pub(crate) fn below_highest() -> Self {
        Self {
            urgency: Reverse(Priority(Priority::HIGHEST.0 - 1)),
            // The first to wait arrives at 1.
            arrival: 0,
        }
    }
}

/// Before whom a request comes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// It holds bytes that the waiting ones wait for, so it is before them all.
    Holder,
    /// It is where this key stands in the queue.
    At(Key),
}

impl Standing {
    /// Whether it may have bytes that are kept. Who holds bytes may: those that wait do
    /// so for what it holds.
    fn is_urgent(self) -> bool {
        match self {
            Standing::Holder => true,
            Standing::At(key) => key.urgency.0 == Priority::HIGHEST,
        }
    }
}

/// One waiting request.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) ledger: usize,
    pub(crate) waker: Option<Waker>,
}

/// Why a request was not granted at this moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lack {
    /// So many waiting requests are before it.
    Behind(usize),
    /// This ledger lacks bytes.
    Bytes(usize),
}

/// Bytes of one ledger, and more of a ledger above it. Those of the first count in
/// the second as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) ledger: usize,
    pub(crate) bytes: u64,
    /// The same ledger, or one that it is a share of.
    pub(crate) above: usize,
    pub(crate) above_bytes: u64,
}

fn clamp(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Ledgers and queue.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ledgers: Vec<Ledger>,
    pub(crate) queue: BTreeMap<Key, Waiter>,
    pub(crate) is_closed: bool,
    next_arrival: u64,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            ledgers: Vec::new(),
            queue: BTreeMap::new(),
            is_closed: false,
            next_arrival: 0,
        }
    }

    /// Adds a ledger and says under which index.
    pub(crate) fn open(&mut self, name: &str, limit_bytes: u64, parent: Option<usize>) -> usize {
        self.ledgers.push(Ledger {
            name: Arc::from(name),
            limit_bytes,
            used_bytes: 0,
            peak_bytes: 0,
            kept_bytes: 0,
            parent,
            holders: Vec::new(),
        });
        self.ledgers.len() - 1
    }

    /// `ledger`, its parent, and so on.
    pub(crate) fn chain(&self, ledger: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(ledger), |&index| self.ledgers[index].parent)
    }

    /// Whether bytes of the two ledgers can come from one place.
    fn share_a_ledger(&self, x: usize, y: usize) -> bool {
        self.chain(x).any(|index| self.chain(y).any(|i| i == index))
    }

    /// How many waiting requests are served before one at `standing`.
    pub(crate) fn count_ahead(&self, ledger: usize, standing: Standing) -> usize {
        match standing {
            Standing::Holder => 0,
            Standing::At(_) if self.queue.is_empty() => 0,
            Standing::At(key) => self
                .queue
                .range(..key)
                .filter(|(_, waiter)| self.share_a_ledger(waiter.ledger, ledger))
                .count(),
        }
    }

    /// Requests that wait for bytes of `ledger`.
    pub(crate) fn count_waiters(&self, ledger: usize) -> usize {
        self.queue
            .values()
            .filter(|waiter| self.chain(waiter.ledger).any(|index| index == ledger))
            .count()
    }

    /// Joins the queue behind everybody of the same priority, or keeps the place
    /// `key` with another waker. Returns the waker that it replaced.
    pub(crate) fn join(
        &mut self,
        ledger: usize,
        priority: Priority,
        key: Option<Key>,
        waker: Waker,
    ) -> (Key, Option<Waker>) {
        let key = key.unwrap_or_else(|| {
            self.next_arrival += 1;
            Key {
                urgency: Reverse(priority),
                arrival: self.next_arrival,
            }
        });
        let waker = Some(waker);
        let replaced = self.queue.insert(key, Waiter { ledger, waker });
        (key, replaced.and_then(|waiter| waiter.waker))
    }

    /// Refuses what can never be granted.
    pub(crate) fn check(
        &self,
        ledger: usize,
        standing: Standing,
        consumer: Consumer,
        asked_bytes: u64,
    ) -> Result<(), BudgetError> {
        self.check_open(ledger, consumer, asked_bytes)?;
        match self
            .chain(ledger)
            .map(|index| &self.ledgers[index])
            .find(|ledger| asked_bytes > ledger.limit_for(standing))
        {
            None => Ok(()),
            Some(ledger) => Err(ledger.too_large(standing, consumer, asked_bytes)),
        }
    }

    fn check_open(
        &self,
        ledger: usize,
        consumer: Consumer,
        asked_bytes: u64,
    ) -> Result<(), BudgetError> {
        if self.is_closed {
            return Err(BudgetError::Closed {
                ledger: Arc::clone(&self.ledgers[ledger].name),
                consumer,
                asked_bytes,
            });
        }
        Ok(())
    }

    /// The first ledger of the chain that lacks bytes, and how many.
    pub(crate) fn lack(
        &self,
        ledger: usize,
        standing: Standing,
        bytes: u64,
    ) -> Option<(usize, u64)> {
        self.chain(ledger).find_map(|index| {
            let missing = self.ledgers[index].lack_for(standing, u128::from(bytes));
            (bytes > 0 && missing > 0).then(|| (index, clamp(missing)))
        })
    }

    /// What a request takes of each ledger of its chain. More than 64 bits hold is
    /// more than any ledger has.
    fn amounts(&self, ask: Ask) -> impl Iterator<Item = (usize, u128)> + '_ {
        let mut bytes = u128::from(ask.bytes);
        self.chain(ask.ledger).map(move |index| {
            if index == ask.above {
                bytes += u128::from(ask.above_bytes);
            }
            (index, bytes)
        })
    }

    /// What a request takes of one ledger of its chain.
    pub(crate) fn asked_of(&self, ledger: usize, ask: Ask) -> u64 {
        let asked = self.amounts(ask).find(|(index, _)| *index == ledger);
        asked.map_or(0, |(_, bytes)| clamp(bytes))
    }

    /// As `check`, for bytes of two ledgers.
    pub(crate) fn check_both(
        &self,
        ask: Ask,
        standing: Standing,
        consumer: Consumer,
    ) -> Result<(), BudgetError> {
        let asked_bytes = ask.bytes.saturating_add(ask.above_bytes);
        self.check_open(ask.ledger, consumer, asked_bytes)?;
        let limit_bytes = |index: usize| self.ledgers[index].limit_for(standing);
        let too_large = |&(index, bytes): &(usize, u128)| bytes > u128::from(limit_bytes(index));
        match self.amounts(ask).find(too_large) {
            None => Ok(()),
            Some((index, bytes)) => {
                Err(self.ledgers[index].too_large(standing, consumer, clamp(bytes)))
            }
        }
    }

    /// As `lack`, for bytes of two ledgers.
    pub(crate) fn lack_both(&self, ask: Ask, standing: Standing) -> Option<(usize, u64)> {
        self.amounts(ask).find_map(|(index, bytes)| {
            let missing = self.ledgers[index].lack_for(standing, bytes);
            (bytes > 0 && missing > 0).then(|| (index, clamp(missing)))
        })
    }

    /// As `take`, for bytes of two ledgers: both or none.
    pub(crate) fn take_both(
        &mut self,
        ask: Ask,
        standing: Standing,
        consumer: Consumer,
    ) -> Result<(), Lack> {
        let ahead = self.count_ahead(ask.ledger, standing);
        if ahead > 0 {
            return Err(Lack::Behind(ahead));
        }
        if let Some((lacking, _)) = self.lack_both(ask, standing) {
            return Err(Lack::Bytes(lacking));
        }
        self.add(ask.ledger, consumer, ask.bytes);
        self.add(ask.above, consumer, ask.above_bytes);
        Ok(())
    }

    /// Takes the bytes, or says what is lacking. Nothing is taken then.
    pub(crate) fn take(
        &mut self,
        ledger: usize,
        standing: Standing,
        consumer: Consumer,
        bytes: u64,
    ) -> Result<(), Lack> {
        let ahead = self.count_ahead(ledger, standing);
        if ahead > 0 {
            return Err(Lack::Behind(ahead));
        }
        if let Some((lacking, _)) = self.lack(ledger, standing, bytes) {
            return Err(Lack::Bytes(lacking));
        }
        self.add(ledger, consumer, bytes);
        Ok(())
    }

    /// Counts bytes that are free.
    #[inline]
    fn add(&mut self, ledger: usize, consumer: Consumer, bytes: u64) {
        let mut next = Some(ledger);
        while let Some(index) = next {
            let state = &mut self.ledgers[index];
            state.used_bytes += bytes;
            state.peak_bytes = state.peak_bytes.max(state.used_bytes);
            match state.holders.iter_mut().find(|h| h.consumer.is(consumer)) {
                Some(holder) => holder.bytes += bytes,
                None => state.holders.push(Holder { consumer, bytes }),
            }
            next = state.parent;
        }
    }

    /// Gives back what `take` took.
    pub(crate) fn give_back(&mut self, ledger: usize, consumer: Consumer, bytes: u64) {
        let mut next = Some(ledger);
        while let Some(index) = next {
            let state = &mut self.ledgers[index];
            state.used_bytes -= bytes;
            if let Some(holder) = state.holders.iter_mut().find(|h| h.consumer.is(consumer)) {
                holder.bytes -= bytes;
            }
            next = state.parent;
        }
    }

    /// Books bytes that are held already on another consumer.
    pub(crate) fn rename(&mut self, ledger: usize, from: Consumer, to: Consumer, bytes: u64) {
        self.give_back(ledger, from, bytes);
        let taken = self.take(ledger, Standing::Holder, to, bytes);
        assert!(taken.is_ok(), "bytes just given back under this lock fit");
    }

    /// Wakers of the requests that nobody is ahead of, which are those that a
    /// change can help. Call them after the lock is released.
    pub(crate) fn take_wakers_of_first(&mut self) -> Vec<Waker> {
        if self.queue.is_empty() {
            return Vec::new();
        }
        let mut is_claimed = vec![false; self.ledgers.len()];
        let mut wakers = Vec::new();
        for waiter in self.queue.values_mut() {
            let mut is_first = true;
            let mut next = Some(waiter.ledger);
            while let Some(index) = next {
                is_first &= !is_claimed[index];
                is_claimed[index] = true;
                next = self.ledgers[index].parent;
            }
            if is_first {
                wakers.extend(waiter.waker.take());
            }
        }
        wakers
    }

    /// Wakers of everybody who waits.
    pub(crate) fn take_all_wakers(&mut self) -> Vec<Waker> {
        self.queue
            .values_mut()
            .filter_map(|waiter| waiter.waker.take())
            .collect()
    }

    /// The state of `ledger` for an error.
    pub(crate) fn shortage(
        &self,
        ledger: usize,
        consumer: Consumer,
        asked_bytes: u64,
        waiters_ahead: usize,
    ) -> Box<Shortage> {
        let ledger = &self.ledgers[ledger];
        Box::new(Shortage {
            ledger: Arc::clone(&ledger.name),
            consumer,
            asked_bytes,
            held_bytes: ledger.used_bytes,
            idle_bytes: 0,
            limit_bytes: ledger.limit_bytes,
            waiters_ahead,
            holders: largest_first(&ledger.holders, TOP_HOLDERS),
        })
    }
}
