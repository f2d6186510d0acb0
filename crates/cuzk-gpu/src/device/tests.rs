//! Proofs on a pretended device: who moves while who waits.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::executor::tests::run_all;
use super::executor::{caught, give_way};
use super::turn::{News, Turn};
use super::waiter::{Passes, Waiter};
use crate::error::BackendError;

/// A fence that passes when it is let.
struct Fence(Receiver<()>);

impl Passes for Fence {
    fn wait(&self) -> Result<(), BackendError> {
        self.0.recv().map_err(|_| BackendError::Lost)
    }
}

/// Streams whose work ends when the test says so.
struct Pretended {
    waiters: [Waiter<Fence>; 2],
    seen: RefCell<Vec<String>>,
}

const UPLOAD: usize = 0;
const COMPUTE: usize = 1;

impl Pretended {
    fn new() -> Self {
        Self {
            waiters: [UPLOAD, COMPUTE]
                .map(|lane| Waiter::start(format!("lane-{lane}")).expect("a thread")),
            seen: RefCell::default(),
        }
    }

    /// Work on a lane, whose end is told.
    async fn work(&self, lane: usize, what: String, end: Receiver<()>) {
        self.seen.borrow_mut().push(format!("{what} begins"));
        let passed = self.waiters[lane].wait(Fence(end)).await;
        assert!(matches!(passed, Some(Ok(()))), "{what}");
        self.seen.borrow_mut().push(format!("{what} ends"));
    }
}

fn ends<const N: usize>() -> ([Sender<()>; N], [Receiver<()>; N]) {
    let pairs: Vec<_> = (0..N).map(|_| channel()).collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let senders = senders.try_into().expect("as many");
    (senders, receivers.try_into().expect("as many"))
}

#[test]
fn while_one_computes_the_next_uploads() {
    let device = Pretended::new();
    let (uploads, compute) = (Turn::new(()), Turn::new(()));
    let proof = |name: &'static str, [upload_ends, compute_ends]: [Receiver<()>; 2]| {
        let (device, uploads, compute) = (&device, &uploads, &compute);
        async move {
            {
                let _turn = uploads.take().await;
                let what = format!("{name}'s upload");
                device.work(UPLOAD, what, upload_ends).await;
            }
            let _turn = compute.take().await;
            device.work(COMPUTE, name.to_owned(), compute_ends).await;
        }
    };
    let ([a_upload, a_compute], a) = ends();
    let ([b_upload, b_compute], b) = ends();
    let director = async {
        let until = async |what: &str| {
            while !device.seen.borrow().iter().any(|seen| seen == what) {
                give_way().await;
            }
        };
        until("a's upload begins").await;
        a_upload.send(()).expect("a fence");
        until("a begins").await;
        until("b's upload begins").await;
        b_upload.send(()).expect("a fence");
        until("b's upload ends").await;
        a_compute.send(()).expect("a fence");
        b_compute.send(()).expect("a fence");
    };
    run_all(vec![
        Box::pin(proof("a", a)),
        Box::pin(proof("b", b)),
        Box::pin(director),
    ]);
    let seen = device.seen.take();
    let at = |what: &str| seen.iter().position(|seen| seen == what).expect(what);
    assert!(at("a begins") < at("b's upload ends"), "{seen:?}");
    assert!(at("b's upload ends") < at("a ends"), "{seen:?}");
    assert!(at("a ends") < at("b begins"), "one computes: {seen:?}");
}

/// Places for one: each waits for the one before, and one that panics or gives up leaves
/// its place to the next.
#[test]
fn proofs_wait_for_room_in_their_order() {
    let (room, free, admission) = (News::default(), Cell::new(1), Turn::new(()));
    let order = RefCell::new(Vec::new());
    let proof = |number: usize| -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let (room, free, admission, order) = (&room, &free, &admission, &order);
        Box::pin(async move {
            {
                let _turn = admission.take().await;
                loop {
                    let moment = room.now();
                    if free.get() == 1 {
                        free.set(0);
                        break;
                    }
                    room.since(moment).await;
                }
            }
            let ended = caught(async {
                give_way().await;
                assert!(number != 2, "one that fails");
            });
            let ended = ended.await.is_ok();
            order.borrow_mut().push((number, ended));
            free.set(1);
            room.tell();
        })
    };
    run_all((0..5).map(proof).collect());
    let expected: Vec<_> = (0..5).map(|number| (number, number != 2)).collect();
    assert_eq!(order.into_inner(), expected);
}
