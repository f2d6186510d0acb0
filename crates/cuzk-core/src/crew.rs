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

#[cfg(test)]
mod tests;

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
    /// That a thread was let go, that a part wants none any more, or that one may be told to
    /// stop.
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
    /// `stop` says so, no further piece is begun; while a part waits for a thread, `stop` is
    /// asked when others let theirs go and at [`look_again`](Self::look_again).
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

    /// Has those who wait for a thread look whether they are to stop.
    pub(crate) fn look_again(&self) {
        // Whoever looked before this, under the lock, waits by now.
        drop(lock(&self.desk));
        self.news.notify_all();
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
