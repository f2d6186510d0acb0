//! Where the time of jobs goes, as the engine records it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuzk_core::timeline::{Lane, Unit, Utilisation, Work, savings};
use cuzk_core::{ProofReply, Span};

use crate::devices::{Card, engine};
use crate::toy::{House, SquaresJob};
use crate::{prove, seeded};

fn cards(count: usize) -> Vec<Arc<Card>> {
    (0..count)
        .map(|ordinal| Arc::new(Card::new(ordinal)))
        .collect()
}

/// A part's spans by their names; each came once.
fn of_part(spans: &[Span], part: usize) -> BTreeMap<&str, &Span> {
    let mut named = BTreeMap::new();
    for span in spans.iter().filter(|span| span.part == Some(part)) {
        let before = named.insert(&*span.name, span);
        assert!(before.is_none(), "{span:?} twice");
    }
    named
}

#[test]
fn every_part_of_every_job_is_told_from_its_queue_to_its_check() {
    let house = House::new(&[20]);
    let engine = engine(&house, &cards(2));
    let jobs = [1, 2].map(|first| {
        let job = Arc::new(SquaresJob::new(20, first, 3));
        engine.submit(job, seeded()).expect("there is room")
    });
    let replies = jobs.map(|job| job.wait().expect("a good job"));
    let recorded = engine.recorded();
    assert_eq!(recorded.dropped, 0);
    let of_jobs = replies.iter().map(|reply| reply.timeline.spans().len());
    assert_eq!(of_jobs.sum::<usize>(), recorded.spans.len());
    for reply in &replies {
        assert_in_order(reply);
        assert_savings_add_up(&reply.timeline.spans());
    }

    let sums = engine.sums();
    for (stage, want) in [
        ("key", 2),
        ("points", 1),
        ("synthesis", 6),
        ("whole", 6),
        ("msm_h", 6),
    ] {
        let found = sums.stages.iter().find(|of| of.stage == stage);
        assert_eq!(found.map(|of| of.count), Some(want), "{stage}");
    }
    let used = Utilisation::of(&recorded.spans);
    assert_eq!(used.len(), sums.units.len());
    for used in used {
        let counted = sums
            .units
            .iter()
            .find(|of| of.unit.to_string() == used.unit);
        let busy_ms = counted.expect("the same units").busy * 1000.0;
        assert!((busy_ms - used.busy_ms).abs() < 1e-6, "{used} {busy_ms}");
        let idle: f64 = used.gaps.iter().map(|gap| gap.end_ms - gap.start_ms).sum();
        assert!((used.wall_ms - used.busy_ms - idle).abs() < 1e-6, "{used}");
    }
}

fn assert_in_order(reply: &ProofReply) {
    let spans = reply.timeline.spans();
    for (part, report) in reply.parts.iter().enumerate() {
        let named = of_part(&spans, part);
        let device = report.device.expect("one of the cards");
        let compute = Lane::Unit(Unit::Device(device), Work::Compute);
        assert_eq!(named["msm_h"].lane, compute);
        assert!(matches!(named["whole"].lane, Lane::Core(_)));
        for (one, then) in [
            ("queue", "reserve"),
            ("reserve", "synthesis"),
            ("ready", "ntt"),
            ("ntt", "msm_h"),
            ("msm_b_g2", "verify"),
        ] {
            let (one, then) = (named[one], named[then]);
            assert!(one.end_ms <= then.start_ms, "{one:?} before {then:?}");
        }
        let (whole, synthesis) = (named["whole"], named["synthesis"]);
        assert!(synthesis.start_ms <= whole.start_ms && whole.end_ms <= synthesis.end_ms);
    }
}

fn assert_savings_add_up(spans: &[Span]) {
    let found = savings(spans);
    let on_path: f64 = found.names.iter().map(|saving| saving.on_path_ms).sum();
    let sum = on_path + found.between_ms;
    assert!((sum - found.wall_ms).abs() < 0.1, "{sum} of\n{found}");
    for saving in &found.names {
        assert!((0.0..=found.wall_ms).contains(&saving.saves_ms), "{found}");
    }
}

#[test]
fn an_attempt_that_failed_is_told_beside_the_one_that_did_not() {
    let house = House::new(&[20]);
    let cards = cards(2);
    for card in &cards[..1] {
        card.fails_first.store(true, Ordering::SeqCst);
    }
    let engine = engine(&house, &cards);
    let reply = prove(&engine, &SquaresJob::new(20, 2, 1)).expect("the other card has it");
    let spans = reply.timeline.spans();
    let failed: Vec<&Span> = spans.iter().filter(|span| span.name == "prove").collect();
    assert_eq!(failed.len(), 1, "{spans:?}");
    assert_eq!(failed[0].lane, Lane::Failed);
    let of = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert_eq!([of("queue"), of("synthesis"), of("msm_h")], [1, 2, 1]);
    assert_savings_add_up(&spans);
    // Whom the device lost is not what it computed.
    assert_eq!(Utilisation::of(&spans).len(), 1);
}

/// What is kept has a limit, whatever runs.
#[test]
fn the_oldest_spans_of_an_engine_are_dropped() {
    let mut house = House::new(&[20]);
    house.config.spans_max = 7;
    let engine = engine(&house, &cards(1));
    let reply = prove(&engine, &SquaresJob::new(20, 2, 2)).expect("a good job");
    let recorded = engine.recorded();
    let all = reply.timeline.spans();
    assert_eq!(recorded.spans.len(), 7);
    assert_eq!(recorded.dropped as usize, all.len() - 7);
    assert_eq!(recorded.spans[6].name, "verify_all", "the last one is kept");
    assert_eq!(engine.sums().dropped, recorded.dropped);
}
