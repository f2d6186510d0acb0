//! A second oracle: where the secret of a key is known, the exponents of a proof are
//! arithmetic with scalars, after Groth 2016, section 3.2. It shares no transform, no
//! multiplication and no query with any prover.

use bellperson::groth16::{Parameters, Proof, generate_parameters};
use blstrs::{Bls12, G1Projective, G2Projective, Scalar};
use ff::{Field, PrimeField};
use group::{Curve, Group};

use bellpepper_core::{Circuit, LinearCombination};

use crate::cpu::tests::circuit::Assignment;

/// What must be forgotten of a real key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret {
    pub(super) alpha: Scalar,
    pub(super) beta: Scalar,
    pub(super) gamma: Scalar,
    pub(super) delta: Scalar,
    pub(super) tau: Scalar,
}

impl Secret {
    /// Bellperson's key for a circuit, over the standard generators.
    pub(super) fn key(&self, circuit: impl Circuit<Scalar>) -> Parameters<Bls12> {
        generate_parameters::<Bls12, _>(
            circuit,
            G1Projective::generator(),
            G2Projective::generator(),
            self.alpha,
            self.beta,
            self.gamma,
            self.delta,
            self.tau,
        )
        .expect("a circuit without unused variables")
    }

    /// The proof of a witness, without any use of the key.
    pub(super) fn proof(&self, witness: &Assignment, r: Scalar, s: Scalar) -> Proof<Bls12> {
        let Self {
            alpha,
            beta,
            delta,
            tau,
            ..
        } = *self;
        let lagrange = lagrange(witness.a.len().next_power_of_two(), tau);
        let [u, v, w] = [0, 1, 2].map(|matrix| Values::of(witness, matrix, &lagrange));
        let [u_sum, v_sum, w_sum] = [&u, &v, &w].map(|values| values.times(witness));
        let a = alpha + u_sum + r * delta;
        let b = beta + v_sum + s * delta;
        // h(tau) Z(tau), by the quotient's definition.
        let h_z = u_sum * v_sum - w_sum;
        let private: Scalar = (0..witness.aux.len())
            .map(|at| witness.aux[at] * (beta * u.aux[at] + alpha * v.aux[at] + w.aux[at]))
            .sum();
        let delta_inverse = delta.invert().expect("not zero");
        let c = (private + h_z) * delta_inverse + s * a + r * b - r * s * delta;
        Proof {
            a: (G1Projective::generator() * a).to_affine(),
            b: (G2Projective::generator() * b).to_affine(),
            c: (G1Projective::generator() * c).to_affine(),
        }
    }
}

/// One matrix of the circuit at tau: a value for each variable.
struct Values {
    inputs: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Values {
    fn of(witness: &Assignment, matrix: usize, lagrange: &[Scalar]) -> Self {
        let mut values = Self {
            inputs: vec![Scalar::ZERO; witness.inputs.len()],
            aux: vec![Scalar::ZERO; witness.aux.len()],
        };
        for (row, at_row) in std::iter::zip(&witness.rows, lagrange) {
            let terms: &LinearCombination<Scalar> = &row[matrix];
            for (&variable, coefficient) in terms.iter_inputs() {
                values.inputs[variable] += at_row * coefficient;
            }
            for (&variable, coefficient) in terms.iter_aux() {
                values.aux[variable] += at_row * coefficient;
            }
        }
        values
    }

    /// The sum over all variables of the witness.
    fn times(&self, witness: &Assignment) -> Scalar {
        let inputs = std::iter::zip(&self.inputs, &witness.inputs);
        let aux = std::iter::zip(&self.aux, &witness.aux);
        inputs.chain(aux).map(|(value, x)| value * x).sum()
    }
}

/// The Lagrange polynomials of the domain at tau:
/// `omega^j (tau^n - 1) / (n (tau - omega^j))`.
fn lagrange(len: usize, tau: Scalar) -> Vec<Scalar> {
    let omega = (len.ilog2()..Scalar::S).fold(Scalar::ROOT_OF_UNITY, |root, _| root.square());
    let n = Scalar::from(len as u64);
    let vanishing = tau.pow_vartime([len as u64]) - Scalar::ONE;
    std::iter::successors(Some(Scalar::ONE), |power| Some(power * omega))
        .take(len)
        .map(|power| {
            let below = (n * (tau - power)).invert();
            power * vanishing * below.expect("tau is outside the domain")
        })
        .collect()
}
