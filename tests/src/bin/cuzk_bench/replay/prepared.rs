//! Assignments of one circuit that are proved again and again.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use blstrs::Scalar;
use cuzk_gpu::{Backend, CircuitShape, Column, ColumnLayout, Columns, Key, ProveRequest, Upload};
use cuzk_pinned::PinnedPool;

use super::feed::feed;
use super::witnesses::Witnesses;
use crate::bed::{buffers, key_bytes};

/// The assignments, with the circuit's key.
pub(crate) struct Prepared {
    pool: PinnedPool,
    witnesses: Box<dyn Witnesses>,
    layout: ColumnLayout,
    shape: Arc<CircuitShape>,
    key: Arc<Key>,
    assignments: Vec<Assignment>,
    /// The one that is next.
    next: usize,
    /// Whether columns come back as they were.
    is_kept: bool,
    _keys: Option<tempfile::TempDir>,
}

/// One of them.
struct Assignment {
    /// Of its witness.
    number: usize,
    /// Absent while a backend has them.
    columns: Option<Columns>,
    /// What the columns held, where a backend spoils them: a, b, aux.
    kept: Option<[Vec<Scalar>; 3]>,
    inputs: Vec<Scalar>,
    /// The proof that it gave alone.
    expected: Option<Vec<u8>>,
}

impl Prepared {
    /// Prepares the first `count` witnesses.
    pub(crate) fn new(
        pool: &PinnedPool,
        witnesses: Box<dyn Witnesses>,
        backend: &dyn Backend,
        key: Arc<Key>,
        keys: Option<tempfile::TempDir>,
        count: usize,
    ) -> Result<Self> {
        let sizes = witnesses.sizes();
        let layout = backend.layout(&sizes);
        let is_kept = backend.upload() == Upload::None;
        // Taken before the threads are there: page-locking has its own.
        let columns: Vec<Columns> = (0..count)
            .map(|_| take_columns(pool, &layout))
            .collect::<Result<_>>()?;
        let threads = witnesses.side_by_side();
        let mut made = Vec::with_capacity(count);
        let mut columns = columns.into_iter().enumerate();
        loop {
            let some: Vec<_> = columns.by_ref().take(threads).collect();
            if some.is_empty() {
                break;
            }
            std::thread::scope(|scope| {
                let synthesising: Vec<_> = some
                    .into_iter()
                    .map(|(number, columns)| {
                        let witnesses = &*witnesses;
                        scope.spawn(move || fill(witnesses, number, columns, is_kept))
                    })
                    .collect();
                for thread in synthesising {
                    let done = thread.join().ok().context("a synthesis panicked")?;
                    made.push(done?);
                }
                anyhow::Ok(())
            })?;
        }
        let (assignments, shapes): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        let mut shapes = shapes.into_iter();
        let shape = shapes.next().context("no assignments")?;
        ensure!(shape.sizes == sizes, "the circuit has other sizes");
        ensure!(shapes.all(|other| other == shape), "shapes that differ");
        key.check_shape(&shape)?;
        Ok(Self {
            pool: pool.clone(),
            witnesses,
            layout,
            shape: Arc::new(shape),
            key,
            assignments,
            next: 0,
            is_kept,
            _keys: keys,
        })
    }

    /// Number of assignments.
    pub(super) fn len(&self) -> usize {
        self.assignments.len()
    }

    /// The assignment whose turn it is.
    pub(super) fn next(&mut self) -> usize {
        let at = self.next;
        self.next = (at + 1) % self.len();
        at
    }

    /// Bytes of the points that a backend uses.
    pub(super) fn key_bytes(&self) -> u64 {
        key_bytes(&self.key)
    }

    /// Bytes of page-locked memory, of the pool's.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let stats = self.pool.stats();
        stats.in_use_bytes + stats.idle_bytes
    }

    /// Proves each alone, where that was not done before, and verifies it.
    pub(crate) fn expect_alone(&mut self, backend: &dyn Backend) -> Result<()> {
        for _ in 0..self.len() {
            feed(backend, self, 1, 1)?;
        }
        Ok(())
    }

    /// The bytes that each gave alone.
    pub(super) fn expected(&self) -> Vec<Option<&[u8]>> {
        let assignments = self.assignments.iter();
        assignments
            .map(|assignment| assignment.expected.as_deref())
            .collect()
    }

    /// Spoils what the assignment whose turn it is gave alone: its next proof is another.
    #[cfg(feature = "cuda")]
    pub(crate) fn spoil(&mut self) {
        if let Some(expected) = &mut self.assignments[self.next].expected {
            expected[0] ^= 1;
        }
    }

    /// A request with assignment `at`; the columns are gone until they are given back.
    pub(super) fn request(&mut self, at: usize) -> Result<ProveRequest> {
        let assignment = &mut self.assignments[at];
        let columns = assignment.columns.take();
        Ok(ProveRequest {
            columns: columns.context("columns that did not come back")?,
            inputs: assignment.inputs.clone(),
            shape: Arc::clone(&self.shape),
            key: Arc::clone(&self.key),
            r: Scalar::from(7 + at as u64),
            s: Scalar::from(1009 + at as u64),
            watch: None,
        })
    }

    /// Takes columns back.
    pub(super) fn give_back(&mut self, at: usize, mut columns: Columns) {
        let assignment = &mut self.assignments[at];
        if let Some([a, b, aux]) = &assignment.kept {
            restore(&mut columns.a, a);
            restore(&mut columns.b, b);
            restore(&mut columns.aux, aux);
        }
        assignment.columns = Some(columns);
    }

    /// Compares a proof with the one that the assignment gave alone; the first is verified
    /// and becomes that.
    pub(super) fn check(&mut self, at: usize, proved: &cuzk_gpu::Proved) -> Result<()> {
        let mut bytes = Vec::new();
        proved.proof.write(&mut bytes)?;
        let assignment = &mut self.assignments[at];
        if let Some(expected) = &assignment.expected {
            ensure!(*expected == bytes, "assignment {at} gave another proof");
            return Ok(());
        }
        let inputs = &assignment.inputs[1..];
        ensure!(
            self.key.verifier().verify(&proved.proof, inputs),
            "the proof of assignment {at} does not verify"
        );
        assignment.expected = Some(bytes);
        Ok(())
    }

    /// Fills anew what a failure lost.
    pub(super) fn recover(&mut self) -> Result<()> {
        for assignment in &mut self.assignments {
            if assignment.columns.is_none() {
                let columns = take_columns(&self.pool, &self.layout)?;
                let witnesses = &*self.witnesses;
                let made = fill(witnesses, assignment.number, columns, self.is_kept)?;
                assignment.columns = made.0.columns;
            }
        }
        Ok(())
    }
}

fn restore(column: &mut Column, kept: &[Scalar]) {
    let scalars = column.scalars_mut();
    let (used, rest) = scalars.split_at_mut(kept.len());
    used.copy_from_slice(kept);
    rest.fill(Scalar::from(0));
}

fn take_columns(pool: &PinnedPool, layout: &ColumnLayout) -> Result<Columns> {
    let bytes: Vec<usize> = layout.lens().iter().map(|len| len * 32).collect();
    Ok(Columns::from_buffers(buffers(pool, &bytes)?, layout))
}

fn fill(
    witnesses: &dyn Witnesses,
    number: usize,
    mut columns: Columns,
    is_kept: bool,
) -> Result<(Assignment, CircuitShape)> {
    let (inputs, shape) = witnesses.fill(number, &mut columns)?;
    let kept = is_kept
        .then(|| [&columns.a, &columns.b, &columns.aux].map(|column| column.scalars().to_vec()));
    let assignment = Assignment {
        number,
        columns: Some(columns),
        kept,
        inputs,
        expected: None,
    };
    Ok((assignment, shape))
}
