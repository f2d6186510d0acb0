//! Four workers put forty parts through memory for two.

use std::error::Error;
use std::thread;

use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_pinned::{AcquireRequest, PinnedPool};

const COLUMN_BYTES: usize = 1 << 20;
/// Bytes that a part needs beside its columns.
const WORK_BYTES: u64 = 1 << 18;

fn main() -> Result<(), Box<dyn Error>> {
    let part_bytes = 3 * COLUMN_BYTES as u64 + WORK_BYTES;
    let budget = Budget::named("host memory", 2 * part_bytes);
    let pool = PinnedPool::heap(budget.clone());
    pool.warm(&[(COLUMN_BYTES, 6)])?;
    println!("warm: {:?}", pool.stats());

    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let pool = &pool;
                scope.spawn(move || (0..10).try_for_each(|part| prove(pool, worker, part)))
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    println!("done: {:?}", pool.stats());

    let freed_bytes = pool.trim(u64::MAX);
    println!(
        "trimmed {freed_bytes} bytes, {} in use",
        budget.usage().used_bytes
    );
    Ok(())
}

/// Stands for synthesis and proof of one part.
fn prove(pool: &PinnedPool, worker: u8, part: u8) -> Result<(), cuzk_pinned::AcquireError> {
    let mut acquired = pool.acquire(&AcquireRequest {
        buffers: &[COLUMN_BYTES; 3],
        bytes: WORK_BYTES,
        consumer: Consumer("parts"),
        wait: Wait::with_priority(Priority::NORMAL),
    })?;
    for column in &mut acquired.buffers {
        column.as_bytes_mut().fill(worker * 10 + part);
    }
    Ok(())
}
