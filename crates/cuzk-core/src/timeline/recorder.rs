//! All spans of an engine: the last ones in a ring, the sums of all.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::account::{Account, UnitSeconds};
use super::lane::{Lane, Work};
use super::span::Span;
use crate::lock::lock;

/// Numbers for threads that synthesise at the same time; more share the last lane.
const SEATS_MAX: usize = 512;
const SEATS_PER_WORD: usize = 64;

/// The spans of an engine. The ring is allocated at the start. A span that is recorded
/// takes a lock for as long as it is copied and added up, and allocates nothing, unless a
/// gap between two kernels is explained then.
#[derive(Debug)]
pub(crate) struct Recorder {
    epoch: Instant,
    state: Mutex<State>,
    seats: [AtomicU64; SEATS_MAX / SEATS_PER_WORD],
}

#[derive(Debug)]
struct State {
    ring: Ring,
    stages: Vec<StageSeconds>,
    units: Vec<Account>,
}

/// Spans of the engine as they are at one moment.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The spans that are kept, on the engine's epoch, in the order in which they were
    /// recorded.
    pub spans: Vec<Span>,
    /// Older ones that are not kept any more.
    pub dropped: u64,
}

/// Seconds that were spent under one name since the engine's start.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSeconds {
    /// The name of the spans.
    pub stage: &'static str,
    /// Their lengths together.
    pub seconds: f64,
    /// How many there were.
    pub count: u64,
}

/// Sums since the engine's start.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// By the name of the spans, in the order in which names came up.
    pub stages: Vec<StageSeconds>,
    /// Of each unit that has computed.
    pub units: Vec<UnitSeconds>,
    /// Spans that are not kept any more.
    pub dropped: u64,
}

impl Recorder {
    /// A recorder that begins now and keeps `spans_max` spans, at least one.
    pub(crate) fn new(spans_max: usize) -> Self {
        Self {
            epoch: Instant::now(),
            state: Mutex::new(State {
                ring: Ring::new(spans_max),
                stages: Vec::with_capacity(64),
                units: Vec::new(),
            }),
            seats: Default::default(),
        }
    }

    pub(super) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Adds a span on the recorder's epoch, under a name of ours.
    pub(super) fn push(&self, name: &'static str, span: Span) {
        let (lane, from_ms, until_ms) = (span.lane, span.start_ms, span.end_ms);
        let mut state = lock(&self.state);
        let State {
            ring,
            stages,
            units,
        } = &mut *state;
        match stages.iter_mut().find(|known| known.stage == name) {
            Some(known) => {
                known.seconds += span.length_ms() / 1000.0;
                known.count += 1;
            }
            None => stages.push(StageSeconds {
                stage: name,
                seconds: span.length_ms() / 1000.0,
                count: 1,
            }),
        }
        // A span that this pushes out is dropped behind the lock.
        let oldest = ring.push(span);
        if let Lane::Unit(unit, Work::Compute) = lane {
            let at = units.iter().position(|account| account.unit() == unit);
            let at = at.unwrap_or_else(|| {
                units.push(Account::new(unit));
                units.len() - 1
            });
            let gap = units[at].compute(from_ms, until_ms);
            if let Some(gap) = gap {
                units[at].explain(gap, ring.ended_after(gap.0));
            }
        }
        drop(state);
        drop(oldest);
    }

    /// The spans that are kept.
    pub(crate) fn recorded(&self) -> Recorded {
        let state = lock(&self.state);
        Recorded {
            spans: state.ring.in_order().cloned().collect(),
            dropped: state.ring.dropped,
        }
    }

    /// The sums since the start.
    pub(crate) fn sums(&self) -> Sums {
        let state = lock(&self.state);
        Sums {
            stages: state.stages.clone(),
            units: state.units.iter().map(Account::seconds).collect(),
            dropped: state.ring.dropped,
        }
    }

    /// The lowest number that no thread has, for one that begins to work.
    pub(super) fn seat(&self) -> Seat<'_> {
        for (word, taken) in self.seats.iter().enumerate() {
            let mut bits = taken.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = bits.trailing_ones();
                // Numbers are for drawing alone; nothing is ordered by them.
                match taken.compare_exchange_weak(
                    bits,
                    bits | 1 << bit,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        return Seat {
                            number: word * SEATS_PER_WORD + bit as usize,
                            taken: Some((taken, bit)),
                        };
                    }
                    Err(now) => bits = now,
                }
            }
        }
        Seat {
            number: SEATS_MAX,
            taken: None,
        }
    }
}

/// A number among the threads that work, until dropped.
pub(super) struct Seat<'a> {
    pub(super) number: usize,
    taken: Option<(&'a AtomicU64, u32)>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some((taken, bit)) = self.taken {
            taken.fetch_and(!(1 << bit), Ordering::Relaxed);
        }
    }
}

/// The last spans, in the order in which they were recorded.
#[derive(Debug)]
struct Ring {
    spans: Vec<Kept>,
    spans_max: usize,
    /// Where the oldest is, once all places are taken.
    oldest: usize,
    latest_end_ms: f64,
    dropped: u64,
}

#[derive(Debug)]
struct Kept {
    span: Span,
    /// The latest end of all up to this one: what is older ended no later.
    latest_end_ms: f64,
}

impl Ring {
    fn new(spans_max: usize) -> Self {
        let spans_max = spans_max.max(1);
        Self {
            spans: Vec::with_capacity(spans_max),
            spans_max,
            oldest: 0,
            latest_end_ms: 0.0,
            dropped: 0,
        }
    }

    /// Keeps a span; the one whose place it takes.
    fn push(&mut self, span: Span) -> Option<Span> {
        self.latest_end_ms = self.latest_end_ms.max(span.end_ms);
        let latest_end_ms = self.latest_end_ms;
        let kept = Kept {
            span,
            latest_end_ms,
        };
        if self.spans.len() < self.spans_max {
            self.spans.push(kept);
            return None;
        }
        let old = std::mem::replace(&mut self.spans[self.oldest], kept);
        self.oldest = (self.oldest + 1) % self.spans_max;
        self.dropped += 1;
        Some(old.span)
    }

    fn in_order(&self) -> impl DoubleEndedIterator<Item = &Span> {
        self.kept_in_order().map(|kept| &kept.span)
    }

    fn kept_in_order(&self) -> impl DoubleEndedIterator<Item = &Kept> {
        let (later, earlier) = self.spans.split_at(self.oldest);
        earlier.iter().chain(later)
    }

    /// Those that ended after a moment, the newest first.
    fn ended_after(&self, moment_ms: f64) -> impl Iterator<Item = &Span> {
        let newest_first = self.kept_in_order().rev();
        newest_first
            .take_while(move |kept| kept.latest_end_ms > moment_ms)
            .map(|kept| &kept.span)
            .filter(move |span| span.end_ms > moment_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::span;
    use super::super::utilisation::{Reason, Utilisation};
    use super::*;

    fn push(recorder: &Recorder, span: &Span) {
        recorder.push("any", span.clone());
    }

    #[test]
    fn the_ring_keeps_the_last_and_counts_the_others() {
        let recorder = Recorder::new(3);
        let of = |number: usize| span("check", "verify", number, 0.0, number as f64);
        for kept in 0..8 {
            let recorded = recorder.recorded();
            let parts: Vec<_> = recorded.spans.iter().filter_map(|span| span.part).collect();
            let want: Vec<usize> = (kept - kept.min(3)..kept).collect();
            assert_eq!(
                (parts, recorded.dropped),
                (want, kept.saturating_sub(3) as u64)
            );
            push(&recorder, &of(kept));
        }
        let place = lock(&recorder.state).ring.spans.as_ptr();
        (0..100).for_each(|number| push(&recorder, &of(number)));
        let state = lock(&recorder.state);
        assert_eq!(
            (state.ring.spans.as_ptr(), state.ring.spans.len()),
            (place, 3)
        );
        assert_eq!(state.stages[0].count, 108, "sums have all of them");
    }

    #[test]
    fn a_label_goes_when_its_last_span_does() {
        let recorder = Recorder::new(2);
        let label: super::super::Label = "one".into();
        for part in 0..5 {
            let job = Some(label.clone()).filter(|_| part < 2);
            let one = Span {
                job,
                ..span("check", "verify", part, 0.0, 1.0)
            };
            push(&recorder, &one);
        }
        assert_eq!(label.holders(), 1);
    }

    #[test]
    fn threads_that_work_at_the_same_time_have_different_low_numbers() {
        let recorder = Recorder::new(1);
        let first: Vec<_> = (0..SEATS_MAX + 2).map(|_| recorder.seat()).collect();
        let numbers: Vec<usize> = first.iter().map(|seat| seat.number).collect();
        let want: Vec<usize> = (0..SEATS_MAX).chain([SEATS_MAX; 2]).collect();
        assert_eq!(numbers, want);
        let mut first = first;
        drop(first.remove(70));
        drop(first.remove(3));
        assert_eq!(recorder.seat().number, 3, "and it is free again at once");
        let seats = [recorder.seat(), recorder.seat(), recorder.seat()];
        assert_eq!(seats.map(|seat| seat.number), [3, 70, SEATS_MAX]);
    }

    /// A device's kernels with synthesis between some: each in order, or two swapped.
    fn kernels() -> impl Strategy<Value = Vec<Span>> {
        // Few lengths of what is between kernels, among them none, so that some touch.
        let one = (0..4_u32, 0..5_u32, 1..4_u32, any::<bool>());
        prop::collection::vec(one, 1..40).prop_map(|pieces| {
            let mut spans = Vec::new();
            let mut at = 0.0;
            let mut was_swapped = false;
            for (part, (idle, synthesis, compute, swap)) in pieces.into_iter().enumerate() {
                let begin = at + f64::from(idle + synthesis);
                let end = begin + f64::from(compute);
                spans.push(span(
                    "synthesis",
                    "synthesis",
                    part,
                    at + f64::from(idle),
                    begin,
                ));
                spans.push(span("device 0 compute", "ntt", part, begin, end));
                let len = spans.len();
                // Each is one place late at most.
                was_swapped = swap && !was_swapped && len > 3;
                if was_swapped {
                    spans.swap(len - 1, len - 3);
                }
                at = end;
            }
            spans
        })
    }

    proptest! {
        #[test]
        fn what_is_counted_on_the_way_is_what_the_whole_list_says(spans in kernels()) {
            let recorder = Recorder::new(1000);
            let mut before = [0.0; Reason::ALL.len() + 1];
            for span in &spans {
                push(&recorder, span);
                let sums = recorder.sums();
                if let [unit] = &sums.units[..] {
                    let now: Vec<f64> = std::iter::once(unit.busy)
                        .chain(unit.gaps.iter().map(|(_, seconds)| *seconds))
                        .collect();
                    let grew = std::iter::zip(&now, &before).all(|(now, before)| now >= before);
                    prop_assert!(grew, "a counter only grows");
                    before.copy_from_slice(&now);
                }
            }
            // A kernel far behind, often enough, has every gap told.
            let last = spans.iter().map(|span| span.end_ms).fold(0.0, f64::max);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let whole = Utilisation::of(&spans);
            for number in 0..10 {
                let at = last + 100.0 + 2.0 * f64::from(number);
                push(&recorder, &span("device 0 compute", "ntt", 0, at, at + 1.0));
            }
            let unit = recorder.sums().units.remove(0);
            let busy_ms = whole.first().map_or(0.0, |unit| unit.busy_ms);
            prop_assert!(close(unit.busy, (busy_ms + 10.0) / 1000.0));
            for (reason, seconds) in unit.gaps {
                let of = |unit: &Utilisation| {
                    let sums = unit.by_reason().into_iter();
                    sums.filter(|(of, _)| *of == reason).map(|(_, ms)| ms).sum::<f64>()
                };
                let want = whole.first().map_or(0.0, of) / 1000.0;
                // So are the gap to the first far kernel and the two behind it.
                let far = if reason == Reason::Nothing { 0.102 } else { 0.0 };
                prop_assert!(close(seconds, want + far), "{reason:?}: {seconds} of {want}");
            }
        }
    }
}
