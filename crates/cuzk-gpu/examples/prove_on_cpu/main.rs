//! Proves that a public number is the square of a secret one. The columns are filled
//! by hand: `cargo run -p cuzk-gpu --example prove_on_cpu`.

use std::{error::Error, num::NonZeroUsize, sync::Arc};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{generate_random_parameters, prepare_verifying_key};
use blstrs::{Bls12, Scalar};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions, Job};
use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes, Columns, verify};
use cuzk_pinned::{AcquireRequest, PinnedPool};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

struct Square;

impl Circuit<Scalar> for Square {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let y = cs.alloc_input(|| "y", || Ok(Scalar::from(49)))?;
        let x = cs.alloc(|| "x", || Ok(Scalar::from(7)))?;
        cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [one, x, y] = [1, 7, 49].map(Scalar::from);
    let bits = |set, len| Bitmap::new(Arc::new([set]), len);
    let (a_aux, b_inputs, b_aux) = (bits(1, 1), bits(0, 2), bits(1, 1));
    let (inputs, aux, constraints) = (2, 1, 3);
    let sizes = CircuitSizes {
        inputs,
        aux,
        constraints,
    };
    let shape = Arc::new(CircuitShape {
        sizes,
        a_aux,
        b_inputs,
        b_aux,
    });

    let backend = CpuBackend::new(CpuOptions::new(NonZeroUsize::MIN, 1))?;
    let layout = backend.column_layout(&sizes);
    let buffers: Vec<usize> = layout.lens().iter().map(|len| 32 * len).collect();
    let pool = PinnedPool::heap(Budget::new(1 << 20));
    let wait = Wait::with_priority(Priority::NORMAL);
    let consumer = Consumer("columns");
    let request = AcquireRequest {
        buffers: &buffers,
        bytes: 0,
        consumer,
        wait,
    };
    let mut columns = Columns::from_buffers(pool.acquire(&request)?.buffers, &layout);
    columns.a.scalars_mut()[..3].copy_from_slice(&[x, one, y]);
    columns.b.scalars_mut()[0] = x;
    columns.aux.scalars_mut()[0] = x;

    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let source = Arc::new(generate_random_parameters::<Bls12, _, _>(Square, rng)?);
    let key = prepare_verifying_key(&source.vk);
    let (inputs, r, s) = (vec![one, y], x, y);
    let proof = backend
        .submit_job(Job {
            columns,
            inputs,
            shape,
            source,
            r,
            s,
        })
        .done()?
        .proof;
    println!("verified: {}", verify(&key, &proof, &[y]));
    Ok(())
}
