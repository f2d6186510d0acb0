//! Each counted byte is counted exactly once, whatever happens.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use cuzk_budget::{CancelToken, Priority, Reservation, Wait};
use proptest::prelude::*;

use super::fences::Event;
use super::{Bench, COLUMNS, OTHERS, is_refused};
use crate::{AcquireError, AcquireRequest, Acquired, PinnedBacking};

const LIMIT_BYTES: u64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Acquire(Vec<usize>, u64),
    Wait(Vec<usize>, u64, u8),
    Poll(usize),
    Cancel(usize),
    DropWait(usize),
    Split(usize, u64),
    HandBack(usize),
    HandBackAfter(usize),
    PassFence(usize),
    DropJob(usize),
    Panic(usize),
    Trim(u64),
    Reserve(u64),
    GiveBack(usize),
    Warm(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Three buffers of half the limit do not fit, one always does; sizes close
    // to each other exercise reuse with waste (12 % of 40 is 4).
    let lens = prop::collection::vec(prop_oneof![0..6_usize, 28..42_usize], 0..4);
    let pick = any::<usize>();
    let step = prop_oneof![
        6 => (lens.clone(), 0..20_u64).prop_map(|(lens, bytes)| Step::Acquire(lens, bytes)),
        3 => (lens, 0..20_u64, 0..3_u8).prop_map(|(l, b, p)| Step::Wait(l, b, p)),
        4 => pick.prop_map(Step::Poll),
        1 => pick.prop_map(Step::Cancel),
        1 => pick.prop_map(Step::DropWait),
        1 => (pick, 0..20_u64).prop_map(|(job, bytes)| Step::Split(job, bytes)),
        3 => pick.prop_map(Step::HandBack),
        2 => pick.prop_map(Step::HandBackAfter),
        1 => pick.prop_map(Step::PassFence),
        3 => pick.prop_map(Step::DropJob),
        1 => pick.prop_map(Step::Panic),
        1 => (0..120_u64).prop_map(Step::Trim),
        2 => (0..80_u64).prop_map(Step::Reserve),
        2 => pick.prop_map(Step::GiveBack),
        1 => (0..42_usize, 0..3_usize).prop_map(|(len, count)| Step::Warm(len, count)),
    ];
    prop::collection::vec(step, 0..80)
}

type GrantFuture = Pin<Box<dyn Future<Output = Result<Acquired, AcquireError>> + Send>>;

struct Waiting {
    future: GrantFuture,
    token: CancelToken,
    bytes: u64,
    buffer_bytes: u64,
}

struct World {
    bench: Bench,
    jobs: Vec<(Acquired, u8)>,
    waiting: Vec<Waiting>,
    reserved: Vec<Reservation>,
    events: Vec<Event>,
    pattern: u8,
}

impl World {
    /// Bytes of buffers that nobody can have back by reclaiming.
    fn in_use_bytes(&self) -> u64 {
        let buffers = self.jobs.iter().flat_map(|(job, _)| &job.buffers);
        buffers.map(|b| b.capacity() as u64).sum()
    }

    /// Whether a request fits beside what is in use, each byte counted once.
    fn can_fit(&self, buffer_bytes: u64, bytes: u64) -> bool {
        let buffers = self.in_use_bytes() + buffer_bytes;
        buffers <= self.bench.share.limit_bytes()
            && buffers + self.extra_bytes() + bytes <= LIMIT_BYTES
    }

    /// Whether it could ever be granted.
    fn can_ever_fit(&self, buffer_bytes: u64, bytes: u64) -> bool {
        buffer_bytes <= self.bench.share.limit_bytes() && buffer_bytes + bytes <= LIMIT_BYTES
    }

    /// Counted bytes that are not the pool's memory.
    fn extra_bytes(&self) -> u64 {
        let of_jobs = self.jobs.iter().map(|(job, _)| &job.reservation);
        of_jobs.chain(&self.reserved).map(Reservation::bytes).sum()
    }

    fn waiters(&self) -> usize {
        self.bench.budget.usage().waiters
    }

    fn admit(&mut self, mut job: Acquired, bytes: u64) {
        assert_eq!(job.reservation.bytes(), bytes, "beside the buffers");
        self.pattern = self.pattern.wrapping_add(1);
        for buffer in &mut job.buffers {
            buffer.as_bytes_mut().fill(self.pattern);
        }
        self.jobs.push((job, self.pattern));
    }

    /// Takes a job out, having checked that nobody else wrote to its buffers.
    fn take_job(&mut self, pick: usize) -> Option<Acquired> {
        let index = pick.checked_rem(self.jobs.len())?;
        let (job, pattern) = self.jobs.swap_remove(index);
        let mut bytes = job.buffers.iter().flat_map(PinnedBacking::as_bytes);
        assert!(bytes.all(|&byte| byte == pattern), "a buffer was shared");
        Some(job)
    }

    /// Takes one buffer of a job out.
    fn take_buffer(&mut self, pick: usize) -> Option<PinnedBacking> {
        let index = pick.checked_rem(self.jobs.len())?;
        self.jobs[index].0.buffers.pop()
    }

    fn poll(&mut self, index: usize) {
        let Waiting {
            buffer_bytes,
            bytes,
            ..
        } = self.waiting[index];
        let can_fit = self.can_fit(buffer_bytes, bytes);
        let waiters = self.waiters();
        let future = self.waiting[index].future.as_mut();
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => {
                let waiting = self.waiting.swap_remove(index);
                match result {
                    Ok(job) => self.admit(job, waiting.bytes),
                    Err(error) => assert!(
                        waiting.token.is_cancelled() || !self.can_ever_fit(buffer_bytes, bytes),
                        "{error}"
                    ),
                }
            }
            // The only one in the queue is not kept waiting for what fits.
            Poll::Pending => assert!(!can_fit || waiters.max(self.waiters()) > 1),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Acquire(lens, bytes) => {
                let can_fit = self.can_fit(lens.iter().sum::<usize>() as u64, bytes);
                let result = self.bench.try_acquire(&lens, bytes);
                assert!(
                    result.is_ok() == can_fit || self.waiters() > 0 && is_refused(&result),
                    "{result:?}"
                );
                if let Ok(job) = result {
                    self.admit(job, bytes);
                }
            }
            Step::Wait(lens, bytes, priority) => {
                let token = CancelToken::new();
                let future = Box::pin(self.bench.pool.acquire_async(&AcquireRequest {
                    buffers: &lens,
                    bytes,
                    consumer: COLUMNS,
                    wait: Wait::with_priority(Priority(priority)).cancelled_by(&token),
                }));
                self.waiting.push(Waiting {
                    future,
                    token,
                    bytes,
                    buffer_bytes: lens.iter().sum::<usize>() as u64,
                });
                self.poll(self.waiting.len() - 1);
            }
            Step::Poll(pick) => {
                if let Some(index) = pick.checked_rem(self.waiting.len()) {
                    self.poll(index);
                }
            }
            Step::Cancel(pick) => {
                if let Some(index) = pick.checked_rem(self.waiting.len()) {
                    self.waiting[index].token.cancel();
                    self.poll(index);
                }
            }
            Step::DropWait(pick) => {
                if let Some(index) = pick.checked_rem(self.waiting.len()) {
                    drop(self.waiting.swap_remove(index));
                }
            }
            Step::Split(pick, bytes) => {
                if let Some(index) = pick.checked_rem(self.jobs.len())
                    && let Ok(part) = self.jobs[index].0.reservation.split(bytes)
                {
                    self.reserved.push(part);
                }
            }
            Step::HandBack(pick) => drop(self.take_buffer(pick)),
            Step::HandBackAfter(pick) => {
                if let Some(buffer) = self.take_buffer(pick) {
                    let event = Event::default();
                    buffer.release_after(event.clone());
                    self.events.push(event);
                }
            }
            Step::PassFence(pick) => {
                if let Some(index) = pick.checked_rem(self.events.len()) {
                    self.events.swap_remove(index).pass();
                }
            }
            Step::DropJob(pick) => drop(self.take_job(pick)),
            Step::Panic(pick) => {
                if let Some(job) = self.take_job(pick) {
                    let panicked = catch_unwind(AssertUnwindSafe(|| {
                        let _job = job;
                        resume_unwind(Box::new("a job that panics"));
                    }));
                    assert!(panicked.is_err());
                }
            }
            Step::Trim(bytes) => {
                let idle_bytes = self.bench.pool.stats().idle_bytes;
                let freed_bytes = self.bench.pool.trim(bytes);
                assert!(freed_bytes >= bytes.min(idle_bytes));
            }
            Step::Reserve(bytes) => {
                let can_fit = self.can_fit(0, bytes);
                match self.bench.budget.try_reserve(OTHERS, bytes) {
                    Ok(reservation) => self.reserved.push(reservation),
                    Err(error) => assert!(!can_fit || self.waiters() > 0, "{error}"),
                }
            }
            Step::GiveBack(pick) => {
                if let Some(index) = pick.checked_rem(self.reserved.len()) {
                    drop(self.reserved.swap_remove(index));
                }
            }
            // May be refused; what counts is what the ledger says after it.
            Step::Warm(len, count) => drop(self.bench.pool.warm(&[(len, count)])),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// After every step the ledger holds the allocated bytes and the
    /// reservations beside them, no more and no less; a request is refused only
    /// if it does not fit with every byte counted once, or waits its turn;
    /// nothing is left at the end. (While memory is allocated and freed, the
    /// backing itself checks that it is counted.)
    #[test]
    fn each_byte_is_counted_once(
        steps in steps(),
        // No share, one that lacks bytes about as often as the whole, and one that
        // always lacks them first.
        share_bytes in prop_oneof![Just(LIMIT_BYTES), Just(80), Just(45)],
    ) {
        let bench = match share_bytes {
            LIMIT_BYTES => Bench::new(LIMIT_BYTES),
            _ => Bench::with_share(LIMIT_BYTES, share_bytes),
        };
        let mut world = World {
            bench,
            jobs: Vec::new(),
            waiting: Vec::new(),
            reserved: Vec::new(),
            events: Vec::new(),
            pattern: 0,
        };
        for step in steps {
            world.run(step);
            let counted_bytes = world.bench.backing.live_bytes() + world.extra_bytes();
            prop_assert_eq!(world.bench.used_bytes(), counted_bytes);
            prop_assert!(counted_bytes <= LIMIT_BYTES);
            let stats = world.bench.pool.stats();
            let pool_bytes = stats.in_use_bytes + stats.idle_bytes + stats.fenced_bytes;
            prop_assert_eq!(world.bench.backing.live_bytes(), pool_bytes);
            if share_bytes < LIMIT_BYTES {
                prop_assert_eq!(world.bench.share.usage().used_bytes, pool_bytes);
            }
        }
        let World { bench, jobs, waiting, reserved, .. } = world;
        drop((jobs, waiting, reserved));
        let stats = bench.pool.stats();
        prop_assert_eq!(bench.used_bytes(), stats.idle_bytes + stats.fenced_bytes);
        prop_assert_eq!(bench.budget.usage().waiters, 0);
        bench.end();
    }
}
