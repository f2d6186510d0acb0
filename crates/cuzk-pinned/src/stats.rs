//! What a pool did and what it holds.

/// Counts since the pool was made, and bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers allocated.
    pub allocations: u64,
    /// Buffers freed.
    pub frees: u64,
    /// Buffers handed out that were idle before.
    pub reuses: u64,
    /// Requests that ended in an error.
    pub refusals: u64,
    /// Idle buffers.
    pub idle_count: usize,
    /// Bytes of idle buffers.
    pub idle_bytes: u64,
    /// Bytes of buffers that become idle when their fence has passed.
    pub fenced_bytes: u64,
    /// Bytes of buffers in use.
    pub in_use_bytes: u64,
    /// The most bytes that were ever allocated at once.
    pub peak_bytes: u64,
}
