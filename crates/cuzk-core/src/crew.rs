//! The threads that fill segments of parts, given to the parts in their order.
//!
//! Each part waits, on its own stage's thread, for a thread that is free, and starts a worker
//! with it. Of one priority no more threads work than there are, and none is without work
//! that a part has: threads go to the oldest part that wants one, and between two segments a
//! worker lets its thread go if an older part wants one. So parts end one after the other, as
//! a device takes them.
//!
//! Parts of a higher priority wait for no segment of a lower one: they take threads beyond
//! those that there are, and lower ones let theirs go between two segments, but for one. A
//! part whose priority is raised has the place of its new one at once.
//!
//! Who waits can be given up, and so can who works: threads of a part that nobody waits for
//! any more count no longer, since it may hang.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use crate::belonging::EngineId;
use crate::lock::lock;
use crate::schedule::Priority;

/// When a part is served among those of its priority: the one first that came first, and what
/// a piece of it began before other pieces of it.
type Number = (u64, u64);

thread_local! {
    /// On a piece of which part this thread works.
    static PIECE_OF: Cell<Option<Number>> = const { Cell::new(None) };
}

/// How many threads there are, and which parts want them.
pub(crate) struct Crew {
    desk: Mutex<Desk>,
    /// That a thread was let go, or a part wants none any more, or stands in another way.
    news: Condvar,
    /// Parts that came.
    came: AtomicU64,
}

/// Who works, and who would.
struct Desk {
    threads: usize,
    /// As many as are synthesised at the same time: few.
    parts: BTreeMap<Number, Seat>,
}

/// A part that has threads or wants them.
struct Seat {
    priority: Priority,
    /// Threads that work on it.
    working: usize,
    /// Whether it has a piece for a thread more.
    wants: bool,
}

impl Desk {
    /// Threads that work for such priorities.
    fn working(&self, counts: impl Fn(Priority) -> bool) -> usize {
        let parts = self.parts.values();
        let parts = parts.filter(|part| counts(part.priority));
        parts.map(|part| part.working).sum()
    }

    /// Whether an older part of the same priority wants a thread.
    fn is_behind(&self, number: Number, priority: Priority) -> bool {
        let mut older = self.parts.range(..number).map(|(_, part)| part);
        older.any(|part| part.wants && part.priority == priority)
    }

    /// Whether a part may have a thread more.
    fn may_take(&self, number: Number) -> bool {
        let Some(&Seat { priority, .. }) = self.parts.get(&number) else {
            return false;
        };
        let has_none = self.working(|other| other == priority) == 0;
        !self.is_behind(number, priority)
            && (has_none || self.working(|other| other >= priority) < self.threads)
    }

    /// Whether a worker of a part has to let its thread go.
    fn must_let_go(&self, number: Number) -> bool {
        let Some(&Seat { priority, .. }) = self.parts.get(&number) else {
            return true;
        };
        let has_others = self.working(|other| other == priority) > 1;
        self.is_behind(number, priority)
            || (has_others && self.working(|other| other >= priority) > self.threads)
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
        let parts = BTreeMap::new();
        Self {
            desk: Mutex::new(Desk { threads, parts }),
            news: Condvar::new(),
            came: AtomicU64::new(0),
        }
    }

    /// Threads that there are.
    pub(crate) fn threads(&self) -> usize {
        lock(&self.desk).threads
    }

    /// Works on all pieces, in their order, as many at the same time as there are threads for
    /// the part. What the pieces gave is in their order too. After a failure, or once
    /// `stop` says so, no further piece is begun. What `priority` and `stop` say is heard of
    /// when there is news, at the latest after [`look_again`](Self::look_again).
    ///
    /// # Panics
    /// If a piece does, when those that had begun have ended.
    pub(crate) fn run<T: Send, R: Send, E: Send>(
        &self,
        priority: impl Fn() -> Priority + Sync,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        let number = (self.number(), u64::MAX);
        self.serve(number, priority, pieces, stop, work)
    }

    /// As [`run`](Self::run), by a worker on a piece of another run, whose thread others may
    /// have meanwhile: these pieces first, before any other of that run, so that no more of
    /// its pieces are under way than need be.
    pub(crate) fn run_within<T: Send, R: Send, E: Send>(
        &self,
        priority: impl Fn() -> Priority + Sync,
        pieces: Vec<T>,
        stop: impl Fn() -> bool + Sync,
        work: impl Fn(usize, T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Unfinished<E>> {
        let Some(of) = PIECE_OF.get() else {
            return self.run(priority, pieces, stop, work);
        };
        let number = (of.0, self.number());
        {
            // Together, so that nothing younger comes between.
            let mut desk = lock(&self.desk);
            desk.parts.insert(
                number,
                Seat {
                    priority: priority(),
                    working: 0,
                    wants: !pieces.is_empty(),
                },
            );
            if let Some(seat) = desk.parts.get_mut(&of) {
                seat.working -= 1;
            }
        }
        self.news.notify_all();
        let _back = Back(self, of);
        self.serve(number, priority, pieces, stop, work)
    }

    /// Whoever waits looks again whether it is given up, or has another priority.
    pub(crate) fn look_again(&self) {
        // Whoever looked before this, under the lock, waits by now.
        drop(lock(&self.desk));
        self.news.notify_all();
    }

    fn number(&self) -> u64 {
        self.came.fetch_add(1, Ordering::Relaxed)
    }

    fn serve<T: Send, R: Send, E: Send>(
        &self,
        number: Number,
        priority: impl Fn() -> Priority + Sync,
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
            number,
            engine: EngineId::of_this_thread(),
            priority,
            stop,
            work,
            state: Mutex::new(state),
        };
        {
            let _seated = Seated(self, number);
            std::thread::scope(|scope| run.start_workers(scope));
        }
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

    /// Changes a part's place, if it has not left.
    fn change(&self, number: Number, change: impl FnOnce(&mut Seat)) {
        if let Some(seat) = lock(&self.desk).parts.get_mut(&number) {
            change(seat);
        }
        self.news.notify_all();
    }

    fn let_go(&self, number: Number) {
        self.change(number, |seat| seat.working -= 1);
    }

    fn wait<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        self.news.wait(desk).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker that goes on with its piece, once dropped, whoever has its thread.
struct Back<'a>(&'a Crew, Number);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.change(self.1, |seat| seat.working += 1);
    }
}

/// A thread that works, until dropped.
struct Taken<'a>(&'a Crew, Number);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.let_go(self.1);
    }
}

/// A part that may have a place at the desk, until dropped.
struct Seated<'a>(&'a Crew, Number);

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        lock(&self.0.desk).parts.remove(&self.1);
        self.0.news.notify_all();
    }
}

/// The work on one part.
struct Run<'a, T, R, E, Class, Stop, Work> {
    crew: &'a Crew,
    number: Number,
    /// Whose threads the workers are.
    engine: Option<EngineId>,
    priority: Class,
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

impl<T, R, E, Class, Stop, Work> Run<'_, T, R, E, Class, Stop, Work>
where
    T: Send,
    R: Send,
    E: Send,
    Class: Fn() -> Priority + Sync,
    Stop: Fn() -> bool + Sync,
    Work: Fn(usize, T) -> Result<R, E> + Sync,
{
    /// A worker for each thread that this part is given, until no piece is left to begin.
    fn start_workers<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        while let Some(piece) = self.take() {
            let taken = Taken(self.crew, self.number);
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
        self.see_workers_off();
    }

    /// Waits for a thread for the next piece, and gives both; none if no piece is to be begun
    /// any more.
    fn take(&self) -> Option<(usize, T)> {
        let mut desk = lock(&self.crew.desk);
        let piece = loop {
            if !self.has_piece() {
                break None;
            }
            self.stand(&mut desk).wants = true;
            if desk.may_take(self.number)
                && let Some(piece) = self.pop()
            {
                break Some(piece);
            }
            desk = self.crew.wait(desk);
        };
        // With another piece it wants the next one.
        let wants = self.has_piece();
        let seat = self.stand(&mut desk);
        seat.working += usize::from(piece.is_some());
        seat.wants = wants;
        drop(desk);
        // Whoever is next may be served too.
        self.crew.news.notify_all();
        piece
    }

    /// Waits until no thread works for it, or nobody waits for it any more: then those that
    /// do so still are others'.
    fn see_workers_off(&self) {
        let mut desk = lock(&self.crew.desk);
        while !(self.stop)() && self.stand(&mut desk).working > 0 {
            desk = self.crew.wait(desk);
        }
        if (self.stop)() {
            desk.parts.remove(&self.number);
        }
        drop(desk);
        self.crew.news.notify_all();
    }

    /// Its place at the desk, with the priority that it has now.
    fn stand<'desk>(&self, desk: &'desk mut Desk) -> &'desk mut Seat {
        let priority = (self.priority)();
        let seat = desk.parts.entry(self.number).or_insert(Seat {
            priority,
            working: 0,
            wants: false,
        });
        if seat.priority != priority {
            seat.priority = priority;
            // Others of the old one may be next.
            self.crew.news.notify_all();
        }
        seat
    }

    /// Works on a piece, and on others as long as the thread may be kept.
    fn work(&self, handed: &Mutex<Option<((usize, T), Taken<'_>)>>) {
        let Some(((index, piece), _taken)) = lock(handed).take() else {
            return;
        };
        let outer = PIECE_OF.replace(Some(self.number));
        self.work_on(index, piece);
        while !lock(&self.crew.desk).must_let_go(self.number)
            && let Some((index, piece)) = self.next()
        {
            self.work_on(index, piece);
        }
        PIECE_OF.set(outer);
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
            self.crew.change(self.number, |seat| seat.wants = false);
        }
        piece
    }
}
