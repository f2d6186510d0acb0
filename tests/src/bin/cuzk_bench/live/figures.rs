//! What the spans of a round say.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use cuzk_core::timeline::{Idle, Lack, Lane, Threads, Utilisation, Work};
use cuzk_core::{ProofReply, Span};
use serde_json::Value;

/// Gaps that are told one by one.
const GAPS_TOLD: usize = 5;

/// One round.
pub(crate) struct Round {
    /// Seconds from the first submission to the last reply.
    pub(crate) wall_s: f64,
    pub(crate) parts: usize,
    /// What each unit lacked.
    pub(crate) idle: Vec<Idle>,
    /// Milliseconds of gaps by what was going on.
    pub(crate) reasons_ms: BTreeMap<&'static str, f64>,
    /// The longest gaps, in words.
    pub(crate) longest: Vec<String>,
    /// From one part's last kernel to the next one's.
    pub(crate) part_ms: Vec<f64>,
    /// From each job's submission to its proof.
    pub(crate) latency_s: Vec<f64>,
    pub(crate) threads: Threads,
    /// Of the mean part.
    pub(crate) phases_ms: BTreeMap<String, f64>,
    /// From the first span to the first kernel, and from the last kernel to the last span.
    pub(crate) ends_ms: [f64; 2],
    /// Share of the uploads' time in which a kernel ran.
    pub(crate) uploads_overlapped: f64,
    pub(crate) upload_bytes: u64,
    pub(crate) upload_ms: f64,
    /// How long the engine took to start and to warm up.
    pub(crate) start_s: f64,
    pub(crate) peak: Peak,
    pub(crate) device: Option<String>,
    pub(crate) ways: Ways,
}

/// The most bytes of each ledger.
#[derive(Default)]
pub(crate) struct Peak {
    pub(crate) counted_bytes: u64,
    pub(crate) page_locked_bytes: u64,
    pub(crate) device_bytes: u64,
}

/// How parts were made, each way once.
#[derive(Default)]
pub(crate) struct Ways {
    pub(crate) backend: String,
    pub(crate) placement: String,
    pub(crate) synthesis: String,
    pub(crate) tier: String,
    pub(crate) retries: usize,
}

impl Round {
    /// From the spans of a round's jobs and their replies; so many threads synthesise.
    pub(crate) fn of(
        spans: &[Span],
        threads: usize,
        wall_s: f64,
        replies: &[ProofReply],
    ) -> Result<Self> {
        let idle = Idle::of(spans, threads);
        let starts = idle.iter().map(|unit| unit.start_ms);
        let ends = idle.iter().map(|unit| unit.end_ms);
        let kernels = starts.reduce(f64::min).zip(ends.reduce(f64::max));
        let (first_kernel, last_kernel) = kernels.context("no kernel")?;
        let first = spans.iter().map(|span| span.start_ms);
        let last = spans.iter().map(|span| span.end_ms);
        let first = first.fold(first_kernel, f64::min);
        let last = last.fold(last_kernel, f64::max);
        let parts: usize = replies.iter().map(|reply| reply.parts.len()).sum();
        let used = Utilisation::of(spans);
        let upload_ms: f64 = used.iter().map(|unit| unit.upload_ms).sum();
        let hidden_ms: f64 = used.iter().map(|unit| unit.upload_hidden_ms).sum();
        let is_upload = |span: &&Span| matches!(span.lane, Lane::Unit(_, Work::Upload));
        let uploads = spans.iter().filter(is_upload);
        Ok(Self {
            wall_s,
            parts,
            reasons_ms: reasons(&used),
            longest: longest(&used),
            part_ms: part_ms(spans, parts)?,
            latency_s: replies.iter().map(latency_s).collect(),
            threads: Threads::of(spans, threads),
            phases_ms: phases(spans, parts),
            ends_ms: [first_kernel - first, last - last_kernel],
            uploads_overlapped: match upload_ms {
                0.0 => 1.0,
                _ => hidden_ms / upload_ms,
            },
            upload_bytes: uploads.filter_map(|span| span.bytes).sum(),
            upload_ms,
            idle,
            start_s: 0.0,
            peak: Peak::default(),
            device: None,
            ways: Ways::default(),
        })
    }

    pub(crate) fn parts_per_s(&self) -> f64 {
        self.parts as f64 / self.wall_s
    }

    /// Share of the time from the first kernel to the last in which units computed.
    pub(crate) fn busy(&self) -> f64 {
        let busy_ms: f64 = self.idle.iter().map(|unit| unit.busy_ms).sum();
        busy_ms / self.idle.iter().map(Idle::wall_ms).sum::<f64>()
    }

    pub(crate) fn longest_gap_ms(&self) -> f64 {
        let gaps = self.idle.iter().map(|unit| unit.longest_gap_ms);
        gaps.fold(0.0, f64::max)
    }

    pub(crate) fn lacking_ms(&self, lack: Lack) -> f64 {
        self.idle.iter().map(|unit| unit.lacking_ms(lack)).sum()
    }

    /// Share of the wall in which every thread synthesised.
    pub(crate) fn all_threads(&self) -> f64 {
        self.threads.all_ms / 1e3 / self.wall_s
    }

    /// Threads that synthesised on the average.
    pub(crate) fn threads_at_work(&self) -> f64 {
        self.threads.worked_ms / 1e3 / self.wall_s
    }
}

fn latency_s(reply: &ProofReply) -> f64 {
    let spans = reply.timeline.spans();
    let ends = spans.iter().map(|span| span.end_ms);
    ends.fold(0.0, f64::max) / 1e3
}

fn reasons(used: &[Utilisation]) -> BTreeMap<&'static str, f64> {
    let mut sums = BTreeMap::new();
    for (reason, ms) in used.iter().flat_map(Utilisation::by_reason) {
        *sums.entry(reason.name()).or_default() += ms;
    }
    sums
}

fn longest(used: &[Utilisation]) -> Vec<String> {
    let mut gaps: Vec<_> = used.iter().flat_map(|unit| &unit.gaps).collect();
    gaps.sort_by(|a, b| b.length_ms().total_cmp(&a.length_ms()));
    gaps.truncate(GAPS_TOLD);
    gaps.into_iter().map(ToString::to_string).collect()
}

/// Milliseconds between the last kernels of parts, in the order in which these end.
fn part_ms(spans: &[Span], parts: usize) -> Result<Vec<f64>> {
    let mut ends: BTreeMap<_, f64> = BTreeMap::new();
    for span in spans {
        if matches!(span.lane, Lane::Unit(_, Work::Compute)) {
            let end = ends.entry((&span.job, span.part)).or_default();
            *end = end.max(span.end_ms);
        }
    }
    ensure!(
        ends.len() == parts,
        "{} of {parts} parts have kernels",
        ends.len()
    );
    let mut ends: Vec<f64> = ends.into_values().collect();
    ends.sort_by(f64::total_cmp);
    Ok(ends.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// Milliseconds by name, of the mean part; those of single threads lie within the part's.
fn phases(spans: &[Span], parts: usize) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::<String, f64>::new();
    let spans = spans.iter();
    for span in spans.filter(|span| !matches!(span.lane, Lane::Core(_))) {
        *sums.entry(span.name.to_string()).or_default() += span.length_ms();
    }
    sums.values_mut()
        .for_each(|ms| *ms = (*ms / parts as f64 * 1e3).round() / 1e3);
    sums
}

/// How the time of a mean round's gaps is told: by what was lacking, in all, and at the
/// ends.
pub(crate) fn gaps(rounds: &[Round]) -> Value {
    let count = rounds.len().max(1) as f64;
    let mean = |of: &dyn Fn(&Round) -> f64| {
        let sum: f64 = rounds.iter().map(of).sum();
        Value::from((sum / count * 1e3).round() / 1e3)
    };
    let mut gaps = serde_json::Map::new();
    let idle = |round: &Round| Lack::ALL.map(|lack| round.lacking_ms(lack)).iter().sum();
    gaps.insert("idle_ms".to_owned(), mean(&idle));
    for lack in Lack::ALL {
        let name = format!("{}_ms", lack.name());
        gaps.insert(name, mean(&|round| round.lacking_ms(lack)));
    }
    for (name, at) in [("before_first_kernel_ms", 0), ("after_last_kernel_ms", 1)] {
        gaps.insert(name.to_owned(), mean(&|round| round.ends_ms[at]));
    }
    gaps.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lane: &str, job: &str, from: f64, until: f64) -> Span {
        Span {
            name: "x".into(),
            lane: lane.parse().expect("a lane"),
            job: Some(job.into()),
            part: Some(0),
            start_ms: from,
            end_ms: until,
            bytes: None,
        }
    }

    #[test]
    fn time_per_part_is_from_one_last_kernel_to_the_next() {
        let mut spans = vec![
            span("cpu compute", "b", 50.0, 90.0),
            span("cpu compute", "a", 10.0, 20.0),
            span("cpu compute", "a", 20.0, 40.0),
            span("host", "a", 40.0, 49.0),
            span("cpu compute", "c", 41.0, 55.0),
        ];
        assert_eq!(part_ms(&spans, 3).expect("three parts"), [15.0, 35.0]);
        let error = part_ms(&spans, 4).expect_err("one is not there");
        assert_eq!(error.to_string(), "3 of 4 parts have kernels");
        spans.push(span("queue", "a", 5.0, 10.0));
        let round = Round::of(&spans, 1, 0.1, &[]);
        assert!(round.is_err(), "parts that nobody asked for");
    }
}
