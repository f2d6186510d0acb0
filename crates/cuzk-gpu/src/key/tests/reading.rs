use std::fs;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bellperson::groth16::{create_random_proof, prepare_verifying_key, verify_proof};
use blstrs::Scalar;
use ff::Field;
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::{Products, Scratch, checks, in_place, key_bytes, open, parameters};
use crate::error::KeyError;
use crate::key::{Key, KeyTier, PointCheck, Section, file_digest, read_vk};
use crate::shape::{Bitmap, CircuitShape, CircuitSizes};

#[test]
fn a_key_reads_as_bellperson_wrote_it() {
    let want = parameters();
    for points in [PointCheck::None, PointCheck::OnCurve, PointCheck::Subgroup] {
        let key = open(&key_bytes(), points).unwrap();
        assert_eq!(key.file_bytes(), key_bytes().len() as u64);
        assert_eq!(*key.vk(), want.vk);
        for (section, points) in [
            (Section::Ic, &want.vk.ic),
            (Section::H, &*want.h),
            (Section::L, &*want.l),
            (Section::A, &*want.a),
            (Section::BG1, &*want.b_g1),
        ] {
            let count = points.len();
            assert_eq!(key.count(section), count);
            assert_eq!(key.read_g1(section, 0..count).unwrap(), *points);
            assert_eq!(key.read_g1(section, 1..2).unwrap(), points[1..2]);
            assert_eq!(key.read_g1(section, count..count).unwrap(), []);
            assert_eq!(key.g1(section).unwrap()[..], points[..]);
        }
        assert_eq!(key.count(Section::BG2), want.b_g2.len());
        assert_eq!(key.g2().unwrap()[..], want.b_g2[..]);
        assert_eq!(key.read_g2(1..3).unwrap(), want.b_g2[1..3]);
    }
}

#[test]
fn offsets_are_those_of_the_first_points() {
    let key = open(&key_bytes(), PointCheck::None).unwrap();
    let bytes = key_bytes();
    let at = |section| usize::try_from(key.offset(section)).unwrap();
    assert_eq!(at(Section::VerifyingKey), 0);
    assert_eq!(key.count(Section::VerifyingKey), 6);
    for section in Section::COUNTED {
        let count = u32::from_be_bytes(bytes[at(section) - 4..at(section)].try_into().unwrap());
        assert_eq!(count as usize, key.count(section));
    }
    let first = parameters().b_g2[0].to_uncompressed();
    assert_eq!(bytes[at(Section::BG2)..][..192], first);
}

/// By a thread of its own while every thread of the pool that tables are made in asks too.
#[test]
fn a_verifier_is_made_while_others_ask_for_it() {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        // Who comes first is chance.
        for _ in 0..20 {
            let key = open(&key_bytes(), PointCheck::None).unwrap();
            let all = Barrier::new(rayon::current_num_threads() + 1);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    rayon::broadcast(|_| {
                        all.wait();
                        key.verifier().input_count()
                    })
                });
                all.wait();
                assert_eq!(key.verifier().input_count(), 2);
            });
        }
        done.send(()).expect("the test waits");
    });
    let waited = is_done.recv_timeout(Duration::from_secs(60));
    waited.expect("none waits for another");
}

#[test]
fn proofs_verify_with_the_key_of_the_file() {
    let key = open(&key_bytes(), PointCheck::None).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let proof = create_random_proof(Products, parameters(), &mut rng).unwrap();
    let one = Scalar::ONE;
    let theirs = prepare_verifying_key(key.vk());
    for (inputs, holds) in [([one, one.double()], true), ([one, one], false)] {
        assert_eq!(verify_proof(&theirs, &proof, &inputs).unwrap(), holds);
        assert_eq!(key.verifier().verify(&proof, &inputs), holds);
    }
}

#[test]
fn residents_are_shared_and_let_go() {
    let key = open(&key_bytes(), PointCheck::None).unwrap();
    let want = parameters();
    assert_eq!(key.tier(), KeyTier::File);
    key.load_resident().unwrap();
    key.load_resident().unwrap();
    assert_eq!(key.tier(), KeyTier::Resident);
    for section in [Section::H, Section::L, Section::A, Section::BG1] {
        let points = key.g1(section).unwrap();
        assert_eq!(points[..], key.read_g1(section, 0..points.len()).unwrap());
        assert!(Arc::ptr_eq(&points, &key.g1(section).unwrap()));
    }
    assert!(Arc::ptr_eq(&key.g2().unwrap(), &key.g2().unwrap()));
    assert_eq!(key.g2().unwrap()[..], want.b_g2[..]);

    let points = want.h.len() + want.l.len() + want.a.len() + want.b_g1.len();
    let bytes = 96 * points + 192 * want.b_g2.len();
    assert_eq!(key.resident_bytes(), bytes as u64);

    let held = key.g1(Section::H).unwrap();
    key.drop_resident();
    assert_eq!(key.tier(), KeyTier::File);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn a_failed_load_leaves_nothing() {
    let mut bytes = key_bytes();
    let scratch = Scratch::with(&bytes);
    let key = Key::open(&scratch.path(), &checks(PointCheck::None)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    scratch.overwrite_unnoticed(&bytes);
    let fault = key.load_resident().unwrap_err();
    assert!(
        matches!(
            fault,
            KeyError::Point {
                section: Section::BG2,
                ..
            }
        ),
        "{fault}"
    );
    assert_eq!(key.tier(), KeyTier::File);
}

#[test]
fn a_file_that_shrinks_or_grows_is_an_error() {
    let bytes = key_bytes();
    let scratch = Scratch::with(&bytes);
    let key = Key::open(&scratch.path(), &checks(PointCheck::OnCurve)).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(scratch.path())
        .unwrap();
    for len in [bytes.len() - 1, 1000, 0, bytes.len() + 1] {
        file.set_len(len as u64).unwrap();
        for fault in [
            key.read_g1(Section::H, 0..1).map(drop).unwrap_err(),
            key.g2().map(drop).unwrap_err(),
            key.load_resident().unwrap_err(),
        ] {
            assert!(
                matches!(fault, KeyError::Changed { have, .. } if have == len as u64),
                "{fault}"
            );
        }
    }
    let fault = in_place(key.g2().map(drop).unwrap_err(), &scratch.path());
    insta::assert_snapshot!(fault);
}

#[test]
fn a_file_that_is_replaced_is_read_to_the_end() {
    let scratch = Scratch::with(&key_bytes());
    let key = Key::open(&scratch.path(), &checks(PointCheck::None)).unwrap();
    assert!(!key.is_replaced());
    fs::remove_file(scratch.path()).unwrap();
    assert!(!key.is_replaced(), "by nothing");
    scratch.overwrite(&key_bytes());
    assert!(key.is_replaced());
    assert_eq!(key.g1(Section::H).unwrap()[..], parameters().h[..]);
    key.check_unchanged().unwrap();
}

#[test]
fn a_file_that_is_written_to_in_place_is_an_error() {
    let bytes = key_bytes();
    let scratch = Scratch::with(&bytes);
    scratch.age();
    let key = Key::open(&scratch.path(), &checks(PointCheck::OnCurve)).unwrap();
    key.load_resident().unwrap();
    // The same bytes: nobody can tell, short of reading all of them.
    scratch.overwrite(&bytes);
    assert!(key.is_replaced());
    let mut encoded = [0; 96];
    for fault in [
        key.read_g1(Section::H, 0..1).map(drop).unwrap_err(),
        key.read_g2(0..1).map(drop).unwrap_err(),
        key.read_encoded(Section::L, 0, &mut encoded).unwrap_err(),
        key.check_unchanged().unwrap_err(),
    ] {
        let fault = in_place(fault, &scratch.path()).to_string();
        let want = "key file DIR/test.params changed while in use: it was written to since it was \
                    opened";
        assert_eq!(fault, want);
    }
    // What is in memory stays what it was.
    assert_eq!(key.g1(Section::H).unwrap()[..], parameters().h[..]);
}

#[test]
fn a_file_whose_time_was_set_back_is_told_when_asked() {
    let bytes = key_bytes();
    let scratch = Scratch::with(&bytes);
    let key = Key::open(&scratch.path(), &checks(PointCheck::OnCurve)).unwrap();
    // The clock of the file system is coarse: written until it has moved on.
    while !key.is_replaced() {
        scratch.overwrite_unnoticed(&bytes);
    }
    let fault = key.check_unchanged().unwrap_err();
    assert!(matches!(fault, KeyError::Rewritten { .. }), "{fault}");
}

#[test]
fn another_name_of_a_file_is_no_other_file() {
    let scratch = Scratch::with(&key_bytes());
    let key = Key::open(&scratch.path(), &checks(PointCheck::OnCurve)).unwrap();
    fs::hard_link(scratch.path(), scratch.path().with_extension("link")).unwrap();
    key.check_unchanged().unwrap();
    assert_eq!(key.g1(Section::H).unwrap()[..], parameters().h[..]);
}

/// The shape of [`Products`].
fn shape() -> CircuitShape {
    let bits = |word: u64, len| Bitmap::new(vec![word].into(), len);
    CircuitShape {
        sizes: CircuitSizes {
            inputs: 3,
            aux: 5,
            constraints: 6,
        },
        a_aux: bits(0b11001, 5),
        b_inputs: bits(0b011, 3),
        b_aux: bits(0b00110, 5),
    }
}

#[test]
fn the_shape_of_the_circuit_fits() {
    let key = open(&key_bytes(), PointCheck::None).unwrap();
    key.check_shape(&shape()).unwrap();
}

#[test]
fn another_shape_is_told_by_its_section() {
    let scratch = Scratch::with(&key_bytes());
    let key = Key::open(&scratch.path(), &checks(PointCheck::None)).unwrap();
    let bits = |word: u64, len| Bitmap::new(vec![word].into(), len);
    let mut faults = Vec::new();
    let mut refuse = |change: &dyn Fn(&mut CircuitShape)| {
        let mut other = shape();
        change(&mut other);
        let fault = key.check_shape(&other).unwrap_err();
        faults.push(in_place(fault, &scratch.path()).to_string());
    };
    refuse(&|shape| shape.sizes.inputs = 4);
    refuse(&|shape| shape.sizes.constraints = 9);
    refuse(&|shape| shape.sizes.aux = 6);
    refuse(&|shape| shape.a_aux = bits(1, 5));
    refuse(&|shape| shape.b_aux = bits(1, 5));
    refuse(&|shape| shape.b_inputs = bits(0, 3));
    insta::assert_snapshot!(faults.join("\n"));
}

#[test]
fn digests_are_the_published_kind() {
    // The first half of BLAKE2b-512's well-known test vector, halved again.
    let scratch = Scratch::with(b"abc");
    assert_eq!(
        file_digest(&scratch.path()).unwrap(),
        "ba80a53f981c4d0d6a2797b69f12f6e9"
    );
}

#[test]
fn a_digest_is_compared_if_given() {
    let scratch = Scratch::with(&key_bytes());
    let mut checks = checks(PointCheck::OnCurve);
    checks.digest = Some(file_digest(&scratch.path()).unwrap());
    Key::open(&scratch.path(), &checks).unwrap();
    checks.digest = Some("c3ad7bb549470b82ad52ed070aebb4f4".to_owned());
    let fault = Key::open(&scratch.path(), &checks).unwrap_err();
    assert!(matches!(fault, KeyError::Digest { .. }), "{fault}");
}

#[test]
fn a_verifying_key_has_a_file_of_its_own() {
    let mut bytes = Vec::new();
    parameters().vk.write(&mut bytes).unwrap();
    let scratch = Scratch::with(&bytes);
    assert_eq!(read_vk(&scratch.path()).unwrap(), parameters().vk);

    for len in 0..bytes.len() {
        scratch.overwrite(&bytes[..len]);
        let fault = read_vk(&scratch.path()).unwrap_err();
        assert!(
            matches!(fault, KeyError::Truncated { .. }),
            "{len}: {fault}"
        );
    }
    bytes.push(0);
    scratch.overwrite(&bytes);
    let fault = read_vk(&scratch.path()).unwrap_err();
    assert!(
        matches!(fault, KeyError::Trailing { extra: 1, .. }),
        "{fault}"
    );
}

#[test]
fn keys_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Key>();
}

#[test]
fn a_key_without_points_is_one() {
    let fixed = 864;
    let bytes = [&key_bytes()[..fixed], &[0; 24]].concat();
    let key = open(&bytes, PointCheck::Subgroup).unwrap();
    key.load_resident().unwrap();
    assert_eq!(key.resident_bytes(), 0);
    assert_eq!(key.g1(Section::H).unwrap()[..], []);
    assert_eq!(key.read_g2(0..0).unwrap(), []);
}
