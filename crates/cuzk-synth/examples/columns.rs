//! Synthesises a small circuit twice: once growing on the heap, once into columns
//! of the exact size that the first run taught.

use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
use blstrs::Scalar;
use cuzk_synth::{AssignColumns, Pass, SynthError, assign, assign_growing};

/// Knows x with x^(2^rounds) = y, y public.
fn repeated_square(pass: &mut Pass<'_>, x: u64, rounds: usize) -> Result<(), SynthesisError> {
    let mut x = AllocatedNum::alloc(pass.namespace(|| "x"), || Ok(Scalar::from(x)))?;
    for round in 0..rounds {
        x = x.square(pass.namespace(|| format!("round {round}")))?;
    }
    x.inputize(pass.namespace(|| "y"))
}

fn main() -> Result<(), SynthError> {
    let (grown, first) = assign_growing(false, |pass| repeated_square(pass, 3, 100))?;
    println!("first run: {:?}", first.sizes);

    let zeros = |len| vec![Scalar::from(0); len];
    let mut a = zeros(first.sizes.constraints);
    let mut b = zeros(first.sizes.constraints);
    let mut aux = zeros(first.sizes.aux);
    let columns = AssignColumns {
        a: &mut a,
        b: &mut b,
        c: None,
        aux: &mut aux,
    };
    let second = assign(columns, |pass| repeated_square(pass, 3, 100))?;

    assert_eq!(first, second);
    assert_eq!((&grown.a, &grown.b, &grown.aux), (&a, &b, &aux));
    println!(
        "dense: {} of {} private variables in A, {} in B",
        second.densities.a_aux.ones(),
        second.sizes.aux,
        second.densities.b_aux.ones(),
    );
    Ok(())
}
