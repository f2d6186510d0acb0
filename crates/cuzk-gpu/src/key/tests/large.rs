//! A file of the size of a 32 GiB PoRep's key, nearly all of it a hole: offsets past 2^32
//! and 2^35 are those of the points that lie there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use blstrs::{G1Affine, G2Affine};

use super::{Scratch, checks, key_bytes, parameters};
use crate::key::point::Point;
use crate::key::{Key, PointCheck, Section};

/// Points of each query, in the order of the file.
const COUNTS: [(Section, usize); 5] = [
    (Section::H, (1 << 27) - 1),
    (Section::L, 130_169_893),
    (Section::A, 129_753_620),
    (Section::BG1, 33_112_281),
    (Section::BG2, 33_112_281),
];

fn write<P: Point>(file: &File, point: P, offset: u64) {
    let mut bytes = vec![0; P::BYTES];
    point.encode(&mut bytes);
    file.write_all_at(&bytes, offset).expect("writable");
}

#[test]
fn points_past_four_gibibytes_are_found() {
    let scratch = Scratch::with(&[]);
    let file = File::options().write(true).open(scratch.path());
    let file = file.expect("it was made");
    // The verifying key with its inputs, as far as the count of `h`.
    let vk = parameters().vk.ic.len() * 96 + 3 * 96 + 3 * 192 + 4;
    file.write_all_at(&key_bytes()[..vk], 0).expect("writable");
    let mut offset = vk as u64;
    let mut offsets = Vec::new();
    for (section, count) in COUNTS {
        let number = u32::try_from(count).expect("32 bits count them");
        let number = number.to_be_bytes();
        file.write_all_at(&number, offset).expect("writable");
        offset += 4;
        offsets.push(offset);
        offset += count as u64 * section.point_bytes() as u64;
    }
    file.set_len(offset).expect("a file system with holes");
    assert!(offset > 47_000_000_000, "{offset} bytes");

    let g1: G1Affine = parameters().vk.alpha_g1;
    let g2: G2Affine = parameters().vk.beta_g2;
    // The point that the four gibibytes end in, and the last one of each section.
    let border = ((1_u64 << 32) - offsets[0]) / 96;
    write(&file, g1, offsets[0] + border * 96);
    for ((section, count), offset) in COUNTS.into_iter().zip(&offsets) {
        let last = offset + (count as u64 - 1) * section.point_bytes() as u64;
        match section {
            Section::BG2 => write(&file, g2, last),
            _ => write(&file, g1, last),
        }
    }

    let key = Key::open(&scratch.path(), &checks(PointCheck::None)).expect("it fits its length");
    assert_eq!(key.file_bytes(), offset);
    for ((section, count), offset) in COUNTS.into_iter().zip(&offsets) {
        assert_eq!(key.count(section), count, "{section}");
        assert_eq!(key.offset(section), *offset, "{section}");
        if section != Section::BG2 {
            let last = key.read_g1(section, count - 1..count);
            assert_eq!(last.expect("a point"), [g1], "{section}");
        }
    }
    let border = usize::try_from(border).expect("an index");
    let found = key.read_g1(Section::H, border..border + 1);
    assert_eq!(found.expect("a point"), [g1]);
    let last = COUNTS[4].1;
    assert_eq!(key.read_g2(last - 1..last).expect("a point"), [g2]);
    // All of it decoded, as a plan counts it.
    let points: u64 = COUNTS
        .iter()
        .map(|(section, count)| *count as u64 * section.point_bytes() as u64)
        .sum();
    assert_eq!(key.resident_bytes(), points);
}
