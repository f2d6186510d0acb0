//! Which variables carry a non-zero coefficient.

use sha2::{Digest, Sha256};

/// A growing set of variable indices, one bit each, lowest bit first. Provers take it as
/// `cuzk_gpu::Bitmap`; `cuzk_core::circuit_shape` converts it, with the sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DensityBits {
    words: Vec<u64>,
    len: usize,
}

impl DensityBits {
    pub(crate) fn push(&mut self) {
        if self.len.is_multiple_of(64) {
            self.words.push(0);
        }
        self.len += 1;
    }

    pub(crate) fn reserve(&mut self, len: usize) {
        self.words
            .reserve(len.div_ceil(64).saturating_sub(self.words.len()));
    }

    pub(crate) fn zeros(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }

    /// Adds the variables of `other`, the first of which is variable `offset` here.
    pub(crate) fn add_at(&mut self, offset: usize, other: &Self) {
        let (first, shift) = (offset / 64, offset % 64);
        for (index, &word) in other.words.iter().enumerate() {
            let place = first + index;
            if word != 0 {
                self.words[place] |= word << shift;
            }
            let high = word.checked_shr(64 - shift as u32).unwrap_or(0);
            if high != 0 {
                self.words[place + 1] |= high;
            }
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    /// Number of variables, in the set or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of variables in the set.
    pub fn ones(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether variable `index` is in the set.
    pub fn contains(&self, index: usize) -> bool {
        index < self.len && self.words[index / 64] >> (index % 64) & 1 == 1
    }

    /// The bits, lowest first; those past [`len`](Self::len) are zero.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The densities of a circuit: which variables have a point in the A and B
/// queries of its key. They belong to the circuit, not to the witness.
///
/// Inputs are all in the A query, because Groth16 adds the row `input * 0 = 0`
/// for each, so there is no set for them. A coefficient that is zero does not
/// make a variable dense, or prover and key would disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Densities {
    /// Auxiliary variables in A.
    pub a_aux: DensityBits,
    /// Inputs in B.
    pub b_inputs: DensityBits,
    /// Auxiliary variables in B.
    pub b_aux: DensityBits,
}

impl Densities {
    /// A digest of the three sets, with which two parts of one shape are compared.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for bits in [&self.a_aux, &self.b_inputs, &self.b_aux] {
            hash.update((bits.len as u64).to_le_bytes());
            for word in &bits.words {
                hash.update(word.to_le_bytes());
            }
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_count_and_digest_tell_sets_apart() {
        let mut one = Densities::default();
        for _ in 0..130 {
            one.a_aux.push();
        }
        let mut other = one.clone();
        one.a_aux.set(129);
        other.a_aux.set(64);
        assert_eq!((one.a_aux.ones(), other.a_aux.ones()), (1, 1));
        assert!(one.a_aux.contains(129) && !one.a_aux.contains(64) && !one.a_aux.contains(200));
        assert_ne!(one.digest(), other.digest());
        // The same bits in another set are another shape.
        let swapped = Densities {
            b_aux: one.a_aux.clone(),
            a_aux: one.b_aux.clone(),
            ..one.clone()
        };
        assert_ne!(one.digest(), swapped.digest());
    }
}
