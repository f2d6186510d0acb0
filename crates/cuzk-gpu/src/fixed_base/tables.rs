//! Multiples of both generators, on whatever multiplies.

use blstrs::{G1Affine, G2Affine, Scalar};

use super::{AffinePoint, FixedBase, FixedBaseG1, FixedBaseG2, window_bits_for};
use crate::error::BackendError;

/// Something that multiplies many scalars with a base: the CPU, or a device.
pub trait Multiplier {
    /// Makes tables for two bases. With each comes the number of products that
    /// will be asked for, by which the tables' size may be chosen.
    ///
    /// # Errors
    /// If a device refuses.
    fn tables(
        &self,
        g1: (G1Affine, usize),
        g2: (G2Affine, usize),
    ) -> Result<Box<dyn Multiples + '_>, BackendError>;
}

/// Tables of two bases.
pub trait Multiples {
    /// How many scalars it multiplies best at a time.
    fn block_len(&self) -> usize;

    /// Multiples of the base in G1, scalar for scalar. `points` is memory of points that
    /// nobody wants any more: fresh pages cost more than multiplications. The scalars come
    /// back, for the same reason.
    ///
    /// # Errors
    /// If a device fails.
    fn g1_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G1Affine>,
    ) -> Result<Block<G1Affine>, BackendError>;

    /// Multiples of the base in G2, as [`g1_into`](Self::g1_into).
    ///
    /// # Errors
    /// If a device fails.
    fn g2_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G2Affine>,
    ) -> Result<Block<G2Affine>, BackendError>;

    /// Multiples of the base in G1, scalar for scalar.
    ///
    /// # Errors
    /// If a device fails.
    fn g1(&self, scalars: &[Scalar]) -> Result<Vec<G1Affine>, BackendError> {
        Ok(self.g1_into(scalars.to_vec(), Vec::new())?.points)
    }

    /// Multiples of the base in G2.
    ///
    /// # Errors
    /// If a device fails.
    fn g2(&self, scalars: &[Scalar]) -> Result<Vec<G2Affine>, BackendError> {
        Ok(self.g2_into(scalars.to_vec(), Vec::new())?.points)
    }
}

/// Scalars and their multiples.
#[derive(Clone, Debug, Default)]
pub struct Block<P> {
    /// As they were given.
    pub scalars: Vec<Scalar>,
    /// One for each.
    pub points: Vec<P>,
}

/// Multiplies on the threads of the current rayon pool; never fails.
#[derive(Clone, Copy, Debug)]
pub struct OnCpu;

/// Scalars that are multiplied at a time: 6 MiB of G1 points.
const BLOCK_LEN: usize = 1 << 16;

struct CpuTables {
    g1: FixedBaseG1,
    g2: FixedBaseG2,
}

impl Multiplier for OnCpu {
    fn tables(
        &self,
        g1: (G1Affine, usize),
        g2: (G2Affine, usize),
    ) -> Result<Box<dyn Multiples + '_>, BackendError> {
        Ok(Box::new(CpuTables {
            g1: FixedBaseG1::new(g1.0, window_bits_for(g1.1)),
            g2: FixedBaseG2::new(g2.0, window_bits_for(g2.1)),
        }))
    }
}

impl Multiples for CpuTables {
    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn g1_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G1Affine>,
    ) -> Result<Block<G1Affine>, BackendError> {
        Ok(multiply(&self.g1, scalars, points))
    }

    fn g2_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G2Affine>,
    ) -> Result<Block<G2Affine>, BackendError> {
        Ok(multiply(&self.g2, scalars, points))
    }
}

fn multiply<P: AffinePoint + Send + Sync>(
    table: &FixedBase<P>,
    scalars: Vec<Scalar>,
    mut points: Vec<P>,
) -> Block<P> {
    points.resize(scalars.len(), P::identity());
    table.mul_many(&scalars, &mut points);
    Block { scalars, points }
}
