//! Requests that do not fit, panics and full queues: an error for that request
//! alone, and the columns back.

use std::ops::Deref;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bellperson::groth16::{Parameters, VerifyingKey};
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use ff::Field;

use crate::column::CColumn;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::{Assignment, RandomCircuit, bitmap};
use crate::cpu::tests::{column, job, meaningless_key, options};
use crate::cpu::{CpuBackend, CpuOptions, Job, PointSource, msm};
use crate::error::{BackendError, KeyError};
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

/// A change that makes a fitting job unfit.
type Spoil = fn(&mut Job<Parameters<Bls12>>);

#[test]
fn parts_that_do_not_fit_are_named_with_both_numbers() {
    let backend = backend();
    let cases: [(Spoil, &str); 10] = [
        (
            |job| job.columns.a = column(&[], 8),
            "scalars in column a: have 8, want 16",
        ),
        (
            |job| job.columns.b = column(&[], 32),
            "scalars in column b: have 32, want 16",
        ),
        (
            |job| job.columns.c = None,
            "scalars in column c: have 0, want 16",
        ),
        (
            |job| job.columns.aux = column(&[], 9),
            "scalars in column aux: have 9, want 10",
        ),
        (
            |job| job.inputs.truncate(3),
            "public inputs: have 3, want 4",
        ),
        (
            |job| Arc::make_mut(&mut job.shape).a_aux = bitmap(&[true; 11]),
            "bits in the density of a: have 11, want 10",
        ),
        (
            |job| Arc::make_mut(&mut job.shape).b_inputs = bitmap(&[]),
            "bits in the input density of b: have 0, want 4",
        ),
        (
            |job| Arc::make_mut(&mut job.shape).b_aux = bitmap(&[true; 1]),
            "bits in the density of b: have 1, want 10",
        ),
        (
            |job| {
                let key = Arc::get_mut(&mut job.source).expect("one owner");
                Arc::get_mut(&mut key.h).expect("one owner").truncate(14);
            },
            "points in key section h: have 14, want 15",
        ),
        (
            |job| {
                let key = Arc::get_mut(&mut job.source).expect("one owner");
                key.vk.ic.truncate(1);
            },
            "points in key section ic: have 1, want 4",
        ),
    ];
    for (spoil, message) in cases {
        let mut job = small_job();
        spoil(&mut job);
        assert_eq!(refused(&backend, job), message);
    }
    let mut pending = backend.submit_job(small_job());
    assert!(pending.done().is_ok(), "and then a job that fits");
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
        let names: Vec<&str> = proved
            .expect("a job that fits")
            .phases
            .0
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(
            names,
            [
                "ntt", "key_h", "msm_h", "key_l", "msm_l", "key_a", "msm_a", "key_b_g1",
                "msm_b_g1", "key_b_g2", "msm_b_g2", "finish"
            ]
        );
    }
}

/// A key whose H section waits for a word.
struct Gated {
    key: Parameters<Bls12>,
    entered: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl PointSource for Gated {
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
        if section == Section::H {
            // The test may have ended; then there is nobody to tell.
            let _ = self.entered.send(());
            let _ = self.gate.lock().expect("one thread locks it").recv();
        }
        self.key.g1(section)
    }

    fn g2(&self) -> Result<impl Deref<Target = [G2Affine]>, KeyError> {
        self.key.g2()
    }
}

#[test]
fn a_full_queue_refuses_and_a_drop_finishes_what_waits() {
    let queue_len_max = 2;
    let backend = CpuBackend::new(CpuOptions {
        queue_len_max,
        ..small_options()
    })
    .expect("threads");
    let (entered, is_running) = channel();
    let (open, gate) = channel();
    let gated = with_source(small_job(), |key| Gated {
        key,
        entered,
        gate: Mutex::new(gate),
    });
    let mut running = backend.submit_job(gated);
    is_running.recv().expect("the first job starts");

    let mut waiting: Vec<_> = (0..queue_len_max)
        .map(|_| backend.submit_job(small_job()))
        .collect();
    let mut refused = backend.submit_job(small_job());
    assert!(refused.columns_read().is_some(), "the columns come back");
    assert!(matches!(
        refused.done(),
        Err(BackendError::QueueFull { limit: 2 })
    ));

    open.send(()).expect("the first job waits");
    drop(backend);
    assert!(running.done().is_ok());
    assert!(waiting.iter_mut().all(|pending| pending.done().is_ok()));
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
