use proptest::prelude::*;

use super::super::tests::span;
use super::*;

/// Three parts: synthesis one after the other of 10 ms each, then a device that
/// takes `compute` for each.
fn pipeline(compute: f64) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut free = 0.0;
    for part in 0..3 {
        let begin = 10.0 * part as f64;
        spans.push(span("queue", "queue", part, 0.0, begin));
        spans.push(span("synthesis", "synthesis", part, begin, begin + 10.0));
        let up = begin + 12.0;
        spans.push(span("device 0 upload", "upload", part, begin + 10.0, up));
        let from = up.max(free);
        spans.push(span("device 0 wait", "turn", part, up, from));
        spans.push(span("device 0 compute", "ntt", part, from, from + compute));
        free = from + compute;
    }
    let whole = Span {
        part: None,
        ..span("check", "verify_all", 0, free, free + 1.0)
    };
    spans.push(whole);
    spans
}

fn saves(savings: &Savings, name: &str) -> f64 {
    let found = savings.names.iter().find(|saving| saving.name == name);
    found.expect("a name").saves_ms
}

#[test]
fn what_limits_a_pipeline_saves_the_most() {
    // Synthesis limits: 30 ms of it, 2 of upload, 3 of the device behind the last.
    let by_cores = savings(&pipeline(3.0));
    assert_eq!(by_cores.wall_ms, 36.0);
    assert_eq!(
        saves(&by_cores, "synthesis"),
        36.0 - (2.0 + 3.0 * 3.0 + 1.0)
    );
    assert_eq!(saves(&by_cores, "ntt"), 3.0);
    assert_eq!(saves(&by_cores, "upload"), 2.0);
    assert_eq!(saves(&by_cores, "turn"), 0.0);
    // Were all parts begun at once.
    assert_eq!(saves(&by_cores, "queue"), 36.0 - (12.0 + 3.0 * 3.0 + 1.0));
    assert_eq!(by_cores.between_ms, 0.0);
    let on_path: f64 = by_cores.names.iter().map(|saving| saving.on_path_ms).sum();
    assert_eq!(on_path, by_cores.wall_ms);
    // The device limits: 12 ms before it begins, then 20 for each part.
    let by_device = savings(&pipeline(20.0));
    assert_eq!(by_device.wall_ms, 73.0);
    assert_eq!(saves(&by_device, "ntt"), 73.0 - 33.0);
    assert_eq!(saves(&by_device, "synthesis"), 10.0);
    assert_eq!(saves(&by_device, "queue"), 0.0);
    assert_eq!(saves(&by_device, "verify_all"), 1.0);
    insta::assert_snapshot!(by_device);
}

#[test]
fn what_lies_within_a_synthesis_is_its_own() {
    let spans = [
        span("synthesis", "synthesis", 0, 0.0, 100.0),
        span("synthesis", "survey", 0, 10.0, 60.0),
        span("core 0", "segment", 0, 60.0, 95.0),
        span("core 1", "segment", 0, 60.0, 90.0),
        span("copy", "pin", 0, 95.0, 98.0),
    ];
    let found = savings(&spans);
    let told: Vec<_> = found
        .names
        .iter()
        .map(|saving| (saving.name.as_str(), saving.count, saving.saves_ms))
        .collect();
    assert_eq!(
        told,
        [("survey", 1, 50.0), ("synthesis", 1, 47.0), ("pin", 1, 3.0)]
    );
    assert_eq!((found.wall_ms, found.between_ms), (100.0, 0.0));
}

/// Whoever begins to wait may do so before the one that it waits for is told to end.
#[test]
fn a_wait_that_overlaps_what_it_waits_for_is_on_the_path_behind_it() {
    let spans = [
        span("synthesis", "synthesis", 0, 0.0, 10.0),
        span("ready", "ready", 0, 9.0, 12.0),
        span("cpu compute", "ntt", 0, 12.0, 20.0),
    ];
    let found = savings(&spans);
    let told: Vec<_> = found
        .names
        .iter()
        .map(|saving| (saving.name.as_str(), saving.on_path_ms, saving.saves_ms))
        .collect();
    assert_eq!(
        told,
        [
            ("synthesis", 10.0, 10.0),
            ("ntt", 8.0, 8.0),
            ("ready", 2.0, 2.0)
        ]
    );
    assert_eq!(found.between_ms, 0.0);
}

#[test]
fn what_nobody_did_is_told_apart() {
    let spans = [
        span("memory", "reserve", 0, 0.0, 5.0),
        span("synthesis", "synthesis", 0, 7.0, 10.0),
    ];
    let found = savings(&spans);
    assert_eq!((found.wall_ms, found.between_ms), (10.0, 2.0));
    assert_eq!(saves(&found, "reserve"), 5.0);
    assert_eq!(savings(&[]), Savings::default());
}

/// Spans of a few parts anywhere, also on top of each other: what devices and threads
/// tell, and more than they would.
fn anything() -> impl Strategy<Value = Vec<Span>> {
    // So few moments and kinds that ends meet beginnings and names repeat.
    let one = (0..5_usize, 0..8_usize, 0..20_u32, 0..9_u32);
    prop::collection::vec(one, 1..40).prop_map(|all| {
        let kinds = [
            ("queue", "queue"),
            ("keys", "key"),
            ("memory", "reserve"),
            ("synthesis", "synthesis"),
            ("synthesis", "survey"),
            ("ready", "ready"),
            ("device 0 upload", "upload"),
            ("device 0 compute", "msm_h"),
        ];
        let spans = all.into_iter().map(|(part, kind, from, length)| {
            let (lane, name) = kinds[kind];
            let (from, until) = (f64::from(from), f64::from(from + length));
            let span = span(lane, name, part, from, until);
            // The last one stands for the job as a whole.
            let part = span.part.filter(|part| *part < 4);
            Span { part, ..span }
        });
        spans.collect()
    })
}

proptest! {
    #[test]
    fn played_again_everything_ends_when_it_did(spans in anything()) {
        let replay = Replay::of(&spans);
        for (step, end) in replay.steps.iter().zip(replay.ends(None)) {
            prop_assert!((step.end_ms - end).abs() < 1e-9, "{}: {end}", step.name);
        }
        let found = savings(&spans);
        let ends = spans.iter().map(|span| span.end_ms).fold(0.0, f64::max);
        let begins = spans.iter().map(|span| span.start_ms).fold(f64::MAX, f64::min);
        prop_assert!(found.wall_ms <= ends - begins);
        let on_path: f64 = found.names.iter().map(|saving| saving.on_path_ms).sum();
        prop_assert!((on_path + found.between_ms - found.wall_ms).abs() < 1e-9, "{found}");
        for saving in &found.names {
            prop_assert!((0.0..=found.wall_ms).contains(&saving.saves_ms), "{found}");
        }
    }
}
