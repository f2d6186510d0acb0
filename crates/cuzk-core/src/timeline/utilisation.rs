//! How busy each unit was, and why it was not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::intervals::Intervals;
use super::lane::{Lane, Unit, Work};
use super::span::Span;

/// Why a unit computed nothing, by what everybody did in the meantime. Where several
/// hold, it is the one that is nearest to the unit: the first here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Columns of a part were on their way to it.
    Upload,
    /// A key was.
    Key,
    /// It had a part, and did nothing for it.
    Slot,
    /// It had a part for which it gave no proof.
    Failed,
    /// A part was synthesised, and handed to nobody.
    Ready,
    /// Parts were being synthesised.
    Synthesis,
    /// A key was being opened.
    Keys,
    /// Parts waited for memory.
    Memory,
    /// Parts waited for their turn.
    Queue,
    /// Proofs were being checked.
    Check,
    /// Nothing was submitted.
    Nothing,
}

impl Reason {
    /// All, the nearest to the unit first.
    pub const ALL: [Self; 11] = [
        Self::Upload,
        Self::Key,
        Self::Slot,
        Self::Failed,
        Self::Ready,
        Self::Synthesis,
        Self::Keys,
        Self::Memory,
        Self::Queue,
        Self::Check,
        Self::Nothing,
    ];

    /// Short name, as metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Key => "key",
            Self::Slot => "slot",
            Self::Failed => "failed",
            Self::Ready => "ready",
            Self::Synthesis => "synthesis",
            Self::Keys => "keys",
            Self::Memory => "memory",
            Self::Queue => "queue",
            Self::Check => "check",
            Self::Nothing => "nothing",
        }
    }

    /// In words, before the name of whom it is about.
    fn words(self) -> &'static str {
        match self {
            Self::Upload => "waiting for the upload of",
            Self::Key => "waiting for the key of",
            Self::Slot => "waiting in the backend with",
            Self::Failed => "lost with the failure of",
            Self::Ready => "synthesised but not handed over:",
            Self::Synthesis => "waiting for the synthesis of",
            Self::Keys => "waiting for the key file of",
            Self::Memory => "waiting for memory for",
            Self::Queue => "not begun:",
            Self::Check => "waiting for the check of",
            Self::Nothing => "nothing submitted",
        }
    }

    /// What a span means for a unit that computes nothing.
    fn of(lane: Lane, unit: Unit) -> Option<Self> {
        Some(match lane {
            Lane::Unit(of, _) if of != unit => return None,
            Lane::Unit(_, Work::Upload) => Self::Upload,
            Lane::Unit(_, Work::Key) => Self::Key,
            Lane::Unit(_, Work::Wait) => Self::Slot,
            Lane::Unit(_, Work::Compute | Work::Host) | Lane::Host => return None,
            Lane::Failed => Self::Failed,
            Lane::Ready => Self::Ready,
            Lane::Synthesis | Lane::Core(_) | Lane::Copy => Self::Synthesis,
            Lane::Keys => Self::Keys,
            Lane::Memory => Self::Memory,
            Lane::Queue => Self::Queue,
            Lane::Check => Self::Check,
        })
    }
}

/// A stretch in which a unit computed nothing, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Where it begins, on the epoch of the spans.
    pub start_ms: f64,
    /// Where it ends.
    pub end_ms: f64,
    /// Why.
    pub reason: Reason,
    /// Whom it is about: of several, the one that began first.
    pub whose: Option<String>,
}

impl Gap {
    /// Length in milliseconds.
    pub fn length_ms(&self) -> f64 {
        self.end_ms - self.start_ms
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, whose) = (self.reason.words(), self.whose.as_deref());
        write!(f, "{:.1} ms {words}", self.length_ms())?;
        match whose {
            Some(whose) => write!(f, " {whose}"),
            None => Ok(()),
        }
    }
}

/// How a unit spent the time from its first kernel to its last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Utilisation {
    /// Its name: `cpu` or `device N`.
    pub unit: String,
    /// From the beginning of its first kernel to the end of its last.
    pub wall_ms: f64,
    /// Of these, when it computed: the union of its kernels, so that what overlaps counts
    /// once.
    pub busy_ms: f64,
    /// When columns were uploaded, also outside of that wall.
    pub upload_ms: f64,
    /// Of these, when it computed as well.
    pub upload_hidden_ms: f64,
    /// The rest of the wall, in order.
    pub gaps: Vec<Gap>,
}

impl Utilisation {
    /// Of every unit that computed anything, in the order of their names.
    pub fn of(spans: &[Span]) -> Vec<Self> {
        let of_lane = |wanted: Lane| {
            let those = spans.iter().filter(move |span| span.lane == wanted);
            Intervals::union(those.map(|span| (span.start_ms, span.end_ms)))
        };
        let units = units(spans).into_iter().filter_map(|unit| {
            let kernels = of_lane(Lane::Unit(unit, Work::Compute));
            let uploads = of_lane(Lane::Unit(unit, Work::Upload));
            let (first, last) = kernels.hull()?;
            let gaps: Vec<_> = kernels.gaps().collect();
            Some(Self {
                unit: unit.to_string(),
                wall_ms: last - first,
                busy_ms: kernels.length(),
                upload_ms: uploads.length(),
                upload_hidden_ms: uploads.overlap(&kernels),
                gaps: explained(unit, &gaps, spans),
            })
        });
        units.collect()
    }

    /// Share of the wall in which it computed, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        share(self.busy_ms, self.wall_ms)
    }

    /// Share of its uploads that lay beside a kernel, 0 to 1; 1 if there were none.
    pub fn upload_hidden_share(&self) -> f64 {
        share(self.upload_hidden_ms, self.upload_ms)
    }

    /// Milliseconds of the gaps by their reason, most first.
    pub fn by_reason(&self) -> Vec<(Reason, f64)> {
        let mut sums: BTreeMap<Reason, f64> = BTreeMap::new();
        for gap in &self.gaps {
            *sums.entry(gap.reason).or_default() += gap.length_ms();
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }
}

/// Gaps that are told one by one.
const GAPS_TOLD: usize = 3;

impl fmt::Display for Utilisation {
    /// A line, one for each reason of gaps, and one for each of the longest gaps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: busy {:.1} % of {:.1} ms from its first kernel to its last",
            self.unit,
            100.0 * self.busy_share(),
            self.wall_ms
        )?;
        if self.upload_ms > 0.0 {
            let percent = 100.0 * self.upload_hidden_share();
            write!(
                f,
                ", {percent:.1} % of {:.1} ms of uploads beside a kernel",
                self.upload_ms
            )?;
        }
        writeln!(f)?;
        for (reason, ms) in self.by_reason() {
            let count = self.gaps.iter().filter(|gap| gap.reason == reason).count();
            writeln!(f, "  idle {ms:.1} ms in {count}: {}", reason.name())?;
        }
        let mut longest: Vec<&Gap> = self.gaps.iter().collect();
        longest.sort_by(|a, b| b.length_ms().total_cmp(&a.length_ms()));
        for gap in longest.into_iter().take(GAPS_TOLD) {
            writeln!(f, "  at {:.1} ms: {gap}", gap.start_ms)?;
        }
        Ok(())
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

/// The units that computed anything.
pub(super) fn units(spans: &[Span]) -> BTreeSet<Unit> {
    let computing = spans.iter().filter_map(|span| match span.lane {
        Lane::Unit(unit, Work::Compute) if span.length_ms() > 0.0 => Some(unit),
        _ => None,
    });
    computing.collect()
}

/// A moment at which what is under way changes.
struct Change {
    at_ms: f64,
    begins: bool,
    reason: Reason,
    /// Which span, by the order of their beginnings.
    order: usize,
}

/// Cuts gaps of a unit, which are in order, where their reason changes.
pub(super) fn explained<'a>(
    unit: Unit,
    gaps: &[(f64, f64)],
    spans: impl IntoIterator<Item = &'a Span>,
) -> Vec<Gap> {
    let mut causes: Vec<(Reason, &Span)> = spans
        .into_iter()
        .filter_map(|span| Some((Reason::of(span.lane, unit)?, span)))
        .collect();
    causes.sort_by(|(_, a), (_, b)| a.start_ms.total_cmp(&b.start_ms));
    let mut changes: Vec<Change> = Vec::with_capacity(2 * causes.len());
    for (order, &(reason, span)) in causes.iter().enumerate() {
        for (at_ms, begins) in [(span.start_ms, true), (span.end_ms, false)] {
            changes.push(Change {
                at_ms,
                begins,
                reason,
                order,
            });
        }
    }
    // What begins comes first, so that a span without length is gone again.
    changes.sort_by(|a, b| (a.at_ms.total_cmp(&b.at_ms)).then(b.begins.cmp(&a.begins)));

    let mut found: Vec<Gap> = Vec::new();
    let mut under_way: BTreeSet<(Reason, usize)> = BTreeSet::new();
    let mut changes = changes.into_iter().peekable();
    for &(from, until) in gaps {
        let mut at = from;
        while at < until {
            while let Some(change) = changes.next_if(|change| change.at_ms <= at) {
                let key = (change.reason, change.order);
                if change.begins {
                    under_way.insert(key);
                } else {
                    under_way.remove(&key);
                }
            }
            let next = changes
                .peek()
                .map_or(until, |change| change.at_ms.min(until));
            let nearest = under_way.first();
            let reason = nearest.map_or(Reason::Nothing, |(reason, _)| *reason);
            let whose = nearest.map(|(_, order)| causes[*order].1.whose());
            match found.last_mut() {
                Some(last) if last.end_ms == at && last.reason == reason && last.whose == whose => {
                    last.end_ms = next;
                }
                _ => found.push(Gap {
                    start_ms: at,
                    end_ms: next,
                    reason,
                    whose,
                }),
            }
            at = next;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    /// Two parts on a device, the second synthesised too late, and one on another device.
    fn two_parts() -> Vec<Span> {
        vec![
            span("device 0 upload", "upload", 0, 0.0, 10.0),
            span("device 0 compute", "ntt", 0, 10.0, 30.0),
            span("device 0 compute", "msm_h", 0, 30.0, 60.0),
            span("queue", "queue", 1, 0.0, 20.0),
            span("synthesis", "synthesis", 1, 20.0, 80.0),
            span("core 0", "segment", 1, 20.0, 79.0),
            span("device 0 wait", "slot", 1, 80.0, 82.0),
            span("device 0 upload", "upload", 1, 82.0, 90.0),
            // The kernels of one part overlap: this one runs beside the next.
            span("device 0 compute", "ntt", 1, 95.0, 110.0),
            span("device 0 compute", "msm_h", 1, 105.0, 120.0),
            span("device 1 compute", "ntt", 2, 5.0, 6.0),
            span("device 1 compute", "ntt", 3, 126.0, 127.0),
        ]
    }

    #[test]
    fn a_device_is_busy_when_any_kernel_runs_and_its_gaps_have_reasons() {
        let used = Utilisation::of(&two_parts());
        assert_eq!(used.len(), 2);
        let first = &used[0];
        assert_eq!((first.wall_ms, first.busy_ms), (110.0, 75.0));
        assert_eq!(first.busy_share(), 75.0 / 110.0);
        // None of the uploads lies beside a kernel.
        assert_eq!((first.upload_ms, first.upload_hidden_ms), (18.0, 0.0));
        let gaps: Vec<_> = first
            .gaps
            .iter()
            .map(|gap| (gap.reason, gap.start_ms, gap.end_ms, gap.whose.as_deref()))
            .collect();
        let part_1 = Some("job/1");
        assert_eq!(
            gaps,
            [
                (Reason::Synthesis, 60.0, 80.0, part_1),
                (Reason::Slot, 80.0, 82.0, part_1),
                (Reason::Upload, 82.0, 90.0, part_1),
                (Reason::Nothing, 90.0, 95.0, None),
            ]
        );
        insta::assert_snapshot!(used.iter().map(Utilisation::to_string).collect::<String>());
    }

    #[test]
    fn an_upload_beside_a_kernel_is_hidden() {
        let spans = [
            span("device 0 compute", "ntt", 0, 0.0, 100.0),
            span("device 0 upload", "upload", 1, 60.0, 110.0),
            span("device 0 compute", "ntt", 1, 110.0, 150.0),
            // Of another device, which hides nothing here.
            span("device 1 compute", "ntt", 2, 100.0, 110.0),
        ];
        let used = &Utilisation::of(&spans)[0];
        assert_eq!((used.upload_ms, used.upload_hidden_ms), (50.0, 40.0));
        assert_eq!(used.upload_hidden_share(), 0.8);
        assert_eq!(used.by_reason(), [(Reason::Upload, 10.0)]);
    }

    #[test]
    fn what_is_nearest_to_the_device_explains() {
        let lanes = [
            "device 0 upload",
            "device 0 key",
            "device 0 wait",
            "failed",
            "ready",
            "synthesis",
            "keys",
            "memory",
            "queue",
            "check",
        ];
        for (first, want) in Reason::ALL.into_iter().enumerate() {
            let mut spans: Vec<Span> = lanes[first..]
                .iter()
                .rev()
                .map(|lane| span(lane, "x", 0, 0.0, 30.0))
                .collect();
            spans.push(span("device 0 compute", "ntt", 0, 0.0, 10.0));
            spans.push(span("device 0 compute", "ntt", 0, 20.0, 30.0));
            let used = Utilisation::of(&spans);
            assert_eq!(used[0].by_reason(), [(want, 10.0)], "{}", want.name());
        }
        assert!(Utilisation::of(&[span("queue", "queue", 0, 0.0, 1.0)]).is_empty());
    }
}
