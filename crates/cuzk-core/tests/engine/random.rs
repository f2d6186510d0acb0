//! Random circuits all the way: key, witness and proof bytes equal bellperson's.

use std::sync::Arc;

use bellpepper_core::{
    Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError, Variable,
};
use bellperson::groth16::{Proof, create_proof, generate_parameters};
use blstrs::{Bls12, Scalar};
use cuzk_core::config::{KeyTier, Sizing};
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{Blinding, CircuitId, CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_gpu::Backend;
use cuzk_synth::{HintStore, Pass, count};
use ff::Field;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::toy::{House, cpu};
use crate::{PLENTY, seeded};

/// Parts of each job, with a witness each.
const PARTS: usize = 2;

/// A circuit drawn from a seed; the witness does not change its constraints.
#[derive(Clone, Copy, Debug)]
struct Random {
    seed: u64,
    witness: u64,
    products: usize,
    /// Inputs before the products, beside the constant one.
    early_inputs: usize,
    /// Inputs after the products, each equal to a combination of what is known.
    late_inputs: usize,
    /// The results of the first products, which later ones take times zero: they have
    /// coefficients, and count for C alone.
    zeroed: usize,
    /// Whether every value is a bit.
    has_bits: bool,
    /// Whether results are inputs, so that there are no private variables.
    has_no_aux: bool,
    /// Whether B takes inputs too.
    has_inputs_in_b: bool,
}

impl Random {
    /// Rows (products, inputs and the constant's row) on both sides of the powers of
    /// two up to 64: there domains end. Few other numbers, so that most cases matter.
    fn strategy() -> impl Strategy<Value = Self> {
        let rows = (0u32..=6, -1isize..=1).prop_map(|(log, off)| (1isize << log) + off);
        (
            any::<u64>(),
            rows,
            0..4usize,
            0..3usize,
            0..6usize,
            any::<[bool; 3]>(),
        )
            .prop_map(|(seed, rows, early_inputs, late_inputs, zeroed, flags)| {
                let [has_bits, has_no_aux, has_inputs_in_b] = flags;
                let rows = usize::try_from(rows).expect("not negative");
                // A late input has a row of its own and its equation.
                let left = rows.saturating_sub(1 + early_inputs + 2 * late_inputs);
                Self {
                    seed,
                    witness: 0,
                    products: if has_no_aux { left / 2 } else { left },
                    early_inputs,
                    late_inputs,
                    zeroed,
                    has_bits,
                    has_no_aux,
                    has_inputs_in_b,
                }
            })
    }

    fn of_part(self, part: usize) -> Self {
        let witness = part as u64 + 1;
        Self { witness, ..self }
    }

    /// Synthesises and gives the public inputs, without the constant one.
    fn synthesize_into<CS: ConstraintSystem<Scalar>>(
        &self,
        cs: &mut CS,
    ) -> Result<Vec<Scalar>, SynthesisError> {
        let mut shape = ChaCha8Rng::seed_from_u64(self.seed);
        let mut witness = ChaCha8Rng::seed_from_u64(self.seed ^ self.witness);
        let mut inputs = Vec::new();
        let one = Known {
            variable: CS::one(),
            value: Scalar::ONE,
            is_zeroed: false,
        };
        let mut known = vec![one];
        for _ in 0..self.early_inputs {
            let value = self.value(&mut witness);
            inputs.push(value);
            known.push(Known {
                variable: cs.alloc_input(|| "early", || Ok(value))?,
                value,
                is_zeroed: false,
            });
        }
        for product in 0..self.products {
            let a = self.combination(&mut shape, &known, true);
            let b = self.combination(&mut shape, &known, self.has_inputs_in_b);
            // Some bits are free, and bound to be bits as usual.
            let is_free = self.has_bits && shape.next_u32().is_multiple_of(2);
            let value = if is_free {
                self.value(&mut witness)
            } else {
                a.value * b.value
            };
            let result = if self.has_no_aux {
                inputs.push(value);
                cs.alloc_input(|| "result", || Ok(value))?
            } else {
                cs.alloc(|| "result", || Ok(value))?
            };
            let (a, b) = if is_free {
                let bit = LinearCombination::from_variable(result);
                (bit.clone(), bit)
            } else {
                (a.terms, b.terms)
            };
            cs.enforce(|| "product", |_| a, |_| b, |lc| lc + result);
            known.push(Known {
                variable: result,
                value,
                is_zeroed: product < self.zeroed,
            });
        }
        for _ in 0..self.late_inputs {
            let sum = self.combination(&mut shape, &known, true);
            inputs.push(sum.value);
            let late = cs.alloc_input(|| "late", || Ok(sum.value))?;
            cs.enforce(
                || "late",
                |_| sum.terms,
                |lc| lc + CS::one(),
                |lc| lc + late,
            );
        }
        Ok(inputs)
    }

    fn value(&self, rng: &mut ChaCha8Rng) -> Scalar {
        if self.has_bits {
            Scalar::from(u64::from(rng.next_u32() % 2))
        } else {
            Scalar::random(rng)
        }
    }

    /// Up to four known variables, times zero now and then; of bits one, so that the
    /// value is one too.
    fn combination(&self, rng: &mut ChaCha8Rng, known: &[Known], with_inputs: bool) -> Combination {
        let mut sum = Combination {
            terms: LinearCombination::zero(),
            value: Scalar::ZERO,
        };
        let mut has_bit = false;
        for _ in 0..rng.next_u32() % 5 {
            let Known {
                variable,
                value,
                is_zeroed,
            } = known[rng.next_u32() as usize % known.len()];
            let drawn = Scalar::random(&mut *rng);
            let is_input = matches!(variable.get_unchecked(), Index::Input(_));
            if is_input && !with_inputs {
                continue;
            }
            let coefficient = if is_zeroed || has_bit || rng.next_u32().is_multiple_of(4) {
                Scalar::ZERO
            } else if self.has_bits {
                has_bit = true;
                Scalar::ONE
            } else {
                drawn
            };
            sum.terms = sum.terms + (coefficient, variable);
            sum.value += coefficient * value;
        }
        sum
    }
}

#[derive(Clone, Copy)]
struct Known {
    variable: Variable,
    value: Scalar,
    is_zeroed: bool,
}

struct Combination {
    terms: LinearCombination<Scalar>,
    value: Scalar,
}

impl Circuit<Scalar> for Random {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        self.synthesize_into(cs).map(drop)
    }
}

impl CircuitSpec for Random {
    fn id(&self) -> CircuitId {
        "random".into()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize_into(pass).map(drop)
    }
}

impl Part for Random {
    fn synthesize(&self, _: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize_into(pass).map(drop)
    }
}

impl Workload for Random {
    fn label(&self) -> String {
        format!("{self:?}")
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        Arc::new(*self)
    }

    fn part_count(&self) -> usize {
        PARTS
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        Ok(Box::new(self.of_part(index)))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        let holds = |(index, proof)| {
            let mut inputs = Vec::new();
            count(|pass| {
                inputs = self.of_part(index).synthesize_into(pass)?;
                Ok(())
            })
            .expect("no pass refuses this circuit");
            verifier.verify(proof, &inputs)
        };
        Ok(proofs.iter().enumerate().all(holds))
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::new();
        for proof in proofs {
            proof.write(&mut bytes).expect("a vector takes all");
        }
        Ok(bytes)
    }
}

/// Makes the key with both generators and the proofs with both provers.
fn compare(circuit: Random, c_from_ab: bool, key_tier: KeyTier, backend: &Arc<dyn Backend>) {
    let mut house = House::new(&[]);
    let waste = ToxicWaste::from_seed(7);
    let output = KeyOutput {
        directory: house.directory.path(),
        refused: &[],
        seed: 7,
    };
    let key = generate(&circuit, &waste, &output, &|_, _, _| {}).expect("a key");
    let params = generate_parameters::<Bls12, _>(
        circuit,
        waste.g1.into(),
        waste.g2.into(),
        waste.alpha,
        waste.beta,
        waste.gamma,
        waste.delta,
        waste.tau,
    )
    .expect("bellperson makes the key");
    let mut bytes = Vec::new();
    params.write(&mut bytes).expect("a vector takes all");
    let ours = std::fs::read(key.params).expect("our key");
    assert!(bytes == ours, "keys differ");

    let proofs = (0..PARTS).map(|part| {
        let (r, s) = Blinding::Seeded(1).scalars(part);
        create_proof(circuit.of_part(part), &params, r, s).expect("bellperson proves")
    });
    let proofs: Vec<Proof<Bls12>> = proofs.collect();
    let want = circuit.encode(&proofs).expect("proofs are encoded");

    house.config.tuning.c_from_ab = c_from_ab;
    house.config.tuning.key_tier = key_tier;
    let hints_path = house.directory.path().join("hints.json");
    // The second run has the sizes that the first one taught.
    for sizing in [Sizing::Growing, Sizing::Exact] {
        house.config.tuning.sizing = sizing;
        let hints = HintStore::open(&hints_path).expect("good hints");
        let engine = house.engine_with(PLENTY, Arc::clone(backend), hints);
        let job = engine
            .submit(Arc::new(circuit), seeded())
            .expect("there is room");
        let reply = job.wait().expect("a good job");
        assert!(reply.proof == want, "proofs differ, {sizing:?}");
        assert_eq!(engine.shapes().sizes(&circuit.id()), Some(key.sizes));
        assert_eq!(engine.metrics().hint_misses.count(), 0);
    }
}

#[test]
fn any_circuit_gives_bellpersons_key_and_proofs() {
    let backends: [Arc<dyn Backend>; 2] = [Arc::new(cpu(false)), Arc::new(cpu(true))];
    let config = ProptestConfig {
        // The test is quick to repeat: what fails is printed with its seed.
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    };
    proptest!(config, |(circuit in Random::strategy(), c_from_ab: bool, is_resident: bool)| {
        let tier = if is_resident { KeyTier::Resident } else { KeyTier::File };
        compare(circuit, c_from_ab, tier, &backends[usize::from(c_from_ab)]);
    });
}
