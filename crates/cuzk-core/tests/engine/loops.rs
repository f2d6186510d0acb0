//! Circuits that say that they are a loop over their blocks, and some that are not quite.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellpepper_core::{ConstraintSystem as _, SynthesisError};
use blstrs::Scalar;
use cuzk_core::config::Synthesis;
use cuzk_core::{CircuitSpec, Engine, ProveError, Workload as _};
use cuzk_synth::Pass;
use ff::Field as _;

use crate::hooked::{Hook, Hooked, Short};
use crate::segments::{BLOCKS, Chains, ChainsJob, chains, counts, engine, house, prove, surveys};
use crate::stored::{held, submit};
use crate::toy::House;

const REGULAR: Chains = Chains::new(None);
const NO_HINTS: &str = "";

fn segmented(house: &mut House) -> Engine {
    engine(house, Synthesis::Segments, Path::new(NO_HINTS), true)
}

/// A job of a circuit that says this of itself with fewer blocks.
fn of(
    short: impl Fn(usize, &mut Pass<'_>) -> Result<(), SynthesisError> + Send + Sync + 'static,
) -> Hooked {
    let short: Option<Short> = Some(Arc::new(short));
    Hooked {
        short,
        ..Hooked::new()
    }
}

fn honest(blocks: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
    REGULAR.synthesize_blocks(blocks, pass)
}

/// The key says how many there are, where three tell a circuit of any number.
#[test]
fn blocks_that_are_told_wrong_are_counted() {
    let mut house = house(&[REGULAR]);
    let want = prove(&segmented(&mut house), &chains(None, 1)).expect("a good job");
    for blocks in [4, 5, 7, 2 * BLOCKS, 1000] {
        for is_warmed in [false, true] {
            let engine = segmented(&mut house);
            let job = Hooked {
                blocks,
                ..of(honest)
            };
            if is_warmed {
                let circuit = job.circuit();
                engine.warm(&[circuit.as_ref()]).expect("there is room");
                assert!(held(&engine, "templates") > 0);
            }
            let reply = submit(&engine, &job).wait().expect("a good job");
            let told = (surveys(&reply), reply.retries(), reply.synthesis());
            assert_eq!(
                told,
                (usize::from(!is_warmed), 0, "segments".into()),
                "{blocks}"
            );
            assert_eq!(reply.proof, want.proof);
        }
    }
}

/// What it refuses says nothing of the whole.
#[test]
fn a_short_circuit_that_refuses_is_surveyed_whole() {
    let mut house = house(&[REGULAR]);
    for begun in [0, 2, 3, 4] {
        for is_warmed in [false, true] {
            let engine = segmented(&mut house);
            let job = of(move |_, pass| {
                honest(begun, pass)?;
                Err(SynthesisError::AssignmentMissing)
            });
            if is_warmed {
                let circuit = job.circuit();
                engine.warm(&[circuit.as_ref()]).expect("there is room");
                assert!(held(&engine, "templates") > 0);
            }
            let reply = submit(&engine, &job).wait().expect("a good job");
            let told = (surveys(&reply), reply.retries(), reply.synthesis());
            assert_eq!(
                told,
                (usize::from(!is_warmed), 0, "segments".into()),
                "{begun}"
            );
        }
    }
}

#[test]
fn a_short_circuit_that_panics_ends_its_job_alone() {
    let mut house = house(&[REGULAR]);
    let engine = segmented(&mut house);
    let times = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&times);
    // Before the first job, twice by one, and once by another.
    let job = of(move |blocks, pass| {
        let time = seen.fetch_add(1, Ordering::Relaxed);
        honest(2, pass)?;
        assert!(time > 3, "a fault of the test");
        honest(blocks, pass)
    });
    let circuit = job.circuit();
    engine.warm(&[circuit.as_ref()]).expect("there is room");
    assert_eq!(held(&engine, "templates"), 0);
    let error = submit(&engine, &job)
        .wait()
        .expect_err("it panics, and once more");
    assert_eq!(error.to_string(), "synthesis panicked: a fault of the test");
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes, "no part holds any");
    let reply = submit(&engine, &job).wait().expect("tried again");
    let told = (surveys(&reply), reply.retries(), reply.synthesis());
    assert_eq!(told, (1, 1, "segments".into()));
    assert_eq!(times.load(Ordering::Relaxed), 5);
}

/// One of which three blocks do not tell the rest: its first proof is wrong, which is seen,
/// and it is not taken at its word again.
#[test]
fn a_loop_that_is_none_costs_one_proof() {
    let odd = Chains::new(Some(4));
    let mut house = house(std::slice::from_ref(&odd));
    let engine = segmented(&mut house);
    let job = Hooked {
        job: chains(Some(4), 1),
        ..of(move |blocks, pass| odd.synthesize_blocks(blocks, pass))
    };
    for want in [
        (1, "whole-doubted"),
        (0, "whole-differs"),
        (0, "whole-differs"),
    ] {
        let reply = submit(&engine, &job).wait().expect("a good job");
        assert_eq!(
            (reply.retries(), reply.synthesis()),
            (want.0, want.1.to_owned())
        );
    }
    assert_eq!(counts(&engine), [1, 3, 1]);
    assert_eq!(engine.metrics().verification_failures.count(), 1);
}

#[test]
fn loops_and_others_are_warmed_together() {
    let others = [1, 20].map(|shared| Chains { shared, ..REGULAR });
    let [one, many] = &others;
    let mut house = house(&[REGULAR, one.clone(), many.clone(), Chains::new(Some(4))]);
    let engine = segmented(&mut house);
    let good = of(honest).circuit();
    let odd = Chains::new(Some(4));
    let circuits: [&dyn CircuitSpec; 5] = [one, good.as_ref(), &odd, good.as_ref(), many];
    engine.warm(&circuits).expect("there is room");
    for circuit in [REGULAR, one.clone(), many.clone(), odd.clone()] {
        let synthesis = if circuit.odd.is_some() {
            "whole-differs"
        } else {
            "segments"
        };
        let job = ChainsJob {
            circuit,
            ..chains(None, 1)
        };
        let reply = prove(&engine, &job).expect("a good job");
        assert_eq!((surveys(&reply), reply.synthesis()), (0, synthesis.into()));
    }
}

/// Of a circuit that is a loop three blocks are compared, before the first job and at its
/// first part; where they differ, the whole is surveyed as if nothing had been said.
#[test]
fn a_circuit_that_is_a_loop_is_told_by_three_blocks() {
    let mut house = house(&[REGULAR]);
    let want = {
        let engine = engine(&mut house, Synthesis::Whole, Path::new(NO_HINTS), true);
        prove(&engine, &chains(None, 1)).expect("a good job").proof
    };
    for (odd, more, wholes) in [(None, 0, 1), (Some(2), 0, 2), (None, 1, 2), (None, -1, 2)] {
        for is_warmed in [false, true] {
            let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
            let [blanks, shorts] = [0, 0].map(|none| Arc::new(AtomicUsize::new(none)));
            let (of_whole, of_short) = (Arc::clone(&blanks), Arc::clone(&shorts));
            let job = Hooked {
                blank: Arc::new(move |_| {
                    of_whole.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }),
                short: Some(Arc::new(move |blocks, pass| {
                    of_short.fetch_add(blocks, Ordering::Relaxed);
                    let blocks = blocks.saturating_add_signed(more);
                    Chains::new(odd).synthesize_blocks(blocks, pass)
                })),
                ..Hooked::new()
            };
            if is_warmed {
                engine
                    .warm(&[job.circuit().as_ref()])
                    .expect("there is room");
            }
            let reply = submit(&engine, &job).wait().expect("a good job");
            let told = (surveys(&reply), reply.synthesis(), reply.proof);
            let at_part = usize::from(!is_warmed);
            assert_eq!(told, (at_part, "segments".into(), want.clone()));
            let [blanks, shorts] = [blanks, shorts].map(|count| count.load(Ordering::Relaxed));
            assert_eq!((blanks, shorts), (wholes, 3), "{odd:?}, {more}");
        }
    }
}

/// A key that is another circuit's is told by a survey of the whole, which names it.
#[test]
fn a_loop_that_its_key_does_not_fit_is_read_whole() {
    let mut house = house(&[REGULAR]);
    let engine = segmented(&mut house);
    let whole = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&whole);
    let more: Hook = Arc::new(move |pass| {
        count.fetch_add(1, Ordering::Relaxed);
        pass.alloc(|| "more", || Ok(Scalar::ONE)).map(drop)
    });
    let job = Hooked {
        blank: Arc::clone(&more),
        segment: Arc::clone(&more),
        whole: more,
        short: Some(Arc::new(|_, _| unreachable!("it does not fit the key"))),
        ..Hooked::new()
    };
    let error = submit(&engine, &job).wait().expect_err("another circuit");
    assert!(matches!(error, ProveError::Key(_)), "{error}");
    assert_eq!(whole.load(Ordering::Relaxed), 2, "the first block, and all");
}
