//! Memory that the allocator keeps after it was freed.

/// Has the allocator give what it keeps of freed memory back to the system, and says
/// whether there was any. Buffers of pools are not among it. It holds the
/// allocator's locks, one after the other, while it looks. Where the allocator is not glibc's
/// it does nothing.
pub fn trim_allocator() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number and touches nothing but memory that is free; any thread may
    // call it at any time.
    return unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

#[cfg(all(
    test,
    target_os = "linux",
    target_env = "gnu",
    not(feature = "loom"),
    not(miri)
))]
mod tests {
    use super::*;

    /// Small enough that it is no mapping of its own, many enough that their pages are kept.
    const PIECE_BYTES: usize = 32 << 10;
    const PIECES: usize = 512;

    /// Whether glibc's allocator gave what is in use: a sanitizer brings one of its own.
    fn is_of_glibc() -> bool {
        // SAFETY: reads counts; any thread may call it at any time.
        unsafe { libc::mallinfo2() }.uordblks > PIECES * PIECE_BYTES
    }

    #[test]
    fn what_was_freed_below_what_is_used_goes_back() {
        let mut pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![7; PIECE_BYTES]).collect();
        if !is_of_glibc() {
            return println!("skipped: another allocator is there");
        }
        // The last one keeps the allocator from giving back the rest when it is freed.
        let last = pieces.pop();
        drop(pieces);
        assert!(trim_allocator());
        assert!(last.is_some_and(|last| last.iter().all(|byte| *byte == 7)));
    }
}
