//! The pieces of a key and their places, without a device.

use proptest::prelude::*;

use crate::cuda::plan::{Counts, QUERIES, Way, point_bytes};
use crate::key::Section;

fn in_pieces(log: u32, places: usize) -> Way {
    Way::InPieces {
        log,
        places,
        is_late: false,
    }
}

proptest! {
    /// Counts up to some pieces of the smallest and none at all: each point is in one piece,
    /// the pieces of a section come in their order, none is larger than its place, and
    /// those of h are apart by equal shares of the others.
    #[test]
    fn each_point_is_in_one_piece_of_a_key(
        [h, l, a, b] in prop::array::uniform4(0..5_000_usize),
        log in 5..13_u32,
    ) {
        let counts = Counts { h, l, a, b };
        let way = in_pieces(log, 4);
        let pieces = counts.pieces(way);
        let mut ends = QUERIES.map(|_| 0);
        for piece in &pieces {
            let at = QUERIES.iter().position(|&query| query == piece.section);
            let end = &mut ends[at.expect("a query")];
            prop_assert_eq!(piece.range.start, *end);
            prop_assert!(!piece.range.is_empty());
            prop_assert!(piece.range.len() as u64 * point_bytes(piece.section) <= 96 << log);
            *end = piece.range.end;
        }
        prop_assert_eq!(ends, QUERIES.map(|section| counts.of_section(section)));
        let turns = counts.pieces_of(Section::H, way);
        if turns != 0 {
            let others = pieces.len() - turns;
            let shares = pieces.split(|piece| piece.section == Section::H).skip(1);
            for share in shares {
                prop_assert!((others / turns..=others.div_ceil(turns)).contains(&share.len()));
            }
        }
    }
}

/// Milliseconds of a proof on an H200 with 1.3 % of full scalars, as the record
/// `utilisation` has them: of its transforms, of its upload, and of a sum over so many
/// points.
struct Times {
    log: u32,
    transforms: f64,
    upload: f64,
}

const TIMES: [Times; 3] = [
    Times {
        log: 22,
        transforms: 7.4,
        upload: 7.3,
    },
    Times {
        log: 24,
        transforms: 31.0,
        upload: 29.2,
    },
    Times {
        log: 26,
        transforms: 146.4,
        upload: 117.2,
    },
];

fn sum_ms(section: Section, len: usize) -> f64 {
    let millions = len as f64 / 1e6;
    match section {
        Section::H => 10.9 + 7.43 * millions,
        Section::BG1 => 2.4 + 0.84 * millions,
        Section::BG2 => 4.5 + 2.22 * millions,
        _ => 2.4 + 0.38 * millions,
    }
}

const BUS_BYTES_PER_MS: f64 = 55.1e6;

impl Times {
    /// Share of the time in which the device computes, when one proof follows the other:
    /// a piece comes when the bus is free and the sum over what was in its place is done,
    /// the columns of the next proof before the first piece after the transforms.
    fn busy(&self, piece_log: u32, places: usize) -> f64 {
        const PASSES: usize = 8;
        let count = (1 << self.log) - 1;
        let counts = Counts {
            h: count,
            l: count,
            a: count,
            b: count * 26 / 100,
        };
        let pieces = counts.pieces(in_pieces(piece_log, places));
        let (mut bus, mut device, mut computed) = (0.0_f64, 0.0_f64, 0.0);
        let mut summed: Vec<f64> = Vec::new();
        for _ in 0..PASSES {
            // Whoever is next has the turn when the last sum is queued, a sum before its end.
            let turn = summed.iter().rev().nth(1).copied().unwrap_or_default();
            let transformed = device + self.transforms;
            computed += self.transforms;
            let mut has_uploaded = false;
            device = transformed;
            for piece in &pieces {
                let free = match summed.len().checked_sub(places) {
                    Some(before) => summed[before].max(turn),
                    None => turn,
                };
                let upload = transformed - self.transforms;
                if !has_uploaded && free.max(bus) >= upload {
                    bus = bus.max(upload) + self.upload;
                    has_uploaded = true;
                }
                let bytes = piece.range.len() as u64 * point_bytes(piece.section);
                bus = bus.max(free) + bytes as f64 / BUS_BYTES_PER_MS;
                let length = sum_ms(piece.section, piece.range.len());
                computed += length;
                device = device.max(bus) + length;
                summed.push(device);
            }
        }
        computed / device
    }
}

/// The largest pieces with four places keep the device busy, and so do the smaller ones that
/// a device of 16 GiB has room for beside two proofs; with two places it waits for the bus.
#[test]
fn with_four_places_no_sum_waits_for_the_bus() {
    for times in &TIMES {
        for (piece_log, places) in [(24, 4), (23, 4), (22, 4)] {
            let busy = times.busy(piece_log, places);
            assert!(busy > 0.97, "2^{}, 2^{piece_log}: {busy}", times.log);
        }
    }
    let two = TIMES.map(|times| times.busy(24, 2));
    assert!(two.iter().all(|&busy| busy < 0.95), "{two:?}");
    // Where each section is one piece, three are enough.
    assert!(TIMES[1].busy(24, 3) > 0.97 && TIMES[2].busy(24, 3) < 0.95);
}
