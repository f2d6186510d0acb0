//! The device as any other backend, and step by step beside the CPU.

use std::sync::Arc;

use blstrs::Scalar;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::proofs::circuit;
use crate::backend::Backend;
use crate::conformance::{Case, suite};
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::conformance::make as cpu;
use crate::dual::Dual;
use crate::dual::tests::each_flip_is_named;
use crate::error::BackendError;

fn make(queue_len_max: usize) -> Option<Arc<dyn Backend>> {
    let backend = super::backend(|options| options.queue_len_max = queue_len_max)?;
    Some(Arc::new(backend))
}

mod gpu_conformance {
    use super::*;
    suite!(make);
}

mod gpu_conformance_with_c_from_synthesis {
    use super::*;
    suite!(|queue_len_max| {
        let backend = crate::cuda::tests::backend(|options| {
            options.queue_len_max = queue_len_max;
            options.c_source = CSource::Synthesised;
            options.transforms = Transforms::Seven;
        })?;
        Some(Arc::new(backend) as Arc<dyn Backend>)
    });
}

mod gpu_conformance_with_work_on_the_host {
    use super::*;
    suite!(|queue_len_max| {
        let backend = crate::cuda::tests::backend(|options| {
            options.queue_len_max = queue_len_max;
            options.is_split_on_host = true;
            options.is_b_g2_on_host = true;
        })?;
        Some(Arc::new(backend) as Arc<dyn Backend>)
    });
}

mod gpu_conformance_with_streamed_keys {
    use super::*;
    suite!(|queue_len_max| {
        let backend = crate::cuda::tests::backend(|options| {
            options.queue_len_max = queue_len_max;
            options.is_key_resident = false;
            options.key_batch = 2;
        })?;
        Some(Arc::new(backend) as Arc<dyn Backend>)
    });
}

mod gpu_conformance_with_a_late_assignment {
    use super::*;
    suite!(|queue_len_max| {
        let backend = crate::cuda::tests::backend(|options| {
            options.queue_len_max = queue_len_max;
            options.is_assignment_late = true;
            options.key_batch = 2;
        })?;
        Some(Arc::new(backend) as Arc<dyn Backend>)
    });
}

mod gpu_dual_conformance {
    use super::*;
    suite!(|queue_len_max| {
        let dual = Dual::start(make(4)?, cpu(4)?, queue_len_max).expect("a thread");
        Some(Arc::new(dual) as Arc<dyn Backend>)
    });
}

#[test]
fn gpu_each_flip_on_either_side_is_named() {
    let cpu = cpu(4).expect("always there");
    for is_assignment_late in [false, true] {
        let gpu = super::backend(|options| options.is_assignment_late = is_assignment_late);
        let Some(gpu) = gpu else { return };
        let gpu: Arc<dyn Backend> = Arc::new(gpu);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for log in [3, 10] {
            let case = Case::meaningless(circuit(&mut rng, log), 91);
            each_flip_is_named(&gpu, &cpu, &case);
        }
    }
}

/// What is refused by its counts would not have been proved, and what is proved is not
/// refused, on devices with less and less memory.
#[test]
fn gpu_what_is_refused_by_its_counts_could_not_be_proved() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let case = Case::meaningless(circuit(&mut rng, 14), 93);
    let (r, s) = (Scalar::from(3), Scalar::from(4));
    let mut admitted = Vec::new();
    for mib in [8, 16, 24, 32, 48, 64, 96, 128, 512] {
        let gpu = super::backend(|options| options.memory_bytes_max = Some(mib << 20));
        let Some(gpu) = gpu else { return };
        let check = gpu.check(&case.shape.sizes, &case.key);
        let proof = gpu.submit(case.request(&gpu, r, s)).done();
        match (&check, &proof) {
            (Ok(()), _) => {}
            (Err(BackendError::DeviceMemory { .. }), Err(BackendError::DeviceMemory { .. })) => {}
            other => panic!("{mib} MiB: {other:?}"),
        }
        admitted.push((check.is_ok(), proof.is_ok()));
    }
    assert_eq!(admitted[0], (false, false), "{admitted:?}");
    assert_eq!(admitted.last(), Some(&(true, true)), "{admitted:?}");
}

/// A circuit whose columns are shown in more than one piece.
#[test]
fn gpu_a_large_circuit_agrees_step_by_step() {
    let Some(gpu) = make(4) else { return };
    let dual = Dual::start(gpu, cpu(4).expect("always there"), 1).expect("a thread");
    let case = Case::meaningless(circuit(&mut ChaCha8Rng::seed_from_u64(8), 17), 92);
    let (r, s) = (Scalar::from(3), Scalar::from(4));
    let proved = crate::conformance::proved(&dual, case.request(&dual, r, s));
    assert_eq!(proved.phases.last().map(|phase| phase.name), Some("twin"));
}
