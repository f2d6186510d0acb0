//! Two backends as one: what agrees leaves, and what does not is named.

use std::sync::Arc;

use blstrs::Scalar;

use super::Dual;
use crate::backend::{Backend, Pending, ProveRequest, Upload, pending};
use crate::column::{CColumn, ColumnLayout, Columns};
use crate::conformance::watching::Flip;
use crate::conformance::{Case, bytes, proved, suite};
use crate::cpu::tests::circuit::RandomCircuit;
use crate::cpu::tests::column;
use crate::cpu::tests::conformance::make as cpu;
use crate::error::BackendError;
use crate::key::{Key, KeyTier};
use crate::shape::CircuitSizes;
use crate::watch::{Intermediate, Watch};

fn dual(
    first: Option<Arc<dyn Backend>>,
    second: Option<Arc<dyn Backend>>,
    queue_len_max: usize,
) -> Option<Arc<dyn Backend>> {
    let dual = Dual::start(first?, second?, queue_len_max).expect("a thread");
    Some(Arc::new(dual))
}

/// Wants columns as a device does, short and without the third, copies them and gives
/// them back at once.
struct Copying(Arc<dyn Backend>);

impl Backend for Copying {
    fn name(&self) -> &'static str {
        "copying"
    }

    fn c_column(&self) -> CColumn {
        CColumn::Absent
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        ColumnLayout {
            rows: sizes.constraints,
            aux: sizes.aux,
            c: CColumn::Absent,
        }
    }

    fn upload(&self) -> Upload {
        Upload::FromColumns
    }

    fn work_bytes(&self, _: &CircuitSizes, _: &Key, _: KeyTier) -> u64 {
        1
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let rows = request.shape.sizes.constraints;
        let lens = [&request.columns.a, &request.columns.b].map(|column| column.len());
        assert_eq!((lens, request.columns.c.is_none()), ([rows; 2], true));
        let domain = request.shape.sizes.domain();
        let copy = Columns {
            a: column(request.columns.a.scalars(), domain),
            b: column(request.columns.b.scalars(), domain),
            c: Some(column(&[], domain)),
            aux: column(request.columns.aux.scalars(), request.columns.aux.len()),
        };
        let (completion, pending) = pending();
        completion.columns_read(request.columns);
        let mut inner = self.0.submit(ProveRequest {
            columns: copy,
            ..request
        });
        std::thread::spawn(move || completion.done(inner.done()));
        pending
    }
}

fn copying(queue_len_max: usize) -> Option<Arc<dyn Backend>> {
    Some(Arc::new(Copying(cpu(queue_len_max)?)))
}

mod two_that_spoil_columns {
    use super::*;
    suite!(|queue_len_max| dual(cpu(4), cpu(4), queue_len_max));
}

mod one_that_copies_and_one_that_spoils {
    use super::*;
    suite!(|queue_len_max| dual(copying(4), cpu(4), queue_len_max));
}

mod one_that_spoils_and_one_that_copies {
    use super::*;
    suite!(|queue_len_max| dual(cpu(4), copying(4), queue_len_max));
}

/// A backend whose every proof has one bit wrong on the way.
pub(crate) struct Wrong(pub(crate) Arc<dyn Backend>, pub(crate) Intermediate);

/// Shows what the one has changed to the other.
struct Then(Flip, Arc<dyn Watch>);

impl Watch for Then {
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
        self.0.seen(which, offset_bytes, bytes);
        self.1.seen(which, offset_bytes, bytes);
    }
}

impl Backend for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn c_column(&self) -> CColumn {
        self.0.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.0.layout(sizes)
    }

    fn upload(&self) -> Upload {
        self.0.upload()
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.0.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let flip = Flip(self.1);
        self.0.submit(ProveRequest {
            watch: Some(match request.watch {
                Some(watch) => Arc::new(Then(flip, watch)),
                None => Arc::new(flip),
            }),
            ..request
        })
    }
}

/// Proves with a flip in each intermediate on either side, and checks what is named.
pub(crate) fn each_flip_is_named(
    first: &Arc<dyn Backend>,
    second: &Arc<dyn Backend>,
    case: &Case<RandomCircuit>,
) {
    for which in Intermediate::ALL {
        let wrong = |backend: &Arc<dyn Backend>| Some(Arc::new(Wrong(backend.clone(), which)) as _);
        for (name, dual) in [
            (
                format!("wrong and {}", second.name()),
                dual(wrong(first), Some(second.clone()), 1),
            ),
            (
                format!("{} and wrong", first.name()),
                dual(Some(first.clone()), wrong(second), 1),
            ),
        ] {
            let dual = dual.expect("both are there");
            let request = case.request(&*dual, Scalar::from(5), Scalar::from(6));
            let mut pending = dual.submit(request);
            assert!(pending.columns_read().is_some(), "the columns come back");
            let error = pending.done().expect_err("a flipped bit");
            assert!(
                matches!(error, BackendError::Disagreement { at, .. } if at == Some(which)),
                "{error:?}"
            );
            let text = error.to_string();
            assert_eq!(text, format!("{name} disagree, first on {which}"));
        }
    }
}

#[test]
fn each_flip_on_either_side_is_named_with_both_backends() {
    let case = Case::meaningless(RandomCircuit::of_products(40, 81), 82);
    let [first, second] = [(); 2].map(|()| cpu(4).expect("always there"));
    each_flip_is_named(&first, &second, &case);
    let copying = copying(4).expect("always there");
    each_flip_is_named(&copying, &second, &case);
}

/// A backend whose last step is wrong, which nothing shows.
struct Last(Arc<dyn Backend>);

impl Backend for Last {
    fn name(&self) -> &'static str {
        "last"
    }

    fn c_column(&self) -> CColumn {
        self.0.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.0.layout(sizes)
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.0.work_bytes(sizes, key, tier)
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let other = request.r + Scalar::from(1);
        self.0.submit(ProveRequest {
            r: other,
            ..request
        })
    }
}

#[test]
fn proofs_that_differ_where_nothing_else_does_are_told() {
    let case = Case::meaningless(RandomCircuit::of_products(4, 83), 84);
    let last: Option<Arc<dyn Backend>> = cpu(4).map(|cpu| Arc::new(Last(cpu)) as _);
    let dual = dual(cpu(4), last, 1).expect("both are there");
    let request = case.request(&*dual, Scalar::from(5), Scalar::from(6));
    let error = dual.submit(request).done().expect_err("two proofs");
    assert_eq!(
        error.to_string(),
        "cpu and last disagree, first on the proof"
    );
}

#[test]
fn two_are_told_as_one() {
    let case = Case::meaningless(RandomCircuit::of_products(40, 85), 86);
    let sizes = case.shape.sizes;
    let (copying, cpu) = (copying(4), cpu(4));
    let work = |backend: &Option<Arc<dyn Backend>>| {
        let backend = backend.as_ref().expect("always there");
        backend.work_bytes(&sizes, &case.key, KeyTier::File)
    };
    let work_of_cpu = work(&cpu);

    let device_first = dual(copying.clone(), cpu.clone(), 1).expect("both are there");
    assert_eq!(device_first.name(), "dual");
    assert_eq!(device_first.upload(), Upload::FromColumns);
    assert_eq!(device_first.c_column(), CColumn::Scratch);
    assert_eq!(device_first.layout(&sizes).rows, sizes.domain());
    assert!(!device_first.keeps_keys());
    assert_eq!(work(&Some(device_first.clone())), work_of_cpu);
    let request = case.request(&*device_first, Scalar::from(5), Scalar::from(6));
    let phases = proved(&*device_first, request).phases;
    let names: Vec<_> = phases.iter().map(|phase| phase.name).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("ntt", "twin"));
    let mut pairs = phases.windows(2);
    assert!(pairs.all(|pair| pair[0].end <= pair[1].start), "{phases:?}");

    // The copy for the second is counted.
    let cpu_first = dual(cpu, copying, 1);
    let scalars = 2 * sizes.domain() + sizes.aux;
    assert_eq!(work(&cpu_first), work_of_cpu + 32 * scalars as u64);
    let cpu_first = cpu_first.expect("both are there");
    let request = case.request(&*cpu_first, Scalar::from(5), Scalar::from(6));
    let proof = proved(&*cpu_first, request).proof;
    assert!(bytes(&proof) == case.stock(Scalar::from(5), Scalar::from(6)));
}
