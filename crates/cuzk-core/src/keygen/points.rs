//! The points of a key: multiples of the generators, a block at a time. While a block is
//! multiplied the one before is written, each by as many threads as there are, into memory
//! that goes round.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, Scalar};
use cuzk_gpu::fixed_base::{Block, Multiples, Multiplier};
use cuzk_gpu::{BackendError, KeyError, KeyWriter, Section};
use cuzk_synth::{QapAtTau, QapColumns, Sizes};
use ff::Field;
use group::Curve;
use rayon::prelude::*;

use super::read::AtTau;
use super::{KeygenError, Progress, ToxicWaste};

/// What all points of a key depend on beside its circuit.
pub(super) struct Generator<'a> {
    pub(super) waste: &'a ToxicWaste,
    /// The circuit's id.
    pub(super) name: &'a str,
    pub(super) gamma_inverse: Scalar,
    pub(super) delta_inverse: Scalar,
    pub(super) progress: Progress<'a>,
}

impl Generator<'_> {
    /// Writes all of the key, which has no name yet.
    pub(super) fn write(
        &self,
        circuit: &AtTau,
        path: &Path,
        multiplier: &dyn Multiplier,
    ) -> Result<(KeyWriter, VerifyingKey<Bls12>), KeygenError> {
        let AtTau {
            sizes,
            densities,
            qap: QapAtTau { inputs, aux },
        } = circuit;
        self.check_density(&aux.a, densities.a_aux.ones())?;
        self.check_density(&inputs.b, densities.b_inputs.ones())?;
        self.check_density(&aux.b, densities.b_aux.ones())?;
        let Sizes {
            inputs: input_count,
            aux: aux_count,
            constraints,
        } = *sizes;
        let h_count = constraints.next_power_of_two() - 1;
        let a_count = nonzero(&inputs.a) + densities.a_aux.ones();
        let b_count = densities.b_inputs.ones() + densities.b_aux.ones();

        (self.progress)("tables", 0, 1);
        let g1_count = h_count + input_count + aux_count + a_count + b_count;
        let tables = multiplier.tables((self.waste.g1, g1_count), (self.waste.g2, b_count))?;
        let tables = &*tables;
        let g1 = |scalars, points| tables.g1_into(scalars, points);
        let g2 = |scalars, points| tables.g2_into(scalars, points);

        let vk = self.verifying_key(inputs, tables)?;
        let mut writer = KeyWriter::create(path, &vk)?;
        let writing = &mut writer;
        let block_len = tables.block_len();
        let section = |len| Blocks {
            len,
            block_len,
            progress: self.progress,
        };

        writing.begin(Section::H, h_count)?;
        let fill = |range, scalars: &mut Vec<Scalar>| {
            self.h_scalars(h_count + 1, range, scalars);
            Ok(())
        };
        section(h_count).write(fill, g1, |points| writing.write_g1(points))?;

        writing.begin(Section::L, aux_count)?;
        let fill = |range, scalars: &mut Vec<Scalar>| self.l_scalars(aux, range, scalars);
        section(aux_count).write(fill, g1, |points| writing.write_g1(points))?;

        let variables = input_count + aux_count;
        for (of, count, columns) in [
            (Section::A, a_count, (&inputs.a, &aux.a)),
            (Section::BG1, b_count, (&inputs.b, &aux.b)),
        ] {
            writing.begin(of, count)?;
            let fill = |range, scalars: &mut Vec<Scalar>| {
                dense(columns, range, scalars);
                Ok(())
            };
            section(variables).write(fill, g1, |points| writing.write_g1(points))?;
        }
        writing.begin(Section::BG2, b_count)?;
        let fill = |range, scalars: &mut Vec<Scalar>| {
            dense((&inputs.b, &aux.b), range, scalars);
            Ok(())
        };
        section(variables).write(fill, g2, |points| writing.write_g2(points))?;
        Ok((writer, vk))
    }

    /// A polynomial that vanishes at tau although its variable has coefficients
    /// would be missing from the key, and the prover would expect it.
    fn check_density(&self, evaluations: &[Scalar], dense: usize) -> Result<(), KeygenError> {
        if nonzero(evaluations) == dense {
            Ok(())
        } else {
            Err(KeygenError::UnluckyTau {
                circuit: self.name.to_owned(),
            })
        }
    }

    fn verifying_key(
        &self,
        inputs: &QapColumns,
        tables: &dyn Multiples,
    ) -> Result<VerifyingKey<Bls12>, KeygenError> {
        let ToxicWaste {
            g1,
            g2,
            alpha,
            beta,
            gamma,
            delta,
            ..
        } = *self.waste;
        let mut ic = Vec::new();
        self.combined(inputs, 0..inputs.a.len(), self.gamma_inverse, &mut ic);
        Ok(VerifyingKey {
            alpha_g1: (g1 * alpha).to_affine(),
            beta_g1: (g1 * beta).to_affine(),
            beta_g2: (g2 * beta).to_affine(),
            gamma_g2: (g2 * gamma).to_affine(),
            delta_g1: (g1 * delta).to_affine(),
            delta_g2: (g2 * delta).to_affine(),
            ic: tables.g1(&ic)?,
        })
    }

    /// `tau^i * z(tau) / delta`, where z vanishes on the domain.
    fn h_scalars(&self, domain: usize, range: Range<usize>, into: &mut Vec<Scalar>) {
        let tau = self.waste.tau;
        let z = tau.pow_vartime([domain as u64]) - Scalar::ONE;
        powers(tau, range, z * self.delta_inverse, into);
    }

    fn l_scalars(
        &self,
        aux: &QapColumns,
        range: Range<usize>,
        into: &mut Vec<Scalar>,
    ) -> Result<(), KeygenError> {
        let start = range.start;
        self.combined(aux, range, self.delta_inverse, into);
        match into.iter().position(|value| *value == Scalar::ZERO) {
            None => Ok(()),
            Some(index) => Err(KeygenError::Unconstrained {
                circuit: self.name.to_owned(),
                index: start + index,
            }),
        }
    }

    /// `(beta * a + alpha * b + c) * inverse` of a range of variables.
    fn combined(
        &self,
        columns: &QapColumns,
        range: Range<usize>,
        inverse: Scalar,
        into: &mut Vec<Scalar>,
    ) {
        let ToxicWaste { alpha, beta, .. } = self.waste;
        range
            .into_par_iter()
            .map(|i| (columns.a[i] * beta + columns.b[i] * alpha + columns.c[i]) * inverse)
            .collect_into_vec(into);
    }
}

/// The blocks that make a section: of so many scalars, or of so many variables of which
/// some have one.
struct Blocks<'a> {
    len: usize,
    block_len: usize,
    progress: Progress<'a>,
}

impl Blocks<'_> {
    /// Fills, multiplies and writes one block after the other; the first of them in its turn,
    /// and the last by a thread of its own.
    fn write<P: Send>(
        &self,
        fill: impl Fn(Range<usize>, &mut Vec<Scalar>) -> Result<(), KeygenError>,
        multiply: impl Fn(Vec<Scalar>, Vec<P>) -> Result<Block<P>, BackendError>,
        mut write: impl FnMut(&[P]) -> Result<(), KeyError> + Send,
    ) -> Result<(), KeygenError> {
        // One block waits while one is written.
        let (full, made) = sync_channel::<Vec<P>>(1);
        let (empty, used) = channel::<Vec<P>>();
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                made.into_iter().try_for_each(|points| {
                    write(&points)?;
                    // Nobody wants the last ones.
                    let _ = empty.send(points);
                    Ok::<(), KeyError>(())
                })
            });
            let mut scalars = Vec::new();
            let mut make = || {
                for start in (0..self.len).step_by(self.block_len) {
                    (self.progress)("points", start as u64, self.len as u64);
                    fill(start..self.len.min(start + self.block_len), &mut scalars)?;
                    if scalars.is_empty() {
                        continue;
                    }
                    let points = used.try_recv().unwrap_or_default();
                    let block = multiply(std::mem::take(&mut scalars), points)?;
                    scalars = block.scalars;
                    if full.send(block.points).is_err() {
                        // The writer failed, and says why.
                        break;
                    }
                }
                Ok(())
            };
            let multiplied: Result<(), KeygenError> = make();
            drop(full);
            let written = writer.join();
            written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            multiplied
        })
    }
}

fn nonzero(values: &[Scalar]) -> usize {
    let values = values.par_iter();
    values.filter(|value| **value != Scalar::ZERO).count()
}

/// The values of a range of the inputs and, after them, of the auxiliary variables that are
/// not zero, in order: those that have a point in a query.
fn dense((inputs, aux): (&Vec<Scalar>, &Vec<Scalar>), range: Range<usize>, into: &mut Vec<Scalar>) {
    let of = |values: &[Scalar], from: usize| -> Range<usize> {
        let at = |index: usize| index.saturating_sub(from).min(values.len());
        at(range.start)..at(range.end)
    };
    into.clear();
    for (values, from) in [(inputs, 0), (aux, inputs.len())] {
        let values = values[of(values, from)].iter();
        into.extend(values.filter(|value| **value != Scalar::ZERO));
    }
}

/// `factor * tau^i` for the range of i.
fn powers(tau: Scalar, range: Range<usize>, factor: Scalar, into: &mut Vec<Scalar>) {
    const RUN: usize = 1 << 12;
    into.resize(range.len(), Scalar::ZERO);
    into.par_chunks_mut(RUN)
        .enumerate()
        .for_each(|(run, into)| {
            let start = range.start + run * RUN;
            let mut power = factor * tau.pow_vartime([start as u64]);
            for value in into {
                *value = power;
                power *= tau;
            }
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_values_are_those_of_both_lists_in_order() {
        let of = |values: &[u64]| values.iter().copied().map(Scalar::from).collect();
        let (inputs, aux): (Vec<Scalar>, Vec<Scalar>) = (of(&[1, 0, 2]), of(&[0, 3, 4, 0, 5]));
        let all: Vec<Scalar> = of(&[1, 2, 3, 4, 5]);
        for block in 1..=9 {
            let (mut found, mut some) = (Vec::new(), Vec::new());
            for start in (0..8).step_by(block) {
                dense((&inputs, &aux), start..8.min(start + block), &mut some);
                found.extend_from_slice(&some);
            }
            assert_eq!(found, all, "blocks of {block}");
        }
    }

    #[test]
    fn powers_go_on_where_a_block_ends() {
        let tau = Scalar::from(3);
        let mut powers_of = Vec::new();
        powers(tau, 5000..9100, Scalar::from(7), &mut powers_of);
        assert_eq!(powers_of.len(), 4100);
        for (at, value) in powers_of.iter().enumerate() {
            let power = tau.pow_vartime([5000 + at as u64]);
            assert_eq!(*value, Scalar::from(7) * power, "{at}");
        }
    }
}
