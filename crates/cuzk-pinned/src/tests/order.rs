//! Requests for buffers wait in the budget's queue, in its order.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use cuzk_budget::Priority;

use super::{Bench, OTHERS, is_refused, request};
use crate::{AcquireError, Acquired};

fn poll<F>(future: &mut Pin<&mut F>) -> Poll<Result<Acquired, AcquireError>>
where
    F: Future<Output = Result<Acquired, AcquireError>>,
{
    let mut context = Context::from_waker(Waker::noop());
    future.as_mut().poll(&mut context)
}

#[test]
fn a_later_request_does_not_take_what_an_earlier_one_waits_for() {
    let bench = Bench::new(1000);
    let mut held = bench.try_acquire(&[500, 400], 0).unwrap();
    let mut first = pin!(bench.pool.acquire_async(&request(&[500, 500], 0)));
    let mut second = pin!(bench.pool.acquire_async(&request(&[500], 0)));
    let mut urgent = request(&[400], 0);
    urgent.wait.priority = Priority::HIGHEST;
    let mut urgent = pin!(bench.pool.acquire_async(&urgent));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());

    // What comes back would serve the second, and is kept for the first.
    drop(held.buffers.remove(0));
    assert!(poll(&mut second).is_pending());
    assert!(is_refused(&bench.try_acquire(&[500], 0)));
    assert!(bench.budget.try_reserve(OTHERS, 1).is_err());
    assert!(poll(&mut first).is_pending());

    // The urgent one goes before both, and takes what it needs.
    let Poll::Ready(Ok(granted)) = poll(&mut urgent) else {
        panic!("it fits in what is free and idle");
    };
    assert_eq!(granted.buffers[0].len(), 400);
    drop((held, granted));
    assert!(poll(&mut second).is_pending());
    let Poll::Ready(Ok(granted)) = poll(&mut first) else {
        panic!("everything is idle");
    };
    assert_eq!(bench.used_bytes(), 1000);
    assert!(poll(&mut second).is_pending());
    drop(granted);
    assert!(poll(&mut second).is_ready());
    bench.end();
}
