//! What is asked of a pool at once, and what it gives.

use cuzk_budget::{Consumer, Reservation, Wait};

use crate::backing::Backing;
use crate::buffers::Buffers;
use crate::error::AcquireError;

/// Buffers and counted bytes, asked as one: all of it is granted or nothing.
///
/// Asking for everything at once is what keeps jobs from holding half of what
/// they need while they wait for the other half.
#[derive(Clone, Debug)]
pub struct AcquireRequest<'a> {
    /// Bytes of each buffer.
    pub buffers: &'a [usize],
    /// Bytes to be counted beside the buffers, for memory that is not the
    /// pool's, by its budget or the one [beside](crate::PinnedPool::with_bytes_in)
    /// it. Buffers are not to be counted here again.
    pub bytes: u64,
    /// On whom buffers and bytes are booked.
    pub consumer: Consumer,
    /// How to wait; of no meaning to a request that does not.
    pub wait: Wait,
}

/// What was granted.
#[derive(Debug)]
pub struct Acquired {
    /// The buffers in the order asked. Each carries its own reservation.
    pub buffers: Buffers,
    /// The counted bytes asked beside the buffers.
    pub reservation: Reservation,
}

/// A request with its arithmetic done.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) buffers: Vec<BufferOrder>,
    pub(crate) bytes: u64,
    pub(crate) consumer: Consumer,
    /// Capacities together; with `bytes` they are no more than 64 bits hold.
    pub(crate) buffer_bytes: u64,
}

/// One buffer of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferOrder {
    pub(crate) len: usize,
    /// What it takes when it is allocated for this request.
    pub(crate) capacity: usize,
}

impl Order {
    pub(crate) fn new(
        request: &AcquireRequest<'_>,
        backing: &dyn Backing,
    ) -> Result<Self, AcquireError> {
        let overflow = |index| AcquireError::Overflow {
            buffer_count: request.buffers.len(),
            bytes: request.bytes,
            index,
        };
        let mut buffer_bytes = 0_u64;
        let mut buffers = Vec::with_capacity(request.buffers.len());
        for (index, &len) in request.buffers.iter().enumerate() {
            let rounded = match len {
                0 => Some(0),
                _ => backing.rounded(len),
            };
            let capacity = rounded.ok_or_else(|| overflow(index))?;
            buffer_bytes = buffer_bytes
                .checked_add(capacity as u64)
                .filter(|sum| request.bytes.checked_add(*sum).is_some())
                .ok_or_else(|| overflow(index))?;
            buffers.push(BufferOrder { len, capacity });
        }
        Ok(Self {
            buffers,
            bytes: request.bytes,
            consumer: request.consumer,
            buffer_bytes,
        })
    }
}
