//! Where prepared assignments come from.

use anyhow::Result;
use blstrs::Scalar;
use cuzk_core::circuit_shape;
use cuzk_gpu::{CircuitShape, CircuitSizes, Columns};
use cuzk_synth::{AssignColumns, assign};
use cuzk_tests::mixed::Mixed;

use crate::bed;

/// Witnesses of one circuit, by number.
pub(crate) trait Witnesses: Send + Sync {
    /// Sizes of the circuit.
    fn sizes(&self) -> CircuitSizes;

    /// As many as can be filled side by side.
    fn side_by_side(&self) -> usize;

    /// Fills columns, which hold anything, with one of them: its inputs, the constant one
    /// first, and its shape.
    fn fill(&self, number: usize, columns: &mut Columns) -> Result<(Vec<Scalar>, CircuitShape)>;
}

/// Columns as a synthesis writes them where the backend makes C.
pub(crate) fn into_columns(columns: &mut Columns) -> AssignColumns<'_> {
    AssignColumns {
        a: columns.a.scalars_mut(),
        b: columns.b.scalars_mut(),
        c: None,
        aux: columns.aux.scalars_mut(),
    }
}

/// The number is the seed. Each takes a thread.
impl Witnesses for Mixed {
    fn sizes(&self) -> CircuitSizes {
        bed::sizes(*self)
    }

    fn side_by_side(&self) -> usize {
        std::thread::available_parallelism().map_or(1, |threads| threads.get())
    }

    fn fill(&self, number: usize, columns: &mut Columns) -> Result<(Vec<Scalar>, CircuitShape)> {
        for column in [&mut columns.a, &mut columns.b] {
            column.scalars_mut().fill(Scalar::from(0));
        }
        let assigned = assign(into_columns(columns), |pass| {
            self.synthesize_with(pass, number as u64)
        })?;
        let shape = circuit_shape(&assigned.sizes, &assigned.densities);
        Ok((assigned.inputs, shape))
    }
}
