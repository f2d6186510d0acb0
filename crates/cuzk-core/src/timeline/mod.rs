//! Where time goes: a span for each stretch of work or waiting of each part of each job.
//!
//! A span is recorded once, when it ends, from two moments: into the engine's ring, which
//! all jobs share and which keeps the last ones ([`Recorded`]), into sums that only grow
//! ([`Sums`]), and into the job's own [`Timeline`], which its reply carries.
//!
//! From spans follow how busy each device was and why it was not ([`Utilisation`]), what it
//! lacked and with it what limits an engine ([`Idle`], [`Limit`]), what a job would gain if
//! something took no time ([`savings`]), and two pictures: a waterfall ([`svg`]) and a file
//! for trace viewers ([`trace_json`]). All of them take any list of spans, also one that was
//! read from a file ([`read_spans`]).

mod account;
mod critical;
mod idle;
mod intervals;
mod lane;
mod recorder;
mod rows;
mod span;
mod svg;
mod text;
mod trace;
mod utilisation;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use account::UnitSeconds;
pub use critical::{Saving, Savings, savings};
pub use idle::{Idle, Lack, Limit, Stretch, Threads};
pub use lane::{Lane, Unit, Work};
pub(crate) use recorder::Recorder;
pub use recorder::{Recorded, StageSeconds, Sums};
pub use span::{Label, Span, SpansError, read_spans};
pub use svg::svg;
pub use trace::trace_json;
pub use utilisation::{Gap, Reason, Utilisation};

use crate::lock::lock;

/// Spans kept of one job; more are counted, added up and dropped.
const SPANS_MAX: usize = 1 << 14;

/// Spans of single threads among them. A large part has thousands of these and few others,
/// and those of later parts must find room.
const CORE_SPANS_MAX: usize = SPANS_MAX / 2;

/// Names for which there is room from the start.
const NAMES: usize = 64;

/// Spans of one part for which there is room from the start.
const SPANS_PER_PART: usize = 48;

/// The spans of one job. Clones share them.
#[derive(Clone, Debug)]
pub struct Timeline(Arc<Job>);

#[derive(Debug)]
struct Job {
    epoch: Instant,
    label: Option<Label>,
    recorder: Option<Arc<Recorder>>,
    spans: Mutex<OfJob>,
}

#[derive(Debug)]
struct OfJob {
    spans: Vec<Span>,
    /// Spans in the lanes of cores among these.
    core_spans: usize,
    dropped: u64,
    /// Milliseconds by name, of what was dropped too.
    by_name: Vec<(&'static str, f64)>,
    /// Of all in lanes of proving.
    proving_ms: f64,
}

impl OfJob {
    fn push(&mut self, name: &'static str, span: Span) {
        let ms = span.length_ms();
        match self.by_name.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += ms,
            None => self.by_name.push((name, ms)),
        }
        if span.lane.is_proving() {
            self.proving_ms += ms;
        }
        let is_core = matches!(span.lane, Lane::Core(_));
        let has_room = !is_core || self.core_spans < CORE_SPANS_MAX;
        if has_room && self.spans.len() < SPANS_MAX {
            self.core_spans += usize::from(is_core);
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }
}

impl Timeline {
    /// A timeline of no engine's job, which begins now.
    pub fn start() -> Self {
        Self::new(None, None, 0)
    }

    /// The timeline of a job, which begins now. Its spans go to `recorder` too.
    pub(crate) fn of_job(recorder: Arc<Recorder>, label: &str, parts: usize) -> Self {
        let room = parts.saturating_mul(SPANS_PER_PART).min(SPANS_MAX);
        Self::new(Some(recorder), Some(label.into()), room)
    }

    fn new(recorder: Option<Arc<Recorder>>, label: Option<Label>, room: usize) -> Self {
        Self(Arc::new(Job {
            epoch: Instant::now(),
            label,
            recorder,
            spans: Mutex::new(OfJob {
                spans: Vec::with_capacity(room),
                core_spans: 0,
                dropped: 0,
                by_name: Vec::with_capacity(NAMES),
                proving_ms: 0.0,
            }),
        }))
    }

    /// Adds a span of one of the engine's stages between two moments.
    pub fn add(&self, name: &'static str, part: Option<usize>, from: Instant, until: Instant) {
        self.add_in(Lane::of_stage(name), name, part, None, from, until);
    }

    /// Adds a span between two moments.
    pub fn add_in(
        &self,
        lane: Lane,
        name: &'static str,
        part: Option<usize>,
        bytes: Option<u64>,
        from: Instant,
        until: Instant,
    ) {
        let on = |epoch: Instant| {
            let at = |moment: Instant| {
                let passed = moment.saturating_duration_since(epoch);
                passed.as_secs_f64() * 1000.0
            };
            Span {
                name: name.into(),
                lane,
                job: self.0.label.clone(),
                part,
                start_ms: at(from),
                end_ms: at(until.max(from)),
                bytes,
            }
        };
        if let Some(recorder) = &self.0.recorder {
            recorder.push(name, on(recorder.epoch()));
        }
        let span = on(self.0.epoch);
        lock(&self.0.spans).push(name, span);
    }

    /// Runs `work` and adds how long it took.
    pub fn time<T>(&self, name: &'static str, part: Option<usize>, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = work();
        self.add(name, part, from, Instant::now());
        result
    }

    /// Runs `work` of a part, which this thread computes alone, in the lane of a core.
    pub(crate) fn time_on_core<T>(
        &self,
        name: &'static str,
        part: usize,
        work: impl FnOnce() -> T,
    ) -> T {
        let seat = self.0.recorder.as_ref().map(|recorder| recorder.seat());
        let lane = Lane::Core(seat.as_ref().map_or(0, |seat| seat.number));
        let from = Instant::now();
        let result = work();
        self.add_in(lane, name, Some(part), None, from, Instant::now());
        result
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.epoch.elapsed()
    }

    /// The spans so far, in order of their start.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = lock(&self.0.spans).spans.clone();
        spans.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        spans
    }

    /// Whether any span had this name, kept or not.
    pub fn has(&self, name: &str) -> bool {
        let of_job = lock(&self.0.spans);
        of_job.by_name.iter().any(|(known, _)| *known == name)
    }

    /// Spans that were not kept.
    pub fn dropped(&self) -> u64 {
        lock(&self.0.spans).dropped
    }

    /// Milliseconds of all spans of a name together, kept or not.
    pub fn total_ms(&self, name: &str) -> f64 {
        let of_job = lock(&self.0.spans);
        let known = of_job.by_name.iter().find(|(known, _)| *known == name);
        known.map_or(0.0, |(_, ms)| *ms)
    }

    /// Milliseconds of all spans together in which a backend had a part, kept or not, as
    /// [`Lane::is_proving`] has it.
    pub fn proving_ms(&self) -> f64 {
        lock(&self.0.spans).proving_ms
    }
}

#[cfg(test)]
pub(crate) mod tests;
