//! Points on their way to a buffer, without a device.

use std::num::NonZeroUsize;

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::proofs::circuit;
use crate::cpu::tests::circuit::Assignment;
use crate::cpu::tests::meaningless_key;
use crate::cuda::plan::point_bytes;
use crate::cuda::points::PointBytes;
use crate::cuda::staging::read_points;
use crate::key::Section;

/// By one thread, by fewer than there are points, and by more.
#[test]
fn points_are_read_once_by_any_number_of_threads() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let assignment = Assignment::of(circuit(&mut rng, 7));
    let key = meaningless_key(&assignment.shape(), 1);
    for section in [Section::L, Section::BG2] {
        let bytes = point_bytes(section) as usize;
        for count in [0, 1, 5, key.count(section) - 1] {
            let mut expected = vec![0; count * bytes];
            key.read(section, 1, &mut expected).expect("in memory");
            for threads in [1, 2, 3, 200] {
                let threads = NonZeroUsize::new(threads).expect("not zero");
                let mut read = vec![0xee; count * bytes];
                read_points(&key, section, 1, &mut read, threads).expect("in memory");
                assert!(read == expected, "{section} {count} {threads}");
            }
        }
    }
}
