//! What any backend must do, whatever it computes with. [`suite!`] makes a test of each
//! check for one backend; a backend has tests of its own only for what is its own.
//!
//! Two oracles say what is right: bellperson's prover, and for keys whose secret is
//! known the exponents of a proof, computed with scalars alone (`exponents`).

mod exponents;
pub(crate) mod proofs;
pub(crate) mod requests;
pub(crate) mod watching;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bellpepper_core::Circuit;
use bellperson::groth16::{Parameters, Proof, create_proof};
use blstrs::{Bls12, Scalar};
use cuzk_budget::Budget;
use cuzk_pinned::PinnedPool;
use tempfile::TempDir;

use crate::backend::{Backend, ProveRequest, Proved};
use crate::column::{CColumn, Columns};
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::tests::{column_in, meaningless_key};
use crate::key::{Key, KeyChecks, PointCheck};
use crate::shape::CircuitShape;

/// Makes a backend behind which so many proofs may wait; `None` where it cannot run,
/// and then its tests are skipped.
pub(crate) type Make = dyn Fn(usize) -> Option<Arc<dyn Backend>>;

/// One test for each check, of the backend that a [`Make`] makes.
macro_rules! suite {
    ($make:expr) => {
        crate::conformance::suite! {
            $make;
            proofs::every_small_size_gives_bellpersons_bytes,
            proofs::extreme_witnesses_give_bellpersons_bytes,
            proofs::special_blinding_scalars_give_bellpersons_bytes,
            proofs::a_larger_circuit_gives_bellpersons_bytes,
            proofs::a_known_secret_gives_the_exponents,
            proofs::a_proof_verifies_and_only_for_its_inputs,
            proofs::an_unsatisfied_witness_gives_no_valid_proof,
            requests::parts_that_do_not_fit_are_refused_with_both_numbers,
            requests::a_key_that_shrinks_ends_its_proof_alone,
            requests::two_at_once_are_kept_apart,
            requests::a_dropped_proof_gives_its_columns_back_first,
            requests::a_full_queue_refuses_and_a_drop_finishes_what_waits,
            watching::intermediates_are_the_cpus,
            watching::what_is_changed_goes_on_changed,
        }
    };
    ($make:expr; $($module:ident::$check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                crate::conformance::$module::$check(&$make);
            }
        )+
    };
}
pub(crate) use suite;

/// Proofs that may wait where a check does not ask for another number.
const QUEUE_LEN_MAX: usize = 4;

/// A circuit with its witness and a key in a file.
pub(crate) struct Case<C> {
    circuit: C,
    pub(crate) assignment: Assignment,
    pub(crate) shape: Arc<CircuitShape>,
    parameters: Parameters<Bls12>,
    pub(crate) key: Arc<Key>,
    key_path: PathBuf,
    _directory: TempDir,
}

impl<C: Circuit<Scalar> + Clone + Send> Case<C> {
    /// With a key whose points mean nothing: provers must make the same of it.
    pub(crate) fn meaningless(circuit: C, seed: u64) -> Self {
        let assignment = Assignment::of(circuit.clone());
        let parameters = meaningless_key(&assignment.shape(), seed);
        Self::with_key(circuit, assignment, parameters)
    }

    fn with_key(circuit: C, assignment: Assignment, parameters: Parameters<Bls12>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let key_path = directory.path().join("key.params");
        let file = File::create(&key_path).expect("a new file");
        parameters.write(file).expect("a file takes all bytes");
        let checks = KeyChecks {
            points: PointCheck::None,
            digest: None,
        };
        let key = Key::open(&key_path, &checks).expect("a whole key");
        Self {
            circuit,
            shape: Arc::new(assignment.shape()),
            assignment,
            parameters,
            key: Arc::new(key),
            key_path,
            _directory: directory,
        }
    }

    /// A request with columns in the backend's layout, filled the way synthesis does.
    pub(crate) fn request(&self, backend: &dyn Backend, r: Scalar, s: Scalar) -> ProveRequest {
        self.request_in(&PinnedPool::heap(Budget::new(1 << 30)), backend, r, s)
    }

    fn request_in(
        &self,
        pool: &PinnedPool,
        backend: &dyn Backend,
        r: Scalar,
        s: Scalar,
    ) -> ProveRequest {
        let layout = backend.layout(&self.shape.sizes);
        let column = |scalars: &[Scalar], len| column_in(pool, scalars, len);
        let Assignment { a, b, c, aux, .. } = &self.assignment;
        ProveRequest {
            columns: Columns {
                a: column(a, layout.rows),
                b: column(b, layout.rows),
                c: match layout.c {
                    CColumn::Absent => None,
                    CColumn::Synthesised => Some(column(c, layout.rows)),
                    // What another proof has left.
                    CColumn::Scratch => Some(column(&[Scalar::from(3)], layout.rows)),
                },
                aux: column(aux, layout.aux),
            },
            inputs: self.assignment.inputs.clone(),
            shape: Arc::clone(&self.shape),
            key: Arc::clone(&self.key),
            r,
            s,
            watch: None,
        }
    }

    /// Bellperson's proof.
    pub(crate) fn stock(&self, r: Scalar, s: Scalar) -> Vec<u8> {
        let circuit = self.circuit.clone();
        let proof = create_proof::<Bls12, _, _>(circuit, &self.parameters, r, s);
        bytes(&proof.expect("a satisfied circuit"))
    }

    /// Proves and compares with bellperson.
    fn compare(&self, backend: &dyn Backend, r: Scalar, s: Scalar, what: &str) {
        let admitted = backend.check(&self.shape.sizes, &self.key);
        admitted.unwrap_or_else(|error| panic!("{what}: {error}"));
        let proved = proved(backend, self.request(backend, r, s));
        assert!(bytes(&proved.proof) == self.stock(r, s), "{what}");
    }
}

pub(crate) fn bytes(proof: &Proof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).expect("a vector takes all bytes");
    bytes
}

/// Proves a request that fits.
pub(crate) fn proved(backend: &dyn Backend, request: ProveRequest) -> Proved {
    let mut pending = backend.submit(request);
    assert!(pending.columns_read().is_some(), "the columns come back");
    pending.done().expect("a request that fits")
}
