//! The pool: idle buffers first, the remainder from the budget, all or nothing.
//!
//! `hand-back.md` beside this file tells the protocol between requests,
//! hand-backs and reclaiming.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use cuzk_budget::{Budget, BudgetError, Consumer, Priority, Reclaim, ReclaimingTurn, Turn, Wait};

use crate::backing::{Backing, HeapBacking};
use crate::block::{Block, Source};
use crate::buffer::PinnedBacking;
use crate::buffers::Buffers;
use crate::error::AcquireError;
use crate::fence::Fence;
use crate::idle::{Fenced, Idle};
use crate::request::{AcquireRequest, Acquired, Order};
use crate::selection::{Claim, Grant};
use crate::stats::PoolStats;
use crate::sync::{Mutex, lock};

/// Choices of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// An idle buffer may be larger than asked by at most so many hundredths.
    /// Where the exact size would fit and the larger does not, the larger is
    /// given up.
    pub waste_percent: u8,
    /// On whom warmed buffers are booked until they are first used.
    pub consumer: Consumer,
}

impl PoolOptions {
    /// At most 12 % waste, booked on "pinned pool". Parts of one shape ask for
    /// the same sizes again and again, so exact reuse is the rule; the limit
    /// lets shapes that differ by a few rows share buffers.
    pub const STANDARD: Self = Self {
        waste_percent: 12,
        consumer: Consumer("pinned pool"),
    };
}

/// A pool of large buffers under a [`Budget`]. Clones are the same pool.
///
/// Each buffer carries its own reservation for life, in use or idle. Dropping
/// the last clone frees the idle ones; those in use free themselves later.
#[derive(Clone)]
pub struct PinnedPool {
    owner: Arc<Owner>,
}

/// What the clones of one pool have in common, and buffers have not: when the
/// last goes, the idle memory does.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Freed after the lock is released.
        let _idle = lock(&self.shared.idle).close();
    }
}

/// What clones and buffers of one pool have in common.
///
/// Locks are taken in this order: the budget's turn to reclaim, `idle`, the
/// budget's ledgers. No memory is allocated, freed or waited for under `idle`.
pub(crate) struct Shared {
    budget: Budget,
    /// Counts what is asked beside buffers: `budget`, or a ledger above it.
    beside: Budget,
    options: PoolOptions,
    source: Arc<Source>,
    pub(crate) idle: Mutex<Idle>,
    refusals: AtomicU64,
}

impl PinnedPool {
    /// A pool whose memory comes from `backing` and is counted by `budget`,
    /// whose requests may have its idle buffers freed.
    pub fn new(budget: Budget, backing: impl Backing + 'static, options: PoolOptions) -> Self {
        Self::with_bytes_in(budget.clone(), budget, backing, options)
    }

    /// As [`new`](Self::new), but the bytes that a request asks beside its buffers
    /// are counted by `beside`, of which `budget` is a share: a pool of page-locked
    /// buffers for parts that also need ordinary memory. One request still has both
    /// or none.
    ///
    /// # Panics
    /// If the bytes of `budget` do not count in `beside`.
    pub fn with_bytes_in(
        budget: Budget,
        beside: Budget,
        backing: impl Backing + 'static,
        options: PoolOptions,
    ) -> Self {
        assert!(budget.counts_in(&beside), "a ledger above the pool's");
        let shared = Arc::new(Shared {
            budget,
            beside,
            options,
            source: Arc::new(Source::new(backing)),
            idle: Mutex::new(Idle::default()),
            refusals: AtomicU64::new(0),
        });
        let reclaimer: std::sync::Weak<dyn Reclaim> = Arc::downgrade(&shared) as _;
        shared.budget.add_reclaimer(reclaimer);
        Self {
            owner: Arc::new(Owner { shared }),
        }
    }

    /// A pool of ordinary memory, with [`PoolOptions::STANDARD`].
    pub fn heap(budget: Budget) -> Self {
        Self::new(budget, HeapBacking, PoolOptions::STANDARD)
    }

    /// The ledger that counts the bytes asked beside buffers.
    pub fn budget_beside(&self) -> &Budget {
        &self.owner.shared.beside
    }

    /// The ledger that counts its memory.
    pub fn budget(&self) -> &Budget {
        &self.owner.shared.budget
    }

    /// Whether its memory is page-locked.
    pub fn is_page_locked(&self) -> bool {
        self.owner.shared.source.backing().is_page_locked()
    }

    /// Bytes that a new buffer of `len` bytes takes; `None` if none can be so large.
    pub fn capacity_of(&self, len: usize) -> Option<usize> {
        match len {
            0 => Some(0),
            _ => self.owner.shared.source.backing().rounded(len),
        }
    }

    /// Gives all that is asked now, or refuses now. Comes after every request
    /// that waits; at the highest priority, after those that wait at it too.
    ///
    /// # Errors
    /// [`AcquireError::Budget`] if it does not fit, [`AcquireError::Backing`] if
    /// memory could not be had, [`AcquireError::Overflow`].
    pub fn try_acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, AcquireError> {
        if let Some(acquired) = self.owner.shared.reuse(request) {
            return Ok(acquired);
        }
        self.owner.shared.counted(|shared| {
            let order = Order::new(request, shared.source.backing())?;
            let grant = shared.take_now(&order, request.wait.priority)?;
            shared.finish_counted(grant, &order)
        })
    }

    /// Gives all that is asked, waiting for it on this thread in the budget's
    /// queue, by priority and then by arrival.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and those of the wait:
    /// deadline, cancellation, a closed budget.
    pub fn acquire(&self, request: &AcquireRequest<'_>) -> Result<Acquired, AcquireError> {
        if !request.wait.is_cancelled()
            && let Some(acquired) = self.owner.shared.reuse(request)
        {
            return Ok(acquired);
        }
        self.owner.shared.counted(|shared| {
            let order = Order::new(request, shared.source.backing())?;
            let grant = shared.budget.block_in_turn(
                order.consumer,
                shared.asked_bytes(&order),
                &request.wait,
                |turn| shared.poll_take(&order, turn),
            )?;
            shared.finish_counted(grant, &order)
        })
    }

    /// As [`acquire`](Self::acquire), as a future of no particular runtime.
    /// [`Budget::reserve_async`] says how it waits. Allocation and zeroing of
    /// new buffers happen in its last poll.
    ///
    /// # Errors
    /// The future's output is that of [`acquire`](Self::acquire).
    pub fn acquire_async(
        &self,
        request: &AcquireRequest<'_>,
    ) -> impl Future<Output = Result<Acquired, AcquireError>> + Send + use<> {
        // The future is a clone of the pool: what it waits for is not freed.
        let pool = self.clone();
        let order = Order::new(request, self.owner.shared.source.backing());
        let wait = request.wait.clone();
        async move {
            let shared = &pool.owner.shared;
            let result = match order {
                Err(error) => Err(error),
                Ok(order) => shared.wait_for(order, wait).await,
            };
            shared.counted(|_| result)
        }
    }

    /// Sees to it that so many buffers of so many bytes are idle: `(len, count)`
    /// each. Takes those that are idle already into account, and leaves every
    /// new one zeroed.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), for all of them as one request;
    /// buffers that were idle stay so.
    pub fn warm(&self, plan: &[(usize, usize)]) -> Result<(), AcquireError> {
        let buffers: Vec<usize> = plan
            .iter()
            .flat_map(|&(len, count)| std::iter::repeat_n(len, count))
            .collect();
        let request = AcquireRequest {
            buffers: &buffers,
            bytes: 0,
            consumer: self.owner.shared.options.consumer,
            wait: Wait::with_priority(Priority::LOWEST),
        };
        self.owner.shared.counted(|shared| {
            let order = Order::new(&request, shared.source.backing())?;
            let (acquired, _) =
                shared.finish(shared.take_now(&order, Priority::LOWEST)?, &order)?;
            drop(acquired);
            Ok(())
        })
    }

    /// Frees idle buffers, the largest first, until `bytes` are freed or none
    /// is left. Returns the bytes freed.
    pub fn trim(&self, bytes: u64) -> u64 {
        self.owner.shared.free_idle(bytes)
    }

    /// Counts since the pool was made, and bytes now.
    pub fn stats(&self) -> PoolStats {
        let shared = &self.owner.shared;
        let (idle_count, idle_bytes, fenced_bytes, reuses) = {
            let mut idle = lock(&shared.idle);
            idle.sweep();
            let (count, bytes) = (idle.count(), idle.bytes());
            (count, bytes, idle.fenced_bytes(), idle.reuses)
        };
        let held_bytes = shared.source.held_bytes();
        PoolStats {
            allocations: shared.source.allocations(),
            frees: shared.source.frees(),
            reuses,
            refusals: shared.refusals.load(Ordering::Relaxed),
            idle_count,
            idle_bytes,
            fenced_bytes,
            in_use_bytes: held_bytes.saturating_sub(idle_bytes + fenced_bytes),
            peak_bytes: shared.source.peak_bytes(),
        }
    }
}

impl Shared {
    /// Runs a request and counts it if it is refused.
    fn counted<T>(
        self: &Arc<Self>,
        request: impl FnOnce(&Arc<Self>) -> Result<T, AcquireError>,
    ) -> Result<T, AcquireError> {
        request(self).inspect_err(|_| {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The usual case by itself: nobody waits, and for every buffer one of its
    /// very size is idle. For as many buffers as a part has it allocates nothing.
    /// `None` if the case is another; nothing has changed then.
    // Inlined, the grant is written where it is returned and not moved there.
    #[inline(always)]
    fn reuse(self: &Arc<Self>, request: &AcquireRequest<'_>) -> Option<Acquired> {
        let AcquireRequest {
            consumer, bytes, ..
        } = *request;
        let mut buffers = Buffers::default();
        let mut idle = lock(&self.idle);
        idle.sweep();
        let is_served = self.take_idle(&mut idle, request.buffers, &mut buffers);
        // As in `take`, the lock is held until the bytes are granted too.
        if is_served
            && let Ok(reservation) = self
                .beside
                .without_waiting(|turn| turn.take(consumer, bytes))
        {
            idle.reuses += buffers.len() as u64;
            drop(idle);
            for buffer in &mut buffers {
                buffer.reassign(consumer);
            }
            return Some(Acquired {
                buffers,
                reservation,
            });
        }
        // The last taken first: then each stands where it stood.
        while let Some(buffer) = buffers.pop() {
            idle.put_unclaimed(buffer.into_block());
        }
        None
    }

    /// Takes an idle block of its very size for each buffer. Whether there was one for
    /// all; those taken are in `buffers` either way.
    #[inline]
    fn take_idle(self: &Arc<Self>, idle: &mut Idle, lens: &[usize], buffers: &mut Buffers) -> bool {
        let backing = self.source.backing();
        for &len in lens {
            let Some(capacity) = backing.rounded(len).filter(|_| len > 0) else {
                return false;
            };
            let Some(block) = idle.take_exact(capacity) else {
                return false;
            };
            buffers.push(PinnedBacking::new(block, len, Arc::clone(self)));
        }
        true
    }

    async fn wait_for(
        self: &Arc<Self>,
        order: Order,
        wait: Wait,
    ) -> Result<Acquired, AcquireError> {
        let grant = self
            .budget
            .in_turn(
                order.consumer,
                self.asked_bytes(&order),
                wait,
                |turn: &Turn<'_>| self.poll_take(&order, turn),
            )
            .await?;
        self.finish_counted(grant, &order)
    }

    fn take_now(
        self: &Arc<Self>,
        order: &Order,
        priority: Priority,
    ) -> Result<Grant, AcquireError> {
        self.budget
            .without_waiting_at(priority, |turn| self.take(order, turn))
    }

    /// One attempt of a request that waits.
    fn poll_take(
        self: &Arc<Self>,
        order: &Order,
        turn: &Turn<'_>,
    ) -> Poll<Result<Grant, AcquireError>> {
        match self.take(order, turn) {
            Err(AcquireError::Budget(error)) if error.is_shortage() => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    /// Sets idle blocks aside and reserves the remainder; with reclaiming if it
    /// does not fit otherwise.
    fn take(self: &Arc<Self>, order: &Order, turn: &Turn<'_>) -> Result<Grant, AcquireError> {
        {
            let mut idle = lock(&self.idle);
            idle.sweep();
            let mut selection = idle.select(order, self.options.waste_percent);
            let unserved_bytes = selection.unserved_bytes();
            // Nobody sees the idle ones without these: the lock is held until
            // they are granted or back.
            match turn.take_both(order.consumer, unserved_bytes, &self.beside, order.bytes) {
                Ok(reservations) => {
                    return Ok(Grant {
                        pool: Arc::clone(self),
                        selection,
                        reservations: Some(reservations),
                    });
                }
                Err(error) => {
                    selection.take_all().for_each(|block| idle.put(block));
                    // The remainder was not too large; the whole may be.
                    self.budget.check_both(
                        order.consumer,
                        order.buffer_bytes,
                        &self.beside,
                        order.bytes,
                    )?;
                    match &error {
                        BudgetError::Refused(shortage) if shortage.waiters_ahead == 0 => {}
                        _ => return Err(error.into()),
                    }
                }
            }
        }
        turn.reclaiming(|turn| self.take_reclaiming(order, turn))
    }

    /// As `take`, in the one turn to reclaim. What this request can use is set
    /// aside, out of sight of the reclaimers, and so is what comes back
    /// meanwhile.
    fn take_reclaiming(
        self: &Arc<Self>,
        order: &Order,
        turn: &ReclaimingTurn<'_>,
    ) -> Result<Grant, AcquireError> {
        let claim = Claim::new(self, order, self.options.waste_percent);
        loop {
            let unserved_bytes = claim.unserved_bytes();
            match turn.take_both(order.consumer, unserved_bytes, &self.beside, order.bytes) {
                Ok((mut reservation, beside)) => {
                    let selection = claim.into_selection();
                    // A buffer that came back meanwhile brings its own bytes.
                    let surplus_bytes = unserved_bytes - selection.unserved_bytes();
                    let given_back = reservation.shrink(surplus_bytes);
                    given_back.expect("the bytes were reserved just now");
                    return Ok(Grant {
                        pool: Arc::clone(self),
                        selection,
                        reservations: Some((reservation, beside)),
                    });
                }
                Err(BudgetError::Refused(shortage))
                    if shortage.waiters_ahead == 0
                        && (claim.unserved_bytes() < unserved_bytes
                            || claim.give_up_waste(shortage.missing_bytes())) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn finish_counted(
        self: &Arc<Self>,
        grant: Grant,
        order: &Order,
    ) -> Result<Acquired, AcquireError> {
        let (acquired, reuses) = self.finish(grant, order)?;
        lock(&self.idle).reuses += reuses;
        Ok(acquired)
    }

    /// Allocates what the grant has no block for. Says how many it had.
    fn finish(
        self: &Arc<Self>,
        mut grant: Grant,
        order: &Order,
    ) -> Result<(Acquired, u64), AcquireError> {
        let (mut reservation, beside) = grant.reservations.take().expect("taken here only");
        let mut fresh = Vec::new();
        let unserved: Vec<(usize, usize)> = grant.selection.unserved().collect();
        for (index, capacity) in unserved {
            let counted = reservation
                .split(capacity as u64)
                .expect("the remainder holds every buffer without a block");
            match Block::allocate(&self.source, capacity, counted) {
                Ok(block) => fresh.push(block),
                Err(source) => {
                    // All that was taken is given back before the next in line
                    // is told of it.
                    drop((fresh, reservation, beside, grant));
                    self.budget.idle_grew();
                    return Err(AcquireError::Backing { index, source });
                }
            }
        }
        let mut fresh = fresh.into_iter();
        let mut reuses = 0;
        let mut buffers = Buffers::default();
        for (index, buffer) in order.buffers.iter().enumerate() {
            let block = match grant.selection.take(index) {
                Some(mut block) => {
                    block.reassign(order.consumer);
                    reuses += 1;
                    block
                }
                None if buffer.capacity == 0 => Block::of_nothing(&self.source),
                None => fresh.next().expect("allocated for each without a block"),
            };
            buffers.push(PinnedBacking::new(block, buffer.len, Arc::clone(self)));
        }
        let acquired = Acquired {
            buffers,
            reservation: beside,
        };
        Ok((acquired, reuses))
    }

    /// What a request asks of the pool's own ledger.
    fn asked_bytes(&self, order: &Order) -> u64 {
        if self.budget.is_same_ledger(&self.beside) {
            order.buffer_bytes + order.bytes
        } else {
            order.buffer_bytes
        }
    }

    /// Takes a block that nothing touches any more.
    #[inline]
    pub(crate) fn hand_back(&self, block: Block) {
        if block.capacity() > 0 {
            let mut idle = lock(&self.idle);
            if idle.is_closed() {
                // The block is freed after the lock is released.
                drop(idle);
                return drop(block);
            }
            idle.put(block);
            drop(idle);
            self.budget.idle_grew();
        }
    }

    /// Takes a block that may be touched after `fence`.
    pub(crate) fn hand_back_after(&self, block: Block, fence: Box<dyn Fence>) {
        if block.capacity() > 0 {
            let fenced = Fenced::new(block, fence);
            let mut idle = lock(&self.idle);
            if idle.is_closed() {
                // Waits for the fence, after the lock is released.
                drop(idle);
                return drop(fenced);
            }
            idle.put_fenced(fenced);
            drop(idle);
            self.budget.idle_grew();
        }
    }

    /// Frees idle blocks, the largest first.
    fn free_idle(&self, wanted_bytes: u64) -> u64 {
        let mut freed_bytes = 0;
        lock(&self.idle).sweep();
        while freed_bytes < wanted_bytes {
            // The lock is released before the block is freed.
            let Some(block) = lock(&self.idle).take_largest() else {
                break;
            };
            freed_bytes += block.capacity() as u64;
            drop(block);
        }
        freed_bytes
    }
}

impl Reclaim for Shared {
    fn idle_bytes(&self) -> u64 {
        let idle = lock(&self.idle);
        idle.bytes() + idle.fenced_bytes()
    }

    fn reclaim(&self, wanted_bytes: u64) -> u64 {
        let mut freed_bytes = self.free_idle(wanted_bytes);
        while freed_bytes < wanted_bytes {
            let Some(fenced) = lock(&self.idle).take_fenced() else {
                break;
            };
            let block = fenced.wait();
            let unclaimed = lock(&self.idle).offer(block);
            if let Some(block) = unclaimed {
                freed_bytes += block.capacity() as u64;
                drop(block);
            }
        }
        freed_bytes
    }
}

impl fmt::Debug for PinnedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPool")
            .field("backing", self.owner.shared.source.backing())
            .field("options", &self.owner.shared.options)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
