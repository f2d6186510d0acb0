//! Requests that do not fit, several at once, full queues and proofs that nobody wants
//! any more: an error for that request alone, and the columns back.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use blstrs::Scalar;
use cuzk_budget::Budget;
use cuzk_pinned::PinnedPool;
use ff::Field;

use super::{Case, Make, QUEUE_LEN_MAX, bytes, proved};
use crate::backend::{Backend, ProveRequest};
use crate::cpu::tests::circuit::{RandomCircuit, bitmap};
use crate::cpu::tests::column;
use crate::error::BackendError;
use crate::watch::{Intermediate, Watch};

const R: Scalar = Scalar::ONE;
const S: Scalar = Scalar::ONE;

fn small() -> Case<RandomCircuit> {
    Case::meaningless(RandomCircuit::of_products(10, 1), 2)
}

/// Submits a request that must fail and checks that the columns come back.
fn refused(backend: &dyn Backend, request: ProveRequest) -> BackendError {
    let mut pending = backend.submit(request);
    assert!(pending.columns_read().is_some(), "the columns come back");
    pending.done().expect_err("a request that does not fit")
}

/// A change that makes a fitting request unfit.
type Spoil = fn(&mut ProveRequest);

fn longer(column: &mut crate::Column) {
    *column = self::column(&[], column.len() + 1);
}

pub(crate) fn parts_that_do_not_fit_are_refused_with_both_numbers(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let case = small();
    let layout = backend.layout(&case.shape.sizes);
    let rows = layout.rows;
    let cases: [(&str, Spoil, usize, usize); 9] = [
        (
            "scalars in column a",
            |request| request.columns.a = column(&[], 3),
            3,
            rows,
        ),
        (
            "scalars in column a",
            |request| longer(&mut request.columns.a),
            rows + 1,
            rows,
        ),
        (
            "scalars in column b",
            |request| longer(&mut request.columns.b),
            rows + 1,
            rows,
        ),
        (
            "scalars in column aux",
            |request| request.columns.aux = column(&[], 9),
            9,
            10,
        ),
        ("public inputs", |request| request.inputs.truncate(3), 3, 4),
        (
            "bits in the density of a",
            |request| Arc::make_mut(&mut request.shape).a_aux = bitmap(&[true; 11]),
            11,
            10,
        ),
        (
            "bits in the input density of b",
            |request| Arc::make_mut(&mut request.shape).b_inputs = bitmap(&[]),
            0,
            4,
        ),
        (
            "bits in the density of b",
            |request| Arc::make_mut(&mut request.shape).b_aux = bitmap(&[true; 1]),
            1,
            10,
        ),
        (
            "points in key section ic",
            |request| request.key = other_key(),
            2,
            4,
        ),
    ];
    let fits = || case.request(&*backend, R, S);
    let check = |what: &str, spoil: Spoil, have: usize, want: usize| {
        let mut request = fits();
        spoil(&mut request);
        let error = refused(&*backend, request);
        assert!(matches!(error, BackendError::Mismatch { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!("{what}: have {have}, want {want}")
        );
    };
    for (what, spoil, have, want) in cases {
        check(what, spoil, have, want);
    }
    if layout.has_c() {
        let what = "scalars in column c";
        check(what, |request| request.columns.c = None, 0, rows);
    }
    proved(&*backend, fits());
}

/// The key of a smaller circuit, with two inputs.
fn other_key() -> Arc<crate::Key> {
    let circuit = RandomCircuit {
        early_inputs: 1,
        late_inputs: 0,
        ..RandomCircuit::of_products(3, 7)
    };
    // The file stays open after its directory is gone.
    Case::meaningless(circuit, 3).key
}

pub(crate) fn a_key_that_shrinks_ends_its_proof_alone(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let [case, other] = [small(), small()];
    let file = OpenOptions::new().write(true).open(&case.key_path);
    let cut = file.and_then(|file| file.set_len(file.metadata()?.len() / 2));
    cut.expect("a file of ours");
    let error = refused(&*backend, case.request(&*backend, R, S));
    assert!(matches!(error, BackendError::Key(_)), "{error:?}");
    other.compare(&*backend, R, S, "the next");
}

pub(crate) fn two_at_once_are_kept_apart(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let cases = [20, 37].map(|products| {
        let circuit = RandomCircuit::of_products(products, products as u64);
        Case::meaningless(circuit, products as u64)
    });
    let submit = |case: &Case<_>| backend.submit(case.request(&*backend, R, S));
    let [first, second] = cases.each_ref().map(submit);
    // The later one is waited for first.
    for (case, mut pending) in [(&cases[1], second), (&cases[0], first)] {
        let proof = pending.done().expect("a request that fits").proof;
        assert!(bytes(&proof) == case.stock(R, S));
        assert!(pending.columns_read().is_some(), "the columns come back");
    }
}

/// Stops a proof at the first thing it shows until it is let go on.
struct Gate {
    is_passed: AtomicBool,
    reached: Sender<()>,
    open: Mutex<Receiver<()>>,
}

impl Gate {
    /// The gate, what tells that a proof stands before it, and what opens it.
    fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let (reached, is_reached) = channel();
        let (open, is_open) = channel();
        let gate = Self {
            is_passed: AtomicBool::new(false),
            reached,
            open: Mutex::new(is_open),
        };
        (Arc::new(gate), is_reached, open)
    }
}

impl Watch for Gate {
    fn seen(&self, _: Intermediate, _: u64, _: &mut [u8]) {
        if !self.is_passed.swap(true, Ordering::Relaxed) {
            // The test may have ended; then there is nobody to tell.
            let _ = self.reached.send(());
            let _ = self.open.lock().expect("one thread locks it").recv();
        }
    }
}

/// Memory that a device or a thread may still read is never handed to somebody else.
pub(crate) fn a_dropped_proof_gives_its_columns_back_first(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let case = small();
    let pool = PinnedPool::heap(Budget::new(1 << 20));
    let (gate, is_reached, open) = Gate::new();
    let mut request = case.request_in(&pool, &*backend, R, S);
    request.watch = Some(gate);
    let running = backend.submit(request);
    is_reached.recv().expect("the proof begins");
    let waiting = backend.submit(case.request_in(&pool, &*backend, R, S));
    assert!(pool.stats().in_use_bytes > 0);
    open.send(()).expect("the proof waits");
    drop(running);
    drop(waiting);
    assert_eq!(pool.stats().in_use_bytes, 0, "nobody holds a column");
    case.compare(&*backend, R, S, "the next");
}

pub(crate) fn a_full_queue_refuses_and_a_drop_finishes_what_waits(make: &Make) {
    let Some(backend) = make(2) else { return };
    let case = small();
    let (gate, is_reached, open) = Gate::new();
    let fits = || case.request(&*backend, R, S);
    let mut running = backend.submit(ProveRequest {
        watch: Some(gate),
        ..fits()
    });
    is_reached.recv().expect("the first proof begins");
    let mut waiting = [(); 2].map(|()| backend.submit(fits()));
    let error = refused(&*backend, fits());
    assert!(
        matches!(error, BackendError::QueueFull { limit: 2 }),
        "{error:?}"
    );
    open.send(()).expect("the first proof waits");
    drop(backend);
    assert!(running.done().is_ok());
    assert!(waiting.iter_mut().all(|pending| pending.done().is_ok()));
}
