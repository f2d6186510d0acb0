use super::super::tests::span;
use super::super::utilisation::Utilisation;
use super::*;

fn lacks(idle: &Idle) -> Vec<(Lack, f64, f64)> {
    let stretches = idle.stretches.iter();
    stretches
        .map(|one| (one.lack, one.start_ms, one.end_ms))
        .collect()
}

/// The lacks of device 0 beside two threads.
fn beside_two(spans: &[Span]) -> Vec<(Lack, f64, f64)> {
    let idle = Idle::of(spans, 2);
    let first = idle.iter().find(|idle| idle.unit == "device 0");
    lacks(first.expect("it computed"))
}

/// Kernels of two parts with 100 ms between them, and what went on meanwhile.
fn gap(meanwhile: &[Span]) -> Vec<(Lack, f64, f64)> {
    let mut spans = vec![
        span("device 0 compute", "ntt", 0, 0.0, 10.0),
        span("device 0 compute", "ntt", 1, 110.0, 120.0),
    ];
    spans.extend_from_slice(meanwhile);
    beside_two(&spans)
}

#[test]
fn a_synthesis_lacks_threads_only_if_all_of_them_work() {
    let synthesis = [
        span("synthesis", "synthesis", 1, 10.0, 100.0),
        span("core 0", "segment", 1, 10.0, 80.0),
        span("core 1", "segment", 1, 10.0, 40.0),
        span("core 1", "segment", 1, 50.0, 80.0),
        // All that is left is handed over at last.
        span("ready", "ready", 1, 100.0, 102.0),
        span("device 0 wait", "slot", 1, 102.0, 104.0),
        span("device 0 upload", "upload", 1, 104.0, 110.0),
    ];
    let after = [(Lack::Handover, 100.0, 104.0), (Lack::Upload, 104.0, 110.0)];
    let with = |lack| {
        vec![
            (Lack::Threads, 10.0, 40.0),
            (lack, 40.0, 50.0),
            (Lack::Threads, 50.0, 80.0),
            (lack, 80.0, 100.0),
            after[0],
            after[1],
        ]
    };
    assert_eq!(gap(&synthesis), with(Lack::Work), "no other part is there");
    let beside = |lane: &str, name| {
        let mut spans = synthesis.to_vec();
        spans.push(span(lane, name, 2, 0.0, 300.0));
        gap(&spans)
    };
    assert_eq!(beside("memory", "reserve"), with(Lack::Memory));
    assert_eq!(beside("keys", "key"), with(Lack::KeyFile));
    assert_eq!(beside("queue", "queue"), with(Lack::Turn));
    // One thread is as many as there are.
    let mut spans = synthesis.to_vec();
    spans.push(span("device 0 compute", "ntt", 0, 0.0, 10.0));
    spans.push(span("device 0 compute", "ntt", 1, 110.0, 120.0));
    let alone = &Idle::of(&spans, 1)[0];
    assert_eq!(alone.lacking_ms(Lack::Threads), 70.0);
    assert_eq!(alone.longest_gap_ms, 100.0);
}

#[test]
fn what_is_nearest_to_the_unit_is_lacking() {
    // Each of these is nearer than all that follow it.
    let lanes = [
        ("device 0 key", Lack::Key),
        ("device 0 upload", Lack::Upload),
        ("ready", Lack::Handover),
        ("failed", Lack::Failed),
        ("memory", Lack::Memory),
        ("keys", Lack::KeyFile),
        ("queue", Lack::Turn),
        ("synthesis", Lack::Work),
    ];
    for (at, (lane, lack)) in lanes.into_iter().enumerate() {
        let farther = lanes[at..].iter().rev();
        let spans: Vec<Span> = farther
            .map(|(lane, _)| span(lane, "x", 1, 0.0, 200.0))
            .collect();
        assert_eq!(gap(&spans), [(lack, 10.0, 110.0)], "{lane}");
    }
    // Of another device it is nothing to this one.
    let other = [span("device 1 upload", "upload", 3, 0.0, 200.0)];
    assert_eq!(gap(&other), [(Lack::Unknown, 10.0, 110.0)]);
}

#[test]
fn what_no_span_tells_is_unknown_while_a_part_is_under_way() {
    let begun = [span("queue", "queue", 1, 0.0, 30.0)];
    assert_eq!(
        gap(&begun),
        [(Lack::Turn, 10.0, 30.0), (Lack::Unknown, 30.0, 110.0)]
    );
    let checked = [span("check", "verify", 0, 10.0, 60.0)];
    assert_eq!(gap(&checked), [(Lack::Work, 10.0, 110.0)]);
    // A part whose spans lie on both sides of the gap.
    let open = [
        span("check", "verify", 2, 0.0, 5.0),
        span("check", "verify", 2, 90.0, 91.0),
    ];
    assert_eq!(
        gap(&open),
        [(Lack::Unknown, 10.0, 90.0), (Lack::Work, 90.0, 110.0)]
    );
}

#[test]
fn between_two_kernels_of_a_part_the_part_itself_is_lacking() {
    let spans = [
        span("synthesis", "synthesis", 0, 0.0, 10.0),
        span("device 0 compute", "ntt", 0, 10.0, 20.0),
        span("device 0 compute", "msm_h", 0, 30.0, 40.0),
        span("device 0 key", "key_l", 0, 45.0, 50.0),
        span("device 0 compute", "msm_l", 0, 50.0, 60.0),
        // Of a part that comes later: the device would compute on without it.
        span("device 0 upload", "upload", 1, 15.0, 70.0),
        span("core 0", "whole", 2, 0.0, 200.0),
        span("core 1", "whole", 3, 0.0, 200.0),
        span("device 0 compute", "ntt", 1, 72.0, 80.0),
        // It is tried again: what lies between is not within its kernels.
        span("synthesis", "synthesis", 1, 90.0, 100.0),
        span("device 0 compute", "ntt", 1, 110.0, 120.0),
    ];
    assert_eq!(
        beside_two(&spans),
        [
            (Lack::Kernel, 20.0, 30.0),
            (Lack::Kernel, 40.0, 45.0),
            (Lack::Key, 45.0, 50.0),
            (Lack::Upload, 60.0, 70.0),
            (Lack::Threads, 70.0, 72.0),
            (Lack::Threads, 80.0, 110.0),
        ]
    );
    // The same gaps as the utilisation has.
    let [idle] = &Idle::of(&spans, 2)[..] else {
        panic!("one unit");
    };
    let used = &Utilisation::of(&spans)[0];
    assert_eq!((idle.wall_ms(), idle.busy_ms), (110.0, used.busy_ms));
    let sum: f64 = Lack::ALL
        .into_iter()
        .map(|lack| idle.lacking_ms(lack))
        .sum();
    assert_eq!(sum, idle.wall_ms() - idle.busy_ms);
}

/// So many milliseconds computed, and lacking.
fn idle(busy_ms: f64, lacking: &[(Lack, f64)]) -> Idle {
    let mut at = busy_ms;
    let stretches = lacking.iter().map(|&(lack, ms)| {
        at += ms;
        Stretch {
            start_ms: at - ms,
            end_ms: at,
            lack,
        }
    });
    Idle {
        unit: "device 0".to_owned(),
        start_ms: 0.0,
        stretches: stretches.collect(),
        end_ms: at,
        busy_ms,
        longest_gap_ms: 0.0,
    }
}

#[test]
fn what_lacks_most_limits_unless_the_device_is_busy() {
    let limit = |busy_ms, lacking: &[_]| Limit::of([&idle(busy_ms, lacking)]);
    assert_eq!(limit(90.0, &[(Lack::Threads, 10.0)]), Limit::Device);
    assert_eq!(limit(89.0, &[(Lack::Threads, 11.0)]), Limit::Cores);
    // Where there is no work nothing limits.
    assert_eq!(
        limit(90.0, &[(Lack::Threads, 9.0), (Lack::Work, 500.0)]),
        Limit::Device
    );
    for (lack, most) in [
        (Lack::Kernel, Limit::Device),
        (Lack::Key, Limit::Link),
        (Lack::Memory, Limit::Memory),
        (Lack::Turn, Limit::Engine),
    ] {
        let lacking = [(lack, 30.0), (Lack::Threads, 20.0)];
        assert_eq!(limit(10.0, &lacking), most, "{}", lack.name());
    }
    // Together two are more than one that is more than each.
    let link = [(Lack::Key, 15.0), (Lack::Upload, 15.0)];
    assert_eq!(
        limit(0.0, &[link[0], (Lack::Threads, 20.0), link[1]]),
        Limit::Link
    );
    // Of several, all count.
    let rounds = [
        idle(0.0, &[(Lack::Threads, 20.0)]),
        idle(0.0, &[(Lack::Memory, 15.0)]),
        idle(0.0, &[(Lack::Memory, 15.0)]),
    ];
    assert_eq!(Limit::of(&rounds), Limit::Memory);
    assert_eq!(Limit::of([]), Limit::Device);
}

#[test]
fn threads_are_counted_by_how_many_work_at_once() {
    let spans = [
        span("core 0", "segment", 0, 0.0, 10.0),
        span("core 1", "segment", 1, 4.0, 14.0),
        // The third of two, for the end of a segment.
        span("core 2", "segment", 2, 8.0, 9.0),
        // One ends where the next begins.
        span("core 0", "segment", 0, 10.0, 12.0),
        span("synthesis", "synthesis", 0, 0.0, 100.0),
    ];
    let of = |threads| {
        let Threads { worked_ms, all_ms } = Threads::of(&spans, threads);
        (worked_ms, all_ms)
    };
    assert_eq!(
        [of(1), of(2), of(3), of(4)],
        [(23.0, 14.0), (23.0, 8.0), (23.0, 1.0), (23.0, 0.0)]
    );
    assert_eq!(Threads::of(&[], 2), Threads::default());
}
