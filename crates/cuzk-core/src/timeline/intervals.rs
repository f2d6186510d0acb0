//! Sets of time, as intervals that do not touch.

/// Disjoint intervals in ascending order, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Intervals(Vec<(f64, f64)>);

impl Intervals {
    /// All that at least one of the given intervals holds.
    pub(crate) fn union(of: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut all: Vec<_> = of
            .into_iter()
            .filter(|(from, until)| from < until)
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut disjoint: Vec<(f64, f64)> = Vec::new();
        for (from, until) in all {
            match disjoint.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => disjoint.push((from, until)),
            }
        }
        Self(disjoint)
    }

    /// Adds one interval; the length that was not held before.
    pub(crate) fn insert(&mut self, from: f64, until: f64) -> f64 {
        if from >= until {
            return 0.0;
        }
        let begin = self.0.partition_point(|interval| interval.1 < from);
        let end = self.0.partition_point(|interval| interval.0 <= until);
        let touched = &self.0[begin..end];
        let held: f64 = touched
            .iter()
            .map(|(a, b)| (b.min(until) - a.max(from)).max(0.0))
            .sum();
        let merged = (
            touched.first().map_or(from, |first| first.0.min(from)),
            touched.last().map_or(until, |last| last.1.max(until)),
        );
        self.0.splice(begin..end, [merged]);
        until - from - held
    }

    /// Milliseconds in all.
    pub(crate) fn length(&self) -> f64 {
        // Nothing at all adds up to minus nothing.
        self.0.iter().map(|(from, until)| until - from).sum::<f64>() + 0.0
    }

    /// Milliseconds that both hold.
    pub(crate) fn overlap(&self, other: &Self) -> f64 {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = 0.0;
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            both += (a.1.min(b.1) - a.0.max(b.0)).max(0.0);
            if a.1 <= b.1 {
                mine.next();
            } else {
                theirs.next();
            }
        }
        both
    }

    /// The first beginning and the last end.
    pub(crate) fn hull(&self) -> Option<(f64, f64)> {
        Some((self.0.first()?.0, self.0.last()?.1))
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (f64, f64)> {
        self.0.iter().copied()
    }

    /// What lies between them.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = (f64, f64)> {
        self.0.windows(2).map(|pair| (pair[0].1, pair[1].0))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets the first; the gap behind it.
    pub(crate) fn forget_first(&mut self) -> Option<(f64, f64)> {
        let gap = self.gaps().next()?;
        self.0.remove(0);
        Some(gap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Intervals over so few ticks that they touch, nest and repeat; a tick is a unit of
    /// time, so that a naive count is exact.
    const TICKS: usize = 40;

    #[test]
    fn nothing_is_zero_and_not_minus_zero() {
        assert!(Intervals::default().length().is_sign_positive());
    }

    fn intervals() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0..TICKS, 0..TICKS), 0..12)
    }

    fn naive(of: &[(usize, usize)]) -> [bool; TICKS] {
        let mut held = [false; TICKS];
        for &(from, until) in of {
            for tick in held.iter_mut().take(until).skip(from) {
                *tick = true;
            }
        }
        held
    }

    fn in_time(of: &[(usize, usize)]) -> Vec<(f64, f64)> {
        let of = of.iter();
        of.map(|&(from, until)| (from as f64, until as f64))
            .collect()
    }

    proptest! {
        #[test]
        fn a_union_holds_what_a_count_of_ticks_does(a in intervals(), b in intervals()) {
            let (in_a, in_b) = (naive(&a), naive(&b));
            let count = |held: &[bool]| held.iter().filter(|tick| **tick).count() as f64;
            let (union_a, union_b) = (Intervals::union(in_time(&a)), Intervals::union(in_time(&b)));
            prop_assert_eq!(union_a.length(), count(&in_a));
            let both: Vec<bool> = std::iter::zip(in_a, in_b).map(|(a, b)| a && b).collect();
            prop_assert_eq!(union_a.overlap(&union_b), count(&both));
            prop_assert_eq!(union_b.overlap(&union_a), count(&both));
            // Gaps and intervals fill the hull.
            let gaps: f64 = union_a.gaps().map(|(from, until)| until - from).sum();
            let hull = union_a.hull().map_or(0.0, |(from, until)| until - from);
            prop_assert_eq!(gaps + union_a.length(), hull);
            prop_assert!(union_a.gaps().all(|(from, until)| from < until));
        }

        #[test]
        fn one_after_the_other_is_all_at_once(a in intervals()) {
            let mut grown = Intervals::default();
            let mut added = 0.0;
            for (from, until) in in_time(&a) {
                added += grown.insert(from, until);
                prop_assert_eq!(grown.length(), added);
            }
            prop_assert_eq!(grown, Intervals::union(in_time(&a)));
        }
    }
}
