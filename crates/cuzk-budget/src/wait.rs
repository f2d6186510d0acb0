//! How a request waits: its urgency, its deadline, its cancellation.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::sync::{Mutex, lock};

/// Urgency of a request: a greater number is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// Served after everything else.
    pub const LOWEST: Self = Self(0);
    /// The middle of the range.
    pub const NORMAL: Self = Self(128);
    /// Served before everything else.
    pub const HIGHEST: Self = Self(u8::MAX);
}

/// How a request waits for its bytes.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Requests of greater priority are served first, those of equal priority
    /// in the order of their arrival.
    pub priority: Priority,
    /// When to give up; `None` waits for as long as it takes.
    pub deadline: Option<Instant>,
    /// Gives up when this token is used.
    pub cancel: Option<CancelToken>,
}

impl Wait {
    /// Waits without deadline or token.
    #[inline]
    pub fn with_priority(priority: Priority) -> Self {
        Self {
            priority,
            deadline: None,
            cancel: None,
        }
    }

    /// The same wait, given up at `deadline`.
    pub fn until(self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// The same wait, given up when `token` is used.
    pub fn cancelled_by(self, token: &CancelToken) -> Self {
        Self {
            cancel: Some(token.clone()),
            ..self
        }
    }

    /// Whether its token is used already.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }
}

/// Ends the waits that carry a clone of it. Once used it stays used.
#[derive(Clone, Debug)]
pub struct CancelToken {
    shared: Arc<Mutex<Cancellation>>,
}

#[derive(Debug)]
struct Cancellation {
    is_cancelled: bool,
    next_listener: u64,
    listeners: Vec<(u64, Waker)>,
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl CancelToken {
    /// A token that is not used yet.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Mutex::new(Cancellation {
                is_cancelled: false,
                next_listener: 0,
                listeners: Vec::new(),
            })),
        }
    }

    /// Ends every wait that carries this token, now and later.
    pub fn cancel(&self) {
        let listeners = {
            let mut state = lock(&self.shared);
            state.is_cancelled = true;
            std::mem::take(&mut state.listeners)
        };
        for (_, waker) in listeners {
            waker.wake();
        }
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.shared).is_cancelled
    }

    /// Has `waker` called on cancellation, in place of the one registered under
    /// `listener` before. Returns whether the token is used already.
    ///
    /// Wakers are cloned and dropped outside the lock: they run code of the
    /// executor, which may drop another wait on this token.
    pub(crate) fn listen(&self, listener: &mut Option<u64>, waker: &Waker) -> bool {
        let mut waker = waker.clone();
        let mut state = lock(&self.shared);
        if state.is_cancelled {
            return true;
        }
        let number = *listener.get_or_insert_with(|| {
            state.next_listener += 1;
            state.next_listener
        });
        match state.listeners.iter_mut().find(|(n, _)| *n == number) {
            Some((_, known)) => std::mem::swap(known, &mut waker),
            None => {
                state.listeners.push((number, waker));
                return false;
            }
        }
        drop(state);
        drop(waker);
        false
    }

    /// Forgets the waker registered under `listener`.
    pub(crate) fn forget(&self, listener: u64) {
        let _forgotten = {
            let mut state = lock(&self.shared);
            let position = state.listeners.iter().position(|(n, _)| *n == listener);
            position.map(|position| state.listeners.swap_remove(position))
        };
    }
}
