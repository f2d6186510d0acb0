//! The assignment after the transforms, where column b was.

use std::collections::VecDeque;
use std::sync::Arc;

use cuzk_pinned::StagingRing;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::case::Case;
use super::proofs::{circuit, compare, cpu};
use super::{THREADS, backend, backend_with, page_locked};
use crate::cpu::h::{CSource, Transforms};
use crate::cuda::CudaBackend;
use crate::cuda::plan::{Counts, Needs};
use crate::cuda::upload::arrivals;
use crate::device::arena::ALIGN;
use crate::device::executor::tests::block_on;
use crate::key::KeyTier;
use crate::{BackendError, DeviceOptions, KeyMemory};

fn ring() -> Option<StagingRing> {
    let chunks = page_locked(&[1 << 16; 3])?;
    Some(StagingRing::from_buffers(chunks, THREADS))
}

fn host_keys() -> KeyMemory {
    KeyMemory {
        bytes_max: 1 << 30,
        take: Arc::new(|lens: &[usize]| page_locked(lens)),
    }
}

/// An upload whose assignment waits for transforms hears that there will be none, and one
/// whose assignment does not wait hears nothing.
#[test]
fn an_upload_hears_of_a_computation_that_ended_before_its_transforms() {
    let (mut arriving, arrivals_late) = arrivals(false, true);
    assert!(arrivals_late.is_late());
    drop(arrivals_late);
    assert!(!block_on(arriving.transformed()).expect("nothing failed"));
    let (mut arriving, arrivals_early) = arrivals(true, false);
    assert!(!arrivals_early.is_late());
    assert!(block_on(arriving.transformed()).expect("nothing failed"));
}

/// All that an upload and a proof can be: staged and not, from the source of the key and
/// from page-locked memory, alone and two a pass, in one piece a section and in many.
#[test]
fn gpu_a_late_assignment_gives_the_cpus_bytes() {
    let cases = [Case::new(13, 1), Case::new(9, 1)];
    for (has_ring, has_memory, slots, batch, piece_log) in [
        (false, false, 1, 1, 24),
        (true, false, 2, 1, 9),
        (true, true, 2, 2, 24),
        (false, true, 3, 2, 9),
        (true, true, 4, 2, 10),
    ] {
        let change = |options: &mut DeviceOptions| {
            options.is_assignment_late = true;
            options.slots = slots;
            options.key_batch = batch;
            options.key_piece_log_max = piece_log;
        };
        let ring = has_ring.then(ring).flatten();
        let Some(gpu) = backend_with(change, ring, has_memory.then(host_keys)) else {
            return;
        };
        let at_start = gpu.device_allocations();
        let mut running = VecDeque::new();
        for turn in 0..40 {
            let case = &cases[turn * 3 % 5 % 2];
            running.push_back((turn, case, gpu.submit_job(case.placed(turn % 3 == 0))));
            if running.len() == 5 {
                let (turn, case, pending) = running.pop_front().expect("five");
                let tier = case.check(pending, &format!("{slots} slots, turn {turn}"));
                assert_ne!(tier, Some(KeyTier::Resident));
            }
        }
        for (turn, case, pending) in running {
            case.check(pending, &format!("{slots} slots, turn {turn}"));
        }
        assert_eq!(gpu.device_allocations(), at_start);
    }
}

#[test]
fn gpu_every_switch_gives_the_cpus_bytes_with_a_late_assignment() {
    let cpu = cpu();
    type Change = fn(&mut DeviceOptions);
    let changes: [Change; 5] = [
        |options| options.is_early = false,
        |options| options.is_split = false,
        |options| options.is_b_g2_on_host = true,
        |options| options.is_split_on_host = true,
        |options| options.transforms = Transforms::Seven,
    ];
    for change in changes {
        for c_source in [CSource::Product, CSource::Synthesised] {
            let gpu = backend(|options| {
                options.is_assignment_late = true;
                options.c_source = c_source;
                change(options);
            });
            let Some(gpu) = gpu else { return };
            for log in [3, 9, 12] {
                let mut rng = ChaCha8Rng::seed_from_u64(log);
                compare(&cpu, &gpu, c_source, circuit(&mut rng, log as u32));
            }
        }
    }
}

/// What proofs of a case take on a backend, and the bytes of it that are no proof's.
fn needs<'a>(gpu: &CudaBackend, case: &'a Case) -> (Needs<'a>, u64) {
    let shape = &*case.job.shape;
    let needs = gpu.needs(&shape.sizes, Counts::of(shape), &*case.job.source);
    (needs, gpu.about.fixed_bytes)
}

/// A device just too small for any other way: it admits the circuit, and proves it between
/// proofs whose keys stay.
#[test]
fn gpu_a_device_without_another_byte_proves_among_others() {
    let (large, small) = (Case::new(18, 1), Case::new(9, 1));
    let adjust = |options: &mut DeviceOptions| {
        options.key_piece_log_max = 12;
        options.slots = 3;
    };
    let Some(gpu) = backend(adjust) else { return };
    let (needs, fixed) = needs(&gpu, &large);
    let apart = needs.ways().filter(|(way, ..)| !way.is_late());
    let apart = apart.map(|(_, _, asked)| asked).min().expect("a way");
    let least = needs.least_bytes();
    assert!(least + (2 << 20) < apart, "{least} {apart}");
    drop(gpu);
    for room in [least, apart - ALIGN] {
        let limit = fixed + room;
        for host_keys in [None, Some(host_keys())] {
            let change = |options: &mut DeviceOptions| {
                adjust(options);
                options.memory_bytes_max = Some(limit);
            };
            let gpu = backend_with(change, ring(), host_keys).expect("there is a device");
            let mut running = VecDeque::new();
            for turn in 0..24 {
                let case = if turn % 3 == 1 { &large } else { &small };
                running.push_back((turn, case, gpu.submit_job(case.placed(turn % 2 == 0))));
                if running.len() == 5 {
                    let (turn, case, pending) = running.pop_front().expect("five");
                    let tier = case.check(pending, &format!("{room}, turn {turn}"));
                    let is_resident = tier == Some(KeyTier::Resident);
                    assert_eq!(is_resident, turn % 3 != 1, "{room}, turn {turn}");
                }
                assert!(gpu.device_bytes() <= limit);
            }
            for (turn, case, pending) in running {
                case.check(pending, &format!("{room}, turn {turn}"));
            }
        }
    }
    // And without that much it says so.
    let gpu = backend(|options| {
        adjust(options);
        options.memory_bytes_max = Some(fixed + least - ALIGN);
    });
    let gpu = gpu.expect("there is a device");
    let error = gpu.submit_job(large.cuda_job()).done();
    let error = error.expect_err("a proof that does not fit");
    let is_told = matches!(error, BackendError::DeviceMemory { asked, .. } if asked == least);
    assert!(is_told, "{error}");
}

/// One proof fails in its late part while others are under way, and of two in a pass.
#[test]
fn gpu_a_proof_that_fails_with_a_late_assignment_fails_alone() {
    let gpu = backend_with(
        |options| {
            options.is_assignment_late = true;
            options.slots = 4;
            options.key_batch = 2;
        },
        ring(),
        Some(host_keys()),
    );
    let Some(gpu) = gpu else { return };
    let (case, other) = (Case::new(10, 1), Case::new(13, 1));
    for round in 0..20 {
        let before = gpu.submit_job(other.placed(round % 2 == 0));
        let twin = gpu.submit_job(case.cuda_job());
        let mut wrong = gpu.submit_job(case.wrong_job(round));
        let after = gpu.submit_job(other.placed(round % 2 == 1));
        assert!(wrong.columns_read().is_some(), "the columns come back");
        let error = wrong.done().expect_err("a value that is no scalar");
        let is_told = matches!(error, BackendError::Unreduced { count: 1, .. });
        assert!(is_told, "{error}");
        case.check(twin, "beside it");
        other.check(before, "before");
        other.check(after, "after");
    }
}

/// The assignment is uploaded after the first transforms of its own proof, and is told.
#[test]
fn gpu_the_late_upload_is_a_phase_after_the_transforms() {
    let Some(gpu) = backend(|options| options.is_assignment_late = true) else {
        return;
    };
    let case = Case::new(12, 1);
    let proved = gpu.submit_job(case.direct()).done();
    let phases = proved.expect("a request that fits").phases;
    let of = |name| phases.iter().filter(move |phase| phase.name == name);
    let uploads: Vec<_> = of("upload").collect();
    let [early, late] = uploads[..] else {
        panic!("{phases:?}");
    };
    let (rows, aux) = (case.assignment.a.len(), case.assignment.aux.len());
    assert_eq!(early.bytes, Some(64 * rows as u64));
    assert_eq!(late.bytes, Some(32 * aux as u64));
    let transformed = of("ntt").map(|phase| phase.end).max();
    // Within what the device's clock can tell.
    let slack = std::time::Duration::from_micros(5);
    assert!(
        late.start + slack >= transformed.expect("transforms"),
        "{phases:?}"
    );
}
