use super::*;

/// A span of part `part` of the job `job`.
pub(crate) fn span(lane: &str, name: &'static str, part: usize, from: f64, until: f64) -> Span {
    Span {
        name: name.into(),
        lane: lane.parse().expect("a lane"),
        job: Some("job".into()),
        part: Some(part),
        start_ms: from,
        end_ms: until,
        bytes: None,
    }
}

#[test]
fn spans_are_ordered_bounded_and_drawn() {
    let timeline = Timeline::start();
    let at = |ms| timeline.0.epoch + Duration::from_millis(ms);
    let device = |work| Lane::Unit(Unit::Device(0), work);
    let add = |work, name, from, until| {
        timeline.add_in(device(work), name, Some(0), None, at(from), at(until));
    };
    timeline.add("verify", Some(0), at(900), at(1000));
    timeline.add("synthesis", Some(0), at(0), at(400));
    for core in [0, 1, 0] {
        let (from, until) = (at(100 * core), at(390));
        timeline.add_in(
            Lane::Core(core as usize),
            "segment",
            Some(0),
            None,
            from,
            until,
        );
    }
    add(Work::Compute, "msm_h", 500, 800);
    add(Work::Compute, "ntt", 400, 500);
    insta::assert_snapshot!(timeline);
    assert_eq!(timeline.total_ms("msm_h"), 300.0);
    assert!(timeline.has("ntt") && !timeline.has("queue"));
    for _ in 0..SPANS_MAX {
        timeline.add("queue", None, at(0), at(1));
    }
    assert_eq!((timeline.spans().len(), timeline.dropped()), (SPANS_MAX, 7));
    let text = timeline.to_string();
    assert!(text.ends_with("(7 more spans were not kept)\n"));
}

/// A deadline of many partitions has more segments than are kept.
#[test]
fn what_is_not_kept_is_added_up_and_leaves_room_for_other_parts() {
    let timeline = Timeline::start();
    let at = |ms| timeline.0.epoch + Duration::from_millis(ms);
    let proves = |part| {
        let lane = Lane::Unit(Unit::Cpu, Work::Compute);
        timeline.add_in(lane, "ntt", Some(part), None, at(0), at(3));
        timeline.add("verify", Some(part), at(0), at(2));
    };
    for part in 0..7 {
        for _ in 0..2349 {
            let lane = Lane::Core(0);
            timeline.add_in(lane, "segment", Some(part), None, at(0), at(1));
        }
        proves(part);
    }
    let count = |name| {
        let spans = timeline.spans();
        spans.iter().filter(|span| span.name == name).count()
    };
    assert_eq!(["ntt", "verify"].map(count), [7, 7]);
    assert_eq!(count("segment"), CORE_SPANS_MAX);
    assert_eq!(timeline.dropped(), 7 * 2349 - CORE_SPANS_MAX as u64);
    // Past the last place as well.
    for part in 7..SPANS_MAX {
        proves(part);
    }
    assert_eq!(timeline.spans().len(), SPANS_MAX);
    let close = |have: f64, want: usize| (have - want as f64).abs() < 1e-3;
    assert!(close(timeline.total_ms("segment"), 7 * 2349));
    assert!(close(timeline.total_ms("verify"), 2 * SPANS_MAX));
    assert!(close(timeline.proving_ms(), 3 * SPANS_MAX));
    timeline.add("verify_all", None, at(0), at(5));
    assert!(timeline.has("verify_all") && count("verify_all") == 0);
}

#[test]
fn a_span_is_the_same_in_the_job_and_in_the_ring() {
    let recorder = Arc::new(Recorder::new(100));
    let jobs = ["one", "two"].map(|label| Timeline::of_job(Arc::clone(&recorder), label, 1));
    for (part, job) in jobs.iter().enumerate() {
        job.time("verify", Some(part), || ());
        job.time_on_core("segment", part, || ());
        let (from, until) = (Instant::now(), Instant::now());
        let lane = Lane::Unit(Unit::Cpu, Work::Upload);
        job.add_in(lane, "upload", Some(part), Some(7), from, until);
    }
    let Recorded { spans, dropped } = recorder.recorded();
    assert_eq!((spans.len(), dropped), (6, 0));
    for (job, of_ring) in jobs.iter().zip(spans.chunks(3)) {
        let since = job.0.epoch.duration_since(recorder.epoch());
        let since_ms = since.as_secs_f64() * 1000.0;
        for (mine, theirs) in job.spans().iter().zip(of_ring) {
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
            assert!(close(mine.start_ms + since_ms, theirs.start_ms));
            assert!(close(mine.end_ms + since_ms, theirs.end_ms));
            let theirs = Span {
                start_ms: mine.start_ms,
                end_ms: mine.end_ms,
                ..theirs.clone()
            };
            assert_eq!(*mine, theirs);
        }
    }
    let sums = recorder.sums();
    let counts: Vec<_> = sums.stages.iter().map(|of| (of.stage, of.count)).collect();
    assert_eq!(counts, [("verify", 2), ("segment", 2), ("upload", 2)]);
}

/// A job's own room is taken at its submission.
#[test]
fn recording_a_part_allocates_nothing() {
    let recorder = Arc::new(Recorder::new(10));
    let job = Timeline::of_job(Arc::clone(&recorder), "job", 2);
    let place = lock(&job.0.spans).spans.as_ptr();
    for part in 0..2 {
        for _ in 0..SPANS_PER_PART {
            job.time("verify", Some(part), || ());
        }
    }
    assert_eq!(lock(&job.0.spans).spans.as_ptr(), place);
    assert_eq!(recorder.recorded().dropped, 2 * SPANS_PER_PART as u64 - 10);
}
