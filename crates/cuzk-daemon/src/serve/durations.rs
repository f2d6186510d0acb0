//! How long proofs took: one histogram a kind.

use cuzk_filecoin::ProofKind;

/// Upper ends of the buckets in seconds: a 2 KiB PoSt takes parts of one, a 32 GiB
/// PoRep on a processor many minutes.
pub(super) const BUCKET_SECONDS: [f64; 14] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0,
];

/// Proofs of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Proofs that took at most as long as each bucket says.
    pub(super) buckets: [u64; BUCKET_SECONDS.len()],
    /// All of them.
    pub(super) count: u64,
    /// The time of all of them together.
    pub(super) seconds: f64,
}

/// Proofs of all kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations([Histogram; 4]);

impl Durations {
    /// Counts a proof.
    pub(super) fn add(&mut self, kind: ProofKind, seconds: f64) {
        for (known, histogram) in ProofKind::ALL.into_iter().zip(&mut self.0) {
            if known == kind {
                for (end, count) in BUCKET_SECONDS.iter().zip(&mut histogram.buckets) {
                    *count += u64::from(seconds <= *end);
                }
                histogram.count += 1;
                histogram.seconds += seconds;
            }
        }
    }

    /// The kinds with their histograms.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (ProofKind, &Histogram)> {
        ProofKind::ALL.into_iter().zip(&self.0)
    }
}
