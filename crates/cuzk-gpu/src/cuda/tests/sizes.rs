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

/// The largest circuit that is proved, PoRep of 32 GiB: what stands in the module's
/// documentation, in figures.
#[test]
fn a_part_of_32_gib_takes_what_the_plan_says() {
    let sizes = CircuitSizes {
        inputs: 328,
        aux: 130_169_893,
        constraints: 130_278_869,
    };
    let counts = Counts {
        h: (1 << 27) - 1,
        l: sizes.aux,
        a: 129_753_292 + 328,
        b: 33_112_281 + 328,
    };
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
    // Its key is 90 GB; in the smallest pieces a proof takes hardly more than its slot.
    let least = Needs {
        sizes: &sizes,
        counts,
        cutting: CUTTING,
        c_source: CSource::Product,
        is_key_resident: true,
        piece_log_max: 24,
        slots: 2,
        key_bytes: 90 << 30,
        list_bytes: ResidentShape::bytes(&counts),
    }
    .least_bytes();
    assert!(least < 18_500_000_000, "{least}");
    let given = Workspace::of(&sizes, &counts, &CUTTING, CSource::Synthesised, Way::Whole);
    assert_eq!(given.slot() - workspace.slot(), 1 << 32);
}

/// The plans of that circuit on devices of 141 and 80 GB: two slots, one, and pieces of
/// the key.
#[test]
fn plans_name_their_consumers() {
    let sizes = CircuitSizes {
        inputs: 328,
        aux: 130_169_893,
        constraints: 130_278_869,
    };
    let counts = Counts {
        h: (1 << 27) - 1,
        l: sizes.aux,
        a: 129_753_292 + 328,
        b: 33_112_281 + 328,
    };
    let g1 = counts.h + counts.l + counts.a + counts.b;
    let needs = Needs {
        sizes: &sizes,
        counts,
        cutting: CUTTING,
        c_source: CSource::Product,
        is_key_resident: true,
        piece_log_max: 24,
        slots: 2,
        key_bytes: 96 * g1 as u64 + 192 * counts.b as u64,
        list_bytes: 4 * (counts.a + counts.b) as u64,
    };
    let table = |gigabytes: u64| needs.table(gigabytes * 1_000_000_000, 128 << 20);
    insta::assert_snapshot!([139, 79, 70, 48, 12].map(table).join("\n\n"));
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
