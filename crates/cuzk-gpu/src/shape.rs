//! What the arithmetic needs to know about a circuit, whatever its witness is.

use std::sync::Arc;

/// Element counts of a circuit, with the constant-one input and the input rows
/// (`input * 0 = 0`) that Groth16 adds. Synthesis gives them as `cuzk_synth::Sizes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CircuitSizes {
    /// Public inputs, the constant one included.
    pub inputs: usize,
    /// Auxiliary (private) variables.
    pub aux: usize,
    /// Constraints, the input rows included.
    pub constraints: usize,
}

impl CircuitSizes {
    /// The evaluation domain: the smallest power of two with room for every
    /// constraint.
    pub fn domain(&self) -> usize {
        self.constraints.next_power_of_two()
    }
}

/// A set of variable indices, one bit each, lowest bit first. Synthesis gives them as
/// `cuzk_synth::DensityBits`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bitmap {
    words: Arc<[u64]>,
    len: usize,
    ones: usize,
}

impl Bitmap {
    /// Takes `len` bits from `words`; bits past `len` must be zero.
    ///
    /// # Panics
    /// If `words` does not hold exactly `len` bits, rounded up to words, or has a
    /// bit set past `len`.
    pub fn new(words: Arc<[u64]>, len: usize) -> Self {
        assert_eq!(words.len(), len.div_ceil(64), "a bitmap of {len} bits");
        if !len.is_multiple_of(64) {
            let last = words[words.len() - 1];
            assert_eq!(last >> (len % 64), 0, "bits past the end of a bitmap");
        }
        let ones = words.iter().map(|word| word.count_ones() as usize).sum();
        Self { words, len, ones }
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of set bits.
    pub fn ones(&self) -> usize {
        self.ones
    }

    /// The bits, lowest first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether bit `index` is set.
    pub fn contains(&self, index: usize) -> bool {
        self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// The indices of the set bits, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            std::iter::successors((word != 0).then_some(word), |rest| {
                let next = rest & (rest - 1);
                (next != 0).then_some(next)
            })
            .map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }
}

/// Which variables have a point in the A and B queries of a proving key. Inputs
/// are all in the A query, so they have no bitmap there. `cuzk_core::circuit_shape` makes
/// one of what a synthesis gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitShape {
    /// Element counts.
    pub sizes: CircuitSizes,
    /// Auxiliary variables with a non-zero coefficient somewhere in A.
    pub a_aux: Bitmap,
    /// Inputs with a non-zero coefficient somewhere in B.
    pub b_inputs: Bitmap,
    /// Auxiliary variables with a non-zero coefficient somewhere in B.
    pub b_aux: Bitmap,
}
