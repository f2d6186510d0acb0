//! The jobs: a request of each kind, as often as it takes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_core::schedule::Priority;
use cuzk_core::{CircuitSpec, Part, Verifier, Workload, WorkloadError};
use cuzk_filecoin::fixture::{self, FixtureOptions};
use cuzk_filecoin::{FilecoinCircuit, FilecoinWorkload, ProofKind, Request, SectorSize};

use super::{On, Options};
use crate::bed;

const REQUEST_SEED: u64 = 1;

/// What is proved, over and over.
pub(super) struct Jobs {
    kinds: Vec<Of>,
    sector_size: SectorSize,
}

/// One kind.
struct Of {
    kind: ProofKind,
    workload: Arc<FilecoinWorkload>,
    priority: Priority,
}

/// One job.
pub(super) struct Job {
    pub(super) workload: Arc<Numbered>,
    pub(super) priority: Priority,
}

/// A workload under a name of its own, by which its spans are told from others.
pub(super) struct Numbered {
    label: String,
    of: Arc<FilecoinWorkload>,
}

impl Jobs {
    /// Requests and keys, which are made where they are missing.
    pub(super) fn prepare(options: &Options) -> Result<Self> {
        let sector_size = options.sector_size;
        let mut kinds = Vec::new();
        for &kind in &options.kind {
            let request = request(kind, sector_size)?;
            kinds.push(Of {
                kind,
                workload: Arc::new(request.workload()?),
                priority: request.priority,
            });
        }
        let jobs = Self { kinds, sector_size };
        let directory = &options.keys;
        let missing: Vec<FilecoinCircuit> = jobs
            .circuits()
            .into_iter()
            .filter(|circuit| !directory.join(circuit.params_file()).exists())
            .collect();
        if !missing.is_empty() {
            make_keys(options.backend, directory, &missing)?;
        }
        Ok(jobs)
    }

    /// As cases name them.
    pub(super) fn name(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|of| of.kind.short_name()).collect();
        format!("{}-{}", kinds.join("+"), self.sector_size.short_name())
    }

    /// Each circuit once.
    pub(super) fn circuits(&self) -> Vec<FilecoinCircuit> {
        let mut circuits: Vec<FilecoinCircuit> = Vec::new();
        for of in &self.kinds {
            let circuit = of.workload.filecoin_circuit();
            if circuits.iter().all(|before| before.id() != circuit.id()) {
                circuits.push(circuit);
            }
        }
        circuits
    }

    /// So many jobs, the kinds by turns; `series` is in their names.
    pub(super) fn make(&self, count: usize, series: &str) -> Vec<Job> {
        let kinds = self.kinds.iter().cycle().take(count).enumerate();
        kinds
            .map(|(number, of)| Job {
                workload: Arc::new(Numbered {
                    label: format!("{} {series}.{number}", of.kind.short_name()),
                    of: Arc::clone(&of.workload),
                }),
                priority: of.priority,
            })
            .collect()
    }

    /// Parts of so many jobs.
    pub(super) fn parts(&self, count: usize) -> usize {
        let kinds = self.kinds.iter().cycle().take(count);
        kinds.map(|of| of.workload.part_count()).sum()
    }
}

/// A synthetic request: no file is needed where this runs.
fn request(kind: ProofKind, size: SectorSize) -> Result<Request> {
    let options = FixtureOptions::default();
    let mut json = Vec::new();
    fixture::generate(kind, size, REQUEST_SEED, &options)?.write_json(&mut json)?;
    let begin = Instant::now();
    let request = Request::from_json(&json)?;
    // The engine does not: whoever takes requests from others checks them before.
    request.workload()?.check_vanilla()?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{kind} {size}: a request, checked in {seconds:.1} s");
    Ok(request)
}

#[cfg(feature = "cuda")]
fn make_keys(on: On, directory: &Path, circuits: &[FilecoinCircuit]) -> Result<()> {
    if on == On::Cpu {
        return keys_with(&cuzk_gpu::fixed_base::OnCpu, directory, circuits);
    }
    let pool = bed::pool(0)?;
    keys_with(&bed::start(0, &pool, None, |_| {})?, directory, circuits)
}

#[cfg(not(feature = "cuda"))]
fn make_keys(_on: On, directory: &Path, circuits: &[FilecoinCircuit]) -> Result<()> {
    keys_with(&cuzk_gpu::fixed_base::OnCpu, directory, circuits)
}

fn keys_with(
    multiplier: &dyn cuzk_gpu::fixed_base::Multiplier,
    directory: &Path,
    circuits: &[FilecoinCircuit],
) -> Result<()> {
    for circuit in circuits {
        bed::key_in(directory, circuit, multiplier)?;
    }
    Ok(())
}

impl Workload for Numbered {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        self.of.circuit()
    }

    fn part_count(&self) -> usize {
        self.of.part_count()
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.of.part(index)
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        self.of.verify(verifier, proofs)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.of.encode(proofs)
    }
}
