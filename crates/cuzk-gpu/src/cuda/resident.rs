//! What stays on the device from proof to proof: the points of keys and the index
//! lists of circuits.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use super::arena::{Arena, Lease};
use super::device::{Device, Region};
use super::plan::{Counts, QUERIES, align, point_bytes};
use super::points::PointBytes;
use super::staging::Staging;
use crate::device::arena::End;
use crate::error::BackendError;
use crate::key::Section;
use crate::shape::{Bitmap, CircuitShape};

/// The points of a key on the device.
pub(super) struct ResidentKey {
    source: Weak<dyn PointBytes>,
    /// What the regions lie in.
    lease: Lease,
    sections: [Region; QUERIES.len()],
    is_loaded: Cell<bool>,
}

impl ResidentKey {
    /// Bytes of a key's points on the device.
    pub(super) fn bytes(source: &dyn PointBytes) -> u64 {
        QUERIES
            .iter()
            .map(|&section| align(source.count(section) as u64 * point_bytes(section)))
            .sum()
    }

    /// The place of a key, still empty; `None` if there is no room.
    pub(super) fn reserve(arena: &Arena, source: &Arc<dyn PointBytes>) -> Option<Self> {
        let lease = arena.take(Self::bytes(&**source), End::Low)?;
        let mut at = 0;
        let sections = QUERIES.map(|section| {
            let bytes = source.count(section) as u64 * point_bytes(section);
            let region = lease.region().part(at, bytes);
            at += align(bytes);
            region
        });
        Some(Self {
            source: Arc::downgrade(source),
            lease,
            sections,
            is_loaded: Cell::new(false),
        })
    }

    /// Loads the points.
    pub(super) async fn load(
        &self,
        device: &Device,
        staging: &mut Staging,
        source: &Arc<dyn PointBytes>,
    ) -> Result<(), BackendError> {
        for (section, region) in QUERIES.into_iter().zip(self.sections) {
            let all = 0..source.count(section);
            staging.points(device, source, section, all, region).await?;
        }
        self.is_loaded.set(true);
        Ok(())
    }

    /// Says that the points are there.
    #[cfg(test)]
    pub(super) fn pretend_loaded(&self) {
        self.is_loaded.set(true);
    }

    /// Whether the points are there.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// Whether this is that key.
    pub(super) fn is(&self, source: &Arc<dyn PointBytes>) -> bool {
        // The weak handle keeps the address from being used again.
        std::ptr::addr_eq(self.source.as_ptr(), Arc::as_ptr(source))
    }

    /// Bytes held on the device.
    pub(super) fn held_bytes(&self) -> u64 {
        self.lease.bytes()
    }

    /// Whether somebody still has the key.
    pub(super) fn is_alive(&self) -> bool {
        self.source.strong_count() != 0
    }

    /// The points of a query.
    pub(super) fn points(&self, section: Section) -> Region {
        let at = QUERIES
            .iter()
            .position(|&query| query == section)
            .expect("a query");
        self.sections[at]
    }
}

/// For each entry of the A and B queries, which variable it multiplies: 32-bit
/// indices into inputs and auxiliary variables, one after the other.
pub(super) struct ResidentShape {
    shape: Weak<CircuitShape>,
    lease: Lease,
    a: Region,
    b: Region,
    is_loaded: Cell<bool>,
}

impl ResidentShape {
    /// Bytes of a shape's lists on the device.
    pub(super) fn bytes(counts: &Counts) -> u64 {
        align(counts.a as u64 * 4) + align(counts.b as u64 * 4)
    }

    /// The place of the lists, still empty; `None` if there is no room.
    pub(super) fn reserve(arena: &Arena, shape: &Arc<CircuitShape>) -> Option<Self> {
        let counts = Counts::of(shape);
        let lease = arena.take(Self::bytes(&counts), End::Low)?;
        let region = lease.region();
        Some(Self {
            shape: Arc::downgrade(shape),
            a: region.part(0, counts.a as u64 * 4),
            b: region.part(align(counts.a as u64 * 4), counts.b as u64 * 4),
            lease,
            is_loaded: Cell::new(false),
        })
    }

    /// Makes the lists and brings them.
    pub(super) async fn load(
        &self,
        device: &Device,
        staging: &mut Staging,
        shape: &CircuitShape,
    ) -> Result<(), BackendError> {
        let inputs = shape.sizes.inputs;
        let counts = Counts::of(shape);
        let a = (0..inputs).chain(ones(&shape.a_aux, inputs));
        staging.indices(device, a, counts.a, self.a).await?;
        let b = ones(&shape.b_inputs, 0).chain(ones(&shape.b_aux, inputs));
        staging.indices(device, b, counts.b, self.b).await?;
        self.is_loaded.set(true);
        Ok(())
    }

    /// Says that the lists are there.
    #[cfg(test)]
    pub(super) fn pretend_loaded(&self) {
        self.is_loaded.set(true);
    }

    /// Whether the lists are there.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// Whether this is that shape.
    pub(super) fn is(&self, shape: &Arc<CircuitShape>) -> bool {
        std::ptr::addr_eq(self.shape.as_ptr(), Arc::as_ptr(shape))
    }

    /// Bytes held on the device.
    pub(super) fn held_bytes(&self) -> u64 {
        self.lease.bytes()
    }

    /// Whether somebody still has the shape.
    pub(super) fn is_alive(&self) -> bool {
        self.shape.strong_count() != 0
    }

    /// The list of a query; none where entries are the auxiliary variables in
    /// their order.
    pub(super) fn index(&self, section: Section) -> Option<Region> {
        match section {
            Section::A => Some(self.a),
            Section::BG1 | Section::BG2 => Some(self.b),
            _ => None,
        }
    }
}

/// The set bits of a bitmap, `offset` higher.
fn ones(bitmap: &Bitmap, offset: usize) -> impl Iterator<Item = usize> + Send + 'static {
    let bitmap = bitmap.clone();
    (0..bitmap.words().len()).flat_map(move |at| {
        let word = bitmap.words()[at];
        std::iter::successors((word != 0).then_some(word), |rest| {
            let next = rest & (rest - 1);
            (next != 0).then_some(next)
        })
        .map(move |rest| offset + at * 64 + rest.trailing_zeros() as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_of_a_bitmap_in_their_order() {
        let words = [1 << 63 | 5, 0, u64::MAX, 1 << 7];
        let bitmap = Bitmap::new(words.into(), 4 * 64 - 3);
        let expected: Vec<_> = bitmap.iter().map(|at| at + 11).collect();
        assert_eq!(ones(&bitmap, 11).collect::<Vec<_>>(), expected);
    }
}
