//! The plan of bytes, without a device.

use std::num::NonZeroUsize;

use crate::accelerator::DeviceOptions;
use crate::cpu::h::CSource;
use crate::cuda::backend::check_options;
use crate::cuda::plan::{Counts, Cutting, Needs, QUERIES, Way, Workspace, align, rows_bytes};
use crate::cuda::resident::ResidentShape;
use crate::key::Section;
use crate::shape::CircuitSizes;

const CUTTING: Cutting = Cutting {
    chunk_max: 1 << 24,
    window_bits: None,
    processors: 132,
};

/// A part of a PoRep of 32 GiB.
const POREP: CircuitSizes = CircuitSizes {
    inputs: 328,
    aux: 130_169_893,
    constraints: 130_278_869,
};
const POREP_COUNTS: Counts = Counts {
    h: (1 << 27) - 1,
    l: POREP.aux,
    a: 129_753_292 + 328,
    b: 33_112_281 + 328,
};

/// What proofs of it want of a device with two slots.
fn porep_needs() -> Needs<'static> {
    let counts = POREP_COUNTS;
    let g1 = counts.h + counts.l + counts.a + counts.b;
    Needs {
        sizes: &POREP,
        counts,
        cutting: CUTTING,
        c_source: CSource::Product,
        is_key_resident: true,
        is_assignment_late: false,
        piece_log_max: 24,
        slots: 2,
        key_bytes: 96 * g1 as u64 + 192 * counts.b as u64,
        list_bytes: ResidentShape::bytes(&counts),
    }
}

#[test]
fn windows_cover_a_scalar_and_chunks_every_entry() {
    for log in 0..=27 {
        for count in [(1usize << log) - 1, 1 << log, (1 << log) + 1] {
            let cut = CUTTING.cut(count);
            assert!((10..=16).contains(&cut.window_bits), "{cut:?}");
            assert!(cut.windows() * cut.window_bits as usize >= 255, "{cut:?}");
            assert!(
                (cut.windows() - 1) * (cut.window_bits as usize) < 255,
                "{cut:?}"
            );
            assert!(cut.chunks() * cut.chunk >= count, "{cut:?}");
            assert_eq!(cut.chunk % 32, 0, "{cut:?}");
        }
    }
}

/// Widths that measurements bore out, and more entries never with narrower windows.
#[test]
fn windows_widen_with_the_entries() {
    let bits = |count: usize| CUTTING.cut(count).window_bits;
    let chosen = [1, 1 << 16, 218_000, 1 << 20, 1 << 22, 1 << 24, 1 << 27].map(bits);
    assert_eq!(chosen, [10, 12, 12, 13, 15, 16, 16]);
    let counts = (1..400_000).step_by(61).chain((0..28).map(|log| 1 << log));
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    assert!(counts.iter().is_sorted_by_key(|&count| bits(count)));
}

/// A query with fewer full scalars than the most may have more windows: there must be
/// room for it too, also where the last piece of a key is a short one.
#[test]
fn there_is_room_for_every_number_of_full_scalars() {
    for count in [1usize, 40, 5_000, 300_000, 9_000_000] {
        for section in QUERIES {
            let rows = rows_bytes(section, count, &CUTTING);
            let room = CUTTING.query_bytes(section, count, false, 0);
            for rest in (1..=count).step_by((count / 997).max(1)) {
                let cut = CUTTING.cut(rest);
                assert!(rows >= cut.rows_bytes(section), "{section} {count} {rest}");
                let wanted = 2 * align(rest as u64 * 4) + cut.work_bytes(section, 132);
                assert!(room >= wanted, "{section} {count} {rest}");
            }
        }
    }
}

/// With the share of full scalars that a Filecoin witness has, they are gathered:
/// the scratch that there is for other things is enough, with the points where B was.
#[test]
fn a_filecoin_witness_is_gathered() {
    for log in [15, 20, 24, 27] {
        let count = 1usize << log;
        let column = 32u64 << log;
        for section in [Section::L, Section::A, Section::BG2] {
            let scratch = column.max(CUTTING.query_bytes(section, count, true, column));
            let room = scratch - 2 * align(count as u64 * 4);
            let share = if section == Section::BG2 { 8 } else { 5 };
            let needed = CUTTING.gathered_bytes(section, count / share, column);
            assert!(needed <= room, "{section} 2^{log}: {needed} of {room}");
        }
    }
}

/// Also in pieces where the assignment lies where B was.
#[test]
fn a_filecoin_witness_is_gathered_beside_a_late_assignment() {
    for log in 16..=24 {
        let way = Way::InPieces {
            log,
            places: 4,
            is_late: true,
        };
        let workspace = Workspace::of(&POREP, &POREP_COUNTS, &CUTTING, CSource::Product, way);
        for section in QUERIES {
            let count = POREP_COUNTS.piece_len(section, way);
            let room = workspace.scratch - 2 * align(count as u64 * 4);
            let needed = CUTTING.gathered_bytes(section, count / 5, 0);
            assert!(needed <= room, "{section} 2^{log}: {needed} of {room}");
        }
    }
}

/// The largest circuit that is proved, PoRep of 32 GiB: what stands in the module's
/// documentation, in figures.
#[test]
fn a_part_of_32_gib_takes_what_the_plan_says() {
    let (sizes, counts) = (POREP, POREP_COUNTS);
    let workspace = Workspace::of(&sizes, &counts, &CUTTING, CSource::Product, Way::Whole);
    assert_eq!(
        (workspace.a, workspace.b, workspace.c),
        (1 << 32, 1 << 32, 0)
    );
    assert_eq!(workspace.scratch, 1 << 32);
    let variables = (sizes.aux as u64 + 328) * 32;
    assert_eq!(workspace.assignment, variables.next_multiple_of(256));
    assert!(workspace.slot() < 12_800_000_000, "{workspace:?}");
    assert!(workspace.total() < 17_100_000_000, "{workspace:?}");
    let given = Workspace::of(&sizes, &counts, &CUTTING, CSource::Synthesised, Way::Whole);
    assert_eq!(given.slot() - workspace.slot(), 1 << 32);
}

/// The plans of that circuit on devices of 141 GB and less: two slots, one, pieces of the
/// key, and the assignment where b was.
#[test]
fn plans_name_their_consumers() {
    let needs = porep_needs();
    let table = |gigabytes: u64| needs.table(gigabytes * 1_000_000_000, 128 << 20);
    insta::assert_snapshot!([139, 79, 70, 48, 17, 12].map(table).join("\n\n"));
}

/// On a device of which 16 GiB are the backend's: four places for pieces of 2^23 points, in
/// which each section but `b_g1` comes in several.
#[test]
fn a_part_of_32_gib_is_proved_within_16_gib() {
    let needs = porep_needs();
    let room = (16 << 30) - (128 << 20);
    let (way, workspace, asked) = needs.ways_within(room).next().expect("room");
    let expected = Way::InPieces {
        log: 23,
        places: 4,
        is_late: true,
    };
    assert_eq!(way, expected);
    assert_eq!((workspace.b, workspace.assignment), (1 << 32, 0));
    assert_eq!(workspace.scratch, 1 << 32);
    assert_eq!(workspace.slot(), 8_590_298_368);
    assert_eq!((room, asked), (17_045_651_456, 16_757_956_352));
    let least = needs.least_bytes();
    assert_eq!(least, 13_596_958_208);
    assert!(needs.ways_within(least).next().is_some());
    assert!(needs.ways_within(least - 1).next().is_none());
}

/// No byte too early: the assignment has a place of its own wherever there is any way with
/// one, and then the key may stay too.
#[test]
fn the_assignment_comes_late_only_where_nothing_else_has_room() {
    let needs = porep_needs();
    let apart = |way: Way| !way.is_late();
    let least_apart = needs.ways().filter(|&(way, ..)| apart(way));
    let least_apart = least_apart.map(|(_, _, asked)| asked).min();
    let least_apart = least_apart.expect("there are such ways");
    assert_eq!(least_apart, 17_762_405_376);
    let first = |room: u64| needs.ways_within(room).next().map(|(way, ..)| way);
    assert!(first(least_apart).is_some_and(apart));
    assert!(first(least_apart - 1).is_some_and(Way::is_late));
    for room in [20_000_000_000, 48_000_000_000, 139_000_000_000] {
        assert!(
            needs
                .ways_within(room)
                .next()
                .is_some_and(|(way, ..)| apart(way))
        );
        // Those that are tried after these come last.
        let ways = needs.ways_within(room).map(|(way, ..)| way.is_late());
        assert!(ways.is_sorted(), "{room}");
    }
    let always = Needs {
        is_assignment_late: true,
        ..needs
    };
    assert!(always.ways().all(|(way, ..)| way.is_late()));
    assert_eq!(always.least_bytes(), needs.least_bytes());
}

#[test]
fn options_that_cannot_be_are_refused() {
    let options = DeviceOptions::new(0, NonZeroUsize::MIN, 4);
    assert!(check_options(&options).is_ok());
    type Adjust = fn(&mut DeviceOptions);
    let wrong: [(Adjust, &str); 6] = [
        (|options| options.window_bits = Some(9), "windows of 9 bits"),
        (|options| options.chunk_len_max = 33, "33 entries"),
        (|options| options.slots = 9, "9 slots"),
        (|options| options.key_piece_log_max = 4, "pieces of 2^4"),
        (|options| options.key_batch = 0, "for no proof"),
        (
            |options| options.key_batch = 3,
            "for 3 proofs, of which 2 have a slot",
        ),
    ];
    for (adjust, reason) in wrong {
        let mut options = options;
        adjust(&mut options);
        let refused = check_options(&options).expect_err(reason).to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}
