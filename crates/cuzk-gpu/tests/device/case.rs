//! Proofs to make: columns, a circuit's shape and a key, all drawn from a seed. Neither
//! prover asks whether they belong to a circuit or whether the key means anything, and
//! both must make the same bytes of them.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellperson::groth16::{Parameters, Proof, VerifyingKey};
use blstrs::{Bls12, G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_gpu::cpu::{CpuBackend, CpuOptions, Job};
use cuzk_gpu::cuda::{CudaJob, PointBytes};
use cuzk_gpu::{Bitmap, CircuitShape, CircuitSizes, Column, Columns, Key, KeyChecks, PointCheck};
use cuzk_pinned::{AcquireRequest, PinnedPool};
use ff::Field;
use group::{Curve, Group};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Threads of the CPU's prover.
const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// One proof to make.
pub(crate) struct Case {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    aux: Vec<Scalar>,
    inputs: Vec<Scalar>,
    shape: Arc<CircuitShape>,
    key: Arc<Parameters<Bls12>>,
    r: Scalar,
    s: Scalar,
}

impl Case {
    /// With 2^log rows less a few. A quarter of the scalars are zero, a quarter one.
    pub(crate) fn new(seed: u64, log: u32) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows = (1usize << log) - 3;
        let sizes = CircuitSizes {
            inputs: 1 + rng.next_u32() as usize % 4,
            aux: rows - 5,
            constraints: rows,
        };
        let shape = CircuitShape {
            sizes,
            a_aux: bitmap(&mut rng, sizes.aux),
            b_inputs: bitmap(&mut rng, sizes.inputs),
            b_aux: bitmap(&mut rng, sizes.aux),
        };
        let mut scalars = |len: usize| -> Vec<Scalar> {
            let scalar = |_| match rng.next_u32() % 4 {
                0 => Scalar::ZERO,
                1 => Scalar::ONE,
                _ => Scalar::random(&mut rng),
            };
            (0..len).map(scalar).collect()
        };
        Self {
            a: scalars(rows),
            b: scalars(rows),
            aux: scalars(sizes.aux),
            inputs: scalars(sizes.inputs),
            r: scalars(1)[0],
            s: scalars(1)[0],
            key: Arc::new(key(&shape, seed)),
            shape: Arc::new(shape),
        }
    }

    /// The job for a device, with the key's points in memory.
    pub(crate) fn job(&self) -> CudaJob {
        let source: Arc<Parameters<Bls12>> = Arc::clone(&self.key);
        self.job_with(source)
    }

    /// The job with another source of the same points.
    fn job_with(&self, source: Arc<dyn PointBytes>) -> CudaJob {
        let rows = self.a.len();
        CudaJob {
            columns: Columns {
                a: column(&self.a, rows),
                b: column(&self.b, rows),
                c: None,
                aux: column(&self.aux, self.aux.len()),
            },
            inputs: self.inputs.clone(),
            shape: Arc::clone(&self.shape),
            source,
            r: self.r,
            s: self.s,
            watch: None,
        }
    }

    /// The same proof for a backend that has seen neither its circuit nor its key.
    pub(crate) fn new_job(&self, path: &Path) -> CudaJob {
        CudaJob {
            shape: Arc::new((*self.shape).clone()),
            ..self.job_with(open(path))
        }
    }

    /// The key in a file, which is gone with the folder.
    pub(crate) fn key_file(&self) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("key.params");
        let file = File::create(&path).expect("a new file");
        self.key.write(file).expect("a file takes all bytes");
        (folder, path)
    }

    /// Bytes of the key's points.
    pub(crate) fn key_bytes(&self) -> u64 {
        let key = &self.key;
        let g1 = key.h.len() + key.l.len() + key.a.len() + key.b_g1.len();
        (g1 * size_of::<G1Affine>() + key.b_g2.len() * size_of::<G2Affine>()) as u64
    }

    /// The proof's bytes as the CPU makes them.
    pub(crate) fn on_cpu(&self) -> Vec<u8> {
        let cpu = CpuBackend::new(CpuOptions::new(THREADS, 1)).expect("threads");
        let domain = self.shape.sizes.domain();
        let mut proved = cpu.submit_job(Job {
            columns: Columns {
                a: column(&self.a, domain),
                b: column(&self.b, domain),
                c: Some(column(&[], domain)),
                aux: column(&self.aux, self.aux.len()),
            },
            inputs: self.inputs.clone(),
            shape: Arc::clone(&self.shape),
            source: Arc::clone(&self.key),
            r: self.r,
            s: self.s,
            watch: None,
        });
        bytes(&proved.done().expect("a request that fits").proof)
    }
}

fn open(path: &Path) -> Arc<Key> {
    let checks = KeyChecks {
        points: PointCheck::None,
        digest: None,
    };
    Arc::new(Key::open(path, &checks).expect("a whole key"))
}

/// A proof as it is sent.
pub(crate) fn bytes(proof: &Proof<Bls12>) -> Vec<u8> {
    let mut bytes = Vec::new();
    proof.write(&mut bytes).expect("a vector takes all bytes");
    bytes
}

fn bitmap(rng: &mut ChaCha8Rng, len: usize) -> Bitmap {
    let words = (0..len.div_ceil(64)).map(|at| {
        let used = (len - at * 64).min(64);
        rng.next_u64() & (u64::MAX >> (64 - used))
    });
    Bitmap::new(words.collect(), len)
}

/// Of the right lengths; its points mean nothing.
fn key(shape: &CircuitShape, seed: u64) -> Parameters<Bls12> {
    let b = shape.b_inputs.ones() + shape.b_aux.ones();
    let (g1, g2) = (g1_points(3, seed), g2_points(3, seed));
    Parameters {
        vk: VerifyingKey {
            alpha_g1: g1[0],
            beta_g1: g1[1],
            delta_g1: g1[2],
            beta_g2: g2[0],
            gamma_g2: g2[1],
            delta_g2: g2[2],
            ic: g1_points(shape.sizes.inputs, seed + 1),
        },
        h: Arc::new(g1_points(shape.sizes.domain() - 1, seed + 2)),
        l: Arc::new(g1_points(shape.sizes.aux, seed + 3)),
        a: Arc::new(g1_points(shape.sizes.inputs + shape.a_aux.ones(), seed + 4)),
        b_g1: Arc::new(g1_points(b, seed + 5)),
        b_g2: Arc::new(g2_points(b, seed + 6)),
    }
}

/// Different points: a first one and a step.
fn chain<P: Group>(len: usize, seed: u64) -> impl Iterator<Item = P> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (first, step) = (P::random(&mut rng), P::random(&mut rng));
    std::iter::successors(Some(first), move |point| Some(*point + step)).take(len)
}

fn g1_points(len: usize, seed: u64) -> Vec<G1Affine> {
    let points: Vec<_> = chain::<G1Projective>(len, seed).collect();
    let mut affine = vec![G1Affine::default(); len];
    G1Projective::batch_normalize(&points, &mut affine);
    affine
}

fn g2_points(len: usize, seed: u64) -> Vec<G2Affine> {
    chain::<G2Projective>(len, seed)
        .map(|point| point.to_affine())
        .collect()
}

/// A column of `len` scalars that begins with `scalars`.
fn column(scalars: &[Scalar], len: usize) -> Column {
    let pool = PinnedPool::heap(Budget::new(1 << 30));
    let request = AcquireRequest {
        buffers: &[Column::bytes(len).expect("a small column")],
        bytes: 0,
        consumer: Consumer("columns"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    let mut acquired = pool.try_acquire(&request).expect("a budget with room");
    let mut column = Column::new(acquired.buffers.remove(0), len);
    column.scalars_mut()[..scalars.len()].copy_from_slice(scalars);
    column
}
