//! sppark's transforms and `msm_t`, as they come, as a warm child of `cuzk-bench kernels`.
//!
//! Arguments: the key file, the logarithm of the circuit's size, and its full-size values
//! in a thousand. It makes the circuit's five vectors of scalars on the processor and
//! brings them and the key's points to the device. For each line it reads it runs the six
//! transforms of a proof and the five sums, each alone, and prints a line of JSON: their
//! milliseconds, and the proof that the sums make. It ends with its input.

#[path = "../../../../tests/src/mixed/circuit.rs"]
#[allow(dead_code, unreachable_pub)]
mod circuit;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::{Write, stdin, stdout};
use std::mem::MaybeUninit;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bellpepper_core::Circuit;
use bellperson::groth16::Proof;
use blstrs::{Bls12, G1Projective, G2Affine, G2Projective, Scalar};
use circuit::Mixed;
use cuzk_gpu::cpu::h::{CSource, Transforms, quotient};
use cuzk_gpu::cpu::ntt::Domain;
use cuzk_gpu::{Key, KeyChecks, PointCheck, Section};
use cuzk_synth::{Assigned, GrownColumns, assign_growing};
use group::Curve;
use serde::Serialize;

// Their objects are linked only where the crates are named.
use {blst as _, sppark as _};

/// What `cuzk-bench` proves with too: the same bytes are expected.
const R: u64 = 7;
const S: u64 = 9;

unsafe extern "C" {
    fn peer_load(
        is_g2: c_int,
        points: *const c_void,
        scalars: *const c_void,
        count: usize,
        query: *mut *mut c_void,
    ) -> c_int;
    fn peer_sum(query: *mut c_void, sum: *mut c_void, ms: *mut f64) -> c_int;
    fn peer_transforms(log_len: u32, ms: *mut f64) -> c_int;
}

/// One pass over all kernels.
#[derive(Serialize)]
struct Pass {
    phases_ms: BTreeMap<&'static str, f64>,
    proof: String,
}

/// Points and scalars on the device.
struct Query<P> {
    handle: *mut c_void,
    sum: std::marker::PhantomData<P>,
}

/// A group element whose memory is a point of the library in Jacobian coordinates.
trait Sum {
    const IS_G2: c_int;
}

impl Sum for G1Projective {
    const IS_G2: c_int = 0;
}

impl Sum for G2Projective {
    const IS_G2: c_int = 1;
}

impl<P: Sum> Query<P> {
    fn load<A>(points: &[A], scalars: &[Scalar]) -> Result<Self> {
        ensure!(points.len() == scalars.len(), "a point for each scalar");
        let mut handle = std::ptr::null_mut();
        // SAFETY: both slices have the length that is passed, and are copied before it
        // returns; points and scalars are Montgomery limbs, as the kernels take them.
        let code = unsafe {
            peer_load(
                P::IS_G2,
                points.as_ptr().cast(),
                scalars.as_ptr().cast(),
                points.len(),
                &mut handle,
            )
        };
        ensure!(code == 0, "loading a query failed");
        Ok(Self {
            handle,
            sum: std::marker::PhantomData,
        })
    }

    fn sum(&self, ms: &mut f64) -> Result<P> {
        let mut sum = MaybeUninit::<P>::uninit();
        // SAFETY: `load` made the handle, of this group.
        let code = unsafe { peer_sum(self.handle, sum.as_mut_ptr().cast(), ms) };
        ensure!(code == 0, "a sum failed");
        // SAFETY: written when there was no error.
        Ok(unsafe { sum.assume_init() })
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what| arguments.next().with_context(|| format!("no {what}"));
    let key = PathBuf::from(next("key file")?);
    let circuit = Mixed {
        log_size: next("size")?.parse()?,
        full_per_mille: next("share")?.parse()?,
    };
    let key = Key::open(
        &key,
        &KeyChecks {
            points: PointCheck::None,
            digest: None,
        },
    )?;
    let (columns, assigned) = assign_growing(false, |pass| circuit.synthesize(pass))?;
    let (a, b) = dense(&assigned, &columns.aux);
    let h = coefficients(&columns)?;
    let g1 = |section| key.read_g1(section, 0..key.count(section));
    let h = Query::<G1Projective>::load(&g1(Section::H)?, &h)?;
    let l = Query::<G1Projective>::load(&g1(Section::L)?, &columns.aux)?;
    let a = Query::<G1Projective>::load(&g1(Section::A)?, &a)?;
    let b_g1 = Query::<G1Projective>::load(&g1(Section::BG1)?, &b)?;
    let b_g2: Vec<G2Affine> = key.read_g2(0..key.count(Section::BG2))?;
    let b_g2 = Query::<G2Projective>::load(&b_g2, &b)?;
    drop(columns);

    let vk = key.vk();
    let (r, s) = (Scalar::from(R), Scalar::from(S));
    for line in stdin().lines() {
        line?;
        let mut phases_ms = BTreeMap::new();
        let transforms_ms: &mut f64 = phases_ms.entry("ntt").or_default();
        // SAFETY: the place is borrowed until the call has returned.
        let code = unsafe { peer_transforms(circuit.log_size, transforms_ms) };
        ensure!(code == 0, "the transforms failed");
        let h = h.sum(phases_ms.entry("msm_h").or_default())?;
        let l = l.sum(phases_ms.entry("msm_l").or_default())?;
        let a = a.sum(phases_ms.entry("msm_a").or_default())?;
        let b_g1 = b_g1.sum(phases_ms.entry("msm_b_g1").or_default())?;
        let b_g2 = b_g2.sum(phases_ms.entry("msm_b_g2").or_default())?;

        let proof_a: G1Projective = a + vk.alpha_g1 + vk.delta_g1 * r;
        let blinded_b: G1Projective = b_g1 + vk.beta_g1 + vk.delta_g1 * s;
        let proof = Proof::<Bls12> {
            a: proof_a.to_affine(),
            b: (b_g2 + vk.beta_g2 + vk.delta_g2 * s).to_affine(),
            c: (h + l + (a + vk.alpha_g1) * s + blinded_b * r).to_affine(),
        };
        let mut bytes = Vec::new();
        proof.write(&mut bytes)?;
        let pass = Pass {
            phases_ms,
            proof: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let mut out = stdout().lock();
        serde_json::to_writer(&mut out, &pass)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// The scalars of the queries a and b.
fn dense(assigned: &Assigned, aux: &[Scalar]) -> (Vec<Scalar>, Vec<Scalar>) {
    let densities = &assigned.densities;
    let chosen = |bits: &cuzk_synth::DensityBits, values: &[Scalar]| -> Vec<Scalar> {
        let values = values.iter().enumerate();
        values
            .filter(|(index, _)| bits.contains(*index))
            .map(|(_, value)| *value)
            .collect()
    };
    let mut a = assigned.inputs.clone();
    a.extend(chosen(&densities.a_aux, aux));
    let mut b = chosen(&densities.b_inputs, &assigned.inputs);
    b.extend(chosen(&densities.b_aux, aux));
    (a, b)
}

/// The quotient polynomial's coefficients, but the last, which is zero.
fn coefficients(columns: &GrownColumns) -> Result<Vec<Scalar>> {
    let len = columns.a.len().next_power_of_two();
    let domain = Domain::new(len).context("no domain of this size")?;
    let padded = |column: &[Scalar]| {
        let mut column = column.to_vec();
        column.resize(len, Scalar::from(0));
        column
    };
    let (mut a, mut b) = (padded(&columns.a), padded(&columns.b));
    let mut c = vec![Scalar::from(0); len];
    quotient(
        &domain,
        &mut a,
        &mut b,
        &mut c,
        CSource::Product,
        Transforms::Six,
    );
    a.pop();
    Ok(a)
}
