//! Intermediates on the device, shown to whoever watches a proof: copied out piece by
//! piece, and back where they were changed. Nobody watches where speed matters, so each
//! piece is waited for.

use blstrs::Scalar;

use super::device::{Device, Lane, Region};
use super::plan::SCALAR_BYTES;
use super::prove::Regions;
use crate::error::BackendError;
use crate::shape::CircuitSizes;
use crate::watch::{Intermediate, Watch};

/// Bytes copied at a time: whole scalars.
const PIECE_BYTES: u64 = 1 << 20;

/// Shows the columns of constraints as they were uploaded.
pub(super) fn show_columns(
    device: &Device,
    watch: &dyn Watch,
    regions: &Regions,
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let column = sizes.domain() as u64 * SCALAR_BYTES;
    show(device, watch, Intermediate::A, regions.a.part(0, column))?;
    show(device, watch, Intermediate::B, regions.b.part(0, column))
}

/// Shows the assignment as it was uploaded.
pub(super) fn show_assignment(
    device: &Device,
    watch: &dyn Watch,
    regions: &Regions,
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let bytes = (sizes.inputs + sizes.aux) as u64 * SCALAR_BYTES;
    let variables = regions.assignment.part(0, bytes);
    show(device, watch, Intermediate::Assignment, variables)
}

/// Shows the coefficients that the transforms left.
pub(super) fn show_quotient(
    device: &Device,
    watch: &dyn Watch,
    regions: &Regions,
    sizes: &CircuitSizes,
) -> Result<(), BackendError> {
    let bytes = (sizes.domain() - 1) as u64 * SCALAR_BYTES;
    show(
        device,
        watch,
        Intermediate::Quotient,
        regions.a.part(0, bytes),
    )
}

/// Shows scalars after all that is queued on the compute lane.
fn show(
    device: &Device,
    watch: &dyn Watch,
    which: Intermediate,
    region: Region,
) -> Result<(), BackendError> {
    let len = region.bytes().min(PIECE_BYTES) as usize;
    let (mut bytes, mut before) = (vec![0u8; len], vec![0u8; len]);
    let mut at = 0;
    while at < region.bytes() {
        let len = (region.bytes() - at).min(PIECE_BYTES);
        let piece = region.part(at, len);
        let (bytes, before) = (&mut bytes[..len as usize], &mut before[..len as usize]);
        device.copy_out(Lane::Compute, bytes, piece)?;
        before.copy_from_slice(bytes);
        watch.seen(which, at, bytes);
        if bytes != before {
            // SAFETY: waited for before the borrow ends, whatever fails.
            let queued = unsafe { device.copy_in(Lane::Compute, piece, bytes) };
            queued.and(device.wait(Lane::Compute))?;
        }
        at += len;
    }
    Ok(())
}

// A piece is whole scalars, and a scalar has that size.
const _: () = assert!(PIECE_BYTES.is_multiple_of(SCALAR_BYTES));
const _: () = assert!(size_of::<Scalar>() as u64 == SCALAR_BYTES);
