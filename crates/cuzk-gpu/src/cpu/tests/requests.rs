//! Keys that fail or panic when they are read: an error for that request alone, and the
//! columns back. And what a proof takes.

use std::ops::Deref;
use std::sync::Arc;

use bellperson::groth16::{Parameters, VerifyingKey};
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use ff::Field;

use crate::column::CColumn;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit};
use crate::cpu::tests::{job, meaningless_key, options};
use crate::cpu::{CpuBackend, CpuOptions, Job, PointSource, msm};
use crate::error::KeyError;
use crate::key::{KeyTier, Section};
use crate::shape::CircuitSizes;

fn small_job() -> Job<Parameters<Bls12>> {
    let assignment = Assignment::of(RandomCircuit::of_products(10, 1));
    let key = Arc::new(meaningless_key(&assignment.shape(), 2));
    job(&assignment, CColumn::Scratch, key, Scalar::ONE, Scalar::ONE)
}

fn small_options() -> CpuOptions {
    options(CSource::Product, Transforms::Six)
}

fn backend() -> CpuBackend {
    CpuBackend::new(small_options()).expect("threads")
}

/// Submits a job that must fail, checks that the columns come back, and returns
/// the error's text.
fn refused<S: PointSource + 'static>(backend: &CpuBackend, job: Job<S>) -> String {
    let mut pending = backend.submit_job(job);
    assert!(pending.columns_read().is_some(), "the columns come back");
    match pending.done() {
        Ok(_) => panic!("a proof of a request that does not fit"),
        Err(error) => error.to_string(),
    }
}

/// What a [`Faulty`] source does when it is asked for a section.
#[derive(Clone, Copy)]
enum Fault {
    Panic,
    Error,
}

/// A key that fails at one section.
struct Faulty {
    key: Parameters<Bls12>,
    at: Section,
    fault: Fault,
}

impl Faulty {
    fn fail(&self, section: Section) -> Result<(), KeyError> {
        match self.fault {
            _ if section != self.at => Ok(()),
            Fault::Panic => panic!("section {section} fell over"),
            Fault::Error => Err(KeyError::Exists {
                path: "some/key".into(),
            }),
        }
    }
}

impl PointSource for Faulty {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        self.key.vk()
    }

    fn count(&self, section: Section) -> usize {
        self.key.count(section)
    }

    fn section_bytes(&self, section: Section) -> u64 {
        self.key.section_bytes(section)
    }

    fn g1(&self, section: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError> {
        self.fail(section)?;
        self.key.g1(section)
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        self.fail(Section::BG2)?;
        self.key.g2()
    }
}

/// A job like `job` with its key in another source.
fn with_source<S>(
    job: Job<Parameters<Bls12>>,
    source: impl FnOnce(Parameters<Bls12>) -> S,
) -> Job<S> {
    Job {
        columns: job.columns,
        inputs: job.inputs,
        shape: job.shape,
        source: Arc::new(source(
            Arc::try_unwrap(job.source).unwrap_or_else(|_| unreachable!("one owner")),
        )),
        r: job.r,
        s: job.s,
        watch: job.watch,
    }
}

#[test]
fn a_panic_or_a_key_error_ends_its_job_alone() {
    let backend = backend();
    for at in [
        Section::H,
        Section::L,
        Section::A,
        Section::BG1,
        Section::BG2,
    ] {
        let faulty = |fault| with_source(small_job(), |key| Faulty { key, at, fault });
        assert_eq!(
            refused(&backend, faulty(Fault::Panic)),
            format!("the prover panicked: section {at} fell over")
        );
        assert_eq!(
            refused(&backend, faulty(Fault::Error)),
            "some/key already exists; keys are never overwritten"
        );
        let proved = backend.submit_job(small_job()).done();
        let phases = proved.expect("a job that fits").phases;
        let names: Vec<&str> = phases.iter().map(|phase| phase.name).collect();
        assert_eq!(
            names,
            [
                "ntt", "key_h", "msm_h", "key_l", "msm_l", "key_a", "msm_a", "key_b_g1",
                "msm_b_g1", "key_b_g2", "msm_b_g2", "finish"
            ]
        );
    }
}

/// A key of the wrong sizes whose sections are decoded when they are used.
struct Decoded;

/// Bytes of one section of [`Decoded`], more than any working memory here.
const SECTION_BYTES: u64 = 1 << 34;

impl PointSource for Decoded {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        unreachable!("only sizes are asked for")
    }

    fn count(&self, _: Section) -> usize {
        0
    }

    fn section_bytes(&self, section: Section) -> u64 {
        match section {
            Section::L => SECTION_BYTES,
            _ => 96,
        }
    }

    fn g1(&self, _: Section) -> Result<impl Deref<Target = [G1Affine]>, KeyError> {
        Ok(Vec::new())
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        Ok(Vec::new())
    }
}

#[test]
fn peak_bytes_are_one_section_and_its_sum_or_the_twiddle_factors() {
    let backend = backend();
    let sizes = small_job().shape.sizes;
    let peak = backend.peak_bytes(&sizes, &Decoded, KeyTier::File);
    let sum = |terms| msm::work_bytes(terms, 2, size_of::<G1Affine>());
    assert_eq!(peak, SECTION_BYTES + sum(0));
    // A small sum works in little, a huge one in bounded memory.
    assert!(sum(1 << 10) < 16 << 20, "{}", sum(1 << 10));
    assert!(sum(1 << 27) < 256 << 20, "{}", sum(1 << 27));
    let huge = CircuitSizes {
        constraints: 1 << 31,
        ..sizes
    };
    assert_eq!(backend.peak_bytes(&huge, &Decoded, KeyTier::File), 1 << 36);
}
