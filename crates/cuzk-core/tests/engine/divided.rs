//! Parts that are divided in any number of segments, and parts of several circuits, good
//! and bad, that are filled at the same time.

use std::path::Path;
use std::sync::Arc;

use cuzk_core::config::Synthesis;
use cuzk_core::{CircuitSpec, JobHandle, ProveError};
use cuzk_synth::{CutHint, HintStore};

use crate::seeded;
use crate::segments::{
    BLOCKS, Chains, ChainsJob, Fault, chains, counts, engine, house, prove, surveys,
};

#[test]
fn a_part_has_any_number_of_segments_that_divides_its_blocks() {
    let circuit = Chains::new(None);
    let mut house = house(std::slice::from_ref(&circuit));
    let hints = house.directory.path().join("hints.json");
    let job = |segments| ChainsJob {
        segments,
        ..chains(None, 1)
    };
    let whole = engine(&mut house, Synthesis::Whole, Path::new(""), true);
    let want = prove(&whole, &job(BLOCKS)).expect("a good job").proof;
    drop(whole);
    let even = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    for segments in [1, 2, 3, 6] {
        let reply = prove(&even, &job(segments)).expect("a good job");
        assert_eq!(
            (reply.synthesis(), &reply.proof),
            ("segments".into(), &want)
        );
    }
    drop(even);
    for segments in [0, 4, 12, usize::MAX] {
        let uneven = engine(&mut house, Synthesis::Segments, &hints, true);
        for round in 0..2 {
            let reply = prove(&uneven, &job(segments)).expect("a good job");
            assert_eq!(surveys(&reply), usize::from(round == 0));
            assert_eq!(
                (reply.synthesis(), &reply.proof),
                ("whole-differs".into(), &want)
            );
        }
        assert_eq!(counts(&uneven), [0, 2, 1]);
        drop(uneven);
        let kept = HintStore::open(&hints).expect("written");
        let reason = format!("{BLOCKS} blocks make no {segments} segments of equal size");
        assert_eq!(
            kept.find_cut(circuit.id().as_str()),
            Some(&CutHint::Uncut(reason))
        );
        std::fs::remove_file(&hints).expect("it is there");
    }
}

/// Three circuits, one of which is not cut; of each a good job, and beside them jobs that
/// panic in their first segment or their last, do not hold there, or are cancelled.
#[test]
fn parts_of_several_circuits_share_the_threads() {
    let wide = Chains {
        shared: 2_000,
        ..Chains::new(None)
    };
    let circuits = [Chains::new(None), Chains::new(Some(4)), wide];
    let mut house = house(&circuits);
    let job = |circuit: &Chains, parts, fault| ChainsJob {
        circuit: circuit.clone(),
        fault,
        ..chains(None, parts)
    };
    let whole = engine(&mut house, Synthesis::Whole, Path::new(""), true);
    let want = circuits.each_ref().map(|circuit| {
        let reply = prove(&whole, &job(circuit, 3, None));
        reply.expect("a good job").proof
    });
    drop(whole);
    let engine = engine(&mut house, Synthesis::Segments, Path::new(""), true);
    let submit = |job| -> JobHandle {
        let handle = engine.submit(Arc::new(job), seeded());
        handle.expect("there is room")
    };
    // Once while they are surveyed, and once when they are known.
    for _ in 0..2 {
        let good = circuits
            .each_ref()
            .map(|circuit| submit(job(circuit, 3, None)));
        let faults = [0, BLOCKS - 1].map(|block| {
            [&circuits[0], &circuits[2]].map(|circuit| {
                let panics = submit(job(circuit, 1, Some(Fault::Panic(block))));
                let fails = submit(job(circuit, 1, Some(Fault::Unsatisfied(block))));
                let cancelled = submit(job(circuit, 2, None));
                cancelled.cancel();
                (panics, fails, cancelled)
            })
        });
        for (panics, fails, cancelled) in faults.into_iter().flatten() {
            // While another part surveys, it is made whole, which does not panic here.
            if let Err(error) = panics.wait() {
                assert_eq!(error.to_string(), "synthesis panicked: a fault of the test");
            }
            let error = fails.wait().expect_err("it does not hold").to_string();
            assert!(error.ends_with("does not hold"), "{error}");
            // It may have ended before.
            if let Err(error) = cancelled.wait() {
                assert!(matches!(error, ProveError::Cancelled), "{error}");
            }
        }
        for (handle, want) in good.into_iter().zip(&want) {
            assert_eq!(handle.wait().expect("a good job").proof, *want);
        }
    }
    let usage = engine.budget().usage();
    assert_eq!(usage.used_bytes, usage.idle_bytes, "no part holds any");
    let [in_segments, _, refused] = counts(&engine);
    assert_eq!(refused, 1);
    // At least those of the second round that are good.
    assert!(in_segments >= 6, "{in_segments}");
}
