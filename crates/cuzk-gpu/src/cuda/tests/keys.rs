//! Keys from files, decoded and checked on the device.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use bellperson::groth16::Parameters;
use blstrs::{Bls12, Scalar};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use tempfile::TempDir;

use super::proofs::{bytes, circuit, cpu, cuda_job, proved};
use super::{STAGING_BYTES, backend, backend_with, page_locked};
use crate::column::CColumn;
use crate::cpu::Job;
use crate::cpu::h::CSource;
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::tests::{job, meaningless_key};
use crate::cuda::{CudaBackend, CudaJob, PointBytes};
use crate::key::{Key, KeyChecks, KeyTier, PointCheck, Section};
use crate::{Backend, BackendError, DeviceOptions, KeyMemory, Proved};

pub(super) fn open(path: &Path) -> Arc<Key> {
    let checks = KeyChecks {
        points: PointCheck::None,
        digest: None,
    };
    Arc::new(Key::open(path, &checks).expect("a whole key"))
}

pub(super) const KEY_FILE: &str = "key.params";

/// A job, and its key in a file too.
pub(super) fn written(assignment: &Assignment) -> (TempDir, Job<Parameters<Bls12>>) {
    let parameters = Arc::new(meaningless_key(&assignment.shape(), 52));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = File::create(directory.path().join(KEY_FILE)).expect("a new file");
    parameters.write(file).expect("a file takes all bytes");
    let (r, s) = (Scalar::from(3), Scalar::from(5));
    let job = job(assignment, CColumn::Scratch, parameters, r, s);
    (directory, job)
}

pub(super) fn with_key(job: CudaJob, key: &Arc<Key>) -> CudaJob {
    let source: Arc<Key> = Arc::clone(key);
    CudaJob {
        source: source as Arc<dyn PointBytes>,
        ..job
    }
}

/// A circuit whose key takes several turns of the staging buffers.
#[test]
fn gpu_a_key_file_gives_the_bytes_of_its_points_in_memory() {
    let Some(gpu) = backend(|_| {}) else { return };
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(15), 15));
    let (directory, job) = written(&assignment);
    let path = directory.path().join(KEY_FILE);
    assert!(job.source.l.len() * 96 > 2 * STAGING_BYTES, "several turns");
    let in_memory = cuda_job(&assignment, &job, CSource::Product);
    let from_file = with_key(cuda_job(&assignment, &job, CSource::Product), &open(&path));
    let theirs = cpu().submit_job(job).done().expect("a request that fits");
    for job in [in_memory, from_file] {
        assert_eq!(bytes(&proved(&gpu, job).proof), bytes(&theirs.proof));
    }
}

/// Proves with a damaged copy of a key and then with the whole one.
fn fault(
    gpu: &CudaBackend,
    assignment: &Assignment,
    whole: &Path,
    damage: impl FnOnce(&Key, &mut Vec<u8>),
    new_job: &impl Fn() -> CudaJob,
) -> (BackendError, Proved) {
    let damaged = whole.with_extension("damaged");
    let mut contents = fs::read(whole).expect("a key");
    damage(&open(whole), &mut contents);
    fs::write(&damaged, contents).expect("a copy");
    assert!(!assignment.aux.is_empty());
    let mut pending = gpu.submit_job(with_key(new_job(), &open(&damaged)));
    assert!(pending.columns_read().is_some(), "the columns come back");
    let error = pending.done().expect_err("a damaged key");
    (error, proved(gpu, with_key(new_job(), &open(whole))))
}

#[test]
fn gpu_a_wrong_point_is_told_with_its_place_and_the_next_proof_is_right() {
    let Some(gpu) = backend(|_| {}) else { return };
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(8), 8));
    let (directory, job) = written(&assignment);
    let path = directory.path().join(KEY_FILE);
    let new_job = || cuda_job(&assignment, &job, CSource::Product);
    let expected = proved(&gpu, new_job());
    for section in [
        Section::H,
        Section::L,
        Section::A,
        Section::BG1,
        Section::BG2,
    ] {
        let point_bytes = if section == Section::BG2 { 192 } else { 96 };
        let index = 7;
        type Damage = fn(&mut [u8]);
        let cases: [(&str, Damage); 4] = [
            ("not on the curve", |point| *point.last_mut().unwrap() ^= 1),
            ("bad encoding", |point| point[0] |= 0x80),
            ("bad encoding", |point| point[48..].fill(0x1f)),
            ("point at infinity", |point| {
                point.fill(0);
                point[0] = 0x40;
            }),
        ];
        for (what, damage) in cases {
            let (error, after) = fault(
                &gpu,
                &assignment,
                &path,
                |key, contents| {
                    let at = key.offset(section) as usize + index * point_bytes;
                    damage(&mut contents[at..][..point_bytes]);
                },
                &new_job,
            );
            let text = error.to_string();
            let place = format!("section {section}, point {index} at offset");
            assert!(text.contains(&place) && text.contains(what), "{text}");
            assert_eq!(bytes(&after.proof), bytes(&expected.proof));
        }
    }
}

/// A key that was preloaded is there for the first proof, wherever keys are kept.
#[test]
fn gpu_a_preloaded_key_is_there_for_the_first_proof() {
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(13), 13));
    let (directory, job) = written(&assignment);
    let key = open(&directory.path().join(KEY_FILE));
    let memory = || KeyMemory {
        bytes_max: 1 << 30,
        take: Arc::new(|lens: &[usize]| page_locked(lens)),
    };
    for (tier, is_key_resident, host_keys) in [
        (KeyTier::Resident, true, None),
        (KeyTier::Pinned, false, Some(memory())),
        (KeyTier::File, false, None),
    ] {
        let change = |options: &mut DeviceOptions| options.is_key_resident = is_key_resident;
        let Some(gpu) = backend_with(change, None, host_keys) else {
            return;
        };
        // The second time there is nothing to bring.
        for _ in 0..2 {
            assert_eq!(gpu.preload(&key).expect("a whole key"), tier);
        }
        // And its lists too, which then are there.
        let without = gpu.device_bytes();
        gpu.preload_shape(&job.shape).expect("room");
        let with = gpu.device_bytes();
        gpu.preload_shape(&job.shape).expect("they are there");
        assert!(with > without && gpu.device_bytes() == with);
        let at_start = gpu.key_bytes_brought();
        let new = cuda_job(&assignment, &job, CSource::Product);
        let first = proved(&gpu, with_key(new, &key));
        assert_eq!(first.tier, Some(tier));
        let loads = first.phases.iter().filter(|phase| phase.name == "key_load");
        assert_eq!(loads.count(), 0, "{tier:?}");
        let is_there = tier == KeyTier::Resident;
        assert_eq!(gpu.key_bytes_brought() == at_start, is_there, "{tier:?}");
        let in_memory = cuda_job(&assignment, &job, CSource::Product);
        assert_eq!(bytes(&first.proof), bytes(&proved(&gpu, in_memory).proof));
    }
}

/// One that is damaged says where, and leaves no place taken; several at once come one
/// after the other.
#[test]
fn gpu_preloading_tells_a_wrong_point() {
    let assignment = Assignment::of(circuit(&mut ChaCha8Rng::seed_from_u64(9), 9));
    let (directory, job) = written(&assignment);
    let path = directory.path().join(KEY_FILE);
    let whole = open(&path);
    let mut contents = fs::read(&path).expect("a key");
    let at = whole.offset(Section::A) as usize + 5 * 96;
    contents[at + 95] ^= 1;
    let damaged = path.with_extension("damaged");
    fs::write(&damaged, contents).expect("a copy");
    let damaged = open(&damaged);
    let Some(gpu) = backend(|_| {}) else { return };
    let before = gpu.device_bytes();
    let error = gpu
        .preload(&damaged)
        .expect_err("a damaged key")
        .to_string();
    assert!(error.contains("point 5 at offset"), "{error}");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| gpu.preload(&whole).expect("a whole key"));
        }
    });
    assert!(gpu.device_bytes() > before);
    let new = cuda_job(&assignment, &job, CSource::Product);
    let first = proved(&gpu, with_key(new, &whole));
    assert_eq!(first.tier, Some(KeyTier::Resident));
}
