//! Parts whose circuit repeats: filled in segments where it does, whole where it only
//! nearly does, with the same bytes.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use bellperson::groth16::Proof;
use blstrs::{Bls12, Scalar};
use cuzk_budget::Consumer;
use cuzk_core::config::Synthesis;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate};
use cuzk_core::{
    CircuitId, CircuitSpec, Engine, Part, ProofReply, ProveError, Verifier, Workload, WorkloadError,
};
use cuzk_synth::{Cut, CutHint, HintStore, Pass};

use crate::toy::{House, cpu};
use crate::{PLENTY, seeded};

pub(crate) const BLOCKS: usize = 6;
/// Rows of a block: more than a word of a density.
const ROUNDS: usize = 70;

/// In each block x + block is doubled and squared so many times, and multiplied with x,
/// which all blocks share; the result is public.
#[derive(Clone)]
pub(crate) struct Chains {
    /// A block with another coefficient in its middle row.
    pub(crate) odd: Option<usize>,
    /// Variables more that all blocks share, each with a row.
    pub(crate) shared: usize,
}

impl CircuitSpec for Chains {
    fn id(&self) -> CircuitId {
        let odd = self.odd.map_or(String::new(), |block| format!("-{block}"));
        let shared = match self.shared {
            0 => String::new(),
            shared => format!("-shared-{shared}"),
        };
        format!("chains{odd}{shared}").as_str().into()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.synthesize_blocks(BLOCKS, pass)
    }

    fn cut(&self) -> Option<Cut> {
        Some(Cut {
            depth: 0,
            name: "chain ",
            apart: None,
        })
    }
}

impl Chains {
    pub(crate) const fn new(odd: Option<usize>) -> Self {
        Self { odd, shared: 0 }
    }

    /// The blank circuit with so many of its blocks.
    pub(crate) fn synthesize_blocks(
        &self,
        blocks: usize,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        self.synthesize(0..blocks, None, None, pass)
    }

    fn synthesize(
        &self,
        blocks: std::ops::Range<usize>,
        x: Option<u64>,
        wrong: Option<usize>,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let value = || x.map(Scalar::from).ok_or(SynthesisError::AssignmentMissing);
        let x = AllocatedNum::alloc(pass.namespace(|| "x"), value)?;
        let mut more = x.clone();
        for _ in 0..self.shared {
            more = more.square(pass.namespace(|| "more"))?;
        }
        for block in blocks {
            let mut space = pass.namespace(|| format!("chain {block}"));
            // The index of a block is witness data, so that all have the same rows.
            let start = x.get_value().map(|x| x + Scalar::from(block as u64));
            let get = || start.ok_or(SynthesisError::AssignmentMissing);
            let mut power = AllocatedNum::alloc(space.namespace(|| "start"), get)?;
            for round in 0..ROUNDS {
                let middle = round == ROUNDS / 2;
                power = self.round(&mut space, block, middle, wrong, &power)?;
            }
            power = power.mul(space.namespace(|| "times x"), &x)?;
            power.inputize(space.namespace(|| "y"))?;
        }
        Ok(())
    }

    /// A multiple of the square.
    fn round(
        &self,
        space: &mut impl ConstraintSystem<Scalar>,
        block: usize,
        middle: bool,
        wrong: Option<usize>,
        power: &AllocatedNum<Scalar>,
    ) -> Result<AllocatedNum<Scalar>, SynthesisError> {
        let factor = Scalar::from(self.factor(block, middle));
        let error = Scalar::from(u64::from(middle && wrong == Some(block)));
        let value = power
            .get_value()
            .map(|power| factor * power * power + error);
        let get = || value.ok_or(SynthesisError::AssignmentMissing);
        let square = AllocatedNum::alloc(&mut *space, get)?;
        space.enforce(
            || "square",
            |lc| lc + (factor, power.get_variable()),
            |lc| lc + power.get_variable(),
            |lc| lc + square.get_variable(),
        );
        Ok(square)
    }

    fn factor(&self, block: usize, middle: bool) -> u64 {
        if middle && self.odd == Some(block) {
            3
        } else {
            2
        }
    }

    fn outputs(&self, x: u64) -> Vec<Scalar> {
        let of = |block: usize| {
            let mut power = Scalar::from(x + block as u64);
            for round in 0..ROUNDS {
                power = Scalar::from(self.factor(block, round == ROUNDS / 2)) * power * power;
            }
            power * Scalar::from(x)
        };
        (0..BLOCKS).map(of).collect()
    }
}

/// What goes wrong in a job.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// A block is not satisfied.
    Unsatisfied(usize),
    /// The synthesis of a block panics.
    Panic(usize),
    /// There is one more constraint after a block.
    MoreRows(usize),
}

/// Where block 0 says that it begins, and waits until it is let go on.
pub(crate) struct Hold {
    begun: Sender<()>,
    go_on: Receiver<()>,
}

/// A job of several parts, x counting up from `first`.
#[derive(Clone)]
pub(crate) struct ChainsJob {
    pub(crate) circuit: Chains,
    pub(crate) first: u64,
    pub(crate) parts: usize,
    /// Into so many segments a part says that it may be cut.
    pub(crate) segments: usize,
    pub(crate) fault: Option<Fault>,
    pub(crate) hold: Option<Arc<Mutex<Hold>>>,
    /// Segments begun.
    pub(crate) begun: Arc<AtomicUsize>,
}

pub(crate) fn chains(odd: Option<usize>, parts: usize) -> ChainsJob {
    ChainsJob {
        circuit: Chains::new(odd),
        first: 5,
        parts,
        segments: BLOCKS,
        fault: None,
        hold: None,
        begun: Arc::default(),
    }
}

struct ChainsPart {
    job: ChainsJob,
    x: u64,
}

impl ChainsPart {
    fn wrong(&self) -> Option<usize> {
        match self.job.fault {
            Some(Fault::Unsatisfied(block)) => Some(block),
            _ => None,
        }
    }
}

impl ChainsPart {
    fn blocks(
        &self,
        blocks: std::ops::Range<usize>,
        pass: &mut Pass<'_>,
    ) -> Result<(), SynthesisError> {
        let circuit = &self.job.circuit;
        circuit.synthesize(blocks.clone(), Some(self.x), self.wrong(), pass)?;
        if let Some(Fault::MoreRows(block)) = self.job.fault
            && blocks.contains(&block)
        {
            pass.enforce(|| "one more", |lc| lc, |lc| lc, |lc| lc);
        }
        Ok(())
    }
}

impl Part for ChainsPart {
    fn segments(&self) -> usize {
        self.job.segments
    }

    fn synthesize(&self, segment: usize, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        let job = &self.job;
        job.begun.fetch_add(1, Ordering::Relaxed);
        assert!(
            job.fault != Some(Fault::Panic(segment)),
            "a fault of the test"
        );
        if let Some(hold) = job.hold.as_ref().filter(|_| segment == 0) {
            let hold = hold.lock().expect("one at a time");
            hold.begun.send(()).expect("the test waits");
            hold.go_on.recv().expect("the test lets go");
        }
        let each = BLOCKS / job.segments;
        self.blocks(segment * each..(segment + 1) * each, pass)
    }

    fn synthesize_whole(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.blocks(0..BLOCKS, pass)
    }
}

impl Workload for ChainsJob {
    fn label(&self) -> String {
        format!("chains from {}", self.first)
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        Arc::new(self.circuit.clone())
    }

    fn part_count(&self) -> usize {
        self.parts
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        let x = self.first + index as u64;
        let job = self.clone();
        Ok(Box::new(ChainsPart { job, x }))
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        let mut proofs = proofs.iter().zip(self.first..);
        Ok(proofs.all(|(proof, x)| verifier.verify(proof, &self.circuit.outputs(x))))
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        let mut bytes = Vec::new();
        for proof in proofs {
            proof.write(&mut bytes).expect("a vector takes all");
        }
        Ok(bytes)
    }
}

pub(crate) fn house(circuits: &[Chains]) -> House {
    let house = House::new(&[]);
    for circuit in circuits {
        let output = KeyOutput {
            directory: house.directory.path(),
            refused: &[],
            seed: 7,
        };
        let waste = ToxicWaste::from_seed(7);
        generate(circuit, &waste, &output, &|_, _, _| {}).expect("a key for a small circuit");
    }
    house
}

pub(crate) fn engine(
    house: &mut House,
    synthesis: Synthesis,
    hints: &Path,
    c_from_ab: bool,
) -> Engine {
    house.config.tuning.synthesis = synthesis;
    house.config.threads = 3;
    let hints = HintStore::open(hints).expect("a hint file or none");
    house.engine_with(PLENTY, Arc::new(cpu(c_from_ab)), hints)
}

pub(crate) fn prove(engine: &Engine, job: &ChainsJob) -> Result<ProofReply, ProveError> {
    let handle = engine.submit(Arc::new(job.clone()), seeded());
    handle.expect("there is room").wait()
}

/// Parts synthesised in segments and whole, and circuits that were refused.
pub(crate) fn counts(engine: &Engine) -> [u64; 3] {
    let metrics = engine.metrics();
    [
        &metrics.syntheses_cut,
        &metrics.syntheses_whole,
        &metrics.cuts_refused,
    ]
    .map(|counter| counter.count())
}

pub(crate) fn surveys(reply: &ProofReply) -> usize {
    let spans = reply.timeline.spans();
    spans.iter().filter(|span| span.name == "survey").count()
}

#[test]
fn segments_give_the_bytes_of_the_whole_also_where_a_block_is_another() {
    for odd in [None, Some(0), Some(4)] {
        let mut house = house(&[Chains::new(odd)]);
        let hints = house.directory.path().join("hints.json");
        let job = chains(odd, 3);
        let none = Path::new("");
        let whole = engine(&mut house, Synthesis::Whole, none, true);
        let want = prove(&whole, &job).expect("a good job").proof;
        assert_eq!(counts(&whole), [0, 3, 0]);
        drop(whole);
        for c_from_ab in [true, false] {
            let engine = engine(&mut house, Synthesis::Segments, none, c_from_ab);
            let job = ChainsJob {
                parts: 1,
                ..job.clone()
            };
            let first = prove(&engine, &job).expect("a good job");
            assert_eq!(surveys(&first), 1);
            assert_eq!(first.proof, want[..first.proof.len()]);
        }
        // The first engine surveys, the second reads what it found.
        for run in 0..2 {
            let engine = engine(&mut house, Synthesis::Segments, &hints, true);
            let warm = ChainsJob {
                parts: 1,
                ..job.clone()
            };
            prove(&engine, &warm).expect("a good job");
            let reply = prove(&engine, &job).expect("a good job");
            assert_eq!(reply.proof, want);
            assert_eq!(surveys(&reply), 0, "the first part has found out");
            let expected = match odd {
                None => [4, 0, 0],
                Some(_) => [0, 4, u64::from(run == 0)],
            };
            assert_eq!(counts(&engine), expected);
        }
        let kept = HintStore::open(&hints).expect("written");
        let id = Chains::new(odd).id();
        match (odd, kept.find_cut(id.as_str()).expect("kept")) {
            (None, CutHint::Repeats { survey_bytes }) => {
                assert!((1 << 10..1 << 20).contains(survey_bytes), "{survey_bytes}");
            }
            (Some(_), CutHint::Uncut(reason)) => {
                // Where the first block is the odd one, the second is told from it.
                let block = odd.filter(|&block| block > 0).unwrap_or(1);
                let row = ROUNDS / 2;
                let want = format!("row {row} of block {block} differs from that of block 0");
                assert_eq!(*reason, want);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// A file that claims the rows of the regular circuit for one that has an odd block, or
/// any number of blocks: the circuit is surveyed all the same.
#[test]
fn a_hint_that_lies_costs_nothing() {
    let (regular, odd) = (Chains::new(None), Chains::new(Some(4)));
    let mut house = house(&[regular.clone(), odd.clone()]);
    let hints = house.directory.path().join("hints.json");
    let honest = engine(&mut house, Synthesis::Segments, &hints, true);
    prove(&honest, &chains(None, 1)).expect("a good job");
    drop(honest);
    let mut store = HintStore::open(&hints).expect("written");
    let cut = store.find_cut(regular.id().as_str()).expect("kept").clone();
    store.keep_cut(odd.id().as_str(), Some(cut));
    store.save().expect("a writable directory");

    let engine = engine(&mut house, Synthesis::Segments, &hints, true);
    let reply = prove(&engine, &chains(Some(4), 1)).expect("a good job");
    assert_eq!(reply.parts[0].retries, 0);
    assert_eq!(engine.metrics().verification_failures.count(), 0);
    assert_eq!(counts(&engine), [0, 1, 1]);
    assert_eq!(reply.synthesis(), "whole-differs");
    let kept = HintStore::open(&hints).expect("written");
    assert!(
        matches!(kept.find_cut(odd.id().as_str()), Some(CutHint::Uncut(_))),
        "the lie is forgotten"
    );
    assert!(kept.find_cut(regular.id().as_str()).is_some());

    drop(engine);
    let mut store = kept;
    for survey_bytes in [0, u64::MAX] {
        store.keep_cut(
            regular.id().as_str(),
            Some(CutHint::Repeats { survey_bytes }),
        );
        store.save().expect("a writable directory");
        let engine = self::engine(&mut house, Synthesis::Segments, &hints, true);
        let reply = prove(&engine, &chains(None, 1)).expect("a good job");
        assert_eq!((reply.parts[0].retries, counts(&engine)), (0, [1, 0, 0]));
        assert_eq!(reply.synthesis(), "segments");
    }
}

#[test]
fn what_goes_wrong_in_a_segment_ends_its_job_alone() {
    let mut house = house(&[Chains::new(None)]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    prove(&engine, &chains(None, 1)).expect("a good job");
    let error = |fault| {
        let job = ChainsJob {
            fault: Some(fault),
            ..chains(None, 2)
        };
        let other = engine.submit(Arc::new(chains(None, 2)), seeded());
        let error = prove(&engine, &job).expect_err("a fault").to_string();
        other.expect("there is room").wait().expect("another job");
        error
    };
    assert_eq!(
        error(Fault::Panic(3)),
        "synthesis panicked: a fault of the test"
    );
    let unsatisfied = error(Fault::Unsatisfied(4));
    assert!(
        unsatisfied.ends_with("(chain 4/square) does not hold"),
        "{unsatisfied}"
    );
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes, "no part holds any");
    prove(&engine, &chains(None, 1)).expect("a good job");
}

/// Such a part is told by the whole, as everywhere. The circuit is surveyed again, and found
/// to be what it was: however many such parts there are, good ones are made in segments.
#[test]
fn a_part_of_another_shape_is_synthesised_whole_and_refused() {
    let mut house = house(&[Chains::new(None)]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    let good = chains(None, 1);
    let want = prove(&engine, &good).expect("a good job").proof;
    let bad = ChainsJob {
        fault: Some(Fault::MoreRows(2)),
        ..good.clone()
    };
    let rounds = [[2, 1, 0], [3, 2, 0], [4, 3, 0]];
    for (round, after) in rounds.into_iter().enumerate() {
        let error = prove(&engine, &bad).expect_err("another shape").to_string();
        let want_error = "part 0: its densities are not those of circuit chains";
        assert_eq!(error, want_error);
        let retried = engine.metrics().parts_retried.count();
        assert_eq!(retried, round as u64 + 1);
        let again = prove(&engine, &good).expect("a good job");
        assert_eq!((again.proof, counts(&engine)), (want.clone(), after));
    }
}

#[test]
fn a_cancelled_job_begins_no_further_segment() {
    let mut house = house(&[Chains::new(None)]);
    house.config.threads = 1;
    house.config.tuning.synthesis = Synthesis::Segments;
    let engine = house.engine(PLENTY);
    let (begun, has_begun) = channel();
    let (let_go, go_on) = channel();
    let job = ChainsJob {
        hold: Some(Arc::new(Mutex::new(Hold { begun, go_on }))),
        ..chains(None, 1)
    };
    let segments = Arc::clone(&job.begun);
    let handle = engine
        .submit(Arc::new(job), seeded())
        .expect("there is room");
    has_begun.recv().expect("the first segment begins");
    handle.cancel();
    let_go.send(()).expect("it waits");
    assert!(matches!(handle.wait(), Err(ProveError::Cancelled)));
    // The engine waits for its threads.
    let budget = engine.budget().clone();
    drop(engine);
    assert_eq!(segments.load(Ordering::Relaxed), 1);
    assert_eq!(budget.usage().held_by(Consumer("parts")), 0);
}

#[test]
fn stored_rows_are_counted_and_reclaimed() {
    let mut house = house(&[Chains::new(None)]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    let want = prove(&engine, &chains(None, 1)).expect("a good job").proof;
    let held = || engine.budget().usage().held_by(Consumer("templates"));
    assert!(held() > 0 && held() < 1 << 20, "{} bytes", held());
    let all = engine.budget().limit_bytes();
    let other = engine.budget().try_reserve(Consumer("other"), all);
    assert_eq!(held(), 0, "they made room");
    drop(other.expect("the whole limit"));
    let again = prove(&engine, &chains(None, 1)).expect("a good job");
    assert_eq!((surveys(&again), again.proof), (1, want));
}

#[test]
fn without_room_for_rows_a_part_is_synthesised_whole() {
    let mut house = house(&[Chains::new(None)]);
    let job = chains(None, 1);
    let plenty = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    let bytes = plenty.check(&job.circuit).expect("it fits");
    let want = prove(&plenty, &job).expect("a good job").proof;
    let tight = house.engine(bytes);
    let reply = prove(&tight, &job).expect("a good job");
    assert_eq!(reply.synthesis(), "whole-no-memory");
    assert_eq!((reply.proof, counts(&tight)), (want, [0, 1, 0]));
    let instead = tight.metrics().syntheses_instead.counts();
    assert!(instead.contains(&("no-memory", 1)), "{instead:?}");
}
