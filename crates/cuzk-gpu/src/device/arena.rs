//! Regions of one allocation, as offsets.
//!
//! What stays (keys, index lists) is taken from the low end, what comes and goes with
//! proofs from the high end, each as near to its end as there is room. Neighbours that
//! are free are one range, so that whatever is taken and given back, in any order,
//! leaves one range at last.

use std::collections::BTreeMap;

/// Regions begin at multiples of this, and their lengths are rounded up to it: what a
/// kernel reads at once never crosses into a neighbour's line.
pub(crate) const ALIGN: u64 = 256;

/// From which end a region is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Low,
    High,
}

/// A region: where it begins, and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// Which parts of an allocation are free.
#[derive(Debug)]
pub(crate) struct Offsets {
    bytes: u64,
    /// Start and length of each free range. None is empty, and no two touch.
    free: BTreeMap<u64, u64>,
}

impl Offsets {
    /// An allocation of so many bytes, all of it free. Bytes beyond the last multiple
    /// of [`ALIGN`] are used by nobody.
    pub(crate) fn new(bytes: u64) -> Self {
        let bytes = bytes / ALIGN * ALIGN;
        let free = (bytes != 0).then_some((0, bytes)).into_iter().collect();
        Self { bytes, free }
    }

    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free, in one range or several.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Takes a region from the first range that has room, seen from `end`. `None`
    /// if none has.
    pub(crate) fn take(&mut self, bytes: u64, end: End) -> Option<Span> {
        let bytes = bytes.checked_next_multiple_of(ALIGN)?;
        if bytes == 0 {
            return Some(Span { start: 0, bytes });
        }
        let has_room = |&(_, len): &(&u64, &u64)| *len >= bytes;
        let (&from, &len) = match end {
            End::Low => self.free.iter().find(has_room),
            End::High => self.free.iter().rfind(has_room),
        }?;
        self.free.remove(&from);
        let rest = len - bytes;
        let (start, rest_at) = match end {
            End::Low => (from, from + bytes),
            End::High => (from + rest, from),
        };
        if rest != 0 {
            self.free.insert(rest_at, rest);
        }
        Some(Span { start, bytes })
    }

    /// Gives a region back.
    ///
    /// # Panics
    /// If part of it is free already, or lies outside.
    pub(crate) fn give_back(&mut self, span: Span) {
        let Span { start, bytes } = span;
        if bytes == 0 {
            return;
        }
        let end = start + bytes;
        assert!(end <= self.bytes, "{span:?} of {} bytes", self.bytes);
        let before = self.free.range(..end).next_back();
        let before = before.map(|(&at, &len)| (at, len));
        let is_apart = before.is_none_or(|(at, len)| at + len <= start);
        assert!(is_apart, "{span:?} is free already: {before:?}");
        let (mut start, mut bytes) = (start, bytes);
        if let Some((at, len)) = before
            && at + len == start
        {
            self.free.remove(&at);
            (start, bytes) = (at, bytes + len);
        }
        if let Some(len) = self.free.remove(&end) {
            bytes += len;
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(offsets: &mut Offsets, units: u64, end: End) -> Span {
        offsets.take(units * ALIGN, end).expect("room")
    }

    #[test]
    fn each_end_fills_towards_the_middle() {
        let mut offsets = Offsets::new(10 * ALIGN + 5);
        assert_eq!(offsets.bytes(), 10 * ALIGN);
        let low = take(&mut offsets, 2, End::Low);
        let high = take(&mut offsets, 3, End::High);
        assert_eq!((low.start, high.start), (0, 7 * ALIGN));
        assert_eq!(take(&mut offsets, 1, End::High).start, 6 * ALIGN);
        assert_eq!(offsets.free_bytes(), 4 * ALIGN);
        assert_eq!(offsets.take(4 * ALIGN + 1, End::Low), None);
        let rest = offsets.take(3 * ALIGN + 1, End::Low).expect("rounded up");
        assert_eq!((rest.start, rest.bytes), (2 * ALIGN, 4 * ALIGN));
        assert_eq!(offsets.take(1, End::High), None);
    }

    #[test]
    fn a_hole_is_used_again_and_neighbours_become_one() {
        let mut offsets = Offsets::new(8 * ALIGN);
        let spans: Vec<_> = (0..4).map(|_| take(&mut offsets, 2, End::Low)).collect();
        offsets.give_back(spans[1]);
        offsets.give_back(spans[3]);
        // Enough in sum, not at once.
        assert_eq!(offsets.free_bytes(), 4 * ALIGN);
        assert_eq!(offsets.take(4 * ALIGN, End::Low), None);
        assert_eq!(take(&mut offsets, 1, End::Low).start, 2 * ALIGN);
        offsets.give_back(spans[2]);
        assert_eq!(take(&mut offsets, 5, End::Low).start, 3 * ALIGN);
    }

    #[test]
    fn nothing_takes_no_room_and_too_much_is_refused() {
        let mut offsets = Offsets::new(ALIGN - 1);
        assert_eq!(offsets.bytes(), 0);
        let nothing = offsets.take(0, End::High).expect("nothing always fits");
        offsets.give_back(nothing);
        assert_eq!(offsets.take(1, End::Low), None);
        assert_eq!(Offsets::new(1 << 20).take(u64::MAX, End::Low), None);
    }

    #[test]
    #[should_panic(expected = "is free already")]
    fn a_region_comes_back_once() {
        let mut offsets = Offsets::new(4 * ALIGN);
        let span = take(&mut offsets, 2, End::Low);
        offsets.give_back(span);
        offsets.give_back(span);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(u64, End),
        GiveBack(prop::sample::Index),
    }

    /// Lengths up to a third of the whole: some takes find holes, some find none.
    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let end = prop_oneof![Just(End::Low), Just(End::High)];
        let step = prop_oneof![
            3 => (0..12_000_u64, end).prop_map(|(bytes, end)| Step::Take(bytes, end)),
            2 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        /// Regions never overlap, nothing is lost, a take that is refused had no range
        /// with room, and at the end everything is one range again.
        #[test]
        fn regions_are_apart_and_come_back(steps in steps()) {
            const WHOLE: u64 = 36_000 / ALIGN * ALIGN;
            let mut offsets = Offsets::new(WHOLE);
            let mut held: Vec<Span> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(bytes, end) => {
                        let largest = offsets.free.values().max().copied().unwrap_or(0);
                        let taken = offsets.take(bytes, end);
                        let rounded = bytes.next_multiple_of(ALIGN);
                        prop_assert_eq!(taken.is_some(), rounded <= largest);
                        held.extend(taken);
                    }
                    Step::GiveBack(_) if held.is_empty() => {}
                    Step::GiveBack(at) => {
                        let at = at.index(held.len());
                        offsets.give_back(held.swap_remove(at));
                    }
                }
                let mut all: Vec<Span> = held.iter().copied().filter(|s| s.bytes != 0).collect();
                all.extend(offsets.free.iter().map(|(&start, &bytes)| Span { start, bytes }));
                all.sort_by_key(|span| span.start);
                let mut at = 0;
                for span in all {
                    prop_assert_eq!(span.start, at);
                    at += span.bytes;
                }
                prop_assert_eq!(at, WHOLE);
            }
            for span in held {
                offsets.give_back(span);
            }
            prop_assert_eq!(offsets.free, BTreeMap::from([(0, WHOLE)]));
        }
    }
}
