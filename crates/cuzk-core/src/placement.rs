//! Where the columns of a part lie, how they get from there to a device, and what
//! happens where page-locked memory is refused.

use std::num::NonZero;
use std::sync::Arc;

use cuzk_budget::{Budget, BudgetError, Consumer, Priority, Wait};
use cuzk_gpu::{Columns, KeyMemory, Upload};
use cuzk_pinned::{
    AcquireError, AcquireRequest, Acquired, Backing, BackingError, HeapBacking, MappedBacking,
    PageLocker, Pages, PinnedBacking, PinnedPool, PoolOptions, StagingOptions, StagingRing,
};

use crate::config::{HugePages, Placement, PlacementRefused, Tuning};
use crate::error::ProveError;

/// Name of the ledger of page-locked bytes.
const PAGE_LOCKED: &str = "page-locked memory";

/// The pools that columns come from, one for each kind of memory, under one budget.
///
/// ```
/// use std::num::NonZero;
/// use cuzk_budget::Budget;
/// use cuzk_core::ColumnMemory;
/// use cuzk_pinned::{PageLocker, PretendBacking, PretendLock, StagingOptions};
///
/// // With a driver: `cuda::CudaBacking` and `cuda::DriverLock`.
/// let backing = PretendBacking { chunk_bytes: None };
/// let locker = PageLocker::new(PretendLock::default(), 32 << 30);
/// let mut memory =
///     ColumnMemory::heap(Budget::new(1 << 30)).with_page_locked(1 << 29, backing, locker);
/// let ring = memory.staging_ring(StagingOptions::with_threads(NonZero::<usize>::MIN))?;
/// assert_eq!(memory.page_locked_bytes(), ring.held_bytes());
/// # Ok::<(), String>(())
/// ```
pub struct ColumnMemory {
    heap: PinnedPool,
    /// Where ordinary memory comes from.
    ordinary: Arc<dyn Backing>,
    page_locked: Result<PageLocked, String>,
    /// Bytes that are held until the end, so that no wait brings them: the chunks of a
    /// staging ring.
    fixed_bytes: u64,
}

/// Pools whose bytes count in the page-locked share of the budget.
struct PageLocked {
    share: Budget,
    /// Page-locked buffers.
    direct: PinnedPool,
    /// Ordinary buffers, locked for one use at a time.
    register: PinnedPool,
    locker: Arc<PageLocker>,
}

impl ColumnMemory {
    /// Ordinary memory alone.
    pub fn heap(budget: Budget) -> Self {
        Self::ordinary(budget, Arc::new(HeapBacking))
    }

    /// Ordinary memory alone, on the pages that a configuration asks for; `threads` touch
    /// what is mapped.
    pub fn on_pages(budget: Budget, huge: HugePages, threads: NonZero<usize>) -> Self {
        let pages = match huge {
            HugePages::Auto => return Self::heap(budget),
            HugePages::Always => Pages::Huge,
            HugePages::Never => Pages::Ordinary,
        };
        Self::ordinary(budget, Arc::new(MappedBacking { pages, threads }))
    }

    fn ordinary(budget: Budget, ordinary: Arc<dyn Backing>) -> Self {
        Self {
            heap: PinnedPool::new(budget, Arc::clone(&ordinary), PoolOptions::STANDARD),
            ordinary,
            page_locked: Err("the engine was started without any".to_owned()),
            fixed_bytes: 0,
        }
    }

    /// Says why there is no page-locked memory, for errors and log lines.
    pub fn without_page_locked(self, reason: impl Into<String>) -> Self {
        Self {
            page_locked: Err(reason.into()),
            ..self
        }
    }

    /// Why there is no page-locked memory, in words.
    pub fn page_locked_problem(&self) -> Option<&str> {
        self.page_locked.as_ref().err().map(String::as_str)
    }

    /// Page-locked memory too: at most `limit_bytes` of the budget, from `backing`, or
    /// ordinary memory that `locker` locks for one use. None of it is allocated yet.
    pub fn with_page_locked(
        self,
        limit_bytes: u64,
        backing: impl Backing + 'static,
        locker: PageLocker,
    ) -> Self {
        let budget = self.budget().clone();
        let share = budget.share(PAGE_LOCKED, limit_bytes);
        let register = PinnedPool::with_bytes_in(
            share.clone(),
            budget.clone(),
            Arc::clone(&self.ordinary),
            PoolOptions::STANDARD,
        );
        let direct =
            PinnedPool::with_bytes_in(share.clone(), budget, backing, PoolOptions::STANDARD);
        Self {
            page_locked: Ok(PageLocked {
                share,
                direct,
                register,
                locker: Arc::new(locker),
            }),
            ..self
        }
    }

    /// Takes page-locked chunks for a backend that stages. They are the backend's
    /// until it ends, and no part waits for them.
    ///
    /// # Errors
    /// Why there are none, in words.
    pub fn staging_ring(&mut self, options: StagingOptions) -> Result<StagingRing, String> {
        let page_locked = self.page_locked.as_ref().map_err(String::clone)?;
        let ring = StagingRing::new(&page_locked.direct, options);
        let ring = ring.map_err(|error| error.to_string())?;
        self.fixed_bytes += ring.held_bytes();
        Ok(ring)
    }

    /// Takes two page-locked buffers of `len` bytes through which keys go to a device.
    /// They are the backend's until it ends, and no part waits for them.
    ///
    /// # Errors
    /// Why there are none, in words.
    pub fn key_buffers(&mut self, len: usize) -> Result<[PinnedBacking; 2], String> {
        let page_locked = self.page_locked.as_ref().map_err(String::clone)?;
        let request = AcquireRequest {
            buffers: &[len; 2],
            bytes: 0,
            consumer: Consumer("key buffers"),
            wait: Wait::with_priority(Priority::NORMAL),
        };
        let acquired = page_locked.direct.try_acquire(&request);
        let acquired = acquired.map_err(|error| error.to_string())?;
        let mut buffers = acquired.buffers.into_iter();
        let buffers = [0; 2].map(|_| buffers.next().expect("as many as asked"));
        self.fixed_bytes += buffers
            .iter()
            .map(|buffer| buffer.capacity() as u64)
            .sum::<u64>();
        Ok(buffers)
    }

    /// Page-locked memory for keys that have no room on a device: `bytes_max` of it, which
    /// no part waits for. It is taken when a key wants it, and given back when another
    /// makes it go.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn key_memory(&mut self, bytes_max: u64) -> Result<KeyMemory, String> {
        let page_locked = self.page_locked.as_ref().map_err(String::clone)?;
        let limit = page_locked.share.limit_bytes();
        let room = limit.saturating_sub(self.fixed_bytes);
        if bytes_max > room {
            return Err(format!(
                "asked {bytes_max} bytes for keys, {room} of {limit} are left"
            ));
        }
        let pool = page_locked.direct.clone();
        let take = move |lens: &[usize]| {
            let request = AcquireRequest {
                buffers: lens,
                bytes: 0,
                consumer: Consumer("host keys"),
                wait: Wait::with_priority(Priority::NORMAL),
            };
            let acquired = pool.try_acquire(&request);
            let refused = |error: &AcquireError| {
                tracing::warn!(%error, "a key stays in its file");
            };
            let acquired = acquired.inspect_err(refused).ok()?;
            Some(acquired.buffers.into_iter().collect())
        };
        self.fixed_bytes += bytes_max;
        Ok(KeyMemory {
            bytes_max,
            take: Arc::new(take),
        })
    }

    /// The chunks that a configuration asks for: none unless columns are to be staged.
    /// To be called before the backend that stages is made. Where they are refused and
    /// the policy is to fall back there are none, and every part that goes without is
    /// told as such.
    ///
    /// # Errors
    /// [`ProveError::Placement`] where they are refused and the policy is another.
    pub fn staging_ring_for(
        &mut self,
        tuning: &Tuning,
        options: StagingOptions,
    ) -> Result<Option<StagingRing>, ProveError> {
        let placement = tuning.placement;
        if placement != Placement::Staged {
            return Ok(None);
        }
        match (self.staging_ring(options), tuning.placement_refused) {
            (Ok(ring), _) => Ok(Some(ring)),
            (Err(reason), PlacementRefused::FallBack) => {
                tracing::warn!(reason, "no page-locked chunks to stage through");
                Ok(None)
            }
            (Err(reason), _) => Err(ProveError::Placement { placement, reason }),
        }
    }

    /// The ledger that counts everything.
    pub fn budget(&self) -> &Budget {
        self.heap.budget()
    }

    /// The pool of ordinary memory.
    pub fn heap_pool(&self) -> &PinnedPool {
        &self.heap
    }

    /// The pool of page-locked memory, if there is any.
    pub fn page_locked_pool(&self) -> Option<&PinnedPool> {
        let page_locked = self.page_locked.as_ref().ok()?;
        Some(&page_locked.direct)
    }

    /// Bytes that are page-locked now.
    pub fn page_locked_bytes(&self) -> u64 {
        self.page_locked.as_ref().map_or(0, |page_locked| {
            let stats = page_locked.direct.stats();
            let of_pool = stats.idle_bytes + stats.fenced_bytes + stats.in_use_bytes;
            of_pool + page_locked.locker.locked_bytes()
        })
    }

    /// Bytes that may be page-locked at most.
    pub fn page_locked_limit_bytes(&self) -> u64 {
        let page_locked = self.page_locked.as_ref();
        page_locked.map_or(0, |page_locked| page_locked.share.limit_bytes())
    }

    /// Bytes that no wait brings.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes
    }

    /// Sets them back to what they were before buffers were taken that nobody has now.
    pub(crate) fn set_fixed_bytes(&mut self, bytes: u64) {
        self.fixed_bytes = bytes;
    }

    fn pool(&self, way: Way) -> &PinnedPool {
        match (way, &self.page_locked) {
            (Way::Direct, Ok(page_locked)) => &page_locked.direct,
            (Way::Register, Ok(page_locked)) => &page_locked.register,
            _ => &self.heap,
        }
    }

    /// Whether page-locked memory is what was refused: not where the whole budget is
    /// full, or others are ahead in its queue.
    fn is_refused(&self, error: &AcquireError) -> bool {
        match error {
            AcquireError::Budget(BudgetError::Refused(shortage)) => {
                *shortage.ledger == *PAGE_LOCKED && shortage.waiters_ahead == 0
            }
            AcquireError::Budget(BudgetError::TooLarge { ledger, .. }) => **ledger == *PAGE_LOCKED,
            AcquireError::Budget(_) => false,
            _ => true,
        }
    }
}

/// How columns are placed, without the choice that is left to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Heap,
    Register,
    Staged,
    Direct,
}

/// How the columns of a proof came to be where its backend read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// `heap`: read from ordinary memory. `register`: from ordinary memory that was
    /// page-locked for this proof. `staged`: through page-locked chunks. `direct`: from
    /// page-locked memory that they were written into.
    pub name: &'static str,
    /// Whether every column lay in page-locked memory when it was read.
    pub is_pinned: bool,
}

/// Why columns were not placed.
#[derive(Debug)]
pub(crate) enum PlacementError {
    /// There is not enough memory of any kind.
    Memory(AcquireError),
    /// Page-locked memory was refused, and the policy is to fail.
    PageLocked(AcquireError),
}

/// The placement that an engine was started with.
#[derive(Debug)]
pub(crate) struct Placing {
    way: Way,
    policy: PlacementRefused,
    upload: Upload,
    /// Why every part has ordinary memory although another kind was asked for.
    refused: Option<String>,
}

impl Placing {
    /// Decides how columns are placed for a backend that uploads in this way.
    ///
    /// # Errors
    /// [`ProveError::Placement`] if what is asked for is not there, and the policy is
    /// not to fall back.
    pub(crate) fn new(
        tuning: &Tuning,
        upload: Upload,
        memory: &ColumnMemory,
    ) -> Result<Self, ProveError> {
        let asked = match (tuning.placement, upload) {
            (Placement::Auto, Upload::None) | (Placement::Heap, _) => Way::Heap,
            (Placement::Auto, _) | (Placement::Direct, _) => Way::Direct,
            (Placement::Register, _) => Way::Register,
            (Placement::Staged, _) => Way::Staged,
        };
        let lacking = match (asked, &memory.page_locked) {
            (Way::Direct | Way::Register, Err(reason)) => Some(reason.clone()),
            (Way::Staged, _) if upload != Upload::Staged => Some(match &memory.page_locked {
                Err(reason) => reason.clone(),
                Ok(_) => "the backend has no chunks to stage through".to_owned(),
            }),
            _ => None,
        };
        let policy = tuning.placement_refused;
        let placement = tuning.placement;
        let way = match (&lacking, policy) {
            (None, _) => asked,
            (Some(reason), PlacementRefused::FallBack) => {
                tracing::warn!(%placement, reason, "no page-locked memory: columns lie on the heap");
                Way::Heap
            }
            (Some(reason), _) => {
                let reason = reason.clone();
                return Err(ProveError::Placement { placement, reason });
            }
        };
        Ok(Self {
            way,
            policy,
            upload,
            refused: lacking,
        })
    }

    /// Whether a request could ever be granted, and its bytes: columns of `lens` bytes
    /// where they are placed, `bytes` of ordinary memory beside them. What is held
    /// until the end is no wait's to bring, nor below the highest priority what is kept.
    ///
    /// # Errors
    /// [`BudgetError::TooLarge`] or [`BudgetError::Closed`].
    pub(crate) fn check(
        &self,
        memory: &ColumnMemory,
        consumer: Consumer,
        lens: &[usize],
        bytes: u64,
        priority: Priority,
    ) -> Result<u64, BudgetError> {
        let pool = match self.policy {
            PlacementRefused::FallBack => &memory.heap,
            PlacementRefused::Wait | PlacementRefused::Fail => memory.pool(self.way),
        };
        // What overflows is more than any budget has, and refused as such.
        let column_bytes = lens
            .iter()
            .try_fold(0_u64, |sum, &len| {
                sum.checked_add(pool.capacity_of(len)? as u64)
            })
            .unwrap_or(u64::MAX);
        let total_bytes = column_bytes.saturating_add(bytes);
        let (share, budget) = (pool.budget(), memory.budget());
        share.check_both(consumer, column_bytes, budget, bytes)?;
        // Of the share, less may be kept once the urgent circuits are known.
        let kept_bytes = match priority {
            Priority::HIGHEST => 0,
            _ => budget.kept_bytes(),
        };
        // The backend's buffers count in the page-locked share, and so in the budget.
        let asked = [(share, column_bytes, 0), (budget, total_bytes, kept_bytes)];
        for (ledger, asked_bytes, kept_bytes) in asked {
            let limit_bytes = ledger.limit_bytes().saturating_sub(memory.fixed_bytes);
            if asked_bytes > limit_bytes.saturating_sub(kept_bytes) {
                return Err(BudgetError::TooLarge {
                    ledger: ledger.name(),
                    consumer,
                    asked_bytes,
                    limit_bytes,
                    kept_bytes,
                });
            }
        }
        Ok(total_bytes)
    }

    /// The pool that columns come from unless they are refused.
    pub(crate) fn pool<'a>(&self, memory: &'a ColumnMemory) -> &'a PinnedPool {
        memory.pool(self.way)
    }

    /// Columns and bytes for a part, at once or after a wait, and the way that they
    /// go.
    pub(crate) fn acquire(
        &self,
        memory: &ColumnMemory,
        request: &AcquireRequest<'_>,
        waits: Waits,
    ) -> Result<Granted, PlacementError> {
        let ask = |pool: &PinnedPool| match waits {
            Waits::No => pool.try_acquire(request),
            Waits::Yes => pool.acquire(request),
        };
        let granted = |acquired, way, refused| Granted {
            acquired,
            way,
            refused,
        };
        let pool = memory.pool(self.way);
        let is_page_locked = matches!(self.way, Way::Direct | Way::Register);
        if !is_page_locked || self.policy == PlacementRefused::Wait {
            let acquired = ask(pool).map_err(PlacementError::Memory)?;
            return Ok(granted(acquired, self.way, self.refused.clone()));
        }
        match pool.try_acquire(request) {
            Ok(acquired) => Ok(granted(acquired, self.way, None)),
            Err(error) if memory.is_refused(&error) => match self.policy {
                PlacementRefused::FallBack => {
                    let acquired = ask(&memory.heap).map_err(PlacementError::Memory)?;
                    Ok(granted(acquired, Way::Heap, Some(error.to_string())))
                }
                _ => Err(PlacementError::PageLocked(error)),
            },
            // The whole budget is what is full: waiting for it is no fault of the
            // placement.
            Err(AcquireError::Budget(error)) if error.is_shortage() && waits == Waits::Yes => {
                let acquired = pool.acquire(request).map_err(PlacementError::Memory)?;
                Ok(granted(acquired, self.way, None))
            }
            Err(error) => Err(PlacementError::Memory(error)),
        }
    }

    /// Page-locks the columns where that is their way. Says why not if it was refused
    /// and the policy is to go on: none is locked then.
    ///
    /// # Errors
    /// What the lock says, where the policy is not to fall back.
    pub(crate) fn lock(
        &self,
        memory: &ColumnMemory,
        way: Way,
        columns: &mut Columns,
    ) -> Result<Option<String>, BackingError> {
        let (Way::Register, Ok(page_locked)) = (way, &memory.page_locked) else {
            return Ok(None);
        };
        let locked = each(columns).try_for_each(|column| column.lock_pages(&page_locked.locker));
        match locked {
            Ok(()) => Ok(None),
            Err(error) if self.policy == PlacementRefused::FallBack => {
                each(columns).for_each(cuzk_gpu::Column::unlock_pages);
                Ok(Some(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// How columns are placed, told from where they lie.
    pub(crate) fn placed(&self, way: Way, columns: &mut Columns) -> Placed {
        let is_pinned = each(columns).all(|column| column.buffer().is_page_locked());
        let name = match (is_pinned, way, self.upload) {
            (true, Way::Register, _) => "register",
            (true, _, _) => "direct",
            (false, _, Upload::Staged) => "staged",
            (false, _, _) => "heap",
        };
        Placed { name, is_pinned }
    }
}

/// Whether a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Yes,
    No,
}

/// Columns and bytes, and how they came to be those.
pub(crate) struct Granted {
    pub(crate) acquired: Acquired,
    pub(crate) way: Way,
    /// Why they are not what was asked for, if they are not.
    pub(crate) refused: Option<String>,
}

fn each(columns: &mut Columns) -> impl Iterator<Item = &mut cuzk_gpu::Column> {
    let Columns { a, b, c, aux } = columns;
    [a, b].into_iter().chain(c).chain([aux])
}
