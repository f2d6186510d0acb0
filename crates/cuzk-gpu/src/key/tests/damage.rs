use std::collections::BTreeSet;
use std::path::Path;

use blstrs::{G1Affine, G1Projective, G2Affine};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use proptest::prelude::*;

use super::{Scratch, checks, in_place, key_bytes, open, parameters};
use crate::error::{KeyError, PointFault};
use crate::key::point::Point;
use crate::key::section::{COUNT_BYTES, FIXED_POINT_BYTES};
use crate::key::{Key, KeyWriter, PointCheck, Section};

/// The base field's modulus, big-endian.
const MODULUS: [u8; 48] = [
    0x1a, 0x01, 0x11, 0xea, 0x39, 0x7f, 0xe6, 0x9a, 0x4b, 0x1b, 0xa7, 0xb6, 0x43, 0x4b, 0xac, 0xd7,
    0x64, 0x77, 0x4b, 0x84, 0xf3, 0x85, 0x12, 0xbf, 0x67, 0x30, 0xd2, 0xa0, 0xf6, 0xb0, 0xf6, 0x24,
    0x1e, 0xab, 0xff, 0xfe, 0xb1, 0x53, 0xff, 0xff, 0xb9, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xaa, 0xab,
];

/// Start (with the count), first point and end of each section.
fn boundaries() -> Vec<(Section, [usize; 3])> {
    let key = open(&key_bytes(), PointCheck::None).unwrap();
    let fixed: usize = FIXED_POINT_BYTES.iter().sum();
    let mut boundaries = vec![(Section::VerifyingKey, [0, 0, fixed])];
    for section in Section::COUNTED {
        let first = usize::try_from(key.offset(section)).unwrap();
        let end = first + key.count(section) * section.point_bytes();
        boundaries.push((section, [first - COUNT_BYTES, first, end]));
    }
    assert_eq!(boundaries[6].1[2], key_bytes().len());
    boundaries
}

#[test]
fn a_cut_file_is_told_by_the_section_that_is_cut() {
    let bytes = key_bytes();
    let mut messages = Vec::new();
    let places = boundaries().into_iter().flat_map(|(_, places)| places);
    let lens: BTreeSet<usize> = places
        .flat_map(|place| [place.saturating_sub(1), place, place + 1])
        .filter(|len| *len < bytes.len())
        .collect();
    for len in lens {
        let fault = open(&bytes[..len], PointCheck::OnCurve).unwrap_err();
        let cut = boundaries().into_iter().find(|(_, ends)| ends[2] > len);
        let (want, [start, ..]) = cut.unwrap();
        match fault {
            KeyError::Truncated {
                section,
                offset,
                need,
                have,
                ..
            } => {
                assert_eq!((section, offset), (want, start as u64), "{len}");
                assert_eq!(have, (len - start) as u64, "{len}");
                assert!(need > have, "{len}");
            }
            other => panic!("{len}: {other}"),
        }
        messages.push(fault.to_string());
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn counts_too_large_are_truncations() {
    let mut messages = Vec::new();
    for (section, [start, first, _]) in boundaries().into_iter().skip(1) {
        let mut bytes = key_bytes();
        bytes[start..first].fill(0xff);
        let fault = open(&bytes, PointCheck::OnCurve).unwrap_err();
        let want = u64::from(u32::MAX) * section.point_bytes() as u64 + 4;
        assert!(
            matches!(fault, KeyError::Truncated { section: cut, need, .. } if cut == section && need == want),
            "{fault}"
        );
        messages.push(fault.to_string());
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_count_one_too_small_shifts_what_follows() {
    for (section, [_, first, _]) in boundaries().into_iter().skip(1) {
        let mut bytes = key_bytes();
        bytes[first - 1] -= 1;
        let fault = open(&bytes, PointCheck::None).unwrap_err();
        match section {
            Section::BG2 => {
                assert!(
                    matches!(fault, KeyError::Trailing { extra: 192, .. }),
                    "{fault}"
                )
            }
            _ => assert!(matches!(fault, KeyError::Truncated { .. }), "{fault}"),
        }
    }
}

#[test]
fn bytes_after_the_last_section() {
    let mut bytes = key_bytes();
    bytes.extend([0; 3]);
    let fault = open(&bytes, PointCheck::None).unwrap_err();
    assert!(matches!(fault, KeyError::Trailing { extra: 3, .. }));
    insta::assert_snapshot!(fault);
}

#[test]
fn files_that_are_no_keys() {
    let page = "<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n";
    let pointer = "version https://git-lfs.example/spec/v1\noid sha256:00\nsize 11\n";
    let mut vk = Vec::new();
    parameters().vk.write(&mut vk).unwrap();
    let mut messages = Vec::new();
    for bytes in [
        b"".to_vec(),
        vec![0; 100],
        vec![0; 5000],
        page.into(),
        page.repeat(100).into(),
        pointer.into(),
        vk,
    ] {
        messages.push(open(&bytes, PointCheck::None).unwrap_err().to_string());
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn no_file_and_a_directory() {
    let scratch = Scratch::new();
    let missing = Key::open(&scratch.path(), &checks(PointCheck::None)).unwrap_err();
    std::fs::create_dir(scratch.path()).unwrap();
    let directory = Key::open(&scratch.path(), &checks(PointCheck::None)).unwrap_err();
    let messages = [missing, directory].map(|fault| in_place(fault, &scratch.path()).to_string());
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_flipped_bit_in_each_section() {
    let mut messages = Vec::new();
    for (section, [_, _, end]) in boundaries() {
        let mut bytes = key_bytes();
        bytes[end - 1] ^= 1;
        let fault = open(&bytes, PointCheck::OnCurve).unwrap_err();
        assert!(
            matches!(fault, KeyError::Point { section: at, what: PointFault::NotOnCurve, .. } if at == section),
            "{fault}"
        );
        messages.push(fault.to_string());
    }
    insta::assert_snapshot!(messages.join("\n"));
}

/// Replaces the second point of a section (the first of the fixed ones).
fn with_point(section: Section, point: &[u8]) -> Vec<u8> {
    let mut bytes = key_bytes();
    let (_, [_, first, _]) = boundaries()
        .into_iter()
        .find(|(at, _)| *at == section)
        .unwrap();
    let start = match section {
        Section::VerifyingKey => 0,
        counted => first + counted.point_bytes(),
    };
    bytes[start..start + point.len()].copy_from_slice(point);
    bytes
}

fn fault_of(section: Section, point: &[u8], points: PointCheck) -> PointFault {
    match open(&with_point(section, point), points).unwrap_err() {
        KeyError::Point {
            section: at,
            index,
            what,
            ..
        } => {
            assert_eq!(at, section);
            assert_eq!(index, u64::from(section != Section::VerifyingKey));
            what
        }
        other => panic!("{other}"),
    }
}

/// All sections but the last, which are of G1 or begin with a G1 point.
const G1_SECTIONS: [Section; 6] = [
    Section::VerifyingKey,
    Section::Ic,
    Section::H,
    Section::L,
    Section::A,
    Section::BG1,
];

/// A G1 point on the curve and outside the subgroup, found by its x coordinate.
fn outside_g1() -> G1Affine {
    (1..=u8::MAX)
        .find_map(|x| {
            let mut compressed = [0; 48];
            compressed[0] = 0x80;
            compressed[47] = x;
            let point = G1Affine::from_compressed_unchecked(&compressed);
            Option::<G1Affine>::from(point).filter(|point| !bool::from(point.is_torsion_free()))
        })
        .expect("most points are outside")
}

fn outside_g2() -> G2Affine {
    (1..=u8::MAX)
        .find_map(|x| {
            let mut compressed = [0; 96];
            compressed[0] = 0x80;
            compressed[95] = x;
            let point = G2Affine::from_compressed_unchecked(&compressed);
            Option::<G2Affine>::from(point).filter(|point| !bool::from(point.is_torsion_free()))
        })
        .expect("most points are outside")
}

#[test]
fn infinity_is_refused() {
    let g1 = G1Affine::identity().to_uncompressed();
    let g2 = G2Affine::identity().to_uncompressed();
    for points in [PointCheck::OnCurve, PointCheck::Subgroup] {
        for section in G1_SECTIONS {
            assert_eq!(fault_of(section, &g1, points), PointFault::Infinity);
        }
        assert_eq!(fault_of(Section::BG2, &g2, points), PointFault::Infinity);
        // All zeros without the flag is (0, 0).
        for section in G1_SECTIONS {
            assert_eq!(fault_of(section, &[0; 96], points), PointFault::NotOnCurve);
        }
        let fault = fault_of(Section::BG2, &[0; 192], points);
        assert_eq!(fault, PointFault::NotOnCurve);
    }
}

#[test]
fn bad_encodings_are_refused() {
    let good_g1 = G1Affine::generator().to_uncompressed();
    let good_g2 = G2Affine::generator().to_uncompressed();
    // Flags, one with a compressed point that a lenient decoder would take.
    for flag in [0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0] {
        let mut g1 = good_g1;
        g1[0] |= flag;
        let mut g2 = good_g2;
        g2[0] |= flag;
        for section in G1_SECTIONS {
            let fault = fault_of(section, &g1, PointCheck::OnCurve);
            assert_eq!(fault, PointFault::Encoding);
        }
        let fault = fault_of(Section::BG2, &g2, PointCheck::OnCurve);
        assert_eq!(fault, PointFault::Encoding);
    }
    let mut compressed = [0; 96];
    compressed[..48].copy_from_slice(&G1Affine::generator().to_compressed());
    let fault = fault_of(Section::H, &compressed, PointCheck::OnCurve);
    assert_eq!(fault, PointFault::Encoding);
    // Coordinates that are the modulus, or more, or carry flags of their own.
    for coordinate in [MODULUS, [0x1f; 48], [0xff; 48]] {
        for (at, g1) in [(0, good_g1), (1, good_g1)] {
            let mut g1 = g1;
            g1[48 * at..][..48].copy_from_slice(&coordinate);
            let fault = fault_of(Section::L, &g1, PointCheck::OnCurve);
            assert_eq!(fault, PointFault::Encoding);
        }
        for at in 0..4 {
            let mut g2 = good_g2;
            g2[48 * at..][..48].copy_from_slice(&coordinate);
            let fault = fault_of(Section::BG2, &g2, PointCheck::OnCurve);
            assert_eq!(fault, PointFault::Encoding);
        }
    }
}

#[test]
fn points_outside_the_subgroup_are_refused_if_asked() {
    let g1 = outside_g1().to_uncompressed();
    let g2 = outside_g2().to_uncompressed();
    for section in G1_SECTIONS {
        let fault = fault_of(section, &g1, PointCheck::Subgroup);
        assert_eq!(fault, PointFault::NotInSubgroup);
    }
    let fault = fault_of(Section::BG2, &g2, PointCheck::Subgroup);
    assert_eq!(fault, PointFault::NotInSubgroup);
    for section in [Section::H, Section::L, Section::A, Section::BG1] {
        open(&with_point(section, &g1), PointCheck::OnCurve).unwrap();
    }
    open(&with_point(Section::BG2, &g2), PointCheck::OnCurve).unwrap();
    // The verifying key is checked whatever the queries are.
    for section in [Section::VerifyingKey, Section::Ic] {
        let fault = fault_of(section, &g1, PointCheck::None);
        assert_eq!(fault, PointFault::NotInSubgroup);
    }
    // (0, 2), of order three: the subgroup check of some libraries takes it.
    let mut order_three = [0; 96];
    order_three[95] = 2;
    let fault = fault_of(Section::A, &order_three, PointCheck::Subgroup);
    assert_eq!(fault, PointFault::NotInSubgroup);
}

#[test]
fn unchecked_points_are_checked_when_they_are_read() {
    let infinity = G1Affine::identity().to_uncompressed();
    let key = open(&with_point(Section::A, &infinity), PointCheck::None).unwrap();
    key.read_g1(Section::A, 0..1).unwrap();
    key.read_g1(Section::A, 2..key.count(Section::A)).unwrap();
    for fault in [
        key.read_g1(Section::A, 1..2).map(drop).unwrap_err(),
        key.g1(Section::A).map(drop).unwrap_err(),
        key.load_resident().unwrap_err(),
    ] {
        assert!(
            matches!(
                fault,
                KeyError::Point {
                    section: Section::A,
                    index: 1,
                    what: PointFault::Infinity,
                    ..
                }
            ),
            "{fault}"
        );
    }
}

/// A key whose H query has `count` points, to fill many parallel chunks.
fn write_long(path: &Path, count: usize) -> Vec<G1Affine> {
    let generator = G1Projective::generator();
    let projective: Vec<_> = std::iter::successors(Some(generator), |sum| Some(sum + generator))
        .take(count)
        .collect();
    let mut points = vec![G1Affine::identity(); count];
    G1Projective::batch_normalize(&projective, &mut points);
    let mut writer = KeyWriter::create(path, &parameters().vk).unwrap();
    writer.begin(Section::H, count).unwrap();
    writer.write_g1(&points).unwrap();
    for section in [Section::L, Section::A, Section::BG1, Section::BG2] {
        writer.begin(section, 0).unwrap();
    }
    writer.finish().unwrap();
    points
}

#[test]
fn the_first_of_several_wrong_points_is_named() {
    let scratch = Scratch::new();
    let points = write_long(&scratch.path(), 20_000);
    let open = |points| Key::open(&scratch.path(), &checks(points));
    let key = open(PointCheck::None).unwrap();
    assert_eq!(key.g1(Section::H).unwrap()[..], points[..]);
    assert_eq!(
        key.read_g1(Section::H, 5_000..17_001).unwrap(),
        points[5_000..17_001]
    );

    let mut bytes = std::fs::read(scratch.path()).unwrap();
    let first = usize::try_from(key.offset(Section::H)).unwrap();
    for index in [19_999, 9_000, 8_999, 12_000] {
        bytes[first + (index + 1) * G1Affine::BYTES - 1] ^= 1;
    }
    scratch.overwrite_unnoticed(&bytes);
    for outcome in [
        open(PointCheck::OnCurve).map(drop),
        key.g1(Section::H).map(drop),
    ] {
        let fault = outcome.unwrap_err();
        match fault {
            KeyError::Point { index, offset, .. } => {
                assert_eq!(index, 8_999);
                assert_eq!(offset, (first + 8_999 * G1Affine::BYTES) as u64);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_checked_key_still_refuses_bad_encodings() {
    let scratch = Scratch::with(&key_bytes());
    let key = Key::open(&scratch.path(), &checks(PointCheck::OnCurve)).unwrap();
    for (point, want) in [
        ([0xff; 96], PointFault::Encoding),
        ([0; 96], PointFault::NotOnCurve),
        (G1Affine::identity().to_uncompressed(), PointFault::Infinity),
    ] {
        scratch.overwrite_unnoticed(&with_point(Section::L, &point));
        let fault = key.g1(Section::L).map(drop).unwrap_err();
        assert!(
            matches!(fault, KeyError::Point { index: 1, what, .. } if what == want),
            "{fault}"
        );
    }
}

proptest! {
    // A case reads a file of 4 KB and checks nine points for their subgroup.
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_changed_byte_is_found(place in 0..key_bytes().len(), change in 1..=u8::MAX) {
        let mut bytes = key_bytes();
        bytes[place] ^= change;
        prop_assert!(open(&bytes, PointCheck::OnCurve).is_err());
    }

    // Past the fixed points and the first count, where lengths decide.
    #[test]
    fn other_bytes_are_no_key(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(open(&bytes, PointCheck::OnCurve).is_err());
    }

    // Good fixed points, then counts and points of any kind.
    #[test]
    fn a_key_that_goes_on_otherwise_is_none(
        bytes in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..500),
    ) {
        let fixed: usize = FIXED_POINT_BYTES.iter().sum();
        let whole = [&key_bytes()[..fixed], &bytes].concat();
        // Six counts of zero are a key, if an empty one.
        prop_assume!(bytes != [0; 24]);
        prop_assert!(open(&whole, PointCheck::OnCurve).is_err());
    }
}
