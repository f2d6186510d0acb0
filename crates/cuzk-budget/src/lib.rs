//! Counts bytes against limits: ledgers, reservations, a fair queue, plans.
//!
//! A [`Budget`] is one ledger: host memory, the page-locked share of it, a
//! device. A [`Reservation`] holds bytes of it until dropped. What does not fit
//! is refused with the numbers ([`Budget::try_reserve`]) or waits in a queue
//! ([`Budget::reserve`], [`Budget::reserve_async`]); those who hold idle bytes
//! give them back when that helps ([`Reclaim`]).
//!
//! What it does not do: it allocates no memory, and it does not see memory that
//! nobody reserved. Code, stacks, small allocations belong in one line of the
//! [`Plan`] with a measured allowance; mapped file pages are not counted.
//!
//! Invariants:
//! - what a ledger holds is the sum of its live reservations, at every moment;
//! - it never exceeds the limit;
//! - no waiting request is served before one of equal or greater priority that
//!   came earlier, and none is lost;
//! - a request larger than the limit is an error at once.
//!
//! ```
//! use cuzk_budget::{Budget, Consumer};
//!
//! const COLUMNS: Consumer = Consumer("columns");
//! let host = Budget::named("host memory", 1 << 30);
//! let pinned = host.share("page-locked memory", 1 << 29);
//!
//! let mut columns = pinned.try_reserve(COLUMNS, 3 << 20)?;
//! let one = columns.split(1 << 20)?;
//! assert_eq!(host.usage().held_by(COLUMNS), 3 << 20);
//! drop(one);
//! assert_eq!(host.usage().used_bytes, 2 << 20);
//!
//! let refused = pinned.try_reserve(COLUMNS, 1 << 30).unwrap_err();
//! assert!(refused.to_string().contains("page-locked memory"));
//! # Ok::<(), cuzk_budget::BudgetError>(())
//! ```
#![forbid(unsafe_code)]

mod budget;
mod byte_count;
mod error;
mod limits;
mod plan;
mod reclaim;
mod reservation;
mod state;
mod sync;
mod turn;
mod usage;
mod wait;

pub use budget::Budget;
pub use byte_count::ByteCount;
pub use error::{BudgetError, MergeError, Shortage};
pub use limits::{
    AUTOMATIC_MARGIN_MIN_BYTES, AUTOMATIC_MARGIN_PERCENT, BoxUse, GroupFiles, LimitError,
    LimitRule, MemoryFiles, MemoryReading, page_locked_limit,
};
pub use plan::{Factor, Plan, PlanError};
pub use reclaim::Reclaim;
pub use reservation::Reservation;
pub use turn::{ReclaimingTurn, Turn};
pub use usage::{Consumer, Holder, Usage};
pub use wait::{CancelToken, Priority, Wait};

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
