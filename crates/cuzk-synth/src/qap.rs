//! The QAP pass: the circuit's polynomials at one point, as the key generator
//! needs them, in one streaming synthesis.
//!
//! Constraint `i` has the Lagrange polynomial `L_i` of the evaluation domain;
//! variable `v` has `a_v = sum_i A[i][v] * L_i(tau)` and likewise `b_v` and `c_v`.
//! The matrices are never stored: a row is added to its variables as it appears,
//! and the `L_i(tau)` come a block at a time, so memory is three scalars a variable.

use bellpepper_core::{LinearCombination, SynthesisError};
use blstrs::Scalar;
use ff::{BatchInverter, Field, PrimeField};

use crate::error::SynthError;
use crate::{Pass, Sizes, run};

/// Lagrange values made at a time: one inversion serves a block.
const BLOCK: usize = 1 << 13;

/// Evaluations at tau of the polynomials of a set of variables, one each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QapColumns {
    /// Of A.
    pub a: Vec<Scalar>,
    /// Of B.
    pub b: Vec<Scalar>,
    /// Of C.
    pub c: Vec<Scalar>,
}

impl QapColumns {
    fn with_capacity(len: usize) -> Self {
        let column = || Vec::with_capacity(len);
        Self {
            a: column(),
            b: column(),
            c: column(),
        }
    }

    fn push(&mut self) -> usize {
        self.a.push(Scalar::ZERO);
        self.b.push(Scalar::ZERO);
        self.c.push(Scalar::ZERO);
        self.a.len() - 1
    }
}

/// A circuit's QAP at one point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QapAtTau {
    /// Of the inputs, the constant one first.
    pub inputs: QapColumns,
    /// Of the auxiliary variables.
    pub aux: QapColumns,
}

/// Evaluates the QAP at `tau`. `sizes` come from a count of the same circuit.
///
/// # Errors
/// [`SynthError::TauInDomain`] and [`SynthError::DomainTooLarge`] if there is no
/// Lagrange basis, [`SynthError::NotDeterministic`] if the circuit differs from
/// its count, [`SynthError::Circuit`] if it refused.
pub fn qap(
    sizes: &Sizes,
    tau: Scalar,
    synthesize: impl FnOnce(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Result<QapAtTau, SynthError> {
    let state = Qap {
        inputs: QapColumns::with_capacity(sizes.inputs),
        aux: QapColumns::with_capacity(sizes.aux),
        lagrange: Lagrange::new(sizes.constraints, tau)?,
        rows: 0,
    };
    let mut pass = Pass::evaluating(state);
    run(&mut pass, synthesize)?;
    let state = pass.into_qap();
    if state.rows != sizes.constraints {
        return Err(SynthError::NotDeterministic {
            have: state.rows,
            want: sizes.constraints,
        });
    }
    Ok(QapAtTau {
        inputs: state.inputs,
        aux: state.aux,
    })
}

/// State of the pass.
pub(crate) struct Qap {
    inputs: QapColumns,
    aux: QapColumns,
    lagrange: Lagrange,
    rows: usize,
}

impl Qap {
    pub(crate) fn alloc(&mut self) -> usize {
        self.aux.push()
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs.a.len()
    }

    pub(crate) fn alloc_input(&mut self) -> usize {
        self.inputs.push()
    }

    pub(crate) fn enforce(&mut self, lcs: [LinearCombination<Scalar>; 3]) {
        let basis = self.lagrange.next();
        self.rows += 1;
        let [a, b, c] = &lcs;
        add_row(a, basis, &mut self.inputs.a, &mut self.aux.a);
        add_row(b, basis, &mut self.inputs.b, &mut self.aux.b);
        add_row(c, basis, &mut self.inputs.c, &mut self.aux.c);
    }
}

fn add_row(
    lc: &LinearCombination<Scalar>,
    basis: Scalar,
    inputs: &mut [Scalar],
    aux: &mut [Scalar],
) {
    for (&index, coefficient) in lc.iter_inputs() {
        inputs[index] += scaled(coefficient, basis);
    }
    for (&index, coefficient) in lc.iter_aux() {
        aux[index] += scaled(coefficient, basis);
    }
}

fn scaled(coefficient: &Scalar, basis: Scalar) -> Scalar {
    if *coefficient == Scalar::ONE {
        basis
    } else {
        basis * coefficient
    }
}

/// `L_i(tau) = Z(tau)/m * w^i / (tau - w^i)` for i = 0, 1, …, a block at a time.
#[derive(Clone, Debug)]
pub(crate) struct Lagrange {
    tau: Scalar,
    root: Scalar,
    next_root: Scalar,
    z_over_m: Scalar,
    block: Vec<Scalar>,
    at: usize,
    scratch: Vec<Scalar>,
}

impl Lagrange {
    pub(crate) fn new(constraints: usize, tau: Scalar) -> Result<Self, SynthError> {
        let domain = constraints
            .checked_next_power_of_two()
            .filter(|domain| domain.trailing_zeros() <= Scalar::S)
            .ok_or(SynthError::DomainTooLarge { constraints })?;
        let log_size = domain.trailing_zeros();
        let mut root = Scalar::ROOT_OF_UNITY;
        for _ in log_size..Scalar::S {
            root = root.square();
        }
        let z = tau.pow_vartime([domain as u64]) - Scalar::ONE;
        if z == Scalar::ZERO {
            return Err(SynthError::TauInDomain { domain });
        }
        let m_inverse = Scalar::from(domain as u64)
            .invert()
            .expect("a power of two has an inverse");
        Ok(Self {
            tau,
            root,
            next_root: Scalar::ONE,
            z_over_m: z * m_inverse,
            block: Vec::new(),
            at: 0,
            scratch: vec![Scalar::ZERO; BLOCK],
        })
    }

    /// The same basis from a row on.
    pub(crate) fn starting(&self, row: usize) -> Self {
        Self {
            next_root: self.root.pow_vartime([row as u64]),
            block: Vec::new(),
            at: 0,
            ..self.clone()
        }
    }

    pub(crate) fn next(&mut self) -> Scalar {
        if self.at == self.block.len() {
            self.fill();
        }
        self.at += 1;
        self.block[self.at - 1]
    }

    fn fill(&mut self) {
        let mut roots = Vec::with_capacity(BLOCK);
        self.block.clear();
        for _ in 0..BLOCK {
            roots.push(self.next_root);
            self.block.push(self.tau - self.next_root);
            self.next_root *= self.root;
        }
        BatchInverter::invert_with_external_scratch(&mut self.block, &mut self.scratch);
        for (value, root) in self.block.iter_mut().zip(&roots) {
            *value *= self.z_over_m * root;
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The basis sums to one at any point, and interpolates: sum L_i(tau) w^i = tau.
    #[test]
    fn lagrange_interpolates() {
        for constraints in [1, 2, 3, 5, BLOCK, BLOCK + 1, 3 * BLOCK] {
            let tau = Scalar::from(0x1234_5678_9abc_def1);
            let mut lagrange = Lagrange::new(constraints, tau).expect("not a root of unity");
            let domain = constraints.next_power_of_two();
            let (mut sum, mut first, mut root) = (Scalar::ZERO, Scalar::ZERO, Scalar::ONE);
            for _ in 0..domain {
                let basis = lagrange.next();
                sum += basis;
                first += basis * root;
                root *= lagrange.root;
            }
            assert_eq!(sum, Scalar::ONE, "{constraints} constraints");
            // A domain of one element interpolates constants only.
            assert_eq!(first, if domain == 1 { Scalar::ONE } else { tau });
        }
    }

    #[test]
    fn a_root_of_unity_is_refused() {
        assert!(matches!(
            Lagrange::new(4, Scalar::ONE),
            Err(SynthError::TauInDomain { domain: 4 })
        ));
    }
}
