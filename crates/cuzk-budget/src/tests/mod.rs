//! Tests of the ledger, the queue, limits and plans.

mod byte_count;
mod ledger;
mod limits;
mod order;
mod plan;

use crate::{Budget, Consumer};

const COLUMNS: Consumer = Consumer("columns");
const KEYS: Consumer = Consumer("keys");

/// What the ledger holds, which must be what its holders hold together.
fn used_bytes(budget: &Budget) -> u64 {
    let usage = budget.usage();
    let sum: u64 = usage.holders.iter().map(|holder| holder.bytes).sum();
    assert_eq!(sum, usage.used_bytes, "the holders are the whole");
    assert!(usage.used_bytes <= usage.limit_bytes);
    usage.used_bytes
}
