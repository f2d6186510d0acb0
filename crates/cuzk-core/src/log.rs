//! Lines of the log that people and their tools search for: one at the end of each
//! stage of a part, and one with the times of its proof under the keys that earlier
//! provers of this kind logged.
//!
//! | historic key | spans of the timeline |
//! |---|---|
//! | `pin_abc_ms` | `staging` |
//! | `ntt_msm_h_ms` | `ntt`, `msm_h` |
//! | `tail_msm_ms` | `msm_l`, `msm_a`, `msm_b_g1` |
//! | `b_g2_msm_ms` | `msm_b_g2` |
//! | `gpu_total_ms` | all phases of the backend, where several overlap once |
//!
//! `prep_msm_ms` and `batch_add_ms` have no counterpart, so they are not logged.

use std::time::Duration;

use cuzk_gpu::Phase;

use crate::error::Failure;

/// A stage of a part has ended.
pub(crate) fn stage_ended(
    stage: &'static str,
    job: &str,
    part: usize,
    took: Duration,
    failure: Option<&Failure>,
) {
    let ms = rounded(took.as_secs_f64() * 1000.0);
    match failure {
        None => tracing::info!(job, part, stage, ms, "stage ended"),
        // Who waits for the job is told; this line says where it stopped.
        Some(Failure { error, .. }) => tracing::info!(job, part, stage, ms, %error, "stage failed"),
    }
}

/// The backend has proved a part: its phases, and the bytes of each of the columns a, b
/// and c.
pub(crate) fn proved(
    job: &str,
    part: usize,
    is_pinned: bool,
    abc_bytes_each: usize,
    phases: &[Phase],
) {
    let sum = |wanted: &[&str]| {
        let of = phases.iter().filter(|phase| wanted.contains(&phase.name));
        rounded(of.map(Phase::length_ms).sum())
    };
    let gpu_total_ms = rounded(Phase::busy_ms(phases));
    tracing::info!(
        job,
        part,
        is_pinned,
        num_circuits = 1,
        abc_bytes_each,
        pin_abc_ms = sum(&["staging"]),
        ntt_msm_h_ms = sum(&["ntt", "msm_h"]),
        tail_msm_ms = sum(&["msm_l", "msm_a", "msm_b_g1"]),
        b_g2_msm_ms = sum(&["msm_b_g2"]),
        gpu_total_ms,
        "CUZK_TIMING"
    );
}

/// To a tenth of a millisecond.
fn rounded(ms: f64) -> f64 {
    (ms * 10.0).round() / 10.0
}
