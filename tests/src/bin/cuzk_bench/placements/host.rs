//! Copying and filling host memory with several threads.

use std::sync::Mutex;
use std::thread;

/// Bytes that one thread takes at once.
const PIECE_BYTES: usize = 8 << 20;

/// Copies within host memory, with so many threads.
pub(crate) fn copy(target: &mut [u8], source: &[u8], threads: usize) {
    let parts = Mutex::new(
        target
            .chunks_mut(PIECE_BYTES)
            .zip(source.chunks(PIECE_BYTES)),
    );
    in_parallel(threads, || {
        let part = parts.lock().expect("no thread panics").next();
        part.map(|(target, source)| target.copy_from_slice(source))
    });
}

/// Fills memory with numbers that differ by place and `seed`, and are not zero.
pub(crate) fn fill(target: &mut [u8], seed: u64, threads: usize) {
    let parts = Mutex::new(target.chunks_mut(PIECE_BYTES).enumerate());
    in_parallel(threads, || {
        let part = parts.lock().expect("no thread panics").next();
        part.map(|(index, part)| {
            let mut value = (seed << 40) + index as u64;
            for word in part.chunks_exact_mut(8) {
                value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                word.copy_from_slice(&(value | 1).to_le_bytes());
            }
        })
    });
}

/// Calls `step` from so many threads until it has nothing more to do.
fn in_parallel(threads: usize, step: impl Fn() -> Option<()> + Sync) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| while step().is_some() {});
        }
    });
}
