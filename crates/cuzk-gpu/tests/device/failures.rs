//! Every single call of a proof fails in turn, sppark's calls included, until a proof
//! makes fewer. Each time there is an error and no proof, the columns are back, the
//! device holds what it held, and the next proof is right.

use std::collections::BTreeMap;
use std::time::Instant;

use blstrs::{G1Affine, G2Affine, Scalar};
use cuzk_gpu::cuda::{CudaBackend, CudaJob};
use cuzk_gpu::fixed_base::{Multiplier, OnCpu};
use cuzk_gpu::{BackendError, KeyTier};
use group::prime::PrimeCurveAffine;

use crate::case::Case;
use crate::faults::{Counted, Fault, failing, unknown_function};
use crate::gpu::{Gpu, outcome, outcomes, proved};

/// Calls whose errors need not end a proof: they clean up after one that is there already,
/// or wait for a piece of a key whose whole stream is waited for after it. The context is
/// made current for those.
const UNHEARD: [&str; 8] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuEventDestroy_v2",
    "cuEventSynchronize",
    "cuMemFree_v2",
    "cuStreamDestroy_v2",
    "cudaFreeAsync",
    "cudaStreamDestroy",
];

/// Some of the calls of every proof, ours and sppark's, of the driver and of the runtime.
const KINDS: [&str; 5] = [
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchKernel",
];

/// How a backend is opened, once and again.
type Open = fn(&Gpu) -> CudaBackend;

/// Bytes of the driver's own that may come and go.
const DRIVER_BYTES: u64 = 64 << 20;

/// As many bytes are free as were before.
fn assert_free(gpu: &Gpu, before: u64) {
    let now = gpu.free_bytes();
    println!("free on the device: {before} before, {now} now");
    assert!(now + DRIVER_BYTES >= before, "memory is gone");
}

/// An error of a device, not a panic and not a lost answer.
pub(crate) fn assert_typed(error: &BackendError, place: &str) {
    let is_typed = matches!(
        error,
        BackendError::Device { .. }
            | BackendError::DeviceLost { .. }
            | BackendError::DeviceMemory { .. }
    );
    assert!(is_typed, "{place}: {error}");
}

/// What a proof whose call failed may come to.
fn assert_failed(result: &Result<Vec<u8>, BackendError>, expected: &[u8], name: &str, place: &str) {
    match result {
        Err(error) => assert_typed(error, place),
        Ok(proof) => {
            println!("{place}: a proof all the same");
            assert!(UNHEARD.contains(&name), "{place}");
            assert!(proof == expected, "{place}: wrong bytes");
        }
    }
}

/// The calls that failed, by name.
struct Tally {
    begin: Instant,
    failed: BTreeMap<&'static str, u32>,
}

impl Tally {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            failed: BTreeMap::new(),
        }
    }

    fn add(&mut self, name: &'static str) {
        *self.failed.entry(name).or_default() += 1;
    }

    fn print(&self, what: &str, counted: Counted) {
        let elapsed = self.begin.elapsed();
        println!(
            "{what}: {} calls, each failed once, in {elapsed:.1?}",
            counted.calls
        );
        for (name, count) in &self.failed {
            println!("{count:6} {name}");
        }
    }
}

#[test]
fn gpu_any_call_of_a_proof_may_fail_once() {
    let Some(gpu) = Gpu::find() else { return };
    each_call_fails_once(&gpu, Gpu::open);
}

/// Among them those that wait for the transforms and upload the assignment after them.
#[test]
fn gpu_any_call_of_a_proof_with_a_late_assignment_may_fail_once() {
    let Some(gpu) = Gpu::find() else { return };
    each_call_fails_once(&gpu, Gpu::open_late);
}

fn each_call_fails_once(gpu: &Gpu, open: Open) {
    let case = Case::new(1, 9);
    let expected = case.on_cpu();
    for fault in [Fault::Once, Fault::OutOfMemory] {
        let mut backend = open(gpu);
        assert_eq!(proved(&backend, case.job()), expected);
        let (held, free) = (backend.device_bytes(), gpu.free_bytes());
        let mut tally = Tally::new();
        for at in 1.. {
            let (result, counted) = failing(at, fault, || outcome(&backend, case.job()));
            let Some(name) = counted.failed else {
                assert_eq!(result.expect("no call failed"), expected);
                tally.print(&format!("a proof, {fault:?}"), counted);
                break;
            };
            let place = format!("{fault:?} at call {at}, {name}");
            assert_failed(&result, &expected, name, &place);
            assert_eq!(backend.device_bytes(), held, "{place}");
            tally.add(name);
            backend = right_again((gpu, open), backend, || case.job(), &expected, &place);
            assert_eq!(backend.device_bytes(), held, "{place}, afterwards");
        }
        for name in KINDS {
            assert!(tally.failed.contains_key(name), "{name} has not failed");
        }
        assert_free(gpu, free);
    }
    assert_eq!(unknown_function(), None, "a function that nothing fails");
}

/// The next proof is right: on this backend, or on another where this one has given its
/// device up.
fn right_again(
    (gpu, open): (&Gpu, Open),
    backend: CudaBackend,
    job: impl Fn() -> CudaJob,
    expected: &[u8],
    place: &str,
) -> CudaBackend {
    match outcome(&backend, job()) {
        Ok(proof) => {
            assert!(proof == expected, "{place}: wrong bytes afterwards");
            backend
        }
        Err(BackendError::DeviceLost { .. }) => {
            println!("{place}: the backend gave its device up");
            drop(backend);
            let fresh = open(gpu);
            assert!(proved(&fresh, job()) == expected, "{place}: anew");
            fresh
        }
        Err(error) => panic!("{place}: the next proof: {error}"),
    }
}

/// The first proof of a circuit and its key, which finds places for them, loads the key
/// from a file, decodes it, and makes the circuit's lists.
#[test]
fn gpu_any_call_of_a_first_proof_may_fail_once() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(2, 9);
    let expected = case.on_cpu();
    let (_folder, path) = case.key_file();
    let mut backend = gpu.open();
    // Twice: what is no longer used goes when the next proof comes.
    for _ in 0..2 {
        assert_eq!(proved(&backend, case.new_job(&path)), expected);
    }
    let (held, free) = (backend.device_bytes(), gpu.free_bytes());
    for fault in [Fault::Once, Fault::OutOfMemory] {
        let mut tally = Tally::new();
        for at in 1.. {
            let job = case.new_job(&path);
            let (result, counted) = failing(at, fault, || outcome(&backend, job));
            let Some(name) = counted.failed else {
                assert_eq!(result.expect("no call failed"), expected);
                tally.print(&format!("a first proof, {fault:?}"), counted);
                break;
            };
            let place = format!("{fault:?} at call {at}, {name}");
            assert_failed(&result, &expected, name, &place);
            tally.add(name);
            let again = || case.new_job(&path);
            backend = right_again((&gpu, Gpu::open), backend, again, &expected, &place);
            // No part of a key or a list that was not finished is left.
            assert_eq!(backend.device_bytes(), held, "{place}, afterwards");
        }
    }
    assert_free(&gpu, free);
    assert_eq!(unknown_function(), None, "a function that nothing fails");
}

/// Two proofs at once: a call that fails ends one of them at the most, and the other is
/// right.
#[test]
fn gpu_a_call_that_fails_ends_one_proof_of_two() {
    let Some(gpu) = Gpu::find() else { return };
    one_of_two_ends(&gpu.open(), &[Case::new(9, 9), Case::new(10, 8)]);
}

/// Also where each waits for the turn to upload twice, and the other may have it.
#[test]
fn gpu_a_call_that_fails_ends_one_proof_of_two_with_late_assignments() {
    let Some(gpu) = Gpu::find() else { return };
    one_of_two_ends(&gpu.open_late(), &[Case::new(9, 9), Case::new(10, 8)]);
}

fn one_of_two_ends(backend: &CudaBackend, cases: &[Case; 2]) {
    /// Calls from one that fails to the next that is tried.
    const STEP: usize = 3;
    let expected = cases.each_ref().map(Case::on_cpu);
    let jobs = || cases.each_ref().map(Case::job);
    for proof in outcomes(backend, jobs()) {
        proof.expect("a device that works");
    }
    let held = backend.device_bytes();
    for at in (1..).step_by(STEP) {
        let (results, counted) = failing(at, Fault::Once, || outcomes(backend, jobs()));
        let Some(name) = counted.failed else {
            println!("two proofs: {} calls, each {STEP}rd failed", counted.calls);
            break;
        };
        let place = format!("call {at}, {name}");
        let ended = results.iter().filter(|result| result.is_err()).count();
        assert!(ended <= 1, "{place}: {ended} proofs ended");
        assert!(
            ended == 1 || UNHEARD.contains(&name),
            "{place}: both proofs all the same"
        );
        for (result, expected) in results.iter().zip(&expected) {
            match result {
                Ok(proof) => assert!(proof == expected, "{place}: wrong bytes"),
                Err(error) => assert_typed(error, &place),
            }
        }
        for (next, expected) in outcomes(backend, jobs()).into_iter().zip(&expected) {
            let next = next.expect(&place);
            assert!(next == *expected, "{place}: wrong bytes afterwards");
        }
        assert_eq!(backend.device_bytes(), held, "{place}, afterwards");
    }
}

/// A key that comes in pieces, since the arena holds no whole one: of its many calls some,
/// spread over the proof.
#[test]
fn gpu_calls_of_a_streamed_proof_may_fail_once() {
    const TRIED: u64 = 100;
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(8, 18);
    let expected = case.on_cpu();
    let backend = gpu.open_large(2 << 30);
    assert!(proved(&backend, case.job()) == expected);
    let arena_bytes = backend.device_bytes() - case.key_bytes() / 2;
    drop(backend);
    let backend = gpu.open_large(arena_bytes);
    let done = backend.submit_job(case.job()).done();
    assert_eq!(done.expect("it fits in pieces").tier, Some(KeyTier::File));
    let held = backend.device_bytes();
    let (proof, counted) = failing(0, Fault::Once, || outcome(&backend, case.job()));
    assert!(proof.expect("no call failed") == expected);
    for at in (1..=counted.calls).step_by((counted.calls / TRIED + 1) as usize) {
        let (result, seen) = failing(at, Fault::Once, || outcome(&backend, case.job()));
        let name = seen.failed.expect("a call that a proof makes");
        let place = format!("call {at}, {name}");
        assert_failed(&result, &expected, name, &place);
        assert_eq!(backend.device_bytes(), held, "{place}");
        let next = outcome(&backend, case.job());
        assert!(next.expect(&place) == expected, "{place}: wrong bytes");
    }
    println!("a streamed proof: {} calls, {TRIED} failed", counted.calls);
}

/// A question whether an upload has passed fails: never wrong bytes.
#[test]
fn gpu_a_question_that_fails_spoils_no_proof() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(3, 9);
    let expected = case.on_cpu();
    let mut backend = gpu.open();
    for at in 1..=8 {
        let (result, counted) = failing(at, Fault::Poll, || outcome(&backend, case.job()));
        let place = format!("question {at} of {}", counted.calls);
        match result {
            Ok(proof) => assert!(proof == expected, "{place}: wrong bytes"),
            Err(error) => {
                assert!(counted.failed.is_some(), "{place}: {error}");
                assert_typed(&error, &place);
            }
        }
        let device = (&gpu, Gpu::open as Open);
        backend = right_again(device, backend, || case.job(), &expected, &place);
    }
}

/// From some call on everything fails, as after a kernel that failed: no proof, columns
/// back, the next job is refused in words, the backend can be dropped, and another one
/// works once the device does.
#[test]
fn gpu_a_device_that_fails_for_good_is_given_up() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(4, 9);
    let expected = case.on_cpu();
    let (_folder, path) = case.key_file();
    let first = |backend: &CudaBackend| outcome(backend, case.new_job(&path));
    let backend = gpu.open();
    let (proof, counted) = failing(0, Fault::Sticky, || first(&backend));
    assert_eq!(proof.expect("no call failed"), expected);
    drop(backend);
    let free = gpu.free_bytes();
    let begin = Instant::now();
    for at in 1..=counted.calls {
        if at.is_multiple_of(100) {
            println!("{at} of {} calls, {:.1?}", counted.calls, begin.elapsed());
        }
        let backend = gpu.open();
        let (result, seen) = failing(at, Fault::Sticky, || first(&backend));
        // An event that nobody holds any more is used again: a few calls more or less.
        let Some(name) = seen.failed else {
            assert_eq!(result.expect("no call failed"), expected);
            assert!(at + 8 > counted.calls, "{at} of {} calls", counted.calls);
            continue;
        };
        let (next, _) = failing(1, Fault::Sticky, || {
            let next = first(&backend);
            drop(backend);
            next
        });
        let place = format!("from call {at} on, {name}");
        assert_failed(&result, &expected, name, &place);
        assert_typed(&next.expect_err(&place), &place);
    }
    println!(
        "a first proof on a device that fails: {} calls",
        counted.calls
    );
    let backend = gpu.open();
    assert_eq!(proved(&backend, case.job()), expected);
    drop(backend);
    assert_free(&gpu, free);
}

/// Key generation's multiples: the tables, and what is multiplied with them.
#[test]
fn gpu_any_call_of_multiples_may_fail_once() {
    type Points = (Vec<G1Affine>, Vec<G2Affine>);
    fn multiples(on: &dyn Multiplier, scalars: &[Scalar]) -> Result<Points, BackendError> {
        let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
        let tables = on.tables((g1, scalars.len()), (g2, scalars.len()))?;
        Ok((tables.g1(scalars)?, tables.g2(scalars)?))
    }
    let Some(gpu) = Gpu::find() else { return };
    let scalars: Vec<Scalar> = (1..200).map(|k| -Scalar::from(k * k)).collect();
    let expected = multiples(&OnCpu, &scalars).expect("the CPU does not fail");
    // A block of a million takes a gigabyte.
    let backend = gpu.open_large(2 << 30);
    for at in 1.. {
        let (result, counted) = failing(at, Fault::Once, || multiples(&backend, &scalars));
        let Some(name) = counted.failed else {
            assert!(result.expect("no call failed") == expected);
            println!("multiples: {} calls", counted.calls);
            break;
        };
        let place = format!("call {at}, {name}");
        match result {
            Err(error) => assert_typed(&error, &place),
            Ok(points) => {
                assert!(UNHEARD.contains(&name), "{place}: points all the same");
                assert!(points == expected, "{place}: wrong points");
            }
        }
        let next = multiples(&backend, &scalars).expect("a device that works");
        assert!(next == expected, "{place}: wrong points afterwards");
    }
}
