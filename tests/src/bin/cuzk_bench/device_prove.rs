//! `device-prove`: the prover's stage on a device, key resident, columns in
//! page-locked memory; the proof is checked. With `--peer` another prover makes the
//! same proofs by turns with ours, and both must give the same bytes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use blstrs::Scalar;
use clap::Args;
use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_core::circuit_shape;
use cuzk_core::keygen::{KeyOutput, ToxicWaste, generate_with};
use cuzk_gpu::cuda::CudaBackend;
use cuzk_gpu::{Backend, CircuitShape, Columns, Key, KeyChecks, PointCheck, ProveRequest, Proved};
use cuzk_gpu::{DeviceBuffers, DeviceOptions};
use cuzk_pinned::cuda::{RegisterOptions, RegisteredBacking};
use cuzk_pinned::{AcquireRequest, PinnedPool, PoolOptions};
use cuzk_synth::{AssignColumns, assign};
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record, Series};

use crate::interleave;
use crate::peer::Peer;

/// Bytes of each of the two buffers through which a key is loaded.
const STAGING_BYTES: usize = 64 << 20;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: std::path::PathBuf,
    /// Logarithms of the domains to measure.
    #[arg(long, value_delimiter = ',', default_value = "20,22,24")]
    log_sizes: Vec<u32>,
    /// Shares of full-size values to measure, in a thousand.
    #[arg(long, value_delimiter = ',', default_value = "110,13")]
    full_per_mille: Vec<u32>,
    /// Proofs of each case, after one that warms up.
    #[arg(long, default_value_t = 7)]
    proofs: usize,
    /// Number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Most entries that a multiplication takes at a time, as a logarithm.
    #[arg(long)]
    log_chunk: Option<u32>,
    /// Bits of a multiplication's windows.
    #[arg(long)]
    window_bits: Option<u32>,
    /// The program of `xtask/peers/supraseal`, to be measured beside ours.
    #[arg(long, value_name = "FILE")]
    peer: Option<std::path::PathBuf>,
    /// Where test keys are written while they are used.
    #[arg(long, value_name = "DIR")]
    keys: Option<std::path::PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let list = |values: &[u32]| {
        values
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let (name, claim) = match options.peer {
        None => (
            "device-prove",
            "a warm proof on the device, from columns in page-locked memory to the proof, takes \
             what its kernels and its upload take",
        ),
        Some(_) => (
            "peer-prove",
            "the prover's stage of a warm proof is at least 10 times as fast as the peer's at \
             2^24 with 11 % full scalars, 5 times with 1.3 %, 6 times at 2^20 with 11 %",
        ),
    };
    let mut record = Record::new(
        name,
        claim,
        format!(
            "cuzk-bench device-prove --log-sizes {} --full-per-mille {} --proofs {}{} --out DIR",
            list(&options.log_sizes),
            list(&options.full_per_mille),
            options.proofs,
            if options.peer.is_some() {
                " --peer FILE"
            } else {
                ""
            }
        ),
    );
    let context = cuzk_pinned::cuda::open(options.device)?;
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let budget = Budget::new(1 << 40);
    let pool = PinnedPool::new(
        budget.clone(),
        RegisteredBacking::new(context, RegisterOptions::with_threads(threads))?,
        PoolOptions::STANDARD,
    );
    let mut staging = buffers(&pool, &[STAGING_BYTES; 2])?.into_iter();
    let staging = [0; 2].map(|_| staging.next().expect("two buffers"));
    let mut settings = DeviceOptions::new(options.device, threads, 4);
    settings.window_bits = options.window_bits;
    if let Some(log) = options.log_chunk {
        settings.chunk_len_max = 1 << log;
    }
    let gpu = CudaBackend::start(
        settings,
        DeviceBuffers {
            keys: staging,
            columns: None,
        },
    )?;
    record.machine.gpu = Some(gpu.device_name().to_owned());
    for &log_size in &options.log_sizes {
        for &full_per_mille in &options.full_per_mille {
            let circuit = Mixed {
                log_size,
                full_per_mille,
            };
            let case = measure(options, &gpu, &pool, circuit)?;
            println!("{}", serde_json::to_string_pretty(&case)?);
            record.cases.push(case);
            record.write(&options.out)?;
        }
    }
    println!("{}", record.write(&options.out)?.display());
    Ok(())
}

fn buffers(pool: &PinnedPool, bytes: &[usize]) -> Result<Vec<cuzk_pinned::PinnedBacking>> {
    let request = AcquireRequest {
        buffers: bytes,
        bytes: 0,
        consumer: Consumer("measurement"),
        wait: Wait::with_priority(Priority::NORMAL),
    };
    Ok(pool.try_acquire(&request)?.buffers.into_iter().collect())
}

fn measure(
    options: &Options,
    gpu: &CudaBackend,
    pool: &PinnedPool,
    circuit: Mixed,
) -> Result<Case> {
    let name = format!(
        "2^{}, {} % full scalars",
        circuit.log_size,
        f64::from(circuit.full_per_mille) / 10.0
    );
    let directory = match &options.keys {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir(),
    }?;
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed: 1,
    };
    let begin = Instant::now();
    let made = generate_with(
        gpu,
        &circuit,
        &ToxicWaste::from_seed(1),
        &output,
        &|_, _, _| {},
    )?;
    println!("{name}: key made in {:.1} s", begin.elapsed().as_secs_f64());
    let checks = KeyChecks {
        points: PointCheck::None,
        digest: None,
    };
    let key = Arc::new(Key::open(&made.params, &checks)?);
    let shape_sizes = cuzk_gpu::CircuitSizes {
        inputs: made.sizes.inputs,
        aux: made.sizes.aux,
        constraints: made.sizes.constraints,
    };
    let layout = gpu.layout(&shape_sizes);
    let bytes: Vec<usize> = layout.lens().iter().map(|len| len * 32).collect();
    let begin = Instant::now();
    let mut columns = Columns::from_buffers(buffers(pool, &bytes)?, &layout);
    println!(
        "{name}: columns taken in {:.2} s",
        begin.elapsed().as_secs_f64()
    );
    let begin = Instant::now();
    let assigned = assign(
        AssignColumns {
            a: columns.a.scalars_mut(),
            b: columns.b.scalars_mut(),
            c: None,
            aux: columns.aux.scalars_mut(),
        },
        |pass| bellpepper_core::Circuit::synthesize(circuit, pass),
    )?;
    println!(
        "{name}: synthesised in {:.2} s",
        begin.elapsed().as_secs_f64()
    );
    let shape = Arc::new(circuit_shape(&assigned.sizes, &assigned.densities));
    key.check_shape(&shape)?;

    let mut rest = Some(columns);
    let mut phases: Vec<(f64, Proved)> = Vec::new();
    let mut ours = || -> Result<f64> {
        let columns = rest.take().context("the columns came back")?;
        let begin = Instant::now();
        let (proved, back) = prove(gpu, columns, &assigned.inputs, &shape, &key)?;
        let took = begin.elapsed().as_secs_f64() * 1e3;
        rest = Some(back);
        phases.push((took, proved));
        Ok(took)
    };
    let first_ms = ours()?;
    let mut pairs = Vec::new();
    let mut samples = Vec::new();
    match &options.peer {
        None => {
            for _ in 0..options.proofs {
                samples.push(ours()?);
            }
        }
        Some(program) => {
            let mut peer = Peer::start(program, &made.params, circuit)?;
            pairs = interleave(options.proofs, &mut ours, || peer.prove())?;
            let proof = &phases[0].1.proof;
            ensure!(peer.agrees_with(proof)?, "the peer made another proof");
        }
    }
    let first = phases.remove(0).1;
    ensure!(
        cuzk_gpu::verify(key.prepared_vk(), &first.proof, &assigned.inputs[1..]),
        "the proof does not verify"
    );
    phases.sort_by(|left, right| left.0.total_cmp(&right.0));
    let middle = &phases[phases.len() / 2].1;
    let mut case = match pairs.is_empty() {
        true => Case::alone(name, Series::new(samples, "ms")),
        false => Case::paired(name, "supraseal-c2 0.1.2", &pairs),
    };
    case.phases_ms = middle
        .phases
        .0
        .iter()
        .map(|(name, ms)| ((*name).to_owned(), (ms * 1e3).round() / 1e3))
        .collect();
    case.phases_ms
        .insert("first_with_key_load".to_owned(), first_ms.round());
    case.peak = BTreeMap::from([
        ("device_bytes", gpu.device_bytes()),
        (
            "pinned_bytes",
            bytes.iter().map(|bytes| *bytes as u64).sum(),
        ),
    ]);
    Ok(case)
}

fn prove(
    gpu: &CudaBackend,
    columns: Columns,
    inputs: &[Scalar],
    shape: &Arc<CircuitShape>,
    key: &Arc<Key>,
) -> Result<(Proved, Columns)> {
    let mut pending = gpu.submit(ProveRequest {
        columns,
        inputs: inputs.to_vec(),
        shape: Arc::clone(shape),
        key: Arc::clone(key),
        r: Scalar::from(7),
        s: Scalar::from(9),
        watch: None,
    });
    let back = pending.columns_read().context("the columns were lost")?;
    Ok((pending.done()?, back))
}
