use std::fs;

use bellperson::groth16::Parameters;
use blstrs::{Bls12, G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;

use super::{Scratch, in_place, key_bytes, parameters};
use crate::error::KeyError;
use crate::key::{KeyWriter, Section, write_vk};

/// Writes bellperson's parameters in pieces of `piece` points, and leaves the
/// finishing to the caller.
fn write(scratch: &Scratch, piece: usize) -> KeyWriter {
    let key = parameters();
    let mut writer = KeyWriter::create(&scratch.path(), &key.vk).unwrap();
    for (section, points) in [
        (Section::H, &key.h),
        (Section::L, &key.l),
        (Section::A, &key.a),
        (Section::BG1, &key.b_g1),
    ] {
        writer.begin(section, points.len()).unwrap();
        for points in points.chunks(piece) {
            writer.write_g1(points).unwrap();
        }
    }
    writer.begin(Section::BG2, key.b_g2.len()).unwrap();
    for points in key.b_g2.chunks(piece) {
        writer.write_g2(points).unwrap();
    }
    writer
}

#[test]
fn a_written_key_is_bellpersons_byte_for_byte() {
    for piece in [1, 2, 1000] {
        let scratch = Scratch::new();
        write(&scratch, piece).finish().unwrap();
        let bytes = fs::read(scratch.path()).unwrap();
        assert_eq!(bytes, key_bytes());
        let read = Parameters::<Bls12>::read(&bytes[..], true).unwrap();
        assert!(read == *parameters());
        assert_eq!(scratch.files(), ["test.params"]);
    }
}

#[test]
fn a_written_verifying_key_is_bellpersons() {
    let scratch = Scratch::new();
    write_vk(&scratch.path(), &parameters().vk).unwrap();
    let mut want = Vec::new();
    parameters().vk.write(&mut want).unwrap();
    assert_eq!(fs::read(scratch.path()).unwrap(), want);
    assert_eq!(scratch.files(), ["test.params"]);

    let fault = write_vk(&scratch.path(), &parameters().vk).unwrap_err();
    assert!(matches!(fault, KeyError::Exists { .. }), "{fault}");
}

#[test]
fn a_key_has_no_name_until_it_is_finished() {
    let scratch = Scratch::new();
    let writer = write(&scratch, 10);
    assert!(!scratch.path().exists());
    assert_eq!(scratch.files().len(), 1);
    drop(writer);
    assert_eq!(scratch.files(), [""; 0]);
}

#[test]
fn an_existing_file_is_never_overwritten() {
    let scratch = Scratch::with(b"precious");
    let fault = KeyWriter::create(&scratch.path(), &parameters().vk).unwrap_err();
    insta::assert_snapshot!(in_place(fault, &scratch.path()));
    assert_eq!(scratch.files(), ["test.params"]);

    // A file that comes into being while the key is written.
    let scratch = Scratch::new();
    let writer = write(&scratch, 10);
    scratch.overwrite(b"precious");
    let fault = writer.finish().unwrap_err();
    assert!(matches!(fault, KeyError::Exists { .. }), "{fault}");
    assert_eq!(fs::read(scratch.path()).unwrap(), b"precious");
    assert_eq!(scratch.files(), ["test.params"]);
}

#[test]
fn two_writers_do_not_meet() {
    let scratch = Scratch::new();
    let (first, second) = (write(&scratch, 10), write(&scratch, 10));
    first.finish().unwrap();
    let fault = second.finish().unwrap_err();
    assert!(matches!(fault, KeyError::Exists { .. }), "{fault}");
    assert_eq!(fs::read(scratch.path()).unwrap(), key_bytes());
    assert_eq!(scratch.files(), ["test.params"]);
}

/// In a container every run may have the same process number.
#[test]
fn what_a_killed_writer_left_does_not_block_the_next() {
    let scratch = Scratch::new();
    let left = |number: u64| {
        let name = format!(".test.params.{}-{number}.partial", std::process::id());
        scratch.path().with_file_name(name)
    };
    // Other tests take numbers too, so many names are taken.
    let count = 2000;
    for number in 0..count {
        fs::write(left(number), b"").unwrap();
    }
    write(&scratch, 10).finish().unwrap();
    assert_eq!(fs::read(scratch.path()).unwrap(), key_bytes());
    assert_eq!(scratch.files().len() as u64, count + 1);
}

#[test]
fn a_directory_that_is_not_there() {
    let scratch = Scratch::new();
    let path = scratch.path().join("below");
    let fault = KeyWriter::create(&path, &parameters().vk).unwrap_err();
    assert!(matches!(fault, KeyError::Io { .. }), "{fault}");
}

#[test]
fn points_at_infinity_are_not_written() {
    let scratch = Scratch::new();
    let mut writer = KeyWriter::create(&scratch.path(), &parameters().vk).unwrap();
    writer.begin(Section::H, 0).unwrap();
    writer.begin(Section::L, 10).unwrap();
    writer.write_g1(&[G1Affine::generator(); 3]).unwrap();
    let (good, infinity) = (G1Affine::generator(), G1Affine::identity());
    let fault = writer
        .write_g1(&[good, good, infinity, good, infinity])
        .unwrap_err();
    drop(writer);
    insta::assert_snapshot!(in_place(fault, &scratch.path()));
    assert_eq!(scratch.files(), [""; 0]);

    let mut vk = parameters().vk.clone();
    vk.gamma_g2 = G2Affine::identity();
    let fault = write_vk(&scratch.path(), &vk).unwrap_err();
    insta::assert_snapshot!(in_place(fault, &scratch.path()));
    assert_eq!(scratch.files(), [""; 0]);
}

#[test]
fn more_points_than_the_format_counts() {
    let scratch = Scratch::new();
    let mut writer = KeyWriter::create(&scratch.path(), &parameters().vk).unwrap();
    let fault = writer.begin(Section::H, 1 << 32).unwrap_err();
    insta::assert_snapshot!(in_place(fault, &scratch.path()));
    writer.begin(Section::H, u32::MAX as usize).unwrap();
}

#[test]
#[should_panic(expected = "points written of section h")]
fn an_incomplete_section_is_a_broken_invariant() {
    let scratch = Scratch::new();
    let mut writer = KeyWriter::create(&scratch.path(), &parameters().vk).unwrap();
    writer.begin(Section::H, 1).unwrap();
    let _ = writer.begin(Section::L, 0);
}
