//! What key generation does with the files that it finds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bellpepper_core::SynthesisError;
use cuzk_core::keygen::{GeneratedKey, KeyOutput, KeygenError, ToxicWaste, generate, sidecar_path};
use cuzk_core::{BlankCircuit, CircuitId, CircuitSpec};
use cuzk_gpu::key::read_vk;
use cuzk_gpu::{Key, KeyChecks, KeyError, PointCheck};
use cuzk_synth::{Cut, Pass};

use crate::segments::{BLOCKS, Chains};
use crate::toy::{House, Squares};

const CIRCUIT: Squares = Squares { rounds: 20 };

fn make(directory: &Path, seed: u64) -> Result<GeneratedKey, KeygenError> {
    let output = KeyOutput {
        directory,
        refused: &[],
        seed,
    };
    let waste = ToxicWaste::from_seed(seed);
    generate(&CIRCUIT, &waste, &output, &|_, _, _| {})
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name().into_string())
        .collect::<Result<_, _>>()
        .expect("text");
    names.sort();
    names
}

/// The key is of `seed`, and its three files belong together.
fn assert_whole(made: &GeneratedKey, seed: u64) {
    let checks = KeyChecks {
        points: PointCheck::Subgroup,
        digest: None,
    };
    let key = Key::open(&made.params, &checks).expect("a good key");
    assert!(*key.vk() == read_vk(&made.vk).expect("a good verifying key"));
    let sidecar = fs::read_to_string(sidecar_path(&made.params)).expect("a sidecar");
    assert!(sidecar.contains(&format!("\"seed\": {seed},")), "{sidecar}");
    assert_eq!(names(made.params.parent().expect("a directory")).len(), 3);
}

fn vk_path(house: &House) -> PathBuf {
    house.directory.path().join(CIRCUIT.vk_file())
}

#[test]
fn what_a_killed_run_left_is_replaced() {
    // Killed between the verifying key and the proving key, with another seed.
    let house = House::new(&[20]);
    let directory = house.directory.path();
    fs::remove_file(house.params(20)).expect("it is there");
    assert_whole(&make(directory, 3).expect("nothing is in the way"), 3);

    // Killed between the sidecar and the verifying key.
    fs::remove_file(house.params(20)).expect("it is there");
    fs::remove_file(vk_path(&house)).expect("it is there");
    assert_whole(&make(directory, 4).expect("nothing is in the way"), 4);

    // A sidecar that was cut short.
    fs::remove_file(house.params(20)).expect("it is there");
    fs::remove_file(vk_path(&house)).expect("it is there");
    fs::write(sidecar_path(&house.params(20)), "{").expect("writable");
    assert_whole(&make(directory, 5).expect("nothing is in the way"), 5);
}

#[test]
fn a_verifying_key_that_no_unfinished_run_left_stays() {
    let house = House::new(&[20]);
    fs::remove_file(house.params(20)).expect("it is there");
    let sidecar = sidecar_path(&house.params(20));
    let told = fs::read_to_string(&sidecar).expect("readable");
    let before = fs::read(vk_path(&house)).expect("readable");
    // No sidecar, one that says nothing, one of another circuit.
    fs::remove_file(&sidecar).expect("it is there");
    for text in [
        None,
        Some("{".to_owned()),
        Some(told.replace("squares-20", "squares-21")),
    ] {
        if let Some(text) = &text {
            fs::write(&sidecar, text).expect("writable");
        }
        let error = make(house.directory.path(), 3).expect_err("the file is somebody's");
        assert!(
            matches!(&error, KeygenError::Key(KeyError::Exists { path }) if path.ends_with(CIRCUIT.vk_file())),
            "{text:?}: {error}"
        );
        assert_eq!(fs::read(vk_path(&house)).expect("readable"), before);
        assert!(!house.params(20).exists());
    }
}

#[test]
fn no_file_has_its_name_before_the_key_is_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed: 1,
    };
    let watch = |stage: &'static str, _, _| {
        let named = names(directory.path());
        assert!(
            named.iter().all(|name| name.ends_with(".partial")),
            "{stage}: {named:?}"
        );
    };
    let made = generate(&CIRCUIT, &ToxicWaste::from_seed(1), &output, &watch).expect("a key");
    assert_whole(&made, 1);
}

/// A circuit that says so much of where it repeats.
struct Told {
    circuit: Chains,
    is_cut: bool,
    segments: usize,
    is_loop: bool,
}

impl CircuitSpec for Told {
    fn id(&self) -> CircuitId {
        self.circuit.id()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.circuit.synthesize_blank(pass)
    }

    fn cut(&self) -> Option<Cut> {
        self.circuit.cut().filter(|_| self.is_cut)
    }

    fn segments(&self) -> usize {
        self.segments
    }

    fn shortened(&self, blocks: usize) -> Option<BlankCircuit<'_>> {
        self.is_loop.then(|| -> BlankCircuit<'_> {
            Box::new(move |pass| self.circuit.synthesize_blocks(blocks, pass))
        })
    }
}

/// The bytes of a key, and the stages that it took to make it.
fn bytes_of(circuit: &dyn CircuitSpec) -> (Vec<u8>, Vec<&'static str>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed: 9,
    };
    let stages = Mutex::new(Vec::new());
    let progress = |stage, _, _| stages.lock().expect("nobody panics").push(stage);
    let waste = ToxicWaste::from_seed(9);
    let made = generate(circuit, &waste, &output, &progress).expect("a key");
    assert_eq!(names(directory.path()).len(), 3, "nothing else is left");
    let mut stages = stages.into_inner().expect("nobody panics");
    stages.retain(|stage| ["survey", "count", "qap"].contains(stage));
    (fs::read(made.params).expect("a key"), stages)
}

#[test]
fn a_key_from_stored_rows_is_the_key_of_the_whole_circuit() {
    for odd in [None, Some(0), Some(4)] {
        let told = |is_cut, segments| {
            let circuit = Chains { odd, shared: 3 };
            bytes_of(&Told {
                circuit,
                is_cut,
                segments,
                is_loop: false,
            })
        };
        let (whole, stages) = told(false, 1);
        assert_eq!(stages, ["count", "qap"]);
        // How many blocks there are is not known, known, and told wrong.
        for segments in [usize::MAX, BLOCKS, BLOCKS / 2] {
            let (bytes, stages) = told(true, segments);
            assert!(bytes == whole, "{odd:?}, {segments} segments");
            let want: &[&str] = match (odd, segments) {
                (None, usize::MAX | BLOCKS) => &["survey", "qap"],
                (None, _) => &["survey", "qap", "qap"],
                (Some(_), usize::MAX) => &["survey", "count", "qap"],
                // Begun from the first block in vain.
                (Some(_), _) => &["survey", "qap", "count", "qap"],
            };
            assert_eq!(stages, want, "{odd:?}, {segments} segments");
        }
    }
}

/// Three blocks tell a circuit that is a loop, and where they differ it is read whole.
#[test]
fn a_key_of_a_loop_is_the_key_of_the_whole_circuit() {
    for (odd, want) in [
        (None, &["survey", "qap"][..]),
        (Some(2), &["survey", "count", "qap"]),
    ] {
        let told = |is_loop| {
            let circuit = Chains { odd, shared: 3 };
            bytes_of(&Told {
                circuit,
                is_cut: is_loop,
                segments: BLOCKS,
                is_loop,
            })
        };
        let (bytes, stages) = told(true);
        assert_eq!(stages, want, "{odd:?}");
        assert!(bytes == told(false).0, "{odd:?}");
    }
}

/// What the short circuit refuses, or panics of.
struct Short {
    circuit: Chains,
    panics: bool,
}

impl CircuitSpec for Short {
    fn id(&self) -> CircuitId {
        self.circuit.id()
    }

    fn synthesize_blank(&self, pass: &mut Pass<'_>) -> Result<(), SynthesisError> {
        self.circuit.synthesize_blank(pass)
    }

    fn cut(&self) -> Option<Cut> {
        self.circuit.cut()
    }

    fn segments(&self) -> usize {
        BLOCKS
    }

    fn shortened(&self, _: usize) -> Option<BlankCircuit<'_>> {
        Some(Box::new(|pass| {
            self.circuit.synthesize_blocks(2, pass)?;
            assert!(!self.panics, "a fault of the test");
            Err(SynthesisError::AssignmentMissing)
        }))
    }
}

#[test]
fn a_key_is_made_of_the_whole_where_the_short_circuit_refuses() {
    let circuit = Chains::new(None);
    let told = Told {
        circuit: circuit.clone(),
        is_cut: false,
        segments: 1,
        is_loop: false,
    };
    let panics = false;
    let (bytes, stages) = bytes_of(&Short { circuit, panics });
    assert_eq!(stages, ["survey", "qap"]);
    assert!(bytes == bytes_of(&told).0);
}

#[test]
fn a_short_circuit_that_panics_leaves_no_key() {
    let (circuit, panics) = (Chains::new(None), true);
    let short = Short { circuit, panics };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = KeyOutput {
        directory: directory.path(),
        refused: &[],
        seed: 9,
    };
    let make = || generate(&short, &ToxicWaste::from_seed(9), &output, &|_, _, _| {});
    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(make));
    let panic = made.expect_err("it panics");
    assert_eq!(panic.downcast_ref(), Some(&"a fault of the test"));
    assert_eq!(names(directory.path()), [""; 0]);
}
