//! Proves that a public number is the square of a secret one. The columns are filled
//! by hand: `cargo run -p cuzk-gpu --example prove_on_cpu`.

use std::{error::Error, num::NonZeroUsize, sync::Arc};

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use bellperson::groth16::{generate_random_parameters, prepare_verifying_key};
use blstrs::{Bls12, Scalar};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions, Job};
use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes, Column, Columns, verify};
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
    let sizes = CircuitSizes {
        inputs: 2,
        aux: 1,
        constraints: 3,
    };
    let shape = Arc::new(CircuitShape {
        sizes,
        a_aux: bits(1, 1),
        b_inputs: bits(0, 2),
        b_aux: bits(1, 1),
    });
    let pool = cuzk_pinned::PinnedPool::heap(cuzk_budget::Budget::new(1 << 20));
    let column = |scalars: &[Scalar], len| {
        let buffer = pool.try_acquire(&[32 * len]).expect("room").remove(0);
        let mut column = Column::new(buffer, len);
        column.scalars_mut()[..scalars.len()].copy_from_slice(scalars);
        column
    };
    let columns = Columns {
        a: column(&[x, one, y], 4),
        b: column(&[x], 4),
        c: Some(column(&[], 4)),
        aux: column(&[x], 1),
    };
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let source = Arc::new(generate_random_parameters::<Bls12, _, _>(Square, rng)?);
    let key = prepare_verifying_key(&source.vk);
    let backend = CpuBackend::new(CpuOptions::new(NonZeroUsize::MIN, 1))?;
    let (inputs, r, s) = (vec![one, y], x, y);
    let job = Job {
        columns,
        inputs,
        shape,
        source,
        r,
        s,
    };
    let proof = backend.submit_job(job).done()?.proof;
    println!("verified: {}", verify(&key, &proof, &[y]));
    Ok(())
}
