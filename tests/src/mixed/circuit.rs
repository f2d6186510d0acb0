//! A circuit of any size whose witness has a stated share of full-size values and
//! is bits otherwise, as a Filecoin witness is. The peer that is measured beside us
//! compiles this file too: it names nothing of ours.

use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;

/// Constraints that every circuit has beside its variables': two rows of inputs and
/// one that binds the result.
const ROWS: usize = 3;

/// What the first full-size value is the square of.
pub(super) const FIRST: u64 = 0x0123_4567_89ab_cdef;

/// The circuit: per variable one constraint. A full value is the square of the one
/// before; a bit b is `b * 1 = b`, and every fourth `b * (1 - b) = 0`, so that about
/// a quarter of the variables are dense in B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// Logarithm of the domain, which the constraints fill.
    pub log_size: u32,
    /// Full-size values in a thousand.
    pub full_per_mille: u32,
}

impl Mixed {
    pub(super) fn variables(&self) -> usize {
        (1 << self.log_size) - ROWS
    }

    /// Whether variable `at` is full-size: spread evenly.
    fn is_full(&self, at: usize) -> bool {
        let share = |at: usize| at as u64 * u64::from(self.full_per_mille) / 1000;
        share(at + 1) != share(at)
    }

    /// Synthesises with one of many witnesses: those of two seeds differ in half of their
    /// bits, and not in their full values or public inputs.
    pub fn synthesize_with<CS: ConstraintSystem<Scalar>>(
        self,
        cs: &mut CS,
        seed: u64,
    ) -> Result<(), SynthesisError> {
        let one = CS::one();
        let mut value = Scalar::from(FIRST);
        let mut last: Option<Variable> = None;
        for at in 0..self.variables() {
            if self.is_full(at) {
                let square = value * value;
                let next = cs.alloc(|| format!("full {at}"), || Ok(square))?;
                match last {
                    Some(last) => {
                        cs.enforce(
                            || format!("square {at}"),
                            |lc| lc + last,
                            |lc| lc + last,
                            |lc| lc + next,
                        );
                    }
                    None => {
                        let first = LinearCombination::zero() + (value, one);
                        cs.enforce(
                            || format!("first {at}"),
                            |_| first.clone(),
                            |_| first.clone(),
                            |lc| lc + next,
                        );
                    }
                }
                value = square;
                last = Some(next);
                continue;
            }
            // Half of the bits are one, in no simple order.
            let place = (at as u64) ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
            let bit = Scalar::from(place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63);
            let next = cs.alloc(|| format!("bit {at}"), || Ok(bit))?;
            if at.is_multiple_of(4) {
                cs.enforce(
                    || format!("is a bit {at}"),
                    |lc| lc + next,
                    |lc| lc + one - next,
                    |lc| lc,
                );
            } else {
                cs.enforce(
                    || format!("is a bit {at}"),
                    |lc| lc + next,
                    |lc| lc + one,
                    |lc| lc + next,
                );
            }
        }
        let result = cs.alloc_input(|| "out", || Ok(value))?;
        let last = last.ok_or(SynthesisError::AssignmentMissing)?;
        cs.enforce(|| "result", |lc| lc + last, |lc| lc + one, |lc| lc + result);
        Ok(())
    }
}

impl Circuit<Scalar> for Mixed {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        self.synthesize_with(cs, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellpepper_core::test_cs::TestConstraintSystem;

    #[test]
    fn it_is_satisfied_and_fills_its_domain() {
        for full_per_mille in [13, 110, 500] {
            let circuit = Mixed {
                log_size: 10,
                full_per_mille,
            };
            let mut bits = Vec::new();
            for seed in 0..3 {
                let mut cs = TestConstraintSystem::<Scalar>::new();
                circuit.synthesize_with(&mut cs, seed).expect("a witness");
                assert!(cs.is_satisfied(), "{:?}", cs.which_is_unsatisfied());
                // The two input rows are added by whoever proves.
                assert_eq!(cs.num_constraints() + 2, 1 << 10);
                let is_bit = |at: &usize| !circuit.is_full(*at);
                let value = |at: usize| cs.get(&format!("bit {at}"));
                let all = (0..circuit.variables()).filter(is_bit).map(value);
                bits.push(all.collect::<Vec<_>>());
            }
            for (left, right) in [(0, 1), (0, 2), (1, 2)] {
                let pairs = bits[left].iter().zip(&bits[right]);
                let differing = pairs.filter(|(left, right)| left != right).count();
                let share = differing as f64 / bits[left].len() as f64;
                assert!((0.3..0.7).contains(&share), "{left} {right}: {share}");
            }
            let full = (0..circuit.variables())
                .filter(|at| circuit.is_full(*at))
                .count();
            assert_eq!(full, circuit.variables() * full_per_mille as usize / 1000);
        }
    }
}
