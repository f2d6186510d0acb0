//! The buffers of one grant.

use std::array;
use std::iter::{Chain, Flatten};
use std::ops::{Index, IndexMut};
use std::{slice, vec};

use crate::buffer::PinnedBacking;

/// As many as a part has columns: more are kept in a `Vec`.
const FEW: usize = 4;

/// Buffers in the order asked. A few are kept in place, so that a request that is
/// served from idle buffers allocates nothing.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a smaller grant is moved faster")]
pub struct Buffers {
    /// Those that are there come first.
    few: [Option<PinnedBacking>; FEW],
    /// Those behind, if all of the few are there. A grant is moved several times
    /// before it is used, so the pointer to them stands for their list.
    more: Option<Box<Vec<PinnedBacking>>>,
    len: usize,
}

impl Buffers {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> Iter<'_> {
        self.few.iter().flatten().chain(self.behind())
    }

    /// All of them, in order, to be written.
    pub fn iter_mut(&mut self) -> IterMut<'_> {
        let behind = self.more.as_mut().map_or(&mut [][..], |more| &mut more[..]);
        self.few.iter_mut().flatten().chain(behind)
    }

    /// Takes the last one out.
    #[inline]
    pub fn pop(&mut self) -> Option<PinnedBacking> {
        self.len = self.len.checked_sub(1)?;
        match self.len.checked_sub(FEW) {
            Some(_) => self.more.as_mut()?.pop(),
            None => self.few[self.len].take(),
        }
    }

    /// Takes the one at `index` out, and moves those behind it up.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn remove(&mut self, index: usize) -> PinnedBacking {
        assert!(index < self.len, "buffer {index} of {}", self.len);
        self.len -= 1;
        if let (Some(index), Some(more)) = (index.checked_sub(FEW), &mut self.more) {
            return more.remove(index);
        }
        let removed = self.few[index].take();
        self.few[index..].rotate_left(1);
        if let Some(more) = self.more.as_mut().filter(|more| !more.is_empty()) {
            self.few[FEW - 1] = Some(more.remove(0));
        }
        removed.expect("those that are there come first")
    }

    fn behind(&self) -> &[PinnedBacking] {
        self.more.as_ref().map_or(&[], |more| &more[..])
    }

    #[inline]
    pub(crate) fn push(&mut self, buffer: PinnedBacking) {
        match self.few.get_mut(self.len) {
            Some(place) => *place = Some(buffer),
            None => self.push_behind(buffer),
        }
        self.len += 1;
    }
}

impl Buffers {
    #[cold]
    fn push_behind(&mut self, buffer: PinnedBacking) {
        self.more.get_or_insert_default().push(buffer);
    }
}

impl Index<usize> for Buffers {
    type Output = PinnedBacking;

    fn index(&self, index: usize) -> &PinnedBacking {
        match self.few.get(index) {
            Some(buffer) => buffer.as_ref().expect("an index below the length"),
            None => &self.behind()[index - FEW],
        }
    }
}

impl IndexMut<usize> for Buffers {
    fn index_mut(&mut self, index: usize) -> &mut PinnedBacking {
        match self.few.get_mut(index) {
            Some(buffer) => buffer.as_mut().expect("an index below the length"),
            None => &mut self.more.as_mut().expect("an index below the length")[index - FEW],
        }
    }
}

type Iter<'a> =
    Chain<Flatten<slice::Iter<'a, Option<PinnedBacking>>>, slice::Iter<'a, PinnedBacking>>;
type IterMut<'a> =
    Chain<Flatten<slice::IterMut<'a, Option<PinnedBacking>>>, slice::IterMut<'a, PinnedBacking>>;

impl<'a> IntoIterator for &'a Buffers {
    type Item = &'a PinnedBacking;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Buffers {
    type Item = &'a mut PinnedBacking;
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}

/// The buffers of a grant, one after the other.
#[derive(Debug)]
pub struct IntoIter(
    Chain<Flatten<array::IntoIter<Option<PinnedBacking>, FEW>>, vec::IntoIter<PinnedBacking>>,
);

impl Iterator for IntoIter {
    type Item = PinnedBacking;

    fn next(&mut self) -> Option<PinnedBacking> {
        self.0.next()
    }
}

impl IntoIterator for Buffers {
    type Item = PinnedBacking;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        let more = self.more.map_or_else(Vec::new, |more| *more);
        IntoIter(self.few.into_iter().flatten().chain(more))
    }
}
