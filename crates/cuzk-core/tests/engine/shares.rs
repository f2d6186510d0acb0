//! Surveys before the first job that several threads share: what is kept is what one thread
//! keeps, and whatever becomes of a share is its circuit's alone.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use bellpepper_core::{ConstraintSystem, SynthesisError};
use cuzk_budget::Consumer;
use cuzk_core::config::Synthesis;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{CircuitId, CircuitSpec, Engine};
use cuzk_synth::{Cut, CutHint, HintStore, Pass};

use crate::hooked::{Hook, nothing};
use crate::segments::{BLOCKS, Chains, ChainsJob, chains, counts, house, prove, surveys};
use crate::stored::held;
use crate::toy::{House, cpu};
use crate::{PLENTY, until};

/// A circuit that says how many blocks it has, with something before each synthesis.
struct Told {
    circuit: Chains,
    segments: usize,
    blank: Hook,
    /// Terms of one row that all blocks share, each of a variable of its own.
    long: usize,
}

impl Told {
    fn new(odd: Option<usize>, segments: usize) -> Self {
        Self {
            circuit: Chains::new(odd),
            segments,
            blank: nothing(),
            long: 0,
        }
    }

    fn hooked(hook: impl Fn(usize) -> Result<(), SynthesisError> + Send + Sync + 'static) -> Self {
        let calls = AtomicUsize::new(0);
        let blank: Hook = Arc::new(move |_| hook(1 + calls.fetch_add(1, Ordering::Relaxed)));
        Self {
            blank,
            ..Self::new(None, BLOCKS)
        }
    }
}

impl CircuitSpec for Told {
    fn id(&self) -> CircuitId {
        self.circuit.id()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        (self.blank)(pass)?;
        if self.long > 0 {
            let missing = || Err(SynthesisError::AssignmentMissing);
            let terms = (0..self.long).map(|_| pass.alloc(|| "term", missing));
            let terms = terms.collect::<Result<Vec<_>, _>>()?;
            let sum = |lc| terms.iter().fold(lc, |lc, &term| lc + term);
            pass.enforce(|| "long", sum, |lc| lc, |lc| lc);
        }
        self.circuit.synthesize_blank(pass)
    }

    fn cut(&self) -> Option<Cut> {
        self.circuit.cut()
    }

    fn segments(&self) -> usize {
        self.segments
    }
}

fn engine(house: &mut House, threads: usize, c_from_ab: bool, hints: &Path) -> Engine {
    house.config.tuning.synthesis = Synthesis::Segments;
    house.config.threads = threads;
    let hints = HintStore::open(hints).expect("a hint file or none");
    house.engine_with(PLENTY, Arc::new(cpu(c_from_ab)), hints)
}

const NO_HINTS: &str = "";

/// How much there is of a circuit after it was warmed, what its first part makes of it, and
/// what a later process hears of it.
fn warmed(
    house: &mut House,
    circuit: &Told,
    c_from_ab: bool,
) -> (u64, String, Vec<u8>, [u64; 3], Option<CutHint>) {
    let hints = house.directory.path().join("hints.json");
    let _ = std::fs::remove_file(&hints);
    let engine = engine(house, 3, c_from_ab, &hints);
    engine.warm(&[circuit]).expect("there is room");
    let bytes = held(&engine, "templates");
    let job = ChainsJob {
        circuit: circuit.circuit.clone(),
        ..chains(None, 1)
    };
    let reply = prove(&engine, &job).expect("a good job");
    assert_eq!(surveys(&reply), 0, "the first part surveys nothing");
    let counts = counts(&engine);
    let synthesis = reply.synthesis();
    drop(engine);
    let kept = HintStore::open(&hints).expect("written");
    let cut = kept.find_cut(circuit.id().as_str()).cloned();
    (bytes, synthesis, reply.proof, counts, cut)
}

/// Whatever a circuit says of its blocks, and whether it is true: rows, proofs, hints and
/// reasons are those of a survey by one thread.
#[test]
fn what_several_threads_find_is_what_one_does() {
    for (odd, c_from_ab) in [
        (None, true),
        (None, false),
        (Some(2), true),
        (Some(0), true),
    ] {
        let mut house = house(&[Chains::new(odd)]);
        // Nobody knows how many blocks there are: one thread.
        let want = warmed(&mut house, &Told::new(odd, usize::MAX), c_from_ab);
        assert_eq!(want.0 > 0, odd.is_none());
        match (odd, &want.4) {
            (None, Some(CutHint::Repeats { .. })) => assert_eq!(want.1, "segments"),
            (Some(odd), Some(CutHint::Uncut(reason))) => {
                assert_eq!(want.1, "whole-differs");
                let said = format!("of block {} differs", odd.max(1));
                assert!(reason.contains(&said), "{reason}");
            }
            (_, other) => panic!("{other:?}"),
        }
        for segments in [1, 2, BLOCKS / 2, BLOCKS, BLOCKS + 1] {
            let found = warmed(&mut house, &Told::new(odd, segments), c_from_ab);
            assert_eq!(found, want, "{odd:?}, {segments} segments");
        }
    }
}

/// The first reading is of the first block; the two others end only if both are at work at
/// the same time. What each holds is in what the survey has reserved.
#[test]
fn threads_that_are_free_share_a_survey() {
    let mut house = house(&[Chains::new(None)]);
    let engine = engine(&mut house, 2, true, Path::new(NO_HINTS));
    let meeting = Barrier::new(2);
    let budget = engine.budget().clone();
    let reserved = Arc::new(AtomicU64::new(0));
    let most = Arc::clone(&reserved);
    let told = Told::hooked(move |call| {
        if call > 1 {
            meeting.wait();
        }
        let held = budget.usage().held_by(Consumer("templates"));
        most.fetch_max(held, Ordering::Relaxed);
        Ok(())
    });
    engine.warm(&[&told]).expect("there is room");
    let (reserved, stored) = (reserved.load(Ordering::Relaxed), held(&engine, "templates"));
    assert!(0 < stored && stored < reserved, "{stored} of {reserved}");
    let reply = prove(&engine, &chains(None, 1)).expect("a good job");
    assert_eq!((surveys(&reply), reply.synthesis()), (0, "segments".into()));
}

#[test]
fn a_thread_that_is_alone_surveys_as_ever() {
    let mut house = house(&[Chains::new(None)]);
    let engine = engine(&mut house, 1, true, Path::new(NO_HINTS));
    let (told, calls) = counted(0);
    engine.warm(&[&told]).expect("there is room");
    assert!(held(&engine, "templates") > 0);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "all of it, once");
}

/// With the times that the circuit was read.
fn counted(long: usize) -> (Told, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let told = Told {
        long,
        ..Told::hooked(move |call| {
            count.store(call, Ordering::Relaxed);
            Ok(())
        })
    };
    (told, calls)
}

/// What a survey of the whole needs, as an earlier process wrote, is enough for those who
/// share one; with a byte less it is made again with more.
#[test]
fn a_shared_survey_needs_what_one_of_the_whole_does() {
    let circuit = Chains {
        shared: 4_000,
        ..Chains::new(None)
    };
    let mut house = house(std::slice::from_ref(&circuit));
    let hints = house.directory.path().join("hints.json");
    let warm = |house: &mut House, segments| {
        let engine = engine(house, 2, true, &hints);
        let (told, calls) = counted(0);
        let told = Told {
            circuit: circuit.clone(),
            segments,
            ..told
        };
        engine.warm(&[&told]).expect("there is room");
        assert!(held(&engine, "templates") > 0);
        calls.load(Ordering::Relaxed)
    };
    assert_eq!(warm(&mut house, usize::MAX), 1);
    let mut kept = HintStore::open(&hints).expect("written");
    let id = circuit.id();
    let Some(&CutHint::Repeats { survey_bytes }) = kept.find_cut(id.as_str()) else {
        panic!("it repeats");
    };
    assert!(
        survey_bytes > 1 << 16,
        "more than the least that is asked for"
    );
    // The first block, and one or two that compare; before them the first block and the
    // whole, to no end.
    for (bytes, calls) in [(survey_bytes, 2..=3), (survey_bytes - 1, 4..=5)] {
        let hint = CutHint::Repeats {
            survey_bytes: bytes,
        };
        kept.keep_cut(id.as_str(), Some(hint));
        kept.save().expect("a writable directory");
        let read = warm(&mut house, BLOCKS);
        assert!(calls.contains(&read), "{bytes} bytes: {read} times");
    }
}

/// Each thread holds a row: where there is no memory for two of the longest, one compares all
/// blocks.
#[test]
fn there_are_as_many_shares_as_there_is_memory_for() {
    let (told, calls) = counted(1_500);
    let told = Told {
        circuit: Chains {
            shared: 1_000,
            ..Chains::new(None)
        },
        ..told
    };
    let mut house = House::new(&[]);
    let output = KeyOutput {
        directory: house.directory.path(),
        refused: &[],
        seed: 7,
    };
    let waste = ToxicWaste::from_seed(7);
    generate(&told, &waste, &output, &|_, _, _| {}).expect("a key for a small circuit");
    let hints = house.directory.path().join("hints.json");
    let mut warm = || {
        let before = calls.load(Ordering::Relaxed);
        let engine = engine(&mut house, 3, true, &hints);
        engine.warm(&[&told]).expect("there is room");
        assert!(held(&engine, "templates") > 0);
        calls.load(Ordering::Relaxed) - before
    };
    // As much as any survey may take; then what one of the whole took.
    let much = warm();
    assert!((2..=4).contains(&much), "{much} times");
    assert_eq!(warm(), 2, "the first block, and the others");
}

/// It is told, as one of the whole is, and keeps no memory and no other circuit cold.
#[test]
fn a_share_that_fails_is_its_circuits_alone() {
    let other = Chains {
        shared: 20,
        ..Chains::new(None)
    };
    for panics in [true, false] {
        let mut house = house(&[Chains::new(None), other.clone()]);
        let engine = engine(&mut house, 3, true, Path::new(NO_HINTS));
        let meeting = Barrier::new(2);
        let bad = Told::hooked(move |call| {
            if call == 2 || call == 3 {
                meeting.wait();
            }
            assert!(call != 2 || !panics, "a fault of the test");
            if call == 2 {
                return Err(SynthesisError::DivisionByZero);
            }
            Ok(())
        });
        let good = Told {
            circuit: other.clone(),
            ..Told::new(None, BLOCKS)
        };
        let plan = engine.warm(&[&bad, &good]).expect("there is room");
        let plan = plan.to_string();
        let lines = plan.lines().filter(|line| line.contains("templates"));
        assert_eq!(lines.count(), 1, "{plan}");
        for (circuit, count) in [(other.clone(), 0), (Chains::new(None), 1)] {
            let job = ChainsJob {
                circuit,
                ..chains(None, 1)
            };
            let reply = prove(&engine, &job).expect("a good job");
            let told = (surveys(&reply), reply.synthesis());
            assert_eq!(told, (count, "segments".into()));
        }
        until(|| {
            let usage = engine.budget().usage();
            usage.used_bytes == usage.idle_bytes
        });
    }
}

/// More circuits than threads, each shared by those that are free.
#[test]
fn several_circuits_are_surveyed_at_the_same_time() {
    let circuits = [0, 1, 2, 3].map(|shared| Chains {
        shared,
        ..Chains::new(None)
    });
    for threads in [1, 2, 3, 8] {
        let mut house = house(&circuits);
        let engine = engine(&mut house, threads, true, Path::new(NO_HINTS));
        let told = circuits.clone().map(|circuit| Told {
            circuit,
            ..Told::new(None, BLOCKS)
        });
        let all = told.each_ref().map(|told| told as &dyn CircuitSpec);
        let plan = engine.warm(&all).expect("there is room").to_string();
        let lines = plan.lines().filter(|line| line.contains("templates"));
        assert_eq!(lines.count(), circuits.len(), "{threads} threads: {plan}");
    }
}
