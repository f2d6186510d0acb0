//! The threads that fill segments of parts, given to the parts in their order.
//!
//! Each part waits, on its own stage's thread, for a thread that is free, and starts a worker
//! with it. Of one priority no more threads work than there are, and none is without work
//! that a part has: threads go to the oldest part that wants one, and between two segments a
//! worker lets its thread go if an older part wants one. So parts end one after the other, as
//! a device takes them.
//!
//! Parts of a higher priority wait for no segment of a lower one: they take threads beyond
//! those that there are, and lower ones let theirs go between two segments, but for one.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, Scope};

use crate::belonging::EngineId;
use crate::lock::lock;
use crate::schedule::Priority;

/// When a part is served: those of a higher priority first, then those that came earlier.
type Turn = (Reverse<Priority>, u64);

/// How many threads there are, and which parts want them.
pub(crate) struct Crew {
    threads: usize,
    desk: Mutex<Desk>,
    /// That a thread was let go, or a part wants none any more.
    news: Condvar,
    /// Parts that came.
    came: AtomicU64,
}

/// Who works, and who would.
struct Desk {
    threads: usize,
    /// Threads that work, for each priority.
    working: [usize; Priority::CLASSES],
    /// Parts that have a piece for a thread more.
    wanting: BTreeSet<Turn>,
}

impl Desk {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            working: [0; Priority::CLASSES],
            wanting: BTreeSet::new(),
        }
    }

    /// Threads that work for a priority or a higher one.
    fn working_from(&self, priority: Priority) -> usize {
        self.working[priority as usize..].iter().sum()
    }

    /// Whether an older part of the same priority wants a thread.
    fn is_behind(&self, turn: Turn) -> bool {
        let oldest = self.wanting.range((turn.0, 0)..).next();
        oldest.is_some_and(|&oldest| oldest < turn)
    }

    /// Whether a part may have a thread more.
    fn may_take(&self, turn: Turn) -> bool {
        let Reverse(priority) = turn.0;
        let has_none = self.working[priority as usize] == 0;
        !self.is_behind(turn) && (has_none || self.working_from(priority) < self.threads)
    }

    /// Whether a worker of a part has to let its thread go.
    fn must_let_go(&self, turn: Turn) -> bool {
        let Reverse(priority) = turn.0;
        let has_others = self.working[priority as usize] > 1;
        self.is_behind(turn) || (has_others && self.working_from(priority) > self.threads)
    }
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
        let threads = threads.max(1);
        Self {
            threads,
            desk: Mutex::new(Desk::new(threads)),
            news: Condvar::new(),
            came: AtomicU64::new(0),
        }
    }

    /// Threads that there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads
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
        let state = State {
            left: pieces.len(),
            done: pieces.iter().map(|_| None).collect(),
            pieces: pieces.into_iter().enumerate(),
            end: None,
        };
        let run = Run {
            crew: self,
            turn: (Reverse(priority), self.came.fetch_add(1, Ordering::Relaxed)),
            engine: EngineId::of_this_thread(),
            stop,
            work,
            state: Mutex::new(state),
        };
        std::thread::scope(|scope| run.start_workers(scope));
        let state = run
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match state.end {
            None => Ok(state.done.into_iter().flatten().collect()),
            Some(End::Stopped) => Err(Unfinished::Stopped),
            Some(End::Failed(error)) => Err(Unfinished::Failed(error)),
            Some(End::Panicked(panic)) => resume_unwind(panic),
        }
    }

    /// As [`run`](Self::run), by a worker on a piece of another run of the same priority,
    /// whose thread others may have meanwhile.
    pub(crate) fn run_within<T: Send, R: Send, E: Send>(
        &self,
        priority: Priority,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        self.let_go(priority);
        let _back = Back(self, priority);
        self.run(priority, pieces, stop, work)
    }

    /// Waits for a thread for the next piece of a part, and gives both; none if no piece is to
    /// be begun any more.
    fn take<P>(
        &self,
        turn: Turn,
        has_piece: impl Fn() -> bool,
        next: impl Fn() -> Option<P>,
    ) -> Option<P> {
        let Reverse(priority) = turn.0;
        let mut desk = lock(&self.desk);
        desk.wanting.insert(turn);
        let piece = loop {
            if !has_piece() {
                break None;
            }
            if desk.may_take(turn)
                && let Some(piece) = next()
            {
                desk.working[priority as usize] += 1;
                break Some(piece);
            }
            desk = self.news.wait(desk).unwrap_or_else(PoisonError::into_inner);
        };
        // With another piece it wants the next one.
        if !has_piece() {
            desk.wanting.remove(&turn);
        }
        drop(desk);
        // Whoever is next may be served too.
        self.news.notify_all();
        piece
    }

    /// A part wants no thread any more.
    fn leave(&self, turn: Turn) {
        lock(&self.desk).wanting.remove(&turn);
        self.news.notify_all();
    }

    fn let_go(&self, priority: Priority) {
        lock(&self.desk).working[priority as usize] -= 1;
        self.news.notify_all();
    }
}

/// A worker that goes on with its piece, once dropped, whoever has its thread.
struct Back<'a>(&'a Crew, Priority);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        lock(&self.0.desk).working[self.1 as usize] += 1;
    }
}

/// A thread that works, until dropped.
struct Taken<'a>(&'a Crew, Priority);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.let_go(self.1);
    }
}

/// The work on one part.
struct Run<'a, T, R, E, Stop, Work> {
    crew: &'a Crew,
    turn: Turn,
    /// Whose threads the workers are.
    engine: Option<EngineId>,
    stop: Stop,
    work: Work,
    state: Mutex<State<T, R, E>>,
}

struct State<T, R, E> {
    pieces: std::iter::Enumerate<std::vec::IntoIter<T>>,
    left: usize,
    done: Vec<Option<R>>,
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
    /// A worker for each thread that this part is given, until no piece is left to begin.
    fn start_workers<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let Reverse(priority) = self.turn.0;
        while let Some(piece) = self
            .crew
            .take(self.turn, || self.has_piece(), || self.pop())
        {
            let taken = Taken(self.crew, priority);
            // Where there is no thread to be had it comes back.
            let handed = Arc::new(Mutex::new(Some((piece, taken))));
            let work = {
                let handed = Arc::clone(&handed);
                move || {
                    EngineId::enter(self.engine);
                    self.work(&handed);
                }
            };
            let worker = Builder::new().name("cuzk-segments".to_owned());
            if worker.spawn_scoped(scope, work).is_err() {
                self.work(&handed);
            }
        }
    }

    /// Works on a piece, and on others as long as the thread may be kept.
    fn work(&self, handed: &Mutex<Option<((usize, T), Taken<'_>)>>) {
        let Some(((index, piece), _taken)) = lock(handed).take() else {
            return;
        };
        self.work_on(index, piece);
        while !lock(&self.crew.desk).must_let_go(self.turn)
            && let Some((index, piece)) = self.next()
        {
            self.work_on(index, piece);
        }
    }

    fn work_on(&self, index: usize, piece: T) {
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

    /// Whether there is a piece to begin.
    fn has_piece(&self) -> bool {
        let mut state = lock(&self.state);
        if state.left > 0 && state.end.is_none() && (self.stop)() {
            state.end = Some(End::Stopped);
        }
        state.left > 0 && state.end.is_none()
    }

    fn pop(&self) -> Option<(usize, T)> {
        let mut state = lock(&self.state);
        let piece = state.pieces.next()?;
        state.left -= 1;
        Some(piece)
    }

    /// The next piece for a worker, if one is to be begun.
    fn next(&self) -> Option<(usize, T)> {
        let piece = self.has_piece().then(|| self.pop()).flatten();
        if !self.has_piece() {
            self.crew.leave(self.turn);
        }
        piece
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const NORMAL: Priority = Priority::Normal;

    type Outcome = Result<Vec<usize>, Unfinished<&'static str>>;

    /// Threads that work for anybody.
    fn working(crew: &Crew) -> usize {
        lock(&crew.desk).working_from(Priority::Low)
    }

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
        let working = || working(&crew);
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

    /// The part that came as that number.
    fn turn(priority: Priority, number: u64) -> Turn {
        (Reverse(priority), number)
    }

    /// What those who want a thread may, and those who work must.
    fn desk(threads: usize, working: &[(Priority, usize)], wanting: &[Turn]) -> Desk {
        let mut desk = Desk::new(threads);
        for &(priority, count) in working {
            desk.working[priority as usize] = count;
        }
        desk.wanting.extend(wanting);
        desk
    }

    #[test]
    fn the_oldest_part_has_what_is_free() {
        let [old, young] = [1, 2].map(|number| turn(NORMAL, number));
        for (working, wanting, may) in [
            (3, vec![old], [true, false]),
            (4, vec![old], [false, false]),
            (3, vec![old, young], [true, false]),
            // The old one has no piece left to begin.
            (3, vec![young], [true, true]),
            (4, vec![young], [false, false]),
        ] {
            let desk = desk(4, &[(NORMAL, working)], &wanting);
            let seen = [old, young].map(|turn| desk.may_take(turn));
            assert_eq!(seen[1], may[1], "{working} {wanting:?}");
            if wanting.contains(&old) {
                assert_eq!(seen[0], may[0], "{working} {wanting:?}");
            }
        }
        // The young one lets threads go for the old one alone, its last one too.
        for working in [1, 4] {
            let desk = |wanting: &[Turn]| desk(4, &[(NORMAL, working)], wanting);
            assert!(desk(&[old, young]).must_let_go(young));
            assert!(!desk(&[old, young]).must_let_go(old) && !desk(&[young]).must_let_go(young));
        }
    }

    #[test]
    fn a_higher_priority_waits_for_no_lower_one() {
        let (normal, high) = (turn(NORMAL, 1), turn(Priority::High, 2));
        // It begins while a lower one has all threads, and has as many.
        for count in 0..8 {
            let working = [(NORMAL, 8), (Priority::High, count)];
            assert!(desk(8, &working, &[normal, high]).may_take(high));
        }
        let full = [(NORMAL, 8), (Priority::High, 8)];
        assert!(!desk(8, &full, &[normal, high]).may_take(high));
        // The lower one lets its threads go meanwhile, but for one, and takes no other.
        let with_high = |own| desk(8, &[(NORMAL, own), (Priority::High, 8)], &[normal]);
        assert!(with_high(8).must_let_go(normal) && with_high(2).must_let_go(normal));
        assert!(!with_high(1).must_let_go(normal) && !with_high(1).may_take(normal));
        assert!(with_high(0).may_take(normal), "it has one at any time");
        assert!(
            !with_high(1).must_let_go(high),
            "for which no other lets go"
        );
        // What the higher one cannot use it has.
        let half = |own| desk(8, &[(NORMAL, own), (Priority::High, 4)], &[normal]);
        assert!(half(3).may_take(normal) && !half(4).may_take(normal));
        assert!(!half(4).must_let_go(normal) && half(5).must_let_go(normal));
    }

    /// A part comes late, while one that it is before has both threads: it has them when they
    /// are let go, and all of its pieces are begun before another of the other part.
    #[test]
    fn a_part_that_one_came_before_is_served_after_it() {
        let crew = Crew::new(2);
        let order = Mutex::new(Vec::new());
        let (begun, go) = (Barrier::new(3), Barrier::new(3));
        let second = |index: usize, ()| {
            lock(&order).push("second");
            if index < 2 {
                begun.wait();
                go.wait();
            }
            Ok::<_, &str>(())
        };
        let first = |_: usize, ()| {
            lock(&order).push("first");
            Ok::<_, &str>(())
        };
        std::thread::scope(|scope| {
            // The first has its number before the second comes.
            let place = crew.came.fetch_add(1, Ordering::Relaxed);
            scope.spawn(|| crew.run(NORMAL, vec![(); 4], || false, second));
            begun.wait();
            let state = State {
                left: 3,
                done: vec![None; 3],
                pieces: vec![(); 3].into_iter().enumerate(),
                end: None,
            };
            let run = Run {
                crew: &crew,
                turn: turn(NORMAL, place),
                engine: None,
                stop: || false,
                work: first,
                state: Mutex::new(state),
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let is_wanting = || lock(&crew.desk).wanting.contains(&run.turn);
                    while !is_wanting() {
                        std::thread::yield_now();
                    }
                    go.wait();
                });
                run.start_workers(scope);
            });
        });
        // Its last piece is begun before theirs, and told at the same time.
        assert_eq!(lock(&order)[..4], ["second", "second", "first", "first"]);
        assert_eq!(lock(&order).len(), 7);
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
        assert_eq!(working(&crew), 0, "its threads are given back");
        assert!(lock(&crew.desk).wanting.is_empty());
        let done: Outcome = crew.run(NORMAL, vec![1], || false, |_, piece| Ok(piece));
        assert_eq!(done, Ok(vec![1]));
    }
}
