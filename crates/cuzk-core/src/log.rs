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

/// The columns of a part have been copied to a device. That the rate is less than it
/// could be is not told here: no backend measures what its link can do.
pub(crate) fn uploaded(job: &str, part: usize, phase: &Phase) {
    let Some(bytes) = phase.bytes else {
        return;
    };
    let ms = phase.length_ms();
    let gb_per_s = if ms > 0.0 {
        bytes as f64 / ms / 1e6
    } else {
        0.0
    };
    let (ms, gb_per_s) = (rounded(ms), rounded(gb_per_s));
    tracing::info!(job, part, bytes, ms, gb_per_s, "columns uploaded");
}

/// To a tenth.
fn rounded(value: f64) -> f64 {
    // Nothing at all adds up to minus nothing.
    (value * 10.0).round() / 10.0 + 0.0
}
