//! A plan, a limit, and three jobs that share it: the urgent one goes first.

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use cuzk_budget::{Budget, Consumer, Factor, Plan, Priority, Wait};

const PART: Consumer = Consumer("part");
const PART_BYTES: u64 = 3 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut plan = Plan::new("host memory", 4 << 20);
    let factors = [
        Factor::new(3, "columns"),
        Factor::new(1 << 15, "scalars"),
        Factor::new(32, "bytes"),
    ];
    plan.add(PART, &factors)?;
    plan.check()?;
    print!("{plan}");

    let budget = Budget::named("host memory", plan.limit_bytes());
    let held = budget.try_reserve(PART, PART_BYTES)?;
    println!("{}", budget.try_reserve(PART, PART_BYTES).unwrap_err());

    let (done, served) = mpsc::channel();
    thread::scope(|scope| {
        let jobs = [
            ("usual", Priority::NORMAL),
            ("whenever", Priority::LOWEST),
            ("urgent", Priority::HIGHEST),
        ];
        for (waiting, (name, priority)) in jobs.into_iter().enumerate() {
            let (budget, done) = (&budget, done.clone());
            scope.spawn(move || {
                let held = budget.reserve(PART, PART_BYTES, &Wait::with_priority(priority));
                // Sent while the bytes are held, so the order is the queue's.
                done.send(held.as_ref().map(|_| name).map_err(Clone::clone))
            });
            while budget.usage().waiters <= waiting {
                thread::yield_now();
            }
        }
        drop(held);
    });
    drop(done);
    for name in served {
        println!("served: {}", name?);
    }
    println!("in use at the end: {} bytes", budget.usage().used_bytes);
    Ok(())
}
