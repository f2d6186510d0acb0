//! The plan of bytes, without a device.

use crate::cuda::plan::{Counts, Cut, Cutting, QUERIES, Workspace, rows_bytes};
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
            let cut = Cut::new(count, 1 << 24, None);
            assert!((10..=18).contains(&cut.window_bits), "{cut:?}");
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

/// A query with fewer full scalars than the most may have more windows: the scratch
/// must have room for it too.
#[test]
fn scratch_and_rows_have_room_for_every_number_of_full_scalars() {
    for count in [1usize, 40, 5_000, 300_000, 9_000_000] {
        for section in QUERIES {
            let is_indexed = section != Section::L;
            let scratch = CUTTING.query_bytes(section, count, is_indexed);
            let rows = rows_bytes(section, count, &CUTTING);
            let step = (count / 997).max(1);
            for rest in (1..=Cutting::gathered_max(count)).step_by(step) {
                let cut = CUTTING.cut(rest);
                let gathered = rest as u64 * (32 + 192);
                let lists = 2 * (count as u64 * 4).next_multiple_of(256);
                let least = lists + cut.work_bytes(section, 132);
                assert!(scratch >= least, "{section} {count} {rest}");
                assert!(rows >= cut.rows_bytes(section), "{section} {count} {rest}");
                assert!(gathered <= count as u64 * 56, "{section} {count} {rest}");
            }
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
    let workspace = Workspace::of(&sizes, &counts, &CUTTING);
    assert_eq!(workspace.a, 1 << 32);
    assert_eq!(workspace.scratch, 2 << 32);
    let variables = (sizes.aux as u64 + 328) * 32;
    assert_eq!(workspace.assignment, variables.next_multiple_of(256));
    assert!(workspace.total() < 17_100_000_000, "{workspace:?}");
}
