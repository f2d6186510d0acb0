//! Proves that a public number is the square of a secret one, with a key that is in no
//! file: `submit_job` takes bellperson's parameters. The columns are filled by hand:
//! `cargo run -p cuzk-gpu --example prove_on_cpu`.

mod square;

use std::{error::Error, num::NonZeroUsize, sync::Arc};

use bellperson::groth16::generate_random_parameters;
use blstrs::{Bls12, Scalar};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions, Job};
use cuzk_gpu::{Column, Columns, Verifier};
use cuzk_pinned::{AcquireRequest, PinnedPool};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn main() -> Result<(), Box<dyn Error>> {
    let [one, x, y] = [1, 7, 49].map(Scalar::from);
    let shape = Arc::new(square::shape());
    let backend = CpuBackend::new(CpuOptions::new(NonZeroUsize::MIN, 1))?;

    let layout = backend.column_layout(&shape.sizes);
    let buffers: Option<Vec<usize>> = layout.lens().into_iter().map(Column::bytes).collect();
    let pool = PinnedPool::heap(Budget::new(1 << 20));
    let request = AcquireRequest {
        buffers: &buffers.ok_or("columns that are too long")?,
        bytes: 0,
        consumer: Consumer("columns"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    let mut columns = Columns::from_buffers(pool.acquire(&request)?.buffers, &layout);
    columns.a.scalars_mut()[..3].copy_from_slice(&[x, one, y]);
    columns.b.scalars_mut()[0] = x;
    columns.aux.scalars_mut()[0] = x;

    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let source = Arc::new(generate_random_parameters::<Bls12, _, _>(
        square::Square,
        rng,
    )?);
    let verifier = Verifier::new(source.vk.clone());
    let job = Job {
        columns,
        inputs: vec![one, y],
        shape,
        source,
        r: x,
        s: y,
        watch: None,
    };
    let proof = backend.submit_job(job).done()?.proof;
    println!("verified: {}", verifier.verify(&proof, &[y]));
    Ok(())
}
