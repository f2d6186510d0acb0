//! Both forms of a key against bellperson's verdict, with keys whose trapdoor is known:
//! proofs for any inputs, and commitments of any kind, are made without a circuit.

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{create_random_proof, generate_random_parameters};
use blstrs::{G2Affine, G2Projective};
use group::Group;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use rayon::prelude::*;

use super::*;

fn g1(exponent: Scalar) -> G1Affine {
    (G1Projective::generator() * exponent).into()
}

fn g2(exponent: Scalar) -> G2Affine {
    (G2Projective::generator() * exponent).into()
}

/// A proof with another C: well formed, and of nothing.
fn spoilt(proof: &Proof<Bls12>) -> Proof<Bls12> {
    let mut spoilt = proof.clone();
    spoilt.c = (G1Projective::generator() + spoilt.c).into();
    spoilt
}

struct Trapdoor {
    alpha: Scalar,
    beta: Scalar,
    gamma: Scalar,
    delta: Scalar,
    /// Exponents of the commitments, that of the leading one first.
    weights: Vec<Scalar>,
}

impl Trapdoor {
    fn new(weights: Vec<Scalar>) -> Self {
        let [alpha, beta, gamma, delta] = [2, 3, 5, 7].map(Scalar::from);
        Self {
            alpha,
            beta,
            gamma,
            delta,
            weights,
        }
    }

    fn random(inputs: usize, rng: &mut ChaCha8Rng) -> Self {
        Self::new((0..=inputs).map(|_| Scalar::random(&mut *rng)).collect())
    }

    fn vk(&self) -> Arc<VerifyingKey<Bls12>> {
        Arc::new(VerifyingKey {
            alpha_g1: g1(self.alpha),
            beta_g1: g1(self.beta),
            beta_g2: g2(self.beta),
            gamma_g2: g2(self.gamma),
            delta_g1: g1(self.delta),
            delta_g2: g2(self.delta),
            ic: self.weights.par_iter().map(|&weight| g1(weight)).collect(),
        })
    }

    /// The proof for these inputs with some `a` and `b`: the verifier's equation
    /// `a b = alpha beta + gamma inputs + delta c` gives c.
    fn proof(&self, inputs: &[Scalar]) -> Proof<Bls12> {
        let (a, b) = (Scalar::from(11), Scalar::from(13));
        let terms = inputs.iter().zip(&self.weights[1..]);
        let sum = self.weights[0] + terms.map(|(input, weight)| input * weight).sum::<Scalar>();
        let rest = a * b - self.alpha * self.beta - self.gamma * sum;
        Proof {
            a: g1(a),
            b: g2(b),
            c: g1(rest * self.delta.invert().expect("delta is not zero")),
        }
    }
}

/// bellperson's prepared key beside the two forms of ours.
struct Forms {
    theirs: PreparedVerifyingKey<Bls12>,
    ours: [Verifier; 2],
}

impl Forms {
    fn new(vk: &Arc<VerifyingKey<Bls12>>) -> Self {
        let theirs = prepare_verifying_key(vk);
        let commitments = vk.ic.len();
        let forms = [
            Form::Tables(Box::new(prepare_verifying_key(vk))),
            Form::Sum(Arc::clone(vk)),
        ];
        let ours = forms.map(|form| Verifier { commitments, form });
        Self { theirs, ours }
    }

    /// All say the same of inputs of the right number, and it is `holds`.
    fn expect(&self, holds: bool, proof: &Proof<Bls12>, inputs: &[Scalar]) {
        assert_eq!(verify_proof(&self.theirs, proof, inputs).unwrap(), holds);
        for ours in &self.ours {
            assert_eq!(ours.verify(proof, inputs), holds, "{ours:?}");
        }
    }
}

/// Zero, one, minus one, two and random ones, in turn.
fn mixed_inputs(count: usize, rng: &mut ChaCha8Rng) -> Vec<Scalar> {
    let input = |at| match at % 6 {
        0 => Scalar::ZERO,
        1 => Scalar::ONE,
        2 => -Scalar::ONE,
        3 => Scalar::from(2),
        _ => Scalar::random(&mut *rng),
    };
    (0..count).map(input).collect()
}

#[test]
fn both_forms_say_what_bellperson_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    // blst sums fewer than 32 points in another way than more, and has one for one point.
    for count in [0, 1, 2, 5, 30, 31, 32, 100] {
        let trapdoor = Trapdoor::random(count, &mut rng);
        let forms = Forms::new(&trapdoor.vk());
        for inputs in [mixed_inputs(count, &mut rng), vec![Scalar::ZERO; count]] {
            let proof = trapdoor.proof(&inputs);
            forms.expect(true, &proof, &inputs);
            forms.expect(false, &spoilt(&proof), &inputs);
            for at in [0, count / 2, count.saturating_sub(1)] {
                let mut other = inputs.clone();
                if let Some(input) = other.get_mut(at) {
                    *input += Scalar::ONE;
                    forms.expect(false, &proof, &other);
                    forms.expect(true, &trapdoor.proof(&other), &other);
                }
            }
        }
    }
}

#[test]
fn commitments_at_infinity_equal_and_opposite_are_summed() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (zero, one, some) = (Scalar::ZERO, Scalar::ONE, Scalar::random(&mut rng));
    for count in [1, 2, 40] {
        let alternating = |at| if at % 2 == 0 { some } else { -some };
        let mut first_zero = vec![some; count + 1];
        first_zero[0] = zero;
        let mut last_zero = vec![some; count + 1];
        last_zero[count] = zero;
        let cases = [
            vec![zero; count + 1],
            first_zero,
            last_zero,
            vec![some; count + 1],
            (0..=count).map(alternating).collect(),
        ];
        for weights in cases {
            let trapdoor = Trapdoor::new(weights);
            let forms = Forms::new(&trapdoor.vk());
            // Of equal inputs the opposite points cancel, some to infinity.
            for inputs in [vec![one; count], mixed_inputs(count, &mut rng)] {
                let proof = trapdoor.proof(&inputs);
                forms.expect(true, &proof, &inputs);
                forms.expect(false, &spoilt(&proof), &inputs);
            }
        }
    }
}

#[test]
fn inputs_of_another_number_are_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let trapdoor = Trapdoor::random(3, &mut rng);
    let inputs = mixed_inputs(3, &mut rng);
    let proof = trapdoor.proof(&inputs);
    // A zero more adds nothing to the sum, and a zero less takes nothing from it.
    let mut longer = inputs.clone();
    longer.push(Scalar::ZERO);
    assert_eq!(inputs[0], Scalar::ZERO);
    for verifier in Forms::new(&trapdoor.vk()).ours {
        assert_eq!(verifier.input_count(), 3);
        assert!(verifier.verify(&proof, &inputs));
        for other in [&longer[..], &inputs[1..], &inputs[..2], &[]] {
            assert!(!verifier.verify(&proof, other));
            let (proofs, both) = ([proof.clone(), proof.clone()], [&inputs[..], other]);
            let both = both.map(<[Scalar]>::to_vec);
            assert!(!verifier.verify_batch(&mut rng, &proofs, &both));
        }
    }
    // A key that has not even the leading one's commitment accepts nothing.
    let mut empty = (*trapdoor.vk()).clone();
    empty.ic.clear();
    for verifier in Forms::new(&Arc::new(empty)).ours {
        assert_eq!(verifier.input_count(), 0);
        assert!(!verifier.verify(&proof, &[]));
        assert!(!verifier.verify(&proof, &inputs));
    }
}

#[test]
fn keys_get_tables_up_to_the_limit() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for (count, has_tables) in [(TABLE_INPUTS_MAX, true), (TABLE_INPUTS_MAX + 1, false)] {
        let trapdoor = Trapdoor::random(count, &mut rng);
        let vk = trapdoor.vk();
        let verifier = Verifier::new(Arc::clone(&vk));
        assert_eq!(matches!(verifier.form, Form::Tables(_)), has_tables);
        assert_eq!(verifier.input_count(), count);

        let theirs = prepare_verifying_key(&vk);
        let inputs = mixed_inputs(count, &mut rng);
        let proof = trapdoor.proof(&inputs);
        let mut other = inputs.clone();
        other[count - 1] += Scalar::ONE;
        for (holds, proof, inputs) in [
            (true, &proof, &inputs),
            (false, &spoilt(&proof), &inputs),
            (false, &proof, &other),
        ] {
            assert_eq!(verify_proof(&theirs, proof, inputs).unwrap(), holds);
            assert_eq!(verifier.verify(proof, inputs), holds);
        }
        assert!(!verifier.verify(&proof, &inputs[1..]));
    }
}

#[test]
fn a_batch_of_proofs_without_inputs_holds_if_every_proof_does() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let trapdoor = Trapdoor::random(0, &mut rng);
    let proof = trapdoor.proof(&[]);
    for verifier in Forms::new(&trapdoor.vk()).ours {
        for count in [1, 2, 3] {
            let (mut proofs, none) = (vec![proof.clone(); count], vec![Vec::new(); count]);
            assert!(verifier.verify_batch(&mut rng, &proofs, &none));
            proofs[count - 1] = spoilt(&proof);
            assert!(!verifier.verify_batch(&mut rng, &proofs, &none));
        }
    }
}

#[test]
fn a_batch_holds_if_every_proof_does() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let trapdoor = Trapdoor::random(7, &mut rng);
    let inputs: Vec<_> = (0..4).map(|_| mixed_inputs(7, &mut rng)).collect();
    let good: Vec<_> = inputs.iter().map(|inputs| trapdoor.proof(inputs)).collect();
    for verifier in Forms::new(&trapdoor.vk()).ours {
        let mut holds =
            |proofs: &[_], inputs: &[_]| verifier.verify_batch(&mut rng, proofs, inputs);
        assert!(holds(&good, &inputs));
        assert!(holds(&good[..1], &inputs[..1]));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] = spoilt(&bad[at]);
            assert!(!holds(&bad, &inputs), "proof {at} is wrong");
            assert!(!holds(&bad[at..=at], &inputs[at..=at]));
        }
        // Two faults that a sum without weights would not see.
        let mut opposite = good.clone();
        let off = G1Projective::generator();
        opposite[1].c = (off + opposite[1].c).into();
        opposite[2].c = (-off + opposite[2].c).into();
        assert!(!holds(&opposite, &inputs));
        // Good proofs of each other's inputs.
        let mut swapped = good.clone();
        swapped.swap(0, 3);
        assert!(!holds(&swapped, &inputs));

        assert!(!holds(&[], &[]));
        assert!(!holds(&good[1..], &inputs));
        assert!(!holds(&good, &inputs[..3]));
    }
}

/// So many public inputs, each the square of its place, whose root is secret.
#[derive(Clone, Copy)]
struct Squares(u64);

impl Squares {
    fn inputs(self) -> Vec<Scalar> {
        (0..self.0).map(|at| Scalar::from(at).square()).collect()
    }
}

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        for (at, square) in self.inputs().into_iter().enumerate() {
            let root = cs.alloc(|| format!("root {at}"), || Ok(Scalar::from(at as u64)))?;
            let square = cs.alloc_input(|| format!("square {at}"), || Ok(square))?;
            let name = || format!("squared {at}");
            cs.enforce(name, |lc| lc + root, |lc| lc + root, |lc| lc + square);
        }
        Ok(())
    }
}

#[test]
fn proofs_of_a_circuit_with_many_inputs_verify() {
    let circuit = Squares(TABLE_INPUTS_MAX as u64 + 76);
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let parameters = generate_random_parameters::<Bls12, _, _>(circuit, &mut rng).unwrap();
    let proof = create_random_proof(circuit, &parameters, &mut rng).unwrap();
    let verifier = Verifier::new(parameters.vk);
    let mut inputs = circuit.inputs();
    assert_eq!(inputs[0], Scalar::ZERO);
    assert!(matches!(verifier.form, Form::Sum(_)));
    assert!(verifier.verify(&proof, &inputs));
    assert!(!verifier.verify(&spoilt(&proof), &inputs));
    inputs[0] = Scalar::ONE;
    assert!(!verifier.verify(&proof, &inputs));
}

/// blst makes slices of 512 points affine, each with one inversion for all of them.
#[test]
fn many_commitments_at_infinity_equal_and_opposite_are_summed() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (zero, some) = (Scalar::ZERO, Scalar::random(&mut rng));
    let count = TABLE_INPUTS_MAX + 76;
    let each = |weight: fn(usize, Scalar) -> Scalar| -> Vec<_> {
        (0..=count).map(|at| weight(at, some)).collect()
    };
    let cases = [
        vec![zero; count + 1],
        vec![some; count + 1],
        each(|at, some| if at % 2 == 0 { some } else { -some }),
        each(|at, some| if at < 600 { Scalar::ZERO } else { some }),
    ];
    for weights in cases {
        let trapdoor = Trapdoor::new(weights);
        let verifier = Verifier::new(trapdoor.vk());
        assert!(matches!(verifier.form, Form::Sum(_)));
        for inputs in [
            vec![Scalar::ONE; count],
            vec![-Scalar::ONE; count],
            vec![zero; count],
            mixed_inputs(count, &mut rng),
        ] {
            let proof = trapdoor.proof(&inputs);
            assert!(verifier.verify(&proof, &inputs));
            assert!(!verifier.verify(&spoilt(&proof), &inputs));
        }
    }
}

/// blst's threads wait for nothing of rayon's, and each of several sums gets its own result.
#[test]
fn sums_are_made_from_any_threads_at_the_same_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let count = TABLE_INPUTS_MAX + 1;
    let trapdoor = Trapdoor::random(count, &mut rng);
    let verifier = Verifier::new(trapdoor.vk());
    let proved: Vec<_> = (0..3)
        .map(|_| {
            let inputs = mixed_inputs(count, &mut rng);
            (trapdoor.proof(&inputs), inputs)
        })
        .collect();
    let holds = |at: usize, inputs_at: usize| {
        let (proof, inputs) = (&proved[at % 3].0, &proved[inputs_at % 3].1);
        verifier.verify(proof, inputs)
    };
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().expect("a few threads");
        let all = pool.install(|| {
            let each = (0..9).into_par_iter();
            each.all(|at| holds(at, at) && !holds(at, at + 1))
        });
        assert!(all, "{threads} threads");
    }
    std::thread::scope(|scope| {
        let threads = (0..8).map(|at| scope.spawn(move || (at, holds(at, at), holds(at, at + 1))));
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            let (at, own, other) = thread.join().expect("no panic");
            assert!(own && !other, "thread {at}");
        }
    });
}
