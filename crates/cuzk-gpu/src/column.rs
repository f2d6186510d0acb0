//! Scalars in pool memory.

use std::fmt;
use std::mem::{align_of, size_of};
use std::sync::Arc;

use blstrs::Scalar;
use cuzk_pinned::{BackingError, PageLocker, PinnedBacking};

/// A contiguous column of scalars in a pooled buffer, which carries its own
/// reservation and goes back to its pool when the column is dropped.
///
/// Scalars are four little-endian 64-bit limbs in Montgomery form, so zeroed
/// memory is a column of zeros.
pub struct Column {
    buffer: PinnedBacking,
    len: usize,
}

impl Column {
    /// Bytes of a column of `len` scalars, or `None` on overflow.
    pub fn bytes(len: usize) -> Option<usize> {
        len.checked_mul(size_of::<Scalar>())
    }

    /// Uses the first `len` scalars of `buffer`. The contents stay as they are.
    ///
    /// # Panics
    /// If the buffer is too small or not aligned for scalars: a pool hands out
    /// what was asked for.
    pub fn new(mut buffer: PinnedBacking, len: usize) -> Self {
        let bytes = Self::bytes(len).expect("a column's bytes fit in usize");
        assert!(
            buffer.len() >= bytes,
            "a buffer of {} bytes for {bytes}",
            buffer.len()
        );
        let address = buffer.as_bytes_mut().as_mut_ptr() as usize;
        assert_eq!(
            address % align_of::<Scalar>(),
            0,
            "a buffer aligned for scalars"
        );
        Self { buffer, len }
    }

    /// Number of scalars.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the column holds no scalar.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Leaves out what comes after the first `len` scalars; nothing, if there are fewer.
    pub fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The scalars.
    pub fn scalars(&self) -> &[Scalar] {
        let start = self.buffer.as_bytes().as_ptr().cast::<Scalar>();
        // SAFETY: `new` checked that the buffer holds `len` scalars at this
        // alignment, the pool hands out initialised memory, and any four limbs
        // are a valid `Scalar` in memory (a transparent wrapper of `[u64; 4]`).
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }

    /// The scalars, to be written.
    pub fn scalars_mut(&mut self) -> &mut [Scalar] {
        let start = self.buffer.as_bytes_mut().as_mut_ptr().cast::<Scalar>();
        // SAFETY: as in `scalars`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }

    /// The buffer underneath: where it lies, and whether that is page-locked.
    pub fn buffer(&self) -> &PinnedBacking {
        &self.buffer
    }

    /// Page-locks the buffer underneath until the column is dropped; see
    /// [`PinnedBacking::lock_pages`].
    ///
    /// # Errors
    /// What the lock says; the column is as it was then.
    pub fn lock_pages(&mut self, locker: &Arc<PageLocker>) -> Result<(), BackingError> {
        self.buffer.lock_pages(locker)
    }

    /// Undoes [`lock_pages`](Self::lock_pages), before any device was told of the
    /// column.
    pub fn unlock_pages(&mut self) {
        self.buffer.unlock_pages();
    }

    /// The buffer underneath, without the column.
    pub fn into_buffer(self) -> PinnedBacking {
        self.buffer
    }
}

impl fmt::Debug for Column {
    /// Never the contents: they are witness data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Scalars as they lie in memory: 32 bytes each, four limbs in Montgomery form.
pub(crate) fn scalar_bytes_mut(scalars: &mut [Scalar]) -> &mut [u8] {
    let bytes = size_of_val(scalars);
    // SAFETY: these are the bytes of the slice, borrowed as long, and any bytes are
    // limbs of a scalar in memory, as in `Column::scalars`.
    unsafe { std::slice::from_raw_parts_mut(scalars.as_mut_ptr().cast::<u8>(), bytes) }
}

/// The columns of one part, in the lengths that the backend's
/// [`layout`](crate::Backend::layout) asked for.
#[derive(Debug)]
pub struct Columns {
    /// Evaluations of A, one a constraint, zeros after the last.
    pub a: Column,
    /// Evaluations of B, like `a`.
    pub b: Column,
    /// Evaluations of C where the backend wants them, or scratch of the same
    /// length where the layout says so.
    pub c: Option<Column>,
    /// The auxiliary assignment.
    pub aux: Column,
}

impl Columns {
    /// Takes the buffers for the columns of a layout, in the order of its
    /// [`lens`](ColumnLayout::lens).
    ///
    /// # Panics
    /// If there are fewer buffers, or one is too small: a pool hands out what was
    /// asked for.
    pub fn from_buffers(
        buffers: impl IntoIterator<Item = PinnedBacking>,
        layout: &ColumnLayout,
    ) -> Self {
        let mut buffers = buffers.into_iter();
        let mut next = |len| Column::new(buffers.next().expect("a buffer a column"), len);
        let (a, b) = (next(layout.rows), next(layout.rows));
        let c = layout.has_c().then(|| next(layout.rows));
        Self {
            a,
            b,
            c,
            aux: next(layout.aux),
        }
    }

    /// Leaves out what the layout has no place for: columns taken before a circuit's
    /// sizes were known are longer than it needs.
    pub fn shorten(&mut self, layout: &ColumnLayout) {
        self.a.shorten(layout.rows);
        self.b.shorten(layout.rows);
        if let Some(c) = &mut self.c {
            c.shorten(layout.rows);
        }
        self.aux.shorten(layout.aux);
    }
}

/// Lengths, in scalars, of the columns that a backend wants for a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// Length of `a` and of `b`: at least the number of constraints.
    pub rows: usize,
    /// Length of `aux`.
    pub aux: usize,
    /// Whether there is a third column of `rows` scalars, and what it holds.
    pub c: CColumn,
}

/// What the third column is for. It has the length of the others where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CColumn {
    /// There is none.
    Absent,
    /// Synthesis fills it with the evaluations of C.
    Synthesised,
    /// It is the backend's working memory; synthesis leaves it alone, and C is
    /// taken as the product of A and B.
    Scratch,
}

impl ColumnLayout {
    /// Whether there is a third column.
    pub fn has_c(&self) -> bool {
        self.c != CColumn::Absent
    }

    /// Lengths of the columns in the order a, b, c (if any), aux.
    pub fn lens(&self) -> Vec<usize> {
        match self.c {
            CColumn::Absent => vec![self.rows, self.rows, self.aux],
            CColumn::Synthesised | CColumn::Scratch => {
                vec![self.rows, self.rows, self.rows, self.aux]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cuzk_budget::{Budget, Consumer, Priority, Wait};
    use cuzk_pinned::{AcquireRequest, HeapBacking, PinnedPool, PoolOptions};

    use super::*;

    /// The largest columns that are proved have 2^27 scalars, which is four gibibytes: what
    /// lies behind them is found. Only the pages that are written take memory.
    #[test]
    fn scalars_past_four_gibibytes_are_where_they_were_written() {
        const LEN: usize = (1 << 27) + 2;
        let bytes = Column::bytes(LEN).expect("they fit");
        let budget = Budget::new(5 << 30);
        let pool = PinnedPool::new(budget.clone(), HeapBacking, PoolOptions::STANDARD);
        let request = AcquireRequest {
            buffers: &[bytes],
            bytes: 0,
            consumer: Consumer("a long column"),
            wait: Wait::with_priority(Priority::NORMAL),
        };
        let acquired = pool.try_acquire(&request).expect("room for one");
        assert!(budget.usage().used_bytes >= bytes as u64);
        let buffer = acquired.buffers.into_iter().next().expect("one buffer");
        let mut column = Column::new(buffer, LEN);
        let places = [0, (1 << 27) - 1, 1 << 27, LEN - 1];
        for (value, at) in (1..).zip(places) {
            column.scalars_mut()[at] = Scalar::from(value);
        }
        for (value, at) in (1..).zip(places) {
            assert_eq!(column.scalars()[at], Scalar::from(value), "{at}");
        }
        let start = (1 << 32) / size_of::<Scalar>();
        assert_eq!(column.scalars()[start], Scalar::from(3));
        column.shorten(1 << 27);
        assert_eq!(column.scalars().last(), Some(&Scalar::from(2)));
    }
}
