//! Several proofs on the device at the same time.

use std::time::{Duration, Instant};

use cuzk_pinned::StagingRing;

use super::case::Case;
use super::{THREADS, backend, backend_with, page_locked};
use crate::cuda::CudaBackend;
use crate::{BackendError, Phase, PhaseLane};

#[test]
fn gpu_two_circuits_at_once_give_the_cpus_bytes() {
    let Some(gpu) = backend(|_| {}) else { return };
    let cases = [Case::new(9, 1), Case::new(16, 2)];
    let at_start = gpu.device_allocations();
    for round in 0..20 {
        let pending = cases.each_ref().map(|case| gpu.submit_job(case.cuda_job()));
        // The later one is waited for first.
        for (case, pending) in cases.iter().zip(pending).rev() {
            case.check_resident(pending, &format!("round {round}"));
        }
    }
    assert_eq!(gpu.device_allocations(), at_start);
}

fn ring() -> Option<StagingRing> {
    let chunks = page_locked(&[1 << 16; 3])?;
    Some(StagingRing::from_buffers(chunks, THREADS))
}

/// Keys that have no room beside each other, columns of both kinds, and always as many
/// proofs as the backend takes.
fn many_proofs(slots: usize, cases: &[Case], limit: u64) {
    let change = |options: &mut crate::DeviceOptions| {
        options.slots = slots;
        options.memory_bytes_max = Some(limit);
    };
    let gpu = backend_with(change, ring(), None).expect("there is a device");
    let at_start = gpu.device_allocations();
    let mut running = std::collections::VecDeque::new();
    for turn in 0..120 {
        let case = &cases[turn * 5 % cases.len()];
        let job = match turn % 3 {
            0 => case.direct(),
            _ => case.cuda_job(),
        };
        running.push_back((turn, case, gpu.submit_job(job)));
        if running.len() == 5 {
            let (turn, case, pending) = running.pop_front().expect("five");
            case.check_resident(pending, &format!("{slots} slots, turn {turn}"));
        }
        assert!(gpu.device_bytes() <= limit);
    }
    for (turn, case, pending) in running {
        case.check_resident(pending, &format!("{slots} slots, turn {turn}"));
    }
    assert_eq!(gpu.device_allocations(), at_start);
}

#[test]
fn gpu_many_proofs_with_keys_that_make_room_for_each_other() {
    let Some(gpu) = backend(|_| {}) else { return };
    let cases: Vec<Case> = [(9, 1), (12, 2), (9, 3), (13, 4), (12, 5), (13, 6)]
        .map(|(log, key_seed)| Case::new(log, key_seed))
        .into();
    for case in &cases {
        case.check_resident(gpu.submit_job(case.cuda_job()), "alone");
    }
    let all = gpu.device_bytes();
    drop(gpu);
    let key_bytes = (1u64 << 13) * (96 * 4 + 192);
    for slots in [1, 2, 4] {
        many_proofs(slots, &cases, all - key_bytes / 2);
    }
}

/// Room for one proof at a time: the next waits, whatever the number of slots.
#[test]
fn gpu_a_proof_waits_for_room() {
    let Some(gpu) = backend(|_| {}) else { return };
    let cases = [Case::new(14, 1), Case::new(14, 2)];
    case_alone(&gpu, &cases[0]);
    let one = gpu.device_bytes();
    drop(gpu);
    // A key and a slot, and less than another key and slot.
    let slot = 3 * 32 * cases[0].job.shape.sizes.domain() as u64;
    many_proofs(3, &cases, one + 2 * slot);
}

fn case_alone(gpu: &CudaBackend, case: &Case) {
    case.check_resident(gpu.submit_job(case.cuda_job()), "alone");
}

/// One proof fails while others are under way.
#[test]
fn gpu_a_proof_that_fails_fails_alone() {
    let Some(gpu) = backend(|options| options.slots = 3) else {
        return;
    };
    let (case, other) = (Case::new(10, 1), Case::new(15, 2));
    for round in 0..20 {
        let before = gpu.submit_job(other.cuda_job());
        let mut wrong = gpu.submit_job(case.wrong_job(round));
        let after = gpu.submit_job(other.cuda_job());
        assert!(wrong.columns_read().is_some(), "the columns come back");
        let error = wrong.done().expect_err("a value that is no scalar");
        let is_told = matches!(error, BackendError::Unreduced { count: 1, .. });
        assert!(is_told, "{error}");
        other.check_resident(before, "before");
        other.check_resident(after, "after");
        case_alone(&gpu, &case);
    }
}

/// Each phase has its name, and a key's load one of its own, once; of one lane none
/// overlap, and the upload tells its bytes.
#[test]
fn gpu_phases_have_their_names_and_places() {
    let Some(gpu) = backend(|_| {}) else { return };
    let case = Case::new(10, 1);
    let computed = ["ntt", "msm_h", "msm_l", "msm_a", "msm_b_g1", "msm_b_g2"];
    for is_first in [true, false] {
        let begin = Instant::now();
        let proved = gpu.submit_job(case.cuda_job()).done();
        let end = Instant::now();
        let phases = proved.expect("a request that fits").phases;
        let mut names: Vec<_> = phases.iter().map(|phase| phase.name).collect();
        // A sum that waits for what was counted has two stretches.
        names.dedup();
        let load: &[_] = if is_first { &["key_load"] } else { &[] };
        assert_eq!(
            names,
            [&["upload"], load, &computed[..], &["finish"]].concat()
        );
        let rows = case.assignment.a.len() as u64;
        let bytes = 32 * (2 * rows + case.assignment.aux.len() as u64);
        assert_eq!(phases[0].bytes, Some(bytes));
        // Of one lane none overlap; the first transforms may run beside the upload.
        for lane in [PhaseLane::Upload, PhaseLane::Compute] {
            let of_lane = phases.iter().filter(|phase| phase.lane == lane);
            let ends_before = |before: &Phase, after: &Phase| before.end <= after.start;
            assert!(
                of_lane.is_sorted_by(|before, after| ends_before(before, after)),
                "{phases:?}"
            );
        }
        // The device's clock agrees with the host's.
        let slack = Duration::from_micros(200);
        assert!(phases[0].start + slack >= begin, "{phases:?}");
        assert!(
            phases.iter().all(|phase| phase.end <= end + slack),
            "{phases:?}"
        );
    }
}

/// Proofs in flight at the same time have one computation at a time.
#[test]
fn gpu_computations_of_several_proofs_do_not_overlap() {
    let Some(gpu) = backend(|options| options.slots = 3) else {
        return;
    };
    let case = Case::new(14, 1);
    case_alone(&gpu, &case);
    let pending: Vec<_> = (0..5).map(|_| gpu.submit_job(case.cuda_job())).collect();
    let phases = pending.into_iter().flat_map(|mut pending| {
        let proved = pending.done().expect("a request that fits");
        proved.phases
    });
    let computed = phases.filter(|phase| phase.lane == PhaseLane::Compute);
    let mut computed: Vec<_> = computed.collect();
    computed.sort_by_key(|phase| phase.start);
    assert!(computed.len() >= 5 * 6);
    for pair in computed.windows(2) {
        assert!(
            pair[0].end <= pair[1].start + Duration::from_micros(5),
            "{pair:?}"
        );
    }
}
