//! The threads that fill segments of parts, given to the parts in their order.
//!
//! Each part works on its own stage's thread, which never waits for anybody. The first part,
//! which is the oldest of those of the highest priority, takes helpers until all threads but
//! the own ones of the others work for it; the others take what it leaves. So parts end one
//! after the other, as a device takes them, and not together. Between two segments a part that
//! is not first, and has more than its own thread, lets a helper go if more threads work than
//! there are: so a part that comes first late has its threads after one segment of the others,
//! and what one cannot use others do. Nobody waits here, so nothing has to be woken; for the
//! length of a segment more threads may work than there are cores.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, Scope};

use crate::belonging::EngineId;
use crate::lock::lock;
use crate::schedule::Priority;

/// When a part is served: those of a higher priority first, then those that came earlier.
type Turn = (Reverse<Priority>, u64);

/// How many threads there are, and which parts use them.
pub(crate) struct Crew {
    threads: usize,
    parts: Mutex<BTreeSet<Turn>>,
    /// Parts that came.
    came: AtomicU64,
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
            parts: Mutex::default(),
            came: AtomicU64::new(0),
            working: AtomicUsize::new(0),
        }
    }

    /// Threads that there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// A part comes.
    fn enter(&self, priority: Priority) -> Place<'_> {
        let turn = (Reverse(priority), self.came.fetch_add(1, Ordering::Relaxed));
        lock(&self.parts).insert(turn);
        Place { crew: self, turn }
    }

    /// Threads that a part can count on now.
    fn share(&self, turn: Turn) -> usize {
        let parts = lock(&self.parts);
        match parts.first() {
            Some(&first) if first == turn => self.threads.saturating_sub(parts.len() - 1).max(1),
            _ => 1,
        }
    }

    /// Whether a part of so many workers may have one more.
    fn may_grow(&self, turn: Turn, workers: usize) -> bool {
        self.working.load(Ordering::Relaxed) < self.threads || workers < self.share(turn)
    }

    /// Whether a part of so many workers has to let one go.
    fn must_shrink(&self, turn: Turn, workers: usize) -> bool {
        self.working.load(Ordering::Relaxed) > self.threads && workers > self.share(turn)
    }

    /// Works on all pieces, in their order, as many at the same time as there are threads for
    /// the part. What the pieces gave is in their order too. After a failure, or once
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
        self.working.fetch_add(1, Ordering::Relaxed);
        self.run_as_one_that_works(priority, pieces, stop, work)
    }

    /// As [`run`](Self::run), by a thread that is at work on a piece of another run: it is
    /// one of the crew's already, and its place in the other run is kept.
    pub(crate) fn run_within<T: Send, R: Send, E: Send>(
        &self,
        priority: Priority,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        let _back = Back(&self.working);
        self.run_as_one_that_works(priority, pieces, stop, work)
    }

    /// By a thread that is counted among those that work, and is not afterwards.
    fn run_as_one_that_works<T: Send, R: Send, E: Send>(
        &self,
        priority: Priority,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        let place = self.enter(priority);
        let state = State {
            left: pieces.len(),
            done: pieces.iter().map(|_| None).collect(),
            pieces: pieces.into_iter().enumerate(),
            workers: 1,
            end: None,
        };
        let run = Run {
            crew: self,
            turn: place.turn,
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

/// A part among the others, until dropped.
struct Place<'a> {
    crew: &'a Crew,
    turn: Turn,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.crew.parts).remove(&self.turn);
    }
}

/// A thread that works again on what it worked on before, once dropped.
struct Back<'a>(&'a AtomicUsize);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
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
    turn: Turn,
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
        let is_too_many = role == Role::Helper && crew.must_shrink(self.turn, state.workers);
        if state.end.is_some() || state.left == 0 || is_too_many {
            state.workers -= 1;
            crew.working.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let piece = state.pieces.next();
        state.left -= 1;
        // One at a time: a helper brings the next itself.
        if state.left > 0 && crew.may_grow(self.turn, state.workers) {
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

    /// Every inner piece waits for the other: they end only if the thread that began them is
    /// counted once.
    #[test]
    fn a_piece_can_have_pieces_of_its_own() {
        let crew = Crew::new(2);
        let meeting = Barrier::new(2);
        let within = |fails: bool| {
            crew.run_within(
                NORMAL,
                vec![1, 2],
                || false,
                |_, piece| {
                    meeting.wait();
                    assert!(!fails, "a fault of the test");
                    Ok::<_, &str>(piece)
                },
            )
        };
        let panics = || catch_unwind(AssertUnwindSafe(|| within(true))).is_err();
        let working = || crew.working.load(Ordering::Relaxed);
        let done: Outcome = crew.run(
            NORMAL,
            vec![0],
            || false,
            |_, _| {
                assert_eq!(within(false), Ok(vec![1, 2]));
                assert_eq!(working(), 1, "it has its place again");
                assert!(panics(), "whatever became of them");
                Ok(working())
            },
        );
        assert_eq!((done, working()), (Ok(vec![1]), 0));
        // One thread does all.
        let crew = Crew::new(1);
        let done: Outcome = crew.run(
            NORMAL,
            vec![0],
            || false,
            |_, _| {
                let within = crew.run_within(NORMAL, vec![5, 6], || false, |_, piece| Ok(piece));
                within
                    .map(|pieces: Vec<usize>| pieces.len())
                    .map_err(|_: Unfinished<&str>| "within")
            },
        );
        assert_eq!(done, Ok(vec![2]));
    }

    /// A crew with parts that came in this order.
    fn crew(threads: usize, parts: &[Priority], working: usize) -> (Crew, Vec<Turn>) {
        let crew = Crew::new(threads);
        let turns = parts.iter().map(|&priority| {
            let place = crew.enter(priority);
            let turn = place.turn;
            std::mem::forget(place);
            turn
        });
        let turns = turns.collect();
        crew.working.store(working, Ordering::Relaxed);
        (crew, turns)
    }

    #[test]
    fn the_first_part_has_all_threads_but_the_own_ones_of_others() {
        // Alone: all of them, and no more.
        let alone = |working| crew(4, &[NORMAL], working);
        let (one, turns) = alone(3);
        assert!(one.may_grow(turns[0], 3) && !alone(4).0.may_grow(turns[0], 4));
        // A second one begins while the first has all: the first lets one go, and the second
        // has its own.
        let two = |working| crew(4, &[NORMAL; 2], working).0;
        let (_, turns) = crew(4, &[NORMAL; 2], 5);
        let [first, second] = [turns[0], turns[1]];
        assert!(two(5).must_shrink(first, 4) && !two(4).must_shrink(first, 3));
        assert!(!two(5).may_grow(second, 1) && !two(5).must_shrink(second, 1));
        // The first has one segment left: the second takes what is free, and keeps it.
        assert!(two(3).may_grow(second, 2) && !two(4).must_shrink(second, 3));
        // A third one begins then, for the first to have gone: the second has all but one.
        assert!(two(3).may_grow(first, 2) && two(5).must_shrink(second, 3));
        // More parts than threads: one each.
        let (five, turns) = crew(2, &[NORMAL; 5], 5);
        let each = turns.iter();
        for &turn in each {
            assert!(!five.may_grow(turn, 1) && !five.must_shrink(turn, 1));
        }
    }

    #[test]
    fn a_higher_priority_comes_first() {
        let with_high = |working| crew(8, &[NORMAL, Priority::High], working).0;
        let (_, turns) = crew(8, &[NORMAL, Priority::High], 9);
        let [normal, high] = [turns[0], turns[1]];
        // It begins while one has all: it takes seven, the other lets seven go.
        assert_eq!([high, normal].map(|turn| with_high(9).share(turn)), [7, 1]);
        assert!(with_high(9).may_grow(high, 6) && with_high(9).must_shrink(normal, 8));
        assert!(!with_high(9).may_grow(normal, 1) && !with_high(9).may_grow(high, 7));
        // What it cannot use the other has.
        assert!(with_high(3).may_grow(normal, 2) && !with_high(8).must_shrink(normal, 7));
        // More parts than threads: it has its own.
        let parts = [[NORMAL; 9].as_slice(), &[Priority::High]].concat();
        let (many, turns) = crew(8, &parts, 9);
        assert_eq!(many.share(turns[9]), 1);
        // The highest of all has what two leave.
        let (three, turns) = crew(8, &[NORMAL, Priority::High, Priority::Critical], 9);
        let shares: Vec<usize> = turns.into_iter().map(|turn| three.share(turn)).collect();
        assert_eq!(shares, [1, 1, 6]);
    }

    /// Another part is there and does nothing: its thread helps here, or none of the
    /// pieces ends.
    #[test]
    fn a_free_thread_helps_beyond_the_share() {
        let (crew, turns) = crew(2, &[NORMAL], 0);
        let meeting = Barrier::new(2);
        let done: Outcome = crew.run(
            NORMAL,
            vec![0, 1],
            || false,
            |_, piece| {
                assert_eq!(crew.share(turns[0]), 1);
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
        assert!(lock(&crew.parts).is_empty(), "its place is given back");
        assert_eq!(crew.working.load(Ordering::Relaxed), 0);
        let done: Outcome = crew.run(NORMAL, vec![1], || false, |_, piece| Ok(piece));
        assert_eq!(done, Ok(vec![1]));
    }
}
