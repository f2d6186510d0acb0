//! The threads that fill segments of parts, shared fairly between the parts.
//!
//! Each part works on its own stage's thread, which never waits for anybody, and takes
//! helpers up to its share of the threads, and beyond it as long as threads are free.
//! Parts of a higher priority share all threads but the own ones of the others.
//! Between two segments a part that has more than its share lets a helper go if more
//! threads work than there are: so a part that begins late has its share after one
//! segment of the others, and what one cannot use others do. Nobody waits here, so
//! nothing has to be woken; for the length of a segment more threads may work than there
//! are cores.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope};

use crate::belonging::EngineId;
use crate::lock::lock;
use crate::schedule::Priority;

/// How many threads there are, and how many parts share them.
pub(crate) struct Crew {
    threads: usize,
    /// Of each priority.
    parts: [AtomicUsize; Priority::CLASSES],
    /// Threads that work, helpers or not.
    working: AtomicUsize,
}

/// Why not all work was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfinished<E> {
    /// It was told to stop.
    Stopped,
    /// A piece failed: the first one that did.
    Failed(E),
}

impl Crew {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            parts: Default::default(),
            working: AtomicUsize::new(0),
        }
    }

    /// Threads that there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Threads that a part of a priority can count on now.
    fn share(&self, priority: Priority) -> usize {
        let parts = self.parts.each_ref();
        let parts = parts.map(|count| count.load(Ordering::Relaxed));
        let (lower, from_own) = parts.split_at(priority as usize);
        let (own, higher) = from_own.split_at(1);
        if higher.iter().any(|&count| count > 0) {
            return 1;
        }
        let threads = self.threads.saturating_sub(lower.iter().sum());
        (threads / own[0].max(1)).max(1)
    }

    /// Whether a part of so many workers may have one more.
    fn may_grow(&self, priority: Priority, workers: usize) -> bool {
        workers < self.share(priority) || self.working.load(Ordering::Relaxed) < self.threads
    }

    /// Whether a part of so many workers has to let one go.
    fn must_shrink(&self, priority: Priority, workers: usize) -> bool {
        workers > self.share(priority) && self.working.load(Ordering::Relaxed) > self.threads
    }

    /// Works on all pieces, in their order, as many at the same time as the share of one
    /// part allows. What the pieces gave is in their order too. After a failure, or once
    /// `stop` says so, no further piece is begun.
    ///
    /// # Panics
    /// If a piece does, when those that had begun have ended.
    pub(crate) fn run<T: Send, R: Send, E: Send>(
        &self,
        priority: Priority,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        let parts = &self.parts[priority as usize];
        parts.fetch_add(1, Ordering::Relaxed);
        self.working.fetch_add(1, Ordering::Relaxed);
        let _place = Place(parts);
        let state = State {
            left: pieces.len(),
            done: pieces.iter().map(|_| None).collect(),
            pieces: pieces.into_iter().enumerate(),
            workers: 1,
            end: None,
        };
        let run = Run {
            crew: self,
            priority,
            stop,
            work,
            state: Mutex::new(state),
        };
        std::thread::scope(|scope| run.work(scope, Role::Own));
        let state = run
            .state
            .into_inner()
            .unwrap_or_else(|state| state.into_inner());
        match state.end {
            None => Ok(state.done.into_iter().flatten().collect()),
            Some(End::Stopped) => Err(Unfinished::Stopped),
            Some(End::Failed(error)) => Err(Unfinished::Failed(error)),
            Some(End::Panicked(panic)) => resume_unwind(panic),
        }
    }
}

/// A part among those that share, until dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The part's own thread.
    Own,
    Helper,
}

/// The work on one part.
struct Run<'a, T, R, E, Stop, Work> {
    crew: &'a Crew,
    priority: Priority,
    stop: Stop,
    work: Work,
    state: Mutex<State<T, R, E>>,
}

struct State<T, R, E> {
    pieces: std::iter::Enumerate<std::vec::IntoIter<T>>,
    left: usize,
    done: Vec<Option<R>>,
    workers: usize,
    end: Option<End<E>>,
}

enum End<E> {
    Stopped,
    Failed(E),
    Panicked(Box<dyn Any + Send>),
}

impl<T, R, E, Stop, Work> Run<'_, T, R, E, Stop, Work>
where
    T: Send,
    R: Send,
    E: Send,
    Stop: Fn() -> bool + Sync,
    Work: Fn(usize, T) -> Result<R, E> + Sync,
{
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, role: Role) {
        while let Some((index, piece)) = self.next(scope, role) {
            let result = catch_unwind(AssertUnwindSafe(|| (self.work)(index, piece)));
            let mut state = lock(&self.state);
            match result {
                Ok(Ok(done)) => state.done[index] = Some(done),
                Ok(Err(error)) => {
                    state.end.get_or_insert(End::Failed(error));
                }
                Err(panic) => {
                    state.end.get_or_insert(End::Panicked(panic));
                }
            }
        }
    }

    /// The next piece for a worker; without one it has left.
    fn next<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        role: Role,
    ) -> Option<(usize, T)> {
        let mut state = lock(&self.state);
        if state.left > 0 && state.end.is_none() && (self.stop)() {
            state.end = Some(End::Stopped);
        }
        let crew = self.crew;
        let is_too_many = role == Role::Helper && crew.must_shrink(self.priority, state.workers);
        if state.end.is_some() || state.left == 0 || is_too_many {
            state.workers -= 1;
            crew.working.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let piece = state.pieces.next();
        state.left -= 1;
        // One at a time: a helper brings the next itself.
        if state.left > 0 && crew.may_grow(self.priority, state.workers) {
            let engine = EngineId::of_this_thread();
            let helper = Builder::new()
                .name("cuzk-segments".to_owned())
                .spawn_scoped(scope, move || {
                    EngineId::enter(engine);
                    self.work(scope, Role::Helper);
                });
            // Without a thread the work is done by those there are.
            let helpers = usize::from(helper.is_ok());
            state.workers += helpers;
            crew.working.fetch_add(helpers, Ordering::Relaxed);
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    const NORMAL: Priority = Priority::Normal;

    type Outcome = Result<Vec<usize>, Unfinished<&'static str>>;

    #[test]
    fn pieces_are_done_once_and_told_in_order() {
        for threads in 1..5 {
            let crew = Crew::new(threads);
            let done: Outcome = crew.run(
                NORMAL,
                (10..30).collect(),
                || false,
                |index, piece| {
                    assert_eq!(piece, index + 10);
                    Ok(piece * 2)
                },
            );
            assert_eq!(done, Ok((10..30).map(|piece| piece * 2).collect()));
            assert_eq!(
                crew.run(
                    NORMAL,
                    Vec::<()>::new(),
                    || true,
                    |_, ()| Err::<usize, _>("none")
                ),
                Ok(vec![])
            );
        }
    }

    /// Every piece waits for all others: they end only if all run at the same time.
    #[test]
    fn a_part_that_is_alone_has_all_threads() {
        let crew = Crew::new(4);
        let meeting = Barrier::new(4);
        let done: Outcome = crew.run(
            NORMAL,
            (0..4).collect(),
            || false,
            |_, piece| {
                meeting.wait();
                Ok(piece)
            },
        );
        assert_eq!(done, Ok(vec![0, 1, 2, 3]));
    }

    #[test]
    fn helpers_work_for_the_engine_of_the_part() {
        let engine = EngineId::new();
        let work = move || {
            EngineId::enter(Some(engine));
            let (crew, meeting) = (Crew::new(2), Barrier::new(2));
            let engines = crew.run(
                NORMAL,
                vec![(); 2],
                || false,
                |_, ()| {
                    meeting.wait();
                    Ok::<_, &str>(EngineId::of_this_thread())
                },
            );
            assert_eq!(engines, Ok(vec![Some(engine); 2]));
        };
        std::thread::spawn(work).join().expect("as asserted");
        assert_eq!(EngineId::of_this_thread(), None);
        assert_ne!(EngineId::new(), engine);
    }

    fn crew(threads: usize, parts: usize, working: usize) -> Crew {
        let crew = Crew::new(threads);
        crew.parts[NORMAL as usize].store(parts, Ordering::Relaxed);
        crew.working.store(working, Ordering::Relaxed);
        crew
    }

    #[test]
    fn parts_share_threads_and_lend_what_they_cannot_use() {
        // Alone: all of them, and no more.
        assert!(crew(4, 1, 3).may_grow(NORMAL, 3) && !crew(4, 1, 4).may_grow(NORMAL, 4));
        // A second one begins while the first has all: it takes its share, the first
        // lets go until there are as many as there may be.
        assert!(crew(4, 2, 5).may_grow(NORMAL, 1) && !crew(4, 2, 6).may_grow(NORMAL, 2));
        assert!(crew(4, 2, 6).must_shrink(NORMAL, 4) && crew(4, 2, 5).must_shrink(NORMAL, 3));
        assert!(!crew(4, 2, 4).must_shrink(NORMAL, 2));
        // The first has one segment left: the second takes what is free, and keeps it.
        assert!(crew(4, 2, 3).may_grow(NORMAL, 2) && !crew(4, 2, 4).must_shrink(NORMAL, 3));
        // More parts than threads: one each.
        assert!(!crew(2, 5, 5).may_grow(NORMAL, 1) && !crew(2, 5, 5).must_shrink(NORMAL, 1));
    }

    #[test]
    fn a_higher_priority_has_all_threads_but_one_for_each_other_part() {
        let with_high = |parts, working| {
            let crew = crew(8, parts, working);
            crew.parts[Priority::High as usize].store(1, Ordering::Relaxed);
            crew
        };
        // It begins while one has all: it takes seven, the other lets seven go.
        assert_eq!(with_high(1, 9).share(Priority::High), 7);
        assert_eq!(with_high(1, 9).share(NORMAL), 1);
        assert!(with_high(1, 9).may_grow(Priority::High, 6));
        assert!(with_high(1, 9).must_shrink(NORMAL, 8));
        assert!(
            !with_high(1, 9).may_grow(NORMAL, 1) && !with_high(1, 9).may_grow(Priority::High, 7)
        );
        // What it cannot use the other has.
        assert!(with_high(1, 3).may_grow(NORMAL, 2) && !with_high(1, 8).must_shrink(NORMAL, 7));
        // More parts than threads: it has its own.
        assert_eq!(with_high(9, 9).share(Priority::High), 1);
        // The highest of all has what two leave.
        let crew = with_high(1, 9);
        crew.parts[Priority::Critical as usize].store(1, Ordering::Relaxed);
        assert_eq!(crew.share(Priority::Critical), 6);
        assert_eq!(crew.share(Priority::High), 1);
    }

    /// Another part is there and does nothing: its thread helps here, or none of the
    /// pieces ends.
    #[test]
    fn a_free_thread_helps_beyond_the_share() {
        let crew = crew(2, 1, 0);
        let meeting = Barrier::new(2);
        let done: Outcome = crew.run(
            NORMAL,
            vec![0, 1],
            || false,
            |_, piece| {
                assert_eq!(crew.share(NORMAL), 1);
                meeting.wait();
                Ok(piece)
            },
        );
        assert_eq!(done, Ok(vec![0, 1]));
        assert_eq!(crew.working.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_begins_after_a_failure_or_a_stop() {
        let crew = Crew::new(1);
        let begun = AtomicUsize::new(0);
        let work = |_: usize, piece: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if piece == 2 { Err("two") } else { Ok(piece) }
        };
        let failed: Outcome = crew.run(NORMAL, (0..9).collect(), || false, work);
        assert_eq!(
            (failed, begun.load(Ordering::Relaxed)),
            (Err(Unfinished::Failed("two")), 3)
        );
        let stop = || begun.load(Ordering::Relaxed) >= 5;
        let stopped: Outcome = crew.run(NORMAL, vec![0, 1, 3, 4], stop, work);
        assert_eq!(
            (stopped, begun.load(Ordering::Relaxed)),
            (Err(Unfinished::Stopped), 5)
        );
    }

    #[test]
    fn a_panic_is_its_parts_alone() {
        let crew = Crew::new(3);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _: Outcome = crew.run(
                NORMAL,
                (0..9).collect(),
                || false,
                |_, piece| {
                    assert_ne!(piece, 4, "a fault of the test");
                    Ok(piece)
                },
            );
        }));
        let message = panic.expect_err("it panics");
        let message = message.downcast_ref::<String>().expect("a text");
        assert!(message.contains("a fault of the test"), "{message}");
        let left = [&crew.parts[NORMAL as usize], &crew.working]
            .map(|count| count.load(Ordering::Relaxed));
        assert_eq!(left, [0, 0], "its places are given back");
        let done: Outcome = crew.run(NORMAL, vec![1], || false, |_, piece| Ok(piece));
        assert_eq!(done, Ok(vec![1]));
    }
}
