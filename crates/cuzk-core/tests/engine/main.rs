//! The engine on a small circuit: what goes right, and everything that may not go
//! wrong quietly.

mod backends;
mod devices;
mod dispatch;
mod divided;
mod dropped;
mod gate;
mod hooked;
mod keygen;
mod keystore;
mod limits;
mod logged;
mod loops;
mod placements;
mod random;
mod replaced;
mod segments;
mod shares;
mod stored;
mod timelines;
mod toy;
mod twins;
mod uploading;
mod urgent;
mod waits;
mod warming;
mod watchdog;

use std::sync::Arc;

use backends::Faulty;
use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError, num::AllocatedNum};
use bellperson::groth16::{Proof, create_proof};
use blstrs::{Bls12, Scalar};
use cuzk_core::config::{KeyTier, Sizing};
use cuzk_core::keygen::{KeyOutput, KeygenError, ToxicWaste, generate, sidecar_path};
use cuzk_core::{
    Blinding, CircuitSpec, Eviction, JobOptions, PARTS_MAX, Part, ProofReply, ProveError, Verifier,
    Workload, WorkloadError,
};
use cuzk_gpu::KeyError;
use toy::{Fault, House, Squares, SquaresJob, cpu};

const PLENTY: u64 = 1 << 30;

fn seeded() -> JobOptions {
    JobOptions {
        blinding: Blinding::Seeded(1),
        ..JobOptions::default()
    }
}

fn prove(engine: &cuzk_core::Engine, job: &SquaresJob) -> Result<ProofReply, ProveError> {
    engine
        .submit(Arc::new(job.clone()), seeded())
        .expect("there is room")
        .wait()
}

fn error(engine: &cuzk_core::Engine, job: &SquaresJob) -> String {
    prove(engine, job)
        .expect_err("this job must fail")
        .to_string()
}

/// Waits for something that another thread is about to do.
fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// The same circuit for bellperson.
struct Stock {
    rounds: usize,
    x: u64,
}

impl Circuit<Scalar> for Stock {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut x = AllocatedNum::alloc(cs.namespace(|| "x"), || Ok(Scalar::from(self.x)))?;
        for round in 0..self.rounds {
            x = x.square(cs.namespace(|| format!("round {round}")))?;
        }
        x.inputize(cs.namespace(|| "y"))
    }
}

#[test]
fn every_way_of_proving_gives_bellpersons_bytes() {
    let (rounds, parts) = (300, 3);
    let mut house = House::new(&[rounds]);
    let waste = ToxicWaste::from_seed(7);
    let params = bellperson::groth16::generate_parameters::<blstrs::Bls12, _>(
        Stock { rounds, x: 0 },
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
    assert!(
        bytes == std::fs::read(house.params(rounds)).expect("our key"),
        "keys differ"
    );

    let want: Vec<u8> = (0..parts)
        .flat_map(|part| {
            let (r, s) = Blinding::Seeded(1).scalars(part);
            let circuit = Stock {
                rounds,
                x: 5 + part as u64,
            };
            let proof: Proof<_> = create_proof(circuit, &params, r, s).expect("bellperson proves");
            let mut bytes = Vec::new();
            proof.write(&mut bytes).expect("a vector takes all");
            bytes
        })
        .collect();
    let job = SquaresJob::new(rounds, 5, parts);
    for c_from_ab in [true, false] {
        for sizing in [Sizing::Growing, Sizing::Exact] {
            for key_tier in [KeyTier::File, KeyTier::Resident] {
                house.config.tuning.c_from_ab = c_from_ab;
                house.config.tuning.sizing = sizing;
                house.config.tuning.key_tier = key_tier;
                let engine = house.engine_on(PLENTY, Arc::new(cpu(c_from_ab)));
                // Twice: without hints, and with the sizes that the first run taught.
                for _ in 0..2 {
                    let reply = prove(&engine, &job).expect("a good job");
                    assert!(reply.proof == want, "{:?}", house.config.tuning);
                    assert_eq!(reply.parts.len(), parts);
                }
                assert_eq!(
                    engine
                        .shapes()
                        .sizes(&"squares-300".into())
                        .expect("learned")
                        .aux,
                    301
                );
            }
        }
    }
}

#[test]
fn a_fresh_proof_differs_every_time_and_verifies() {
    let house = House::new(&[20]);
    let engine = house.engine(PLENTY);
    let job = Arc::new(SquaresJob::new(20, 2, 1));
    let fresh = || {
        let handle = engine
            .submit(job.clone(), JobOptions::default())
            .expect("there is room");
        handle.wait().expect("a good job").proof
    };
    assert_ne!(fresh(), fresh());
    assert_eq!(engine.metrics().jobs_completed.count(), 2);
    assert_eq!(engine.jobs(), 0);
}

#[test]
fn an_invalid_proof_is_made_again_and_never_leaves() {
    let house = House::new(&[20]);
    let job = SquaresJob::new(20, 2, 1);
    let once = Arc::new(Faulty::corrupting(1));
    let engine = house.engine_on(PLENTY, once.clone());
    let reply = prove(&engine, &job).expect("the second attempt is good");
    assert_eq!(reply.parts[0].retries, 1);
    assert_eq!(engine.metrics().verification_failures.count(), 1);
    assert_eq!(once.seen(), 2);

    let always = Arc::new(Faulty::corrupting(usize::MAX));
    let engine = house.engine_on(PLENTY, always.clone());
    let error = prove(&engine, &job).expect_err("no attempt is good");
    assert!(
        matches!(error, ProveError::InvalidProof { part: 0 }),
        "{error}"
    );
    assert_eq!(always.seen(), 2, "one retry, not more");
    assert_eq!(
        engine.budget().usage().used_bytes,
        engine.budget().usage().idle_bytes
    );
}

#[test]
fn each_part_is_tried_again_for_itself() {
    let house = House::new(&[20]);
    let engine = house.engine_on(PLENTY, Arc::new(Faulty::corrupting_each()));
    let reply = prove(&engine, &SquaresJob::new(20, 2, 4)).expect("second attempts are good");
    assert!(reply.parts.iter().all(|part| part.retries == 1));
    assert_eq!(engine.metrics().parts_retried.count(), 4);
    let waited = |span: &&cuzk_core::Span| span.name == "queue";
    assert_eq!(reply.timeline.spans().iter().filter(waited).count(), 4);
}

#[test]
fn what_is_wrong_with_a_witness_is_told_and_not_retried() {
    let house = House::new(&[20]);
    let backend = Arc::new(Faulty::corrupting(0));
    let engine = house.engine_on(PLENTY, backend.clone());
    let mut messages = Vec::new();
    for fault in [Fault::Unsatisfied(7), Fault::Missing, Fault::OtherInput] {
        let job = SquaresJob {
            fault: Some((1, fault)),
            ..SquaresJob::new(20, 2, 2)
        };
        messages.push(error(&engine, &job));
    }
    insta::assert_snapshot!(messages.join("\n"));
    // Two parts of the first and the last job, at most one of the other.
    assert!(backend.seen() <= 5);
    prove(&engine, &SquaresJob::new(20, 2, 2)).expect("the next job is fine");
}

#[test]
fn a_panic_fails_its_job_alone() {
    let house = House::new(&[20]);
    let engine = house.engine(PLENTY);
    let bad = SquaresJob {
        fault: Some((0, Fault::Panic)),
        ..SquaresJob::new(20, 2, 1)
    };
    assert_eq!(
        error(&engine, &bad),
        "synthesis panicked: a fault of the test"
    );
    prove(&engine, &SquaresJob::new(20, 2, 1)).expect("the next job is fine");
    assert_eq!(engine.metrics().jobs_failed.count(), 1);
}

#[test]
fn keys_that_cannot_be_used_are_refused_before_any_work() {
    let mut house = House::new(&[20, 21]);
    let backend = Arc::new(Faulty::corrupting(0));
    let place = house.directory.path().display().to_string();
    let mut messages = Vec::new();
    let mut refuse = |house: &House, rounds: usize| {
        let engine = house.engine_on(PLENTY, backend.clone());
        let message = error(&engine, &SquaresJob::new(rounds, 2, 1));
        messages.push(message.replace(&place, "KEYS"));
    };
    refuse(&house, 99);
    house.config.allow_test_params = false;
    refuse(&house, 20);
    house.config.allow_test_params = true;
    std::fs::write(sidecar_path(&house.params(21)), "{}").expect("writable");
    refuse(&house, 21);
    // The key of another circuit under this one's name.
    std::fs::copy(house.params(20), house.params(90)).expect("copied");
    refuse(&house, 90);
    // Cut in the middle, and a byte of a point flipped.
    let bytes = std::fs::read(house.params(20)).expect("readable");
    std::fs::write(house.params(91), &bytes[..bytes.len() / 2]).expect("writable");
    refuse(&house, 91);
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    std::fs::write(house.params(92), flipped).expect("writable");
    refuse(&house, 92);
    insta::assert_snapshot!(messages.join("\n"));
    assert_eq!(backend.seen(), 0, "nothing was proved");
}

#[test]
fn a_sidecar_that_cannot_be_read_is_no_permission() {
    let house = House::new(&[20]);
    let sidecar = sidecar_path(&house.params(20));
    std::fs::remove_file(&sidecar).expect("it is there");
    std::fs::create_dir(&sidecar).expect("its name is free");
    let engine = house.engine(PLENTY);
    let error = prove(&engine, &SquaresJob::new(20, 2, 1)).expect_err("not readable");
    assert!(
        matches!(&error, ProveError::Sidecar { path, .. } if *path == sidecar),
        "{error}"
    );
    // Opening a pipe would wait for a writer.
    std::fs::remove_dir(&sidecar).expect("it is there");
    let made = std::process::Command::new("mkfifo").arg(&sidecar).status();
    assert!(made.expect("mkfifo is there").success());
    let error = prove(&engine, &SquaresJob::new(20, 2, 1)).expect_err("not readable");
    assert_eq!(
        error.to_string(),
        format!("{}: not a regular file", sidecar.display())
    );
}

#[test]
fn an_idle_key_is_closed_and_opened_again() {
    let house = House::new(&[20, 21]);
    let (backend, permit) = Faulty::held();
    let engine = house.engine_on(PLENTY, backend.clone());
    let evict = |rounds| engine.keys().evict(&Squares { rounds }.id());
    assert_eq!(evict(20), Eviction::NotLoaded);
    let job = Arc::new(SquaresJob::new(20, 2, 1));
    let handle = engine.submit(job.clone(), seeded()).expect("there is room");
    until(|| backend.seen() == 1);
    assert!(matches!(evict(20), Eviction::InUse { .. }));
    permit.send(()).expect("the backend waits");
    handle.wait().expect("a good job");
    assert!(matches!(evict(20), Eviction::Evicted { .. }));
    assert_eq!(evict(20), Eviction::NotLoaded);
}

#[test]
fn a_part_that_does_not_fit_its_key_teaches_nothing() {
    let house = House::new(&[20]);
    let engine = house.engine(PLENTY);
    let denser = SquaresJob {
        fault: Some((0, Fault::Denser)),
        ..SquaresJob::new(20, 2, 1)
    };
    assert!(matches!(prove(&engine, &denser), Err(ProveError::Key(_))));
    assert!(engine.shapes().sizes(&denser.circuit.id()).is_none());
    prove(&engine, &SquaresJob::new(20, 2, 1)).expect("the circuit is known from this one");
    let error = prove(&engine, &denser).expect_err("another shape");
    assert!(
        matches!(error, ProveError::OtherShape { part: 0, .. }),
        "{error}"
    );
}

#[test]
fn a_panic_while_a_key_is_loaded_does_not_spoil_the_key() {
    let house = House::new(&[20]);
    let engine = house.engine(PLENTY);
    let bad = SquaresJob {
        fault: Some((0, Fault::Names)),
        ..SquaresJob::new(20, 2, 1)
    };
    assert_eq!(error(&engine, &bad), "key panicked: a fault of the test");
    prove(&engine, &SquaresJob::new(20, 2, 1)).expect("the same key for another job");
}

#[test]
fn a_job_without_parts_is_refused() {
    let house = House::new(&[]);
    let engine = house.engine(PLENTY);
    let refused = engine
        .submit(Arc::new(SquaresJob::new(20, 2, 0)), seeded())
        .expect_err("nothing to prove");
    assert_eq!(refused.to_string(), "parts: there are none");
    assert_eq!(engine.jobs(), 0);
}

#[test]
fn a_job_of_absurdly_many_parts_is_refused() {
    let house = House::new(&[20]);
    let engine = house.engine(PLENTY);
    for asked in [PARTS_MAX + 1, usize::MAX] {
        let refused = engine
            .submit(Arc::new(SquaresJob::new(20, 2, asked)), seeded())
            .expect_err("more than are taken");
        let want = format!("parts: {asked}, at most 65536 are taken");
        assert_eq!(refused.to_string(), want);
    }
    assert_eq!(engine.jobs(), 0);
    prove(&engine, &SquaresJob::new(20, 2, 1)).expect("the dispatcher is still there");
    assert!(engine.is_in_service());
}

/// A job that panics when it is dropped, which the dispatcher does last.
struct Falls(SquaresJob);

impl Workload for Falls {
    fn label(&self) -> String {
        self.0.label()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        self.0.circuit()
    }

    fn part_count(&self) -> usize {
        self.0.part_count()
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.0.part(index)
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        self.0.verify(verifier, proofs)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.0.encode(proofs)
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("a fault of the test");
    }
}

#[test]
fn an_engine_without_its_dispatcher_is_out_of_service() {
    // Without its key, so that the dispatcher alone has the job at its end.
    let house = House::new(&[]);
    let engine = house.engine(PLENTY);
    assert!(engine.is_in_service());
    let handle = engine.submit(Arc::new(Falls(SquaresJob::new(20, 2, 1))), seeded());
    let ended = handle.expect("there is a place").wait();
    ended.expect_err("there is no key");
    let submit = || engine.submit(Arc::new(SquaresJob::new(20, 2, 1)), seeded());
    until(|| matches!(submit(), Err(ProveError::Stopped)));
    assert!(engine.has_stopped() && !engine.is_in_service());
}

#[test]
fn many_jobs_at_once_all_finish_and_memory_returns() {
    let house = House::new(&[50]);
    let engine = house.engine(PLENTY);
    let handles: Vec<_> = (0..20)
        .map(|first| {
            let job = SquaresJob::new(50, first, 1 + first as usize % 3);
            engine
                .submit(Arc::new(job), JobOptions::default())
                .expect("there is room")
        })
        .collect();
    let cancelled = [3, 11, 19];
    for index in cancelled {
        handles[index].cancel();
    }
    for (index, handle) in handles.iter().enumerate() {
        match handle.wait() {
            Ok(reply) => assert_eq!(reply.proof.len(), 192 * (1 + index % 3)),
            Err(ProveError::Cancelled) => assert!(cancelled.contains(&index)),
            Err(error) => panic!("job {index}: {error}"),
        }
    }
    let metrics = engine.metrics();
    assert_eq!(
        metrics.jobs_completed.count() + metrics.jobs_cancelled.count(),
        20
    );
    let usage = engine.budget().usage();
    assert_eq!(
        usage.used_bytes, usage.idle_bytes,
        "only idle buffers are held"
    );
}

#[test]
fn one_job_too_many_is_refused() {
    let mut house = House::new(&[50]);
    house.config.jobs_max = 1;
    let engine = house.engine(PLENTY);
    let job = Arc::new(SquaresJob::new(50, 2, 40));
    let first = engine
        .submit(job.clone(), JobOptions::default())
        .expect("there is room");
    let refused = engine
        .submit(job, JobOptions::default())
        .expect_err("the queue is full");
    assert_eq!(
        refused.to_string(),
        "1 jobs wait or run, which is the limit"
    );
    first.wait().expect("a good job");
}

#[test]
fn a_dropped_engine_ends_its_jobs() {
    let house = House::new(&[50]);
    let engine = house.engine(PLENTY);
    let job = Arc::new(SquaresJob::new(50, 2, 40));
    let handle = engine
        .submit(job, JobOptions::default())
        .expect("there is room");
    drop(engine);
    assert!(matches!(handle.wait(), Ok(_) | Err(ProveError::Cancelled)));
}

#[test]
fn keys_are_never_overwritten_and_never_among_real_ones() {
    let house = House::new(&[20]);
    let place = house.directory.path();
    let circuit = Squares { rounds: 20 };
    let make = |refused: &[std::path::PathBuf]| {
        let output = KeyOutput {
            directory: place,
            refused,
            seed: 1,
        };
        generate(&circuit, &ToxicWaste::from_seed(1), &output, &|_, _, _| {})
            .expect_err("must be refused")
    };
    let before = std::fs::read(house.params(20)).expect("readable");
    assert!(matches!(
        make(&[]),
        KeygenError::Key(KeyError::Exists { .. })
    ));
    assert!(matches!(
        make(&[place.join(".")]),
        KeygenError::RealKeys { .. }
    ));
    assert_eq!(before, std::fs::read(house.params(20)).expect("readable"));
}
