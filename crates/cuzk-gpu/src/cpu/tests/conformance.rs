//! The backend as any other.

use std::sync::Arc;

use crate::backend::Backend;
use crate::conformance::suite;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::options;
use crate::cpu::{CpuBackend, CpuOptions};

pub(crate) fn make(queue_len_max: usize) -> Option<Arc<dyn Backend>> {
    let backend = CpuBackend::new(CpuOptions {
        queue_len_max,
        ..options(CSource::Product, Transforms::Six)
    });
    Some(Arc::new(backend.expect("threads")))
}

suite!(make);
