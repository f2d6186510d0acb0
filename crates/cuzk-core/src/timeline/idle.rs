//! What a unit lacked while it computed nothing, and with it what limits an engine.
//!
//! [`Utilisation`](super::Utilisation) says what was going on in each gap. Here is what
//! would have had to be otherwise, which also depends on how many threads were at work:
//! a unit that waits for a synthesis lacks threads only if all of them are busy. If some
//! are not, it lacks memory where parts wait for that, and where parts wait for their
//! turn the engine holds them back.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::intervals::Intervals;
use super::lane::{Lane, Unit, Work};
use super::span::{Label, Span};

/// What a unit lacked. Where several hold, it is the one that is nearest to the unit: the
/// first here, as far as no other is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// Nothing but its own next kernel: it was between two of the same part.
    Kernel,
    /// A key that was on its way to it.
    Key,
    /// Columns that were on their way to it.
    Upload,
    /// The beginning of that: a part was synthesised, and waited to be handed over, for a
    /// place, or for its first kernel.
    Handover,
    /// The proof of a part that it had and failed at.
    Failed,
    /// Threads: parts were being synthesised, and every thread was.
    Threads,
    /// Memory: parts waited for it, and there were threads for them.
    Memory,
    /// A key file that was being opened.
    KeyFile,
    /// A part's turn: parts waited for that with threads and memory free.
    Turn,
    /// Work: no part was to be begun any more, or none was there.
    Work,
    /// What the spans do not tell: a part was under way, and no span says how.
    Unknown,
}

impl Lack {
    /// All, in their order.
    pub const ALL: [Self; 11] = [
        Self::Kernel,
        Self::Key,
        Self::Upload,
        Self::Handover,
        Self::Failed,
        Self::Threads,
        Self::Memory,
        Self::KeyFile,
        Self::Turn,
        Self::Work,
        Self::Unknown,
    ];

    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Key => "key",
            Self::Upload => "upload",
            Self::Handover => "handover",
            Self::Failed => "failed",
            Self::Threads => "threads",
            Self::Memory => "memory",
            Self::KeyFile => "key_file",
            Self::Turn => "turn",
            Self::Work => "work",
            Self::Unknown => "unknown",
        }
    }

    /// Who is to blame for it; nobody where there was no work.
    fn limit(self) -> Option<Limit> {
        Some(match self {
            Self::Kernel | Self::Handover => Limit::Device,
            Self::Key | Self::Upload => Limit::Link,
            Self::Threads => Limit::Cores,
            Self::Memory => Limit::Memory,
            Self::Failed | Self::KeyFile | Self::Turn | Self::Unknown => Limit::Engine,
            Self::Work => return None,
        })
    }
}

/// A stretch in which a unit computed nothing for the lack of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// Where it begins, on the epoch of the spans.
    pub start_ms: f64,
    /// Where it ends.
    pub end_ms: f64,
    /// What was lacking.
    pub lack: Lack,
}

/// What a unit lacked from its first kernel to its last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Idle {
    /// Its name: `cpu` or `device N`.
    pub unit: String,
    /// From the beginning of its first kernel.
    pub start_ms: f64,
    /// To the end of its last.
    pub end_ms: f64,
    /// Of these, when it computed; what overlaps counts once.
    pub busy_ms: f64,
    /// The longest time between two kernels.
    pub longest_gap_ms: f64,
    /// The rest, in order.
    pub stretches: Vec<Stretch>,
}

impl Idle {
    /// Of every unit that computed anything, beside so many threads that synthesise.
    ///
    /// A part of a job is told by the job's label, so parts of jobs that have the same
    /// label and run at the same time are taken for one.
    pub fn of(spans: &[Span], threads: usize) -> Vec<Self> {
        let units = super::utilisation::units(spans).into_iter();
        let units = units.filter_map(|unit| {
            let kernels = spans.iter().filter(|span| is_kernel(span, unit));
            let kernels = Intervals::union(kernels.map(|span| (span.start_ms, span.end_ms)));
            let (start_ms, end_ms) = kernels.hull()?;
            let gaps: Vec<_> = kernels.gaps().collect();
            let lengths = gaps.iter().map(|(from, until)| until - from);
            Some(Self {
                unit: unit.to_string(),
                start_ms,
                end_ms,
                busy_ms: kernels.length(),
                longest_gap_ms: lengths.fold(0.0, f64::max),
                stretches: lacking(&changes(spans, unit), &gaps, threads),
            })
        });
        units.collect()
    }

    /// From the first kernel to the last.
    pub fn wall_ms(&self) -> f64 {
        self.end_ms - self.start_ms
    }

    /// Milliseconds in which one thing was lacking.
    pub fn lacking_ms(&self, lack: Lack) -> f64 {
        let those = self.stretches.iter().filter(|one| one.lack == lack);
        // A sum of nothing is -0.
        those.fold(0.0, |sum, one| sum + (one.end_ms - one.start_ms))
    }
}

/// What limits an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The units that compute: they do nearly all the time, or lose it between kernels and
    /// from one part to the next.
    Device,
    /// The way to them, of columns and keys.
    Link,
    /// The threads that synthesise.
    Cores,
    /// Memory for parts.
    Memory,
    /// The engine itself, which begins parts too late.
    Engine,
}

impl Limit {
    /// Units that compute for this share of the time in which there was work for them are
    /// the limit, whatever they lack in the rest: less than this does not tell what is
    /// worth more.
    pub const BUSY_SHARE: f64 = 0.9;

    const ALL: [Self; 5] = [
        Self::Device,
        Self::Link,
        Self::Cores,
        Self::Memory,
        Self::Engine,
    ];

    /// What limits an engine whose units, or one unit at several times, spent their time
    /// so: what they lacked most, where they were not busy all the time.
    pub fn of<'a>(idle: impl IntoIterator<Item = &'a Idle>) -> Self {
        let (mut busy_ms, mut lacking_ms) = (0.0, [0.0; Self::ALL.len()]);
        for unit in idle {
            busy_ms += unit.busy_ms;
            for lack in Lack::ALL {
                if let Some(limit) = lack.limit() {
                    lacking_ms[limit as usize] += unit.lacking_ms(lack);
                }
            }
        }
        let idle_ms: f64 = lacking_ms.iter().sum();
        if busy_ms >= Self::BUSY_SHARE * (busy_ms + idle_ms) {
            return Self::Device;
        }
        let most = Self::ALL.into_iter().zip(lacking_ms);
        most.max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map_or(Self::Device, |(limit, _)| limit)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Link => "link",
            Self::Cores => "cores",
            Self::Memory => "memory",
            Self::Engine => "engine",
        })
    }
}

/// How the threads that synthesise spent a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Threads {
    /// The time of all threads together in which they synthesised.
    pub worked_ms: f64,
    /// Milliseconds in which all of them did.
    pub all_ms: f64,
}

impl Threads {
    /// Of so many threads. For the length of a segment more may work than there are.
    pub fn of(spans: &[Span], threads: usize) -> Self {
        let mut changes: Vec<(f64, i8)> = Vec::new();
        let mut worked_ms = 0.0;
        for span in spans {
            if matches!(span.lane, Lane::Core(_)) {
                worked_ms += span.length_ms();
                changes.extend([(span.start_ms, 1), (span.end_ms, -1)]);
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut at_work, mut all_ms) = (0, 0.0);
        for (at, change) in changes.iter().enumerate() {
            at_work += i64::from(change.1);
            let until = changes.get(at + 1).map_or(change.0, |next| next.0);
            // Of changes at the same moment any order does: nothing lies between them.
            if usize::try_from(at_work).is_ok_and(|at_work| at_work >= threads.max(1)) {
                all_ms += until - change.0;
            }
        }
        Self { worked_ms, all_ms }
    }
}

/// What may be under way, as far as it says what a unit lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A part is between its first kernel and its last one.
    Kernels,
    /// Its own key or columns come meanwhile.
    OwnKey,
    OwnUpload,
    Key,
    Upload,
    Handover,
    Failed,
    Synthesis,
    Thread,
    Memory,
    KeyFile,
    Queue,
    /// A proof is assembled or checked: no unit is needed for that.
    Rest,
    /// A part is between its first span and its last.
    Open,
}

const WHATS: usize = What::Open as usize + 1;

impl What {
    /// What a span is to a unit.
    fn of(lane: Lane, unit: Unit) -> Option<Self> {
        Some(match lane {
            Lane::Unit(of, _) if of != unit => return None,
            Lane::Unit(_, Work::Compute) => return None,
            Lane::Unit(_, Work::Key) => Self::Key,
            Lane::Unit(_, Work::Upload) => Self::Upload,
            Lane::Unit(_, Work::Wait) | Lane::Ready => Self::Handover,
            Lane::Unit(_, Work::Host) | Lane::Host | Lane::Check => Self::Rest,
            Lane::Failed => Self::Failed,
            Lane::Synthesis | Lane::Copy => Self::Synthesis,
            Lane::Core(_) => Self::Thread,
            Lane::Keys => Self::KeyFile,
            Lane::Memory => Self::Memory,
            Lane::Queue => Self::Queue,
        })
    }
}

/// A moment at which something begins or ends.
struct Change {
    at_ms: f64,
    begins: bool,
    what: What,
}

fn is_kernel(span: &Span, unit: Unit) -> bool {
    span.lane == Lane::Unit(unit, Work::Compute)
}

/// Everything that begins and ends, in its order.
fn changes(spans: &[Span], unit: Unit) -> Vec<Change> {
    let mut parts: BTreeMap<(Option<&Label>, usize), Vec<&Span>> = BTreeMap::new();
    let mut stretches: Vec<(What, f64, f64)> = Vec::new();
    for span in spans {
        if let Some(what) = What::of(span.lane, unit) {
            stretches.push((what, span.start_ms, span.end_ms));
        }
        if let Some(part) = span.part {
            parts
                .entry((span.job.as_ref(), part))
                .or_default()
                .push(span);
        }
    }
    for of_part in parts.values_mut() {
        of_part.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        let ends = of_part.iter().map(|span| span.end_ms);
        let end_ms = ends.fold(f64::MIN, f64::max);
        stretches.push((What::Open, of_part[0].start_ms, end_ms));
        for (from, until) in kernels(of_part, unit) {
            stretches.push((What::Kernels, from, until));
            for span in of_part.iter() {
                let own = match What::of(span.lane, unit) {
                    Some(What::Key) => What::OwnKey,
                    Some(What::Upload) => What::OwnUpload,
                    _ => continue,
                };
                stretches.push((own, span.start_ms.max(from), span.end_ms.min(until)));
            }
        }
    }
    let stretches = stretches
        .into_iter()
        .filter(|(_, from, until)| from < until);
    let mut changes: Vec<Change> = stretches
        .flat_map(|(what, from, until)| {
            [(from, true), (until, false)].map(|(at_ms, begins)| Change {
                at_ms,
                begins,
                what,
            })
        })
        .collect();
    // What ends comes after what begins, so that no count falls below nothing.
    changes.sort_by(|a, b| (a.at_ms.total_cmp(&b.at_ms)).then(b.begins.cmp(&a.begins)));
    changes
}

/// From a part's first kernel to its last, for each time that it was synthesised: of one
/// that is tried again, what lies between is none of the unit's.
fn kernels(of_part: &[&Span], unit: Unit) -> Vec<(f64, f64)> {
    let mut attempts: Vec<(f64, f64)> = Vec::new();
    let mut is_new = true;
    for span in of_part {
        if span.lane == Lane::Synthesis {
            is_new = true;
        } else if is_kernel(span, unit) {
            match attempts.last_mut() {
                Some(last) if !is_new => last.1 = last.1.max(span.end_ms),
                _ => attempts.push((span.start_ms, span.end_ms)),
            }
            is_new = false;
        }
    }
    attempts
}

/// Cuts gaps, which are in order, where what is lacking changes.
fn lacking(changes: &[Change], gaps: &[(f64, f64)], threads: usize) -> Vec<Stretch> {
    let mut counts = [0_usize; WHATS];
    let mut changes = changes.iter().peekable();
    let mut found: Vec<Stretch> = Vec::new();
    for &(from, until) in gaps {
        let mut at = from;
        while at < until {
            while let Some(change) = changes.next_if(|change| change.at_ms <= at) {
                let count = &mut counts[change.what as usize];
                match change.begins {
                    true => *count += 1,
                    false => *count -= 1,
                }
            }
            let next = changes
                .peek()
                .map_or(until, |change| change.at_ms.min(until));
            let lack = lack(&counts, threads);
            match found.last_mut() {
                Some(last) if last.end_ms == at && last.lack == lack => last.end_ms = next,
                _ => found.push(Stretch {
                    start_ms: at,
                    end_ms: next,
                    lack,
                }),
            }
            at = next;
        }
    }
    found
}

fn lack(counts: &[usize; WHATS], threads: usize) -> Lack {
    let is = |what: What| counts[what as usize] > 0;
    let by_unit = [
        (What::OwnKey, Lack::Key),
        (What::OwnUpload, Lack::Upload),
        (What::Kernels, Lack::Kernel),
        (What::Key, Lack::Key),
        (What::Upload, Lack::Upload),
        (What::Handover, Lack::Handover),
        (What::Failed, Lack::Failed),
    ];
    if let Some((_, lack)) = by_unit.into_iter().find(|(what, _)| is(*what)) {
        return lack;
    }
    if counts[What::Thread as usize] >= threads.max(1) {
        return Lack::Threads;
    }
    let by_engine = [
        (What::Memory, Lack::Memory),
        (What::KeyFile, Lack::KeyFile),
        (What::Queue, Lack::Turn),
        (What::Synthesis, Lack::Work),
        (What::Thread, Lack::Work),
        (What::Rest, Lack::Work),
        (What::Open, Lack::Unknown),
    ];
    let lack = by_engine.into_iter().find(|(what, _)| is(*what));
    lack.map_or(Lack::Work, |(_, lack)| lack)
}

#[cfg(test)]
mod tests;
