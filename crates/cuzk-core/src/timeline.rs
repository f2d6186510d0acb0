//! Where the time of a job went: one span a stage and part.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::lock::lock;

/// Spans kept of one job; more are counted and dropped.
const SPANS_MAX: usize = 4096;

/// Names of the spans that are the engine's: its stages, and what lies within them. All
/// others, but `prove` of a proof that failed, are phases of a backend.
pub const STAGES: [&str; 9] = [
    "queue",
    "key",
    "reserve",
    "synthesis",
    "survey",
    "pin",
    "verify",
    "explain",
    "verify_all",
];

/// One stretch of work or waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Span {
    /// What was done: `queue` and `key` before a part starts, `reserve`, `synthesis`,
    /// within it `survey` for the first part of a circuit, the backend's phases (`ntt`,
    /// `msm_h`, …), or `prove` if it failed, `verify`, `explain` after a proof that does
    /// not verify, and `verify_all`.
    pub name: &'static str,
    /// The part it was done for; `None` for the job as a whole.
    pub part: Option<usize>,
    /// Milliseconds from the job's submission.
    pub start_ms: f64,
    /// Milliseconds from the job's submission.
    pub end_ms: f64,
}

impl Span {
    /// Length in milliseconds.
    pub fn length_ms(&self) -> f64 {
        self.end_ms - self.start_ms
    }
}

/// The spans of one job. Clones share them.
#[derive(Clone, Debug)]
pub struct Timeline {
    epoch: Instant,
    spans: Arc<Mutex<Recorded>>,
}

#[derive(Debug, Default)]
struct Recorded {
    spans: Vec<Span>,
    dropped: u64,
}

impl Timeline {
    /// A timeline that begins now.
    pub fn start() -> Self {
        Self {
            epoch: Instant::now(),
            spans: Arc::default(),
        }
    }

    /// Adds a span of a stage between two moments.
    pub fn add(&self, name: &'static str, part: Option<usize>, from: Instant, until: Instant) {
        debug_assert!(name == "prove" || STAGES.contains(&name), "{name}");
        let at =
            |moment: Instant| moment.saturating_duration_since(self.epoch).as_secs_f64() * 1000.0;
        self.push(Span {
            name,
            part,
            start_ms: at(from),
            end_ms: at(until),
        });
    }

    /// Adds consecutive phases that ended at `until`, given their lengths.
    pub fn add_phases(&self, part: usize, phases: &[(&'static str, f64)], until: Instant) {
        let total: f64 = phases.iter().map(|(_, ms)| ms).sum();
        let end = until.saturating_duration_since(self.epoch).as_secs_f64() * 1000.0;
        let mut start_ms = (end - total).max(0.0);
        for &(name, ms) in phases {
            let end_ms = start_ms + ms;
            self.push(Span {
                name,
                part: Some(part),
                start_ms,
                end_ms,
            });
            start_ms = end_ms;
        }
    }

    /// Runs `work` and adds how long it took.
    pub fn time<T>(&self, name: &'static str, part: Option<usize>, work: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let result = work();
        self.add(name, part, from, Instant::now());
        result
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// The spans so far, in order of their start.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = self.recorded().spans.clone();
        spans.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        spans
    }

    /// Milliseconds of all spans of a name together.
    pub fn total_ms(&self, name: &str) -> f64 {
        self.recorded()
            .spans
            .iter()
            .filter(|span| span.name == name)
            .map(Span::length_ms)
            .sum()
    }

    fn push(&self, span: Span) {
        let mut recorded = self.recorded();
        if recorded.spans.len() < SPANS_MAX {
            recorded.spans.push(span);
        } else {
            recorded.dropped += 1;
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        lock(&self.spans)
    }
}

impl fmt::Display for Timeline {
    /// A line a span, with a bar where in the job it lies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: f64 = 50.0;
        let spans = self.spans();
        let end = spans.iter().map(|span| span.end_ms).fold(0.0, f64::max);
        for span in &spans {
            let part = span
                .part
                .map_or(String::from("job"), |part| format!("part {part}"));
            let scale = |ms: f64| {
                if end > 0.0 {
                    (ms / end * WIDTH).round() as usize
                } else {
                    0
                }
            };
            let from = scale(span.start_ms);
            let length = scale(span.end_ms).saturating_sub(from).max(1);
            let bar = format!("{}{}", " ".repeat(from), "#".repeat(length));
            writeln!(
                f,
                "{part:<8} {name:<10} {ms:>10.1} ms  |{bar:<width$}|",
                name = span.name,
                ms = span.length_ms(),
                width = WIDTH as usize + 1,
            )?;
        }
        let dropped = self.recorded().dropped;
        if dropped > 0 {
            writeln!(f, "({dropped} more spans were not kept)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_ordered_bounded_and_drawn() {
        let timeline = Timeline::start();
        let at = |ms| timeline.epoch + Duration::from_millis(ms);
        timeline.add("verify", Some(0), at(900), at(1000));
        timeline.add("synthesis", Some(0), at(0), at(400));
        timeline.add_phases(0, &[("ntt", 100.0), ("msm_h", 300.0)], at(800));
        insta::assert_snapshot!(timeline);
        assert_eq!(timeline.total_ms("msm_h"), 300.0);
        for _ in 0..SPANS_MAX {
            timeline.add("queue", None, at(0), at(1));
        }
        assert_eq!(timeline.spans().len(), SPANS_MAX);
        assert!(
            timeline
                .to_string()
                .ends_with("(4 more spans were not kept)\n")
        );
    }
}
