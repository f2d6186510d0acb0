//! A bit that flips on the way to a proof: the proof never leaves, whoever finds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuzk_core::ProveError;
use cuzk_gpu::{
    Backend, BackendError, CColumn, CircuitSizes, ColumnLayout, Dual, Intermediate, Key, KeyTier,
    Pending, ProveRequest, Watch,
};

use crate::toy::{House, SquaresJob, cpu};
use crate::{PLENTY, error, prove};

/// Flips the lowest bit of one intermediate, and then shows it to whoever watches.
struct Flip(Intermediate, Option<Arc<dyn Watch>>);

impl Watch for Flip {
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
        if which == self.0 && offset_bytes == 0 {
            bytes[0] ^= 1;
        }
        if let Some(watch) = &self.1 {
            watch.seen(which, offset_bytes, bytes);
        }
    }
}

/// A backend in whose first proofs a bit flips.
struct Flipping {
    inner: Arc<dyn Backend>,
    which: Intermediate,
    times: AtomicUsize,
}

impl Flipping {
    fn times(times: usize, which: Intermediate) -> Arc<dyn Backend> {
        Arc::new(Self {
            inner: Arc::new(cpu(true)),
            which,
            times: AtomicUsize::new(times),
        })
    }
}

impl Backend for Flipping {
    fn name(&self) -> &'static str {
        "flipping"
    }

    fn c_column(&self) -> CColumn {
        self.inner.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.inner.layout(sizes)
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.inner.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let left = self
            .times
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        if left.is_err() {
            return self.inner.submit(request);
        }
        let flip = Flip(self.which, request.watch);
        self.inner.submit(ProveRequest {
            watch: Some(Arc::new(flip)),
            ..request
        })
    }
}

/// One backend alone, and the engine's own check.
#[test]
fn a_flipped_bit_anywhere_never_leaves() {
    let house = House::new(&[30]);
    let job = SquaresJob::new(30, 3, 1);
    let expected = prove(&house.engine(PLENTY), &job)
        .expect("a good job")
        .proof;
    for which in Intermediate::ALL {
        let engine = house.engine_on(PLENTY, Flipping::times(1, which));
        let reply = prove(&engine, &job).expect("the second attempt");
        assert_eq!(reply.retries(), 1, "{which}");
        assert!(reply.proof == expected, "{which}");
        assert_eq!(engine.metrics().verification_failures.count(), 1, "{which}");

        let engine = house.engine_on(PLENTY, Flipping::times(usize::MAX, which));
        let error = prove(&engine, &job).expect_err("a flip each time");
        assert!(
            matches!(error, ProveError::InvalidProof { part: 0 }),
            "{which}: {error}"
        );
    }
}

/// Two that are compared: the step is named before any proof is.
#[test]
fn twins_name_the_step_and_the_backends() {
    let house = House::new(&[30]);
    let job = SquaresJob::new(30, 3, 1);
    let expected = prove(&house.engine(PLENTY), &job)
        .expect("a good job")
        .proof;
    for which in Intermediate::ALL {
        let twins = |times| -> Arc<dyn Backend> {
            let second = Arc::new(cpu(true));
            Arc::new(Dual::start(Flipping::times(times, which), second, 4).expect("a thread"))
        };
        let engine = house.engine_on(PLENTY, twins(1));
        let reply = prove(&engine, &job).expect("the second attempt");
        assert_eq!((reply.backend, reply.retries()), ("dual", 1), "{which}");
        assert!(reply.proof == expected, "{which}");
        assert_eq!(engine.metrics().verification_failures.count(), 0, "{which}");

        let engine = house.engine_on(PLENTY, twins(usize::MAX));
        let failed = prove(&engine, &job).expect_err("a flip each time");
        let ProveError::Backend { part: 0, source } = failed else {
            panic!("{which}: {failed}");
        };
        assert!(
            matches!(source, BackendError::Disagreement { at, .. } if at == Some(which)),
            "{source:?}"
        );
        assert_eq!(
            error(&engine, &job),
            format!("part 0: flipping and cpu disagree, first on {which}")
        );
    }
}
