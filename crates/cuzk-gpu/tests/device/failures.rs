//! Every single call of a proof fails in turn, sppark's calls included, until a proof
//! makes fewer. Each time there is an error and no proof, the columns are back, the
//! device holds what it held, and the next proof is right.

use std::collections::BTreeMap;

use cuzk_gpu::BackendError;
use cuzk_gpu::cuda::CudaBackend;

use crate::case::Case;
use crate::faults::{Counted, Fault, failing, unknown_function};
use crate::gpu::{Gpu, outcome, proved};

/// Calls whose errors nobody hears, since they only clean up after a proof that is
/// there already. The context is made current for those.
const UNHEARD: [&str; 7] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuEventDestroy_v2",
    "cuMemFree_v2",
    "cuStreamDestroy_v2",
    "cudaFreeAsync",
    "cudaStreamDestroy",
];

/// Bytes of the driver's own that may come and go.
const DRIVER_BYTES: u64 = 64 << 20;

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
            assert!(UNHEARD.contains(&name), "{place}: a proof all the same");
            assert!(proof == expected, "{place}: wrong bytes");
        }
    }
}

/// The calls that failed, by name.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, u32>);

impl Tally {
    fn add(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    fn print(&self, what: &str, counted: Counted) {
        println!("{what}: {} calls, each failed once", counted.calls);
        for (name, count) in &self.0 {
            println!("{count:6} {name}");
        }
    }
}

#[test]
fn gpu_any_call_of_a_proof_may_fail_once() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(1, 9);
    let expected = case.on_cpu();
    for fault in [Fault::Once, Fault::OutOfMemory] {
        let mut backend = gpu.open();
        assert_eq!(proved(&backend, case.job()), expected);
        let (held, free) = (backend.device_bytes(), gpu.free_bytes());
        let mut tally = Tally::default();
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
            backend = right_again(&gpu, backend, &case, &expected, &place);
            assert_eq!(backend.device_bytes(), held, "{place}, afterwards");
        }
        assert!(tally.0.len() > 8, "calls of many kinds");
        assert!(gpu.free_bytes() + DRIVER_BYTES >= free, "memory is gone");
    }
    assert_eq!(unknown_function(), None, "a function that nothing fails");
}

/// The next proof is right: on this backend, or on another where this one has given its
/// device up.
fn right_again(
    gpu: &Gpu,
    backend: CudaBackend,
    case: &Case,
    expected: &[u8],
    place: &str,
) -> CudaBackend {
    match outcome(&backend, case.job()) {
        Ok(proof) => {
            assert!(proof == expected, "{place}: wrong bytes afterwards");
            backend
        }
        Err(BackendError::DeviceLost { .. }) => {
            println!("{place}: the backend gave its device up");
            drop(backend);
            let fresh = gpu.open();
            assert!(proved(&fresh, case.job()) == expected, "{place}: anew");
            fresh
        }
        Err(error) => panic!("{place}: the next proof: {error}"),
    }
}

/// A backend's first proof, which allocates, loads the key from a file, decodes it, and
/// makes the circuit's lists.
#[test]
fn gpu_any_call_of_a_first_proof_may_fail_once() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(2, 9);
    let expected = case.on_cpu();
    let (_folder, key) = case.key_file();
    let first = |backend: &CudaBackend| outcome(backend, case.job_with(key.clone()));
    let backend = gpu.open();
    assert_eq!(first(&backend).expect("a device that works"), expected);
    let held = backend.device_bytes();
    drop(backend);
    let free = gpu.free_bytes();
    for fault in [Fault::Once, Fault::OutOfMemory] {
        let mut tally = Tally::default();
        for at in 1.. {
            let backend = gpu.open();
            let (result, counted) = failing(at, fault, || first(&backend));
            let Some(name) = counted.failed else {
                assert_eq!(result.expect("no call failed"), expected);
                tally.print(&format!("a first proof, {fault:?}"), counted);
                break;
            };
            let place = format!("{fault:?} at call {at}, {name}");
            assert_failed(&result, &expected, name, &place);
            tally.add(name);
            match first(&backend) {
                Ok(proof) => {
                    assert!(proof == expected, "{place}: wrong bytes afterwards");
                    // No part of a key or a list that was not finished is left.
                    assert_eq!(backend.device_bytes(), held, "{place}, afterwards");
                }
                Err(BackendError::DeviceLost { .. }) => println!("{place}: given up"),
                Err(error) => panic!("{place}: the next proof: {error}"),
            }
        }
    }
    assert!(gpu.free_bytes() + DRIVER_BYTES >= free, "memory is gone");
    assert_eq!(unknown_function(), None, "a function that nothing fails");
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
        backend = right_again(&gpu, backend, &case, &expected, &place);
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
    let (_folder, key) = case.key_file();
    let first = |backend: &CudaBackend| outcome(backend, case.job_with(key.clone()));
    let backend = gpu.open();
    let (proof, counted) = failing(0, Fault::Sticky, || first(&backend));
    assert_eq!(proof.expect("no call failed"), expected);
    drop(backend);
    let free = gpu.free_bytes();
    for at in 1..=counted.calls {
        let backend = gpu.open();
        let ((result, next), seen) = failing(at, Fault::Sticky, || {
            let result = first(&backend);
            let next = first(&backend);
            drop(backend);
            (result, next)
        });
        let name = seen.failed.expect("a call that a proof makes");
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
    assert!(gpu.free_bytes() + DRIVER_BYTES >= free, "memory is gone");
}
