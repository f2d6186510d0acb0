//! Surveys and stored rows: before the first job, by several jobs at once, given up,
//! without memory, and doubted.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellpepper_core::ConstraintSystem;
use blstrs::Scalar;
use cuzk_budget::{Consumer, LimitRule};
use cuzk_core::config::{KeyTier, Sizing, Synthesis};
use cuzk_core::schedule::Priority;
use cuzk_core::{CircuitSpec, Engine, JobHandle, JobOptions, ProofReply, ProveError};
use cuzk_synth::{CutHint, HintStore, Pass};
use ff::Field;

use crate::backends::Faulty;
use crate::hooked::{Hook, Hooked, HookedSpec};
use crate::segments::{BLOCKS, Chains, ChainsJob, chains, counts, engine, house, prove, surveys};
use crate::toy::House;
use crate::{PLENTY, seeded, until};

const REGULAR: Chains = Chains::new(None);
const NO_HINTS: &str = "";

pub(crate) fn submit(engine: &Engine, job: &Hooked) -> JobHandle {
    let handle = engine.submit(Arc::new(job.clone()), seeded());
    handle.expect("there is room")
}

pub(crate) fn held(engine: &Engine, consumer: &'static str) -> u64 {
    engine.budget().usage().held_by(Consumer(consumer))
}

fn instead(engine: &Engine) -> Vec<(&'static str, u64)> {
    let counts = engine.metrics().syntheses_instead.counts();
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// A hook that says that it is reached, and waits until it is let go on.
fn stop() -> (Hook, Receiver<()>, Sender<()>) {
    let (reached, is_reached) = channel();
    let (let_go, go_on) = channel();
    let ends = Mutex::new((reached, go_on));
    let hook: Hook = Arc::new(move |_| {
        let (reached, go_on) = &*ends.lock().expect("no panic under the lock");
        // A test that has ended lets everything go on.
        let _ = reached.send(());
        let _ = go_on.recv();
        Ok(())
    });
    (hook, is_reached, let_go)
}

#[test]
fn warmed_circuits_are_surveyed_before_their_first_part() {
    let mut house = house(&[REGULAR, Chains::new(Some(4))]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    engine.preload(&REGULAR).expect("a good key");
    let plan = engine.warm(&[&REGULAR]).expect("there is room");
    let stored = held(&engine, "templates");
    let line = plan.to_string();
    let line = line.lines().find(|line| line.contains("templates"));
    let line = line.expect("a line for stored rows").replace(',', "");
    assert!(stored > 0 && line.contains(&stored.to_string()), "{line}");
    let planned = engine.budget().usage();
    assert!(planned.used_bytes <= plan.planned_bytes(), "{planned:?}");

    let reply = prove(&engine, &chains(None, 3)).expect("a good job");
    assert_eq!((surveys(&reply), counts(&engine)), (0, [3, 0, 0]));
    let after = engine.budget().usage();
    assert_eq!(
        after.used_bytes, planned.used_bytes,
        "nothing was allocated"
    );
    assert_eq!(reply.synthesis(), "segments");
    // Again, and one that does not repeat: neither changes what is stored.
    engine
        .warm(&[&REGULAR, &Chains::new(Some(4))])
        .expect("there is room");
    assert_eq!(held(&engine, "templates"), stored);
    let reply = prove(&engine, &chains(Some(4), 1)).expect("a good job");
    assert_eq!((surveys(&reply), counts(&engine)), (0, [3, 1, 1]));
    assert_eq!(reply.synthesis(), "whole-differs");
}

#[test]
fn rows_are_not_stored_where_nobody_asks_for_them() {
    let mut house = house(&[REGULAR]);
    let whole = engine(&mut house, Synthesis::Whole, Path::new(NO_HINTS), true);
    let plan = whole.warm(&[&REGULAR]).expect("there is room");
    assert!(!plan.to_string().contains("templates"));
    assert_eq!(held(&whole, "templates"), 0);
    drop(whole);
    house.config.tuning.sizing = Sizing::Growing;
    let growing = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    growing.warm(&[&REGULAR]).expect("there is room");
    assert_eq!(held(&growing, "templates"), 0);
    let reply = prove(&growing, &chains(None, 2)).expect("a good job");
    assert_eq!(reply.synthesis(), "whole-growing");
    assert_eq!(instead(&growing), [("growing", 2)]);
}

/// The columns of one part are worth more than stored rows.
#[test]
fn stored_rows_give_way_to_the_columns_of_one_part() {
    let mut house = house(&[REGULAR]);
    let plenty = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let part_bytes = plenty.check(&REGULAR).expect("it fits");
    let want = prove(&plenty, &chains(None, 1)).expect("a good job").proof;
    let stored = held(&plenty, "templates");
    for (limit_bytes, synthesis) in [
        (part_bytes + stored, "segments"),
        (part_bytes + stored - 1, "whole-no-memory"),
    ] {
        let engine = house.engine(limit_bytes);
        let plan = engine.warm(&[&REGULAR]).expect("one part fits");
        assert!(plan.planned_bytes() <= limit_bytes);
        let is_planned = plan.to_string().contains("templates");
        assert_eq!(is_planned, synthesis == "segments", "{plan}");
        let reply = prove(&engine, &chains(None, 1)).expect("a good job");
        assert_eq!(
            (reply.synthesis(), reply.proof),
            (synthesis.to_owned(), want.clone())
        );
    }
    let error = house.engine(part_bytes - 1).warm(&[&REGULAR]);
    assert!(error.is_err(), "not even one part fits");
}

/// A survey takes nothing of what is kept: its part is made whole, and the urgent one has
/// memory meanwhile.
#[test]
fn a_survey_does_not_delay_an_urgent_part() {
    let mut house = house(&[REGULAR]);
    let plenty = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let part_bytes = plenty.check(&REGULAR).expect("it fits");
    drop(plenty);
    house.config.critical_reserve = LimitRule::Bytes(part_bytes);
    let engine = house.engine(2 * part_bytes);
    let (hook, is_reached, let_go) = stop();
    let first = Hooked {
        blank: Arc::clone(&hook),
        whole: hook,
        ..Hooked::new()
    };
    let first = submit(&engine, &first);
    is_reached.recv().expect("it surveys, or is made whole");
    let options = JobOptions {
        priority: Priority::Critical,
        ..seeded()
    };
    let urgent = engine.submit(Arc::new(Hooked::new()), options);
    let urgent = urgent.expect("there is a place");
    let reply = urgent.wait_for(Duration::from_secs(60));
    reply.expect("it is not delayed").expect("a good job");
    drop(let_go);
    let reply = first.wait().expect("a good job");
    assert_eq!(reply.synthesis(), "whole-no-memory");
}

/// A circuit that is not its key's is told by its first part, and keeps no other cold.
#[test]
fn a_survey_that_fails_keeps_no_other_circuit_cold() {
    let other = Chains {
        shared: 20,
        ..REGULAR
    };
    let mut house = house(&[REGULAR, other.clone()]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let more: Hook = Arc::new(|pass| pass.alloc(|| "more", || Ok(Scalar::ONE)).map(drop));
    engine
        .warm(&[&HookedSpec::new(more), &other])
        .expect("there is room");
    assert!(held(&engine, "templates") > 0);
    let of = |circuit: Chains| ChainsJob {
        circuit,
        ..chains(None, 1)
    };
    for (circuit, count) in [(other, 0), (REGULAR, 1)] {
        let reply = prove(&engine, &of(circuit)).expect("a good job");
        assert_eq!(
            (surveys(&reply), reply.synthesis()),
            (count, "segments".into())
        );
    }
}

/// How much a survey may take follows from the key, which may be another circuit's: that
/// it took more is nothing that a later process should hear of the circuit. Nor is it
/// tried with as much memory again.
#[test]
fn a_survey_that_takes_too_much_is_not_remembered_in_the_hints() {
    let mut house = house(&[REGULAR]);
    let hints = house.directory.path().join("hints.json");
    let begun = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&begun);
    let rows: Hook = Arc::new(move |pass| {
        seen.fetch_add(1, Ordering::Relaxed);
        for _ in 0..20_000 {
            let one = Pass::one();
            pass.enforce(|| "row", |lc| lc + one, |lc| lc + one, |lc| lc + one);
        }
        Ok(())
    });
    let large = Hooked {
        blank: rows,
        ..Hooked::new()
    };
    let engine = engine(&mut house, Synthesis::Segments, &hints, true);
    let reply = submit(&engine, &large).wait().expect("made whole");
    assert_eq!(reply.synthesis(), "whole-no-memory");
    assert_eq!(engine.metrics().cuts_refused.count(), 0);
    drop(engine);
    let mut kept = HintStore::open(&hints).expect("a hint file or none");
    assert_eq!(kept.find_cut(REGULAR.id().as_str()), None);
    assert_eq!(begun.swap(0, Ordering::Relaxed), 1);
    // Hints of at least the bound, and of less.
    for (survey_bytes, surveys) in [(u64::MAX, 1), (0, 2)] {
        let lie = CutHint::Repeats { survey_bytes };
        kept.keep_cut(REGULAR.id().as_str(), Some(lie));
        kept.save().expect("a writable directory");
        let engine = self::engine(&mut house, Synthesis::Segments, &hints, true);
        let reply = submit(&engine, &large).wait().expect("made whole");
        assert_eq!(reply.synthesis(), "whole-no-memory");
        assert_eq!(begun.swap(0, Ordering::Relaxed), surveys);
    }
    let engine = self::engine(&mut house, Synthesis::Segments, &hints, true);
    let reply = prove(&engine, &chains(None, 1)).expect("a good job");
    assert_eq!(reply.synthesis(), "segments");
}

#[test]
fn a_survey_that_panics_is_told_and_warms_the_rest() {
    let mut house = house(&[REGULAR]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let bad: Hook = Arc::new(|_| panic!("a fault of the test"));
    let plan = engine
        .warm(&[&HookedSpec::new(bad)])
        .expect("there is room");
    assert!(plan.planned_bytes() > 0 && !plan.to_string().contains("templates"));
    assert_eq!(held(&engine, "templates"), 0);
    // The first part surveys it.
    let reply = prove(&engine, &chains(None, 1)).expect("a good job");
    assert_eq!((surveys(&reply), reply.synthesis()), (1, "segments".into()));
}

#[test]
fn two_jobs_survey_no_circuit_at_the_same_time() {
    let mut house = house(&[REGULAR]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let (blank, is_reached, let_go) = stop();
    let first = Hooked {
        blank,
        ..Hooked::new()
    };
    let first = submit(&engine, &first);
    is_reached.recv().expect("it surveys");
    let second = submit(&engine, &Hooked::new()).wait().expect("a good job");
    assert_eq!((surveys(&second), counts(&engine)), (0, [0, 1, 0]));
    assert_eq!(second.synthesis(), "whole-surveyed");
    assert_eq!(instead(&engine), [("surveyed", 1)]);
    let_go.send(()).expect("it waits");
    let first = first.wait().expect("a good job");
    assert_eq!((surveys(&first), first.synthesis()), (1, "segments".into()));
    assert_eq!(first.proof, second.proof);
    let third = submit(&engine, &Hooked::new()).wait().expect("a good job");
    assert_eq!((surveys(&third), third.synthesis()), (0, "segments".into()));
}

#[test]
fn a_survey_that_panics_leaves_the_next_one_to_others() {
    let mut house = house(&[REGULAR]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let times = AtomicUsize::new(0);
    let job = Hooked {
        blank: Arc::new(move |_| {
            let is_first = times.fetch_add(1, Ordering::Relaxed) == 0;
            assert!(!is_first, "a fault of the test");
            Ok(())
        }),
        ..Hooked::new()
    };
    let reply = submit(&engine, &job).wait().expect("tried again");
    assert_eq!((reply.retries(), reply.synthesis()), (1, "segments".into()));
}

/// Where a cancelled job is given up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Survey,
    /// The survey of a circuit that is a loop, in the three blocks that are compared.
    Short,
    Segment,
    Whole,
}

/// More variables than a pass takes without asking whether it is to go on.
const ENDLESS: usize = 10_000_000;

#[test]
fn a_cancelled_job_is_given_up_within_a_pass() {
    for point in [Point::Survey, Point::Short, Point::Segment, Point::Whole] {
        let mut house = house(&[REGULAR]);
        let synthesis = match point {
            Point::Whole => Synthesis::Whole,
            _ => Synthesis::Segments,
        };
        let engine = engine(&mut house, synthesis, Path::new(NO_HINTS), true);
        if point == Point::Segment {
            prove(&engine, &chains(None, 1)).expect("a good job");
        }
        let before = held(&engine, "templates");
        let (reached, is_reached) = channel();
        let (let_go, go_on) = channel::<()>();
        let ends = Mutex::new((reached, go_on));
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let endless: Hook = Arc::new(move |pass| {
            {
                let (reached, go_on) = &*ends.lock().expect("no panic under the lock");
                let _ = reached.send(());
                let _ = go_on.recv();
            }
            for _ in 0..ENDLESS {
                pass.alloc(|| "more", || Ok(Scalar::ONE))?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let mut job = Hooked::new();
        match point {
            Point::Survey => job.blank = endless,
            Point::Short => job.short = Some(Arc::new(move |_, pass| endless(pass))),
            Point::Segment => job.segment = endless,
            Point::Whole => job.whole = endless,
        }
        let handle = submit(&engine, &job);
        is_reached.recv().expect("it is reached");
        handle.cancel();
        drop(let_go);
        let error = handle.wait().expect_err("it was cancelled");
        assert!(matches!(error, ProveError::Cancelled), "{point:?}: {error}");
        until(|| {
            let usage = engine.budget().usage();
            usage.used_bytes == usage.idle_bytes
        });
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken < ENDLESS / 100, "{point:?}: {taken} variables");
        assert_eq!(held(&engine, "templates"), before, "{point:?}");
        // It is as if the job had never been.
        let reply = submit(&engine, &Hooked::new()).wait().expect("a good job");
        assert_eq!(
            surveys(&reply),
            usize::from(matches!(point, Point::Survey | Point::Short))
        );
    }
}

/// A part that was made whole says nothing about stored rows that another one found
/// meanwhile.
#[test]
fn only_parts_made_in_segments_raise_doubts() {
    let mut house = house(&[REGULAR]);
    house.config.threads = 3;
    let (backend, permit) = Faulty::held_corrupting(1);
    let engine = house.engine_with(PLENTY, backend.clone(), HintStore::in_memory());
    let (blank, is_reached, let_go) = stop();
    let surveys = Hooked {
        blank,
        ..Hooked::new()
    };
    let surveys = submit(&engine, &surveys);
    is_reached.recv().expect("it surveys");
    let spoiled = submit(&engine, &Hooked::new());
    until(|| backend.seen() == 1);
    let_go.send(()).expect("it waits");
    until(|| counts(&engine) == [1, 1, 0]);
    // The one that was made whole is spoiled, and made again.
    drop(permit);
    let reply = spoiled.wait().expect("made again");
    assert_eq!((reply.retries(), reply.synthesis()), (1, "segments".into()));
    surveys.wait().expect("a good job");
    assert_eq!(instead(&engine), [("surveyed", 1)], "nobody doubts");

    // One that was made in segments is a doubt: the next is whole, and surveyed anew.
    let (backend, permit) = Faulty::held_corrupting(1);
    drop(permit);
    let engine = house.engine_with(PLENTY, backend, HintStore::in_memory());
    let replies: Vec<ProofReply> = (0..2)
        .map(|_| prove(&engine, &chains(None, 1)).expect("a good job"))
        .collect();
    let told = replies
        .iter()
        .map(|reply| (reply.retries(), reply.synthesis()));
    let want = [(1, "whole-doubted".into()), (0, "segments".into())];
    assert!(told.eq(want), "{replies:?}");
}

/// Nor is a doubt lost because the rows are gone when the proof is checked.
#[test]
fn stored_rows_are_doubted_after_they_were_reclaimed() {
    let mut house = house(&[REGULAR]);
    house.config.tuning.synthesis = Synthesis::Segments;
    let (backend, permit) = Faulty::held_corrupting(1);
    let engine = house.engine_with(PLENTY, backend.clone(), HintStore::in_memory());
    let spoiled = submit(&engine, &Hooked::new());
    until(|| backend.seen() == 1);
    let usage = engine.budget().usage();
    let rest = engine.budget().limit_bytes() - usage.used_bytes + usage.idle_bytes;
    let other = engine.budget().try_reserve(Consumer("other"), rest);
    assert_eq!(held(&engine, "templates"), 0, "they made room");
    drop(other.expect("the rest of the limit"));
    drop(permit);
    let reply = spoiled.wait().expect("made again");
    let told = (reply.retries(), reply.synthesis());
    assert_eq!(told, (1, "whole-doubted".into()));
    let next = prove(&engine, &chains(None, 1)).expect("a good job");
    assert_eq!((surveys(&next), next.synthesis()), (1, "segments".into()));
}

#[test]
fn a_panic_in_any_block_ends_its_job_alone() {
    let mut house: House = house(&[REGULAR]);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(NO_HINTS), true);
    let good = Hooked::new();
    let want = submit(&engine, &good).wait().expect("a good job").proof;
    for bad in 0..BLOCKS {
        let seen = AtomicUsize::new(0);
        let job = Hooked {
            segment: Arc::new(move |_| {
                let number = seen.fetch_add(1, Ordering::Relaxed);
                assert!(number < bad, "a fault of the test");
                Ok(())
            }),
            ..good.clone()
        };
        let (bad, other) = (submit(&engine, &job), submit(&engine, &good));
        let error = bad
            .wait()
            .expect_err("it panics, and once more")
            .to_string();
        assert_eq!(error, "synthesis panicked: a fault of the test");
        assert_eq!(other.wait().expect("a good job").proof, want);
    }
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes, "no part holds any");
    assert_eq!(counts(&engine)[1..], [0, 0]);
}

/// What all blocks share is in the columns once, and beside them once a thread, with the
/// one of them that a block uses.
#[test]
fn what_segments_hold_beside_the_columns_is_counted() {
    let wide = Chains {
        shared: 2_000,
        ..REGULAR
    };
    let mut house = house(std::slice::from_ref(&wide));
    house.config.threads = 3;
    house.config.tuning.key_tier = KeyTier::File;
    let engine = house.engine_on(PLENTY, Arc::new(Faulty::light()));
    let job = ChainsJob {
        circuit: wide.clone(),
        ..chains(None, 1)
    };
    let first = prove(&engine, &job).expect("a good job");
    assert_eq!(first.synthesis(), "segments");
    let usage = engine.budget().usage();
    let beside = (3 * (2_001 + 1) + 1) * size_of::<Scalar>() as u64;
    for (room, synthesis) in [(beside, "segments"), (beside - 1, "whole-no-memory")] {
        let used = engine.budget().usage().used_bytes;
        let other = PLENTY - used - room;
        let other = engine.budget().try_reserve(Consumer("other"), other);
        let other = other.expect("the rest");
        let reply = prove(&engine, &job).expect("a good job");
        assert_eq!(
            (reply.synthesis(), &reply.proof),
            (synthesis.into(), &first.proof)
        );
        drop(other);
        let after = engine.budget().usage();
        assert_eq!(after.used_bytes, used, "{usage:?}, {after:?}");
    }
    let plan = engine.warm(&[&wide]).expect("there is room").to_string();
    let told = plan.replace(',', "");
    assert!(told.contains(&beside.to_string()), "{plan}");
}
