//! Why bytes were refused.

use std::fmt;
use std::sync::Arc;

use crate::byte_count::ByteCount;
use crate::reservation::Reservation;
use crate::usage::{Consumer, Holder};

/// How many holders an error names, largest first.
pub(crate) const TOP_HOLDERS: usize = 4;

/// A request that cannot be granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// The request is larger than the whole ledger: it could never be granted,
    /// so it is never queued.
    #[error(
        "`{consumer}` asked {} of {ledger}, whose limit is {}{}",
        ByteCount(*asked_bytes),
        ByteCount(*limit_bytes),
        of_which_kept(*kept_bytes)
    )]
    TooLarge {
        /// Name of the ledger.
        ledger: Arc<str>,
        /// Who asked.
        consumer: Consumer,
        /// Bytes asked.
        asked_bytes: u64,
        /// Bytes that the ledger may hold at most.
        limit_bytes: u64,
        /// Bytes of these that the request could not be granted, since they are kept for
        /// the highest priority.
        kept_bytes: u64,
    },
    /// Not free now, and the request was not to wait.
    #[error("{0}")]
    Refused(Box<Shortage>),
    /// The deadline passed in the queue.
    #[error("deadline passed: {0}")]
    Deadline(Box<Shortage>),
    /// The request's cancel token was used.
    #[error("`{consumer}` was cancelled while it asked {}", ByteCount(*asked_bytes))]
    Cancelled {
        /// Who asked.
        consumer: Consumer,
        /// Bytes asked.
        asked_bytes: u64,
    },
    /// The budget was closed.
    #[error("{ledger} is closed: `{consumer}` asked {}", ByteCount(*asked_bytes))]
    Closed {
        /// Name of the ledger.
        ledger: Arc<str>,
        /// Who asked.
        consumer: Consumer,
        /// Bytes asked.
        asked_bytes: u64,
    },
    /// A reservation was to give up more than it holds.
    #[error(
        "`{consumer}` holds {} and was to give up {}",
        ByteCount(*held_bytes),
        ByteCount(*asked_bytes)
    )]
    NotHeld {
        /// Whose reservation it is.
        consumer: Consumer,
        /// Bytes to be split off or given back.
        asked_bytes: u64,
        /// Bytes in the reservation.
        held_bytes: u64,
    },
}

/// What is said of a limit of which not all may be had.
fn of_which_kept(kept_bytes: u64) -> String {
    match kept_bytes {
        0 => String::new(),
        bytes => format!(
            ", of which {} are kept for the highest priority",
            ByteCount(bytes)
        ),
    }
}

impl BudgetError {
    /// Whether the same request may be granted later: the bytes are there, and
    /// others hold them or are ahead in the queue.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// What was lacking, where that is the reason.
    pub fn shortage(&self) -> Option<&Shortage> {
        match self {
            Self::Refused(shortage) | Self::Deadline(shortage) => Some(shortage),
            _ => None,
        }
    }
}

/// The state of the ledger that refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Name of the ledger.
    pub ledger: Arc<str>,
    /// Who asked.
    pub consumer: Consumer,
    /// Bytes asked.
    pub asked_bytes: u64,
    /// Bytes held by all together.
    pub held_bytes: u64,
    /// Bytes of those that reclaimers said they could give back.
    pub idle_bytes: u64,
    /// Bytes that the ledger may hold at most.
    pub limit_bytes: u64,
    /// Requests that wait and are served first.
    pub waiters_ahead: usize,
    /// The largest holders, largest first.
    pub holders: Vec<Holder>,
}

impl Shortage {
    /// Bytes that would have to come free, beyond what is idle, for the request
    /// to fit. Zero where only the queue stands in the way.
    pub fn missing_bytes(&self) -> u64 {
        let free_bytes = self.limit_bytes.saturating_sub(self.held_bytes);
        self.asked_bytes
            .saturating_sub(free_bytes)
            .saturating_sub(self.idle_bytes)
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` asked {} of {}: {} of {} held, {} of them idle",
            self.consumer,
            ByteCount(self.asked_bytes),
            self.ledger,
            ByteCount(self.held_bytes),
            ByteCount(self.limit_bytes),
            ByteCount(self.idle_bytes),
        )?;
        if self.waiters_ahead > 0 {
            write!(f, ", {} waiting ahead", self.waiters_ahead)?;
        }
        for (index, holder) in self.holders.iter().enumerate() {
            let lead = if index == 0 { "; held by" } else { "," };
            let bytes = ByteCount(holder.bytes);
            write!(f, "{lead} `{}` {bytes}", holder.consumer)?;
        }
        Ok(())
    }
}

/// Two reservations of different ledgers cannot become one. The one that was
/// to be merged is handed back.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{}` with {} belongs to another ledger",
    .reservation.consumer(),
    ByteCount(.reservation.bytes())
)]
pub struct MergeError {
    /// The reservation that stays apart.
    pub reservation: Reservation,
}
