//! A limit, what is held under it, and how more is asked for.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::task::Poll;

use crate::error::BudgetError;
use crate::reclaim::{Idle, Reclaim, Reclaimers};
use crate::reservation::Reservation;
use crate::state::{Ask, Key, Standing, State};
use crate::sync::{AtomicUsize, Mutex, Ordering, block_on, lock};
use crate::turn::{Place, Turn, behind_all};
use crate::usage::{Consumer, Usage, largest_first};
use crate::wait::{Priority, Wait};

/// One ledger: a limit in bytes and the reservations under it.
///
/// Clones are the same ledger. A [`share`](Self::share) is a ledger of its own
/// whose bytes count in this one too.
#[derive(Clone)]
pub struct Budget {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ledger: usize,
}

/// What the ledgers of one family have in common. The two locks are taken in
/// this order: `reclaiming`, then anything a reclaimer takes, then `state`.
pub(crate) struct Shared {
    /// Held by the one request that reclaims.
    pub(crate) reclaiming: Mutex<()>,
    pub(crate) reclaimers: Reclaimers,
    pub(crate) state: Mutex<State>,
    /// Requests that wait, and one more once the budget is closed. Written under
    /// the lock of `state`, and read without it where zero says all there is to
    /// know. `queue.md` says why no wake-up is lost by that.
    obstacles: AtomicUsize,
}

impl Shared {
    /// Writes down who waits, after a change of the queue and under its lock.
    pub(crate) fn note_obstacles(&self, state: &State) {
        let count = state.queue.len() + usize::from(state.is_closed);
        self.obstacles.store(count, Ordering::Release);
    }

    /// Whether nobody waits and the budget is open.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.obstacles.load(Ordering::Acquire) == 0
    }

    /// Reclaimers whose bytes count in `ledger`.
    pub(crate) fn idle_within(&self, ledger: usize) -> Idle {
        self.reclaimers.with_idle(|reclaimers_ledger| {
            let state = lock(&self.state);
            state.chain(reclaimers_ledger).any(|index| index == ledger)
        })
    }
}

impl Budget {
    /// A ledger named "memory" of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Self {
        Self::named("memory", limit_bytes)
    }

    /// A ledger of `limit_bytes`; errors and tables call it `name`.
    pub fn named(name: &str, limit_bytes: u64) -> Self {
        let mut state = State::new();
        let ledger = state.open(name, limit_bytes, None);
        Self {
            shared: Arc::new(Shared {
                reclaiming: Mutex::new(()),
                reclaimers: Reclaimers::new(),
                state: Mutex::new(state),
                obstacles: AtomicUsize::new(0),
            }),
            ledger,
        }
    }

    /// A ledger whose bytes also count in this one, such as the page-locked
    /// share of host memory. A request on it is granted by both or by none.
    pub fn share(&self, name: &str, limit_bytes: u64) -> Self {
        let ledger = lock(&self.shared.state).open(name, limit_bytes, Some(self.ledger));
        Self {
            shared: Arc::clone(&self.shared),
            ledger,
        }
    }

    /// Takes `bytes` now or refuses now. Comes after every waiting request;
    /// reclaimers are called if that makes it fit.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`], [`BudgetError::Refused`] or
    /// [`BudgetError::Closed`].
    pub fn try_reserve(&self, consumer: Consumer, bytes: u64) -> Result<Reservation, BudgetError> {
        self.take_or_reclaim(behind_all(), consumer, bytes)
    }

    /// Takes `bytes`, waiting for them on this thread. Waiting requests are
    /// served by priority, then by arrival: one that does not fit yet holds up
    /// all behind it, so that a large one is never starved by small ones.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] at once, [`BudgetError::Deadline`],
    /// [`BudgetError::Cancelled`] or [`BudgetError::Closed`].
    pub fn reserve(
        &self,
        consumer: Consumer,
        bytes: u64,
        wait: &Wait,
    ) -> Result<Reservation, BudgetError> {
        // The look of a newcomer, without what a place in the queue costs.
        if !wait.is_cancelled() {
            let turn = Turn::new(self, Standing::At(Key::newcomer(wait.priority)));
            if let Some(reservation) = turn.take_free(consumer, bytes) {
                return Ok(reservation);
            }
        }
        self.block_in_turn(consumer, bytes, wait, |turn| {
            take_in_turn(turn, consumer, bytes)
        })
    }

    /// As [`reserve`](Self::reserve), as a future of no particular runtime.
    ///
    /// It joins the queue when first polled and leaves it when dropped. It has
    /// no timer: the deadline is looked at whenever it is polled, so race it
    /// against a timer of the runtime's. Polling it may call reclaimers, which
    /// free memory.
    pub fn reserve_async(
        &self,
        consumer: Consumer,
        bytes: u64,
        wait: Wait,
    ) -> impl Future<Output = Result<Reservation, BudgetError>> + Send + use<> {
        self.in_turn(consumer, bytes, wait, move |turn: &Turn<'_>| {
            take_in_turn(turn, consumer, bytes)
        })
    }

    /// Runs `attempt` whenever it is this request's turn and something has
    /// changed, until it is ready; blocks this thread in between.
    ///
    /// `asked_bytes` is what the request needs in all and is used to refuse
    /// what could never fit, and in errors.
    ///
    /// # Errors
    /// Those of the attempt, and those of [`reserve`](Self::reserve).
    pub fn block_in_turn<T, E: From<BudgetError>>(
        &self,
        consumer: Consumer,
        asked_bytes: u64,
        wait: &Wait,
        mut attempt: impl FnMut(&Turn<'_>) -> Poll<Result<T, E>>,
    ) -> Result<T, E> {
        let mut place = Place::new(self.clone(), consumer, asked_bytes, wait.clone());
        block_on(wait.deadline, |context| place.poll(context, &mut attempt))
    }

    /// As [`block_in_turn`](Self::block_in_turn), as a future; what is said of
    /// [`reserve_async`](Self::reserve_async) holds for it too.
    pub fn in_turn<T, E, F>(
        &self,
        consumer: Consumer,
        asked_bytes: u64,
        wait: Wait,
        mut attempt: F,
    ) -> impl Future<Output = Result<T, E>> + use<T, E, F>
    where
        E: From<BudgetError>,
        F: FnMut(&Turn<'_>) -> Poll<Result<T, E>>,
    {
        let mut place = Place::new(self.clone(), consumer, asked_bytes, wait);
        std::future::poll_fn(move |context| place.poll(context, &mut attempt))
    }

    /// Keeps `bytes` of the limit for requests of [`Priority::HIGHEST`] from now on, so
    /// that one finds them free however much the others ask for. Others are granted what
    /// is left of the limit, and refused at once what is more. Who holds bytes and asks
    /// for more may have them too.
    pub fn keep_for_highest(&self, bytes: u64) {
        lock(&self.shared.state).ledgers[self.ledger].kept_bytes = bytes;
        self.wake_first();
    }

    /// Bytes that are [kept](Self::keep_for_highest).
    pub fn kept_bytes(&self) -> u64 {
        lock(&self.shared.state).ledgers[self.ledger].kept_bytes
    }

    /// Whether a request of `bytes` could ever be granted, at the highest priority.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] or [`BudgetError::Closed`].
    pub fn check(&self, consumer: Consumer, bytes: u64) -> Result<(), BudgetError> {
        lock(&self.shared.state).check(self.ledger, Standing::Holder, consumer, bytes)
    }

    /// As [`check`](Self::check), for `bytes` of this ledger and `above_bytes` of
    /// `above` together.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] or [`BudgetError::Closed`].
    ///
    /// # Panics
    /// If this ledger's bytes do not count in `above`.
    pub fn check_both(
        &self,
        consumer: Consumer,
        bytes: u64,
        above: &Self,
        above_bytes: u64,
    ) -> Result<(), BudgetError> {
        assert!(self.counts_in(above), "a ledger above this one");
        let ask = Ask {
            ledger: self.ledger,
            bytes,
            above: above.ledger,
            above_bytes,
        };
        lock(&self.shared.state).check_both(ask, Standing::Holder, consumer)
    }

    /// Runs `attempt` once, behind every waiting request.
    #[inline]
    pub fn without_waiting<T>(&self, attempt: impl FnOnce(&Turn<'_>) -> T) -> T {
        attempt(&Turn::new(self, behind_all()))
    }

    /// As [`without_waiting`](Self::without_waiting), but at the highest priority it may have
    /// bytes that are kept, and comes only after those who wait at that priority.
    pub fn without_waiting_at<T>(
        &self,
        priority: Priority,
        attempt: impl FnOnce(&Turn<'_>) -> T,
    ) -> T {
        let standing = match priority {
            Priority::HIGHEST => Standing::At(Key::newcomer(priority)),
            _ => behind_all(),
        };
        attempt(&Turn::new(self, standing))
    }

    /// Adds somebody who holds idle bytes of this ledger. A dropped one is
    /// forgotten.
    pub fn add_reclaimer(&self, reclaimer: Weak<dyn Reclaim>) {
        self.shared.reclaimers.add(self.ledger, reclaimer);
        self.idle_grew();
    }

    /// Lets waiting requests look again: a reclaimer has more idle than before,
    /// under the lock by which its [`Reclaim::idle_bytes`] sees it.
    #[inline]
    pub fn idle_grew(&self) {
        if !self.shared.is_quiet() {
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        let wakers = lock(&self.shared.state).take_wakers_of_first();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Refuses every request from now on, in all ledgers of the family, and
    /// ends every wait. Reservations stay valid and give their bytes back.
    pub fn close(&self) {
        let wakers = {
            let mut state = lock(&self.shared.state);
            state.is_closed = true;
            self.shared.note_obstacles(&state);
            state.take_all_wakers()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Bytes that may be held at most.
    pub fn limit_bytes(&self) -> u64 {
        lock(&self.shared.state).ledgers[self.ledger].limit_bytes
    }

    /// The ledger as it is now.
    pub fn usage(&self) -> Usage {
        // Reclaimers are asked before the lock is taken: they have their own.
        let idle_bytes = self.idle_bytes();
        let state = lock(&self.shared.state);
        let ledger = &state.ledgers[self.ledger];
        Usage {
            ledger: Arc::clone(&ledger.name),
            limit_bytes: ledger.limit_bytes,
            used_bytes: ledger.used_bytes,
            peak_bytes: ledger.peak_bytes,
            idle_bytes,
            holders: largest_first(&ledger.holders, usize::MAX),
            waiters: state.count_waiters(self.ledger),
        }
    }

    /// Whether the two are one ledger.
    pub fn is_same_ledger(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.ledger == other.ledger
    }

    /// Whether this ledger's bytes count in `above` too: it is the same, or this one
    /// is a share of it, or a share of a share.
    pub fn counts_in(&self, above: &Self) -> bool {
        self.is_same_ledger(above)
            || Arc::ptr_eq(&self.shared, &above.shared)
                && lock(&self.shared.state)
                    .chain(self.ledger)
                    .any(|index| index == above.ledger)
    }

    /// Its name, as errors have it.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&lock(&self.shared.state).ledgers[self.ledger].name)
    }

    pub(crate) fn idle_bytes(&self) -> u64 {
        self.shared.idle_within(self.ledger).bytes()
    }

    pub(crate) fn rename(&self, from: Consumer, to: Consumer, bytes: u64) {
        lock(&self.shared.state).rename(self.ledger, from, to, bytes);
    }

    pub(crate) fn give_back(&self, consumer: Consumer, bytes: u64) {
        let wakers = {
            let mut state = lock(&self.shared.state);
            state.give_back(self.ledger, consumer, bytes);
            if state.queue.is_empty() {
                return;
            }
            state.take_wakers_of_first()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    pub(crate) fn take_or_reclaim(
        &self,
        standing: Standing,
        consumer: Consumer,
        bytes: u64,
    ) -> Result<Reservation, BudgetError> {
        let turn = Turn::new(self, standing);
        if let Some(reservation) = turn.take_free(consumer, bytes) {
            return Ok(reservation);
        }
        match turn.take(consumer, bytes) {
            Err(error) if error.is_shortage() => turn.reclaiming(|turn| turn.take(consumer, bytes)),
            result => result,
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.shared.state);
        let ledger = &state.ledgers[self.ledger];
        f.debug_struct("Budget")
            .field("ledger", &ledger.name)
            .field("limit_bytes", &ledger.limit_bytes)
            .field("used_bytes", &ledger.used_bytes)
            .finish_non_exhaustive()
    }
}

/// The attempt of a plain reservation.
fn take_in_turn(
    turn: &Turn<'_>,
    consumer: Consumer,
    bytes: u64,
) -> Poll<Result<Reservation, BudgetError>> {
    let mut result = turn.take(consumer, bytes);
    if matches!(&result, Err(BudgetError::Refused(shortage)) if shortage.waiters_ahead == 0) {
        result = turn.reclaiming(|turn| turn.take(consumer, bytes));
    }
    match result {
        Err(error) if error.is_shortage() => Poll::Pending,
        result => Poll::Ready(result),
    }
}
