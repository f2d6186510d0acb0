//! Scalars by their value, on the host: what `cuda/split.cu` does on a device.

use blstrs::Scalar;
use ff::Field;
use rayon::prelude::*;

use crate::cpu::msm::Density;
use crate::shape::CircuitShape;

/// Scalars that one thread sorts at a time: whole words of a bitmap.
const BLOCK_LEN: usize = 1 << 16;

/// The group's order, lowest limb first.
const ORDER: [u64; 4] = [
    0xffff_ffff_0000_0001,
    0x53bd_a402_fffe_5bfe,
    0x3339_d808_09a1_d805,
    0x73ed_a753_299d_7d48,
];

/// Entries of a query, by their scalar: those that are one, and those that are neither
/// zero nor one, each in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    pub(crate) ones: Vec<u32>,
    pub(crate) rest: Vec<u32>,
    /// Values that are no reduced scalars.
    pub(crate) wrong: u32,
}

impl Sorted {
    /// Sorts scalars, of which those with a point are the entries from `first` on, on the
    /// current rayon pool.
    fn add(&mut self, scalars: &[Scalar], density: Density<'_>, first: usize) {
        let words = |at: usize| match density {
            Density::Full => None,
            Density::Set(bitmap) => {
                let words = &bitmap.words()[at * BLOCK_LEN / 64..];
                Some(&words[..words.len().min(BLOCK_LEN / 64)])
            }
        };
        let mut next = first;
        let firsts: Vec<usize> = scalars
            .chunks(BLOCK_LEN)
            .enumerate()
            .map(|(at, block)| {
                let first = next;
                next += words(at).map_or(block.len(), |words| {
                    words.iter().map(|word| word.count_ones() as usize).sum()
                });
                first
            })
            .collect();
        let blocks: Vec<Sorted> = scalars
            .par_chunks(BLOCK_LEN)
            .zip(firsts)
            .enumerate()
            .map(|(at, (block, first))| block_of(block, words(at), first))
            .collect();
        for block in blocks {
            self.ones.extend(block.ones);
            self.rest.extend(block.rest);
            self.wrong += block.wrong;
        }
    }
}

fn block_of(scalars: &[Scalar], words: Option<&[u64]>, first: usize) -> Sorted {
    let mut sorted = Sorted::default();
    let mut entry = u32::try_from(first).expect("entries that 32 bits count");
    for (at, scalar) in scalars.iter().enumerate() {
        if words.is_some_and(|words| words[at / 64] >> (at % 64) & 1 == 0) {
            continue;
        }
        if !is_reduced(scalar) {
            sorted.wrong += 1;
        } else if *scalar == Scalar::ONE {
            sorted.ones.push(entry);
        } else if *scalar != Scalar::ZERO {
            sorted.rest.push(entry);
        }
        entry += 1;
    }
    sorted
}

fn is_reduced(scalar: &Scalar) -> bool {
    // SAFETY: a scalar is four limbs in memory.
    let limbs = unsafe { std::mem::transmute::<Scalar, [u64; 4]>(*scalar) };
    limbs.iter().rev().lt(ORDER.iter().rev())
}

/// The entries of the queries that the assignment goes into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SortedQueries {
    pub(crate) l: Sorted,
    pub(crate) a: Sorted,
    pub(crate) b: Sorted,
}

impl SortedQueries {
    /// Of an assignment.
    pub(crate) fn of(inputs: &[Scalar], aux: &[Scalar], shape: &CircuitShape) -> Self {
        let mut queries = Self::default();
        queries.l.add(aux, Density::Full, 0);
        queries.a.add(inputs, Density::Full, 0);
        let a_aux = Density::Set(&shape.a_aux);
        queries.a.add(aux, a_aux, inputs.len());
        let b_inputs = Density::Set(&shape.b_inputs);
        queries.b.add(inputs, b_inputs, 0);
        let b_aux = Density::Set(&shape.b_aux);
        queries.b.add(aux, b_aux, shape.b_inputs.ones());
        queries
    }
}

/// The scalars of the B query, in its order.
pub(crate) fn b_scalars(inputs: &[Scalar], aux: &[Scalar], shape: &CircuitShape) -> Vec<Scalar> {
    let of_inputs = shape.b_inputs.iter().map(|at| inputs[at]);
    of_inputs
        .chain(shape.b_aux.iter().map(|at| aux[at]))
        .collect()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    use super::*;
    use crate::shape::{Bitmap, CircuitSizes};

    fn bitmap(rng: &mut ChaCha8Rng, len: usize) -> Bitmap {
        let words = (0..len.div_ceil(64)).map(|at| {
            let used = (len - at * 64).min(64);
            rng.next_u64() & (u64::MAX >> (64 - used))
        });
        Bitmap::new(words.collect(), len)
    }

    /// Entry by entry.
    fn naive(scalars: &[Scalar]) -> Sorted {
        let mut sorted = Sorted::default();
        for (at, scalar) in scalars.iter().enumerate() {
            if *scalar == Scalar::ONE {
                sorted.ones.push(at as u32);
            } else if *scalar != Scalar::ZERO {
                sorted.rest.push(at as u32);
            }
        }
        sorted
    }

    /// Lengths on both sides of a word and of a block.
    #[test]
    fn entries_are_those_of_the_queries() {
        for aux_len in [
            0,
            1,
            63,
            64,
            65,
            BLOCK_LEN - 1,
            BLOCK_LEN,
            BLOCK_LEN + 1,
            150_001,
        ] {
            let mut rng = ChaCha8Rng::seed_from_u64(aux_len as u64);
            let mut scalars = |len: usize| -> Vec<Scalar> {
                let scalar = |_| match rng.next_u32() % 4 {
                    0 => Scalar::ZERO,
                    1 | 2 => Scalar::ONE,
                    _ => Scalar::random(&mut rng),
                };
                (0..len).map(scalar).collect()
            };
            let (inputs, aux) = (scalars(3), scalars(aux_len));
            let shape = CircuitShape {
                sizes: CircuitSizes {
                    inputs: 3,
                    aux: aux_len,
                    constraints: 1,
                },
                a_aux: bitmap(&mut rng, aux_len),
                b_inputs: bitmap(&mut rng, 3),
                b_aux: bitmap(&mut rng, aux_len),
            };
            let a: Vec<Scalar> = inputs
                .iter()
                .copied()
                .chain(shape.a_aux.iter().map(|at| aux[at]))
                .collect();
            let b = b_scalars(&inputs, &aux, &shape);
            let expected = SortedQueries {
                l: naive(&aux),
                a: naive(&a),
                b: naive(&b),
            };
            assert_eq!(
                SortedQueries::of(&inputs, &aux, &shape),
                expected,
                "{aux_len}"
            );
        }
    }

    #[test]
    fn values_that_are_no_scalars_are_counted() {
        let mut less = ORDER;
        less[0] -= 1;
        let values = [ORDER, [u64::MAX; 4], less, [0; 4], [7, 0, 0, 0]];
        // SAFETY: any limbs are a value in memory; arithmetic never sees these.
        let scalars = values.map(|value| unsafe { std::mem::transmute::<[u64; 4], Scalar>(value) });
        let mut sorted = Sorted::default();
        sorted.add(&scalars, Density::Full, 10);
        assert_eq!((sorted.wrong, sorted.rest), (2, vec![12, 14]));
    }
}
