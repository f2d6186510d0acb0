//! Whose turn it is, and what a request may do in it.
//!
//! `queue.md` beside this file tells the whole protocol.

use std::task::{Context, Poll};
use std::time::Instant;

use crate::budget::Budget;
use crate::error::BudgetError;
use crate::reservation::Reservation;
use crate::state::{Ask, Key, Lack, Standing, State};
use crate::sync::lock;
use crate::usage::Consumer;
use crate::wait::{Priority, Wait};

/// The right to take bytes now, if they are free and nobody is ahead.
///
/// Requests that need more than a number of bytes (a pool that also looks at
/// its idle buffers) are written as an attempt over a `Turn`; see
/// [`Budget::in_turn`].
#[derive(Debug)]
pub struct Turn<'a> {
    budget: &'a Budget,
    standing: Standing,
}

impl<'a> Turn<'a> {
    #[inline]
    pub(crate) fn new(budget: &'a Budget, standing: Standing) -> Self {
        Self { budget, standing }
    }

    /// Takes the bytes if they are free as things are. Calls no reclaimer, so
    /// it may be called under the caller's own locks.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`].
    #[inline]
    pub fn take(&self, consumer: Consumer, bytes: u64) -> Result<Reservation, BudgetError> {
        if bytes == 0 && self.budget.shared.is_quiet() {
            return Ok(Reservation::of_counted(self.budget.clone(), consumer, 0));
        }
        self.take_counted(consumer, bytes)
    }

    /// Takes `bytes` of this ledger and `above_bytes` of `above`, both or none.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`].
    ///
    /// # Panics
    /// If the ledger's bytes do not count in `above`; see [`Budget::counts_in`].
    pub fn take_both(
        &self,
        consumer: Consumer,
        bytes: u64,
        above: &Budget,
        above_bytes: u64,
    ) -> Result<(Reservation, Reservation), BudgetError> {
        let ask = self.ask(bytes, above, above_bytes);
        let mut state = lock(&self.budget.shared.state);
        state.check_both(ask, self.standing, consumer)?;
        let (lacking, ahead) = match state.take_both(ask, self.standing, consumer) {
            Ok(()) => {
                let of = |budget: &Budget, bytes| {
                    Reservation::of_counted(budget.clone(), consumer, bytes)
                };
                return Ok((of(self.budget, bytes), of(above, above_bytes)));
            }
            Err(Lack::Behind(ahead)) => (ask.ledger, ahead),
            Err(Lack::Bytes(ledger)) => (ledger, 0),
        };
        // What was asked of the ledger that lacks it.
        let asked_bytes = state.asked_of(lacking, ask);
        Err(BudgetError::Refused(state.shortage(
            lacking,
            consumer,
            asked_bytes,
            ahead,
        )))
    }

    fn ask(&self, bytes: u64, above: &Budget, above_bytes: u64) -> Ask {
        assert!(self.budget.counts_in(above), "a ledger above this one");
        Ask {
            ledger: self.budget.ledger,
            bytes,
            above: above.ledger,
            above_bytes,
        }
    }

    fn take_counted(&self, consumer: Consumer, bytes: u64) -> Result<Reservation, BudgetError> {
        let mut state = lock(&self.budget.shared.state);
        state.check(self.budget.ledger, self.standing, consumer, bytes)?;
        match state.take(self.budget.ledger, self.standing, consumer, bytes) {
            Ok(()) => Ok(Reservation::of_counted(
                self.budget.clone(),
                consumer,
                bytes,
            )),
            Err(Lack::Behind(ahead)) => Err(BudgetError::Refused(state.shortage(
                self.budget.ledger,
                consumer,
                bytes,
                ahead,
            ))),
            Err(Lack::Bytes(ledger)) => Err(BudgetError::Refused(
                state.shortage(ledger, consumer, bytes, 0),
            )),
        }
    }

    /// Takes the bytes if they are free, without saying why where they are not.
    #[inline]
    pub(crate) fn take_free(&self, consumer: Consumer, bytes: u64) -> Option<Reservation> {
        let mut state = lock(&self.budget.shared.state);
        let is_open = !state.is_closed;
        let is_taken = is_open
            && state
                .take(self.budget.ledger, self.standing, consumer, bytes)
                .is_ok();
        drop(state);
        is_taken.then(|| Reservation::of_counted(self.budget.clone(), consumer, bytes))
    }

    /// Runs `attempt` while no other request of the family reclaims, so that
    /// what it sees idle is not taken from under it by another reclaiming
    /// request. No lock of the caller's that a reclaimer takes may be held.
    pub fn reclaiming<T>(&self, attempt: impl FnOnce(&ReclaimingTurn<'_>) -> T) -> T {
        let _one_at_a_time = lock(&self.budget.shared.reclaiming);
        attempt(&ReclaimingTurn { turn: self })
    }
}

/// A [`Turn`] in which reclaimers are called where bytes are lacking.
#[derive(Debug)]
pub struct ReclaimingTurn<'a> {
    turn: &'a Turn<'a>,
}

impl ReclaimingTurn<'_> {
    /// Takes the bytes, after having reclaimers give back what is lacking if
    /// what they have idle is enough.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`].
    pub fn take(&self, consumer: Consumer, bytes: u64) -> Result<Reservation, BudgetError> {
        let (ledger, standing) = (self.turn.budget.ledger, self.turn.standing);
        self.take_with(
            || self.turn.take(consumer, bytes),
            |state| state.lack(ledger, standing, bytes),
        )
    }

    /// As [`take`](Self::take), of two ledgers as [`Turn::take_both`] has it.
    ///
    /// # Errors
    /// As [`Budget::try_reserve`].
    ///
    /// # Panics
    /// As [`Turn::take_both`].
    pub fn take_both(
        &self,
        consumer: Consumer,
        bytes: u64,
        above: &Budget,
        above_bytes: u64,
    ) -> Result<(Reservation, Reservation), BudgetError> {
        let ask = self.turn.ask(bytes, above, above_bytes);
        let standing = self.turn.standing;
        self.take_with(
            || self.turn.take_both(consumer, bytes, above, above_bytes),
            |state| state.lack_both(ask, standing),
        )
    }

    /// Calls `take` until it is granted, or what is idle is not enough.
    fn take_with<T>(
        &self,
        take: impl Fn() -> Result<T, BudgetError>,
        lack: impl Fn(&State) -> Option<(usize, u64)>,
    ) -> Result<T, BudgetError> {
        let shared = &self.turn.budget.shared;
        loop {
            let mut shortage = match take() {
                Err(BudgetError::Refused(shortage)) if shortage.waiters_ahead == 0 => shortage,
                result => return result,
            };
            // Which ledger lacks bytes is looked up again, since the error
            // names it for people only.
            let lack = lack(&lock(&shared.state));
            let Some((lacking, missing_bytes)) = lack else {
                continue;
            };
            let idle = shared.idle_within(lacking);
            shortage.idle_bytes = idle.bytes();
            if shortage.idle_bytes < missing_bytes || idle.reclaim(missing_bytes) == 0 {
                return Err(BudgetError::Refused(shortage));
            }
        }
    }
}

/// A request's place in the queue; leaving it is dropping it.
pub(crate) struct Place {
    budget: Budget,
    consumer: Consumer,
    asked_bytes: u64,
    wait: Wait,
    key: Option<Key>,
    listener: Option<u64>,
}

impl Place {
    /// Not in the queue yet: the first poll joins it, if it has to wait.
    pub(crate) fn new(budget: Budget, consumer: Consumer, asked_bytes: u64, wait: Wait) -> Self {
        Self {
            budget,
            consumer,
            asked_bytes,
            wait,
            key: None,
            listener: None,
        }
    }

    /// Runs `attempt` if it is this request's turn. The waker is stored before
    /// the look at the queue and at the bytes, so a change after that look
    /// wakes it.
    pub(crate) fn poll<T, E: From<BudgetError>>(
        &mut self,
        context: &mut Context<'_>,
        attempt: &mut impl FnMut(&Turn<'_>) -> Poll<Result<T, E>>,
    ) -> Poll<Result<T, E>> {
        if let Some(token) = &self.wait.cancel
            && token.listen(&mut self.listener, context.waker())
        {
            self.leave();
            return Poll::Ready(Err(BudgetError::Cancelled {
                consumer: self.consumer,
                asked_bytes: self.asked_bytes,
            }
            .into()));
        }
        let newcomer = Standing::At(Key::newcomer(self.wait.priority));
        if self.key.is_none() {
            let checked = lock(&self.budget.shared.state).check(
                self.budget.ledger,
                newcomer,
                self.consumer,
                self.asked_bytes,
            );
            checked.map_err(E::from)?;
            if let Poll::Ready(result) = attempt(&Turn::new(&self.budget, newcomer)) {
                return Poll::Ready(result);
            }
        }
        let (key, ahead) = self.stand_in_line(context).map_err(E::from)?;
        if ahead == 0
            && let Poll::Ready(result) = attempt(&Turn::new(&self.budget, Standing::At(key)))
        {
            self.leave();
            return Poll::Ready(result);
        }
        if self.wait.deadline.is_some_and(|at| Instant::now() >= at) {
            let mut shortage = lock(&self.budget.shared.state).shortage(
                self.budget.ledger,
                self.consumer,
                self.asked_bytes,
                ahead,
            );
            shortage.idle_bytes = self.budget.idle_bytes();
            self.leave();
            return Poll::Ready(Err(BudgetError::Deadline(shortage).into()));
        }
        Poll::Pending
    }

    /// Stores the waker in the queue and counts who is ahead.
    ///
    /// Wakers are cloned and dropped outside the lock: they run code of the
    /// executor, which may drop another waiting request.
    fn stand_in_line(&mut self, context: &Context<'_>) -> Result<(Key, usize), BudgetError> {
        let ledger = self.budget.ledger;
        let waker = context.waker().clone();
        let (standing, _replaced) = {
            let mut state = lock(&self.budget.shared.state);
            let newcomer = Standing::At(Key::newcomer(self.wait.priority));
            match state.check(ledger, newcomer, self.consumer, self.asked_bytes) {
                Err(error) => (Err(error), None),
                Ok(()) => {
                    let priority = self.wait.priority;
                    let (key, replaced) = state.join(ledger, priority, self.key, waker);
                    self.budget.shared.note_obstacles(&state);
                    let ahead = state.count_ahead(ledger, Standing::At(key));
                    (Ok((key, ahead)), replaced)
                }
            }
        };
        match standing {
            Ok((key, _)) => self.key = Some(key),
            Err(_) => self.leave(),
        }
        standing
    }

    /// Leaves the queue and lets those behind look again.
    fn leave(&mut self) {
        if let Some(listener) = self.listener.take()
            && let Some(token) = &self.wait.cancel
        {
            token.forget(listener);
        }
        if let Some(key) = self.key.take() {
            let (_left, wakers) = {
                let mut state = lock(&self.budget.shared.state);
                let left = state.queue.remove(&key);
                self.budget.shared.note_obstacles(&state);
                (left, state.take_wakers_of_first())
            };
            for waker in wakers {
                waker.wake();
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Standing of a request that does not wait: behind everybody who does.
#[inline]
pub(crate) fn behind_all() -> Standing {
    Standing::At(Key::newcomer(Priority::LOWEST))
}
