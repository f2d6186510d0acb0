//! What a job would gain if something took no time.
//!
//! The job's spans are played again. Each begins when what it waited for has ended, and
//! as long after that as it did:
//!
//! - what came before it of its part, and of the job as a whole;
//! - what came before it on the same lane of a unit, which does one thing after the other;
//! - a wait (for its turn, for memory, for a place on a unit) ends with what ended last,
//!   before it did, of another part: that is what it waited for.
//!
//! With every length as it was this gives the times that were seen. With one name's
//! lengths at nothing it gives the job's end without them. What other jobs did stands
//! still: a wait for one of them is a stretch of its own.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::intervals::Intervals;
use super::lane::Lane;
use super::span::Span;

/// Moments that differ by less are the same: device and host do not share a clock.
const SAME_MS: f64 = 0.001;

/// What the spans of one name cost a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The name of the spans.
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// Their lengths together.
    pub total_ms: f64,
    /// Of these, what lies on the critical path: the chain of what waited for each other
    /// that ends with the job.
    pub on_path_ms: f64,
    /// How much earlier the job would have ended, had they taken no time.
    pub saves_ms: f64,
}

/// What each kind of span costs a job, most first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Savings {
    /// From the first beginning to the last end.
    pub wall_ms: f64,
    /// What of the critical path no span covers.
    pub between_ms: f64,
    /// By the name of spans.
    pub names: Vec<Saving>,
}

impl fmt::Display for Savings {
    /// A line a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>5} {:>12} {:>12} {:>12}",
            "span", "count", "in all", "on the path", "would save"
        )?;
        for saving in &self.names {
            writeln!(
                f,
                "{:<12} {:>5} {:>9.1} ms {:>9.1} ms {:>9.1} ms",
                saving.name, saving.count, saving.total_ms, saving.on_path_ms, saving.saves_ms
            )?;
        }
        writeln!(
            f,
            "of {:.1} ms; {:.1} ms of the path lie between spans",
            self.wall_ms, self.between_ms
        )
    }
}

/// What each kind of span of one job costs it. The spans of single threads are left out:
/// the part's synthesis stands for them.
pub fn savings(spans: &[Span]) -> Savings {
    let replay = Replay::of(spans);
    let seen = replay.ends(None);
    let Some(last) = latest(&seen, 0..seen.len()) else {
        return Savings::default();
    };
    let mut names: BTreeMap<&str, Saving> = BTreeMap::new();
    for step in &replay.steps {
        let saving = names.entry(step.name).or_insert_with(|| Saving {
            name: step.name.to_owned(),
            count: 0,
            total_ms: 0.0,
            on_path_ms: 0.0,
            saves_ms: 0.0,
        });
        saving.count += usize::from(step.is_first);
        saving.total_ms += step.end_ms - step.start_ms;
    }
    for (name, saving) in &mut names {
        let without = replay.ends(Some(name));
        let end = latest(&without, 0..without.len()).map_or(0.0, |at| without[at]);
        saving.saves_ms = (seen[last] - end).max(0.0);
    }
    let mut between_ms = 0.0;
    let mut at = Some(last);
    while let Some(here) = at {
        let step = &replay.steps[here];
        let before = latest(&seen, step.before.iter().copied());
        let since = before.map_or(replay.begin_ms, |before| seen[before]);
        // Of a wait only that is on the path which lies behind what ended it.
        let own_ms = (step.end_ms - step.start_ms.max(since)).max(0.0);
        if let Some(saving) = names.get_mut(step.name) {
            saving.on_path_ms += own_ms;
        }
        between_ms += (step.end_ms - since - own_ms).max(0.0);
        at = before;
    }
    let mut names: Vec<Saving> = names.into_values().collect();
    names.sort_by(|a, b| {
        let order = b.saves_ms.total_cmp(&a.saves_ms);
        order.then(b.total_ms.total_cmp(&a.total_ms))
    });
    Savings {
        wall_ms: seen[last] - replay.begin_ms,
        between_ms,
        names,
    }
}

/// Which one of some steps ends last.
fn latest(ends: &[f64], of: impl IntoIterator<Item = usize>) -> Option<usize> {
    of.into_iter().max_by(|a, b| ends[*a].total_cmp(&ends[*b]))
}

/// A span, or a piece of it between others that lie within.
struct Step<'a> {
    name: &'a str,
    part: Option<usize>,
    lane: Lane,
    start_ms: f64,
    end_ms: f64,
    /// Whether it is its span's first piece.
    is_first: bool,
    /// What it waited for. Of a wait the last may be what ended it.
    before: Vec<usize>,
    /// How many of these are of its own part or lane.
    own_before: usize,
    /// Time from the end of what it waited for to its beginning, or, of a wait, its end.
    lag_ms: f64,
}

impl Step<'_> {
    fn is_wait(&self) -> bool {
        self.lane.is_wait()
    }
}

struct Replay<'a> {
    /// In the order of their beginnings, so that what one waits for comes before it; a
    /// wait stands where it ends.
    steps: Vec<Step<'a>>,
    begin_ms: f64,
}

impl<'a> Replay<'a> {
    fn of(spans: &'a [Span]) -> Self {
        let mut steps = steps(spans);
        steps.sort_by(|a, b| {
            let order = place(a).total_cmp(&place(b));
            // A wait that ends before what begins.
            order
                .then(b.is_wait().cmp(&a.is_wait()))
                .then(a.end_ms.total_cmp(&b.end_ms))
        });
        let begins = steps.iter().map(|step| step.start_ms);
        let begin_ms = begins.reduce(f64::min).unwrap_or(0.0);
        for at in 0..steps.len() {
            let (before, own_before) = before(&steps[..at], &steps[at]);
            let since = before.iter().map(|&one| steps[one].end_ms);
            let since = since.reduce(f64::max).unwrap_or(begin_ms);
            let step = &mut steps[at];
            step.lag_ms = match step.is_wait() {
                true => step.end_ms - since,
                false => step.start_ms - since,
            };
            (step.before, step.own_before) = (before, own_before);
        }
        Self { steps, begin_ms }
    }

    /// When each step ends if those of one name take no time.
    fn ends(&self, without: Option<&str>) -> Vec<f64> {
        let mut ends: Vec<f64> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let after = |before: &[usize]| {
                let before = before.iter().map(|&one| ends[one]);
                before.reduce(f64::max).unwrap_or(self.begin_ms)
            };
            let end = match (without == Some(step.name), step.is_wait()) {
                (true, true) => after(&step.before[..step.own_before]),
                (true, false) => after(&step.before) + step.lag_ms,
                (false, true) => after(&step.before) + step.lag_ms,
                (false, false) => after(&step.before) + step.lag_ms + (step.end_ms - step.start_ms),
            };
            ends.push(end);
        }
        ends
    }
}

/// Where a step stands among the others: what ended before that is before it.
fn place(step: &Step<'_>) -> f64 {
    match step.is_wait() {
        true => step.end_ms,
        false => step.start_ms,
    }
}

/// The spans as steps that do not lie within each other.
fn steps(spans: &[Span]) -> Vec<Step<'_>> {
    let mut steps = Vec::with_capacity(spans.len());
    for span in spans {
        if matches!(span.lane, Lane::Core(_)) {
            continue;
        }
        let mut is_first = true;
        for (start_ms, end_ms) in pieces(span, spans) {
            steps.push(Step {
                name: &span.name,
                part: span.part,
                lane: span.lane,
                start_ms,
                end_ms,
                is_first,
                before: Vec::new(),
                own_before: 0,
                lag_ms: 0.0,
            });
            is_first = false;
        }
    }
    steps
}

/// A synthesis without what lies within it; any other span as it is.
fn pieces(span: &Span, spans: &[Span]) -> Vec<(f64, f64)> {
    let whole = (span.start_ms, span.end_ms);
    if span.name != "synthesis" {
        return vec![whole];
    }
    let within = spans.iter().filter(|other| {
        matches!(other.lane, Lane::Synthesis | Lane::Copy)
            && other.name != span.name
            && other.part == span.part
            && other.start_ms >= span.start_ms
            && other.end_ms <= span.end_ms
    });
    let within = Intervals::union(within.map(|other| (other.start_ms, other.end_ms)));
    if within.count() == 0 {
        return vec![whole];
    }
    let mut pieces: Vec<_> = Vec::new();
    let mut from = whole.0;
    for (begin, end) in within.iter().chain([(whole.1, whole.1)]) {
        if begin > from {
            pieces.push((from, begin));
        }
        from = end;
    }
    pieces
}

/// What a step waited for, of the steps before it, and how many of these are its own
/// part's or lane's.
fn before(steps: &[Step<'_>], step: &Step<'_>) -> (Vec<usize>, usize) {
    // A wait ends after what it waited for, whenever it began.
    let ended = |other: &Step<'_>| other.end_ms <= place(step) + SAME_MS;
    let is_own =
        |other: &Step<'_>| other.part == step.part || other.part.is_none() || step.part.is_none();
    let own = || {
        let steps = steps.iter().enumerate();
        steps.filter(|(_, other)| is_own(other) && ended(other))
    };
    // What ended before one of these began is before that one too.
    let latest_ms = own()
        .map(|(_, other)| other.start_ms)
        .fold(f64::MIN, f64::max);
    let mut before: Vec<usize> = own()
        .filter(|(_, other)| other.end_ms + SAME_MS > latest_ms)
        .map(|(at, _)| at)
        .collect();
    if step.lane.is_exclusive() {
        let steps = steps.iter().enumerate();
        let mut on_lane = steps.filter(|(_, other)| other.lane == step.lane && ended(other));
        before.extend(on_lane.next_back().map(|(at, _)| at));
    }
    let own_before = before.len();
    if step.is_wait() {
        let during = |other: &Step<'_>| {
            other.end_ms > step.start_ms && other.end_ms <= step.end_ms + SAME_MS
        };
        let steps = steps.iter().enumerate();
        let others = steps.filter(|(_, other)| {
            let of_another = other.part != step.part;
            of_another && !other.is_wait() && during(other)
        });
        let ended_it = others.max_by(|(_, a), (_, b)| a.end_ms.total_cmp(&b.end_ms));
        before.extend(ended_it.map(|(at, _)| at));
    }
    (before, own_before)
}

#[cfg(test)]
mod tests;
