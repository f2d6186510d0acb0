//! What a survey may hold, and does: every list asks here before it grows.
//!
//! Not counted are the circuit's own variables and linear combinations, and the 16 KiB
//! through which rows are digested.

use std::collections::HashMap;
use std::hash::Hash;

use crate::Uncut;

/// Bytes that may be held, are, and at most were. Since nothing grows that was not asked
/// for, the most is exactly the least limit with which the same survey succeeds.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit_bytes: usize,
    held_bytes: usize,
    most_bytes: usize,
}

impl Allowance {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            held_bytes: 0,
            most_bytes: 0,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Counts bytes that are about to be held.
    ///
    /// # Errors
    /// [`Uncut::TooLarge`] if they are too many; none of them counts then.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Uncut> {
        let limit_bytes = self.limit_bytes;
        self.held_bytes = self
            .held_bytes
            .checked_add(bytes)
            .filter(|&held| held <= limit_bytes)
            .ok_or(Uncut::TooLarge { limit_bytes })?;
        self.most_bytes = self.most_bytes.max(self.held_bytes);
        Ok(())
    }

    /// Bytes are not held any more.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.held_bytes, "given back is what was taken");
        self.held_bytes -= bytes;
    }

    /// Room for `more` in a list, which doubles if it has none.
    #[inline]
    pub(crate) fn reserve<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Uncut> {
        if list.capacity() - list.len() >= more {
            return Ok(());
        }
        let capacity = list.len().saturating_add(more);
        self.resize(list, capacity.max(2 * list.capacity()).max(4))
    }

    /// Room for exactly `more` in a list, unless it has more.
    pub(crate) fn reserve_exact<T>(&mut self, list: &mut Vec<T>, more: usize) -> Result<(), Uncut> {
        let capacity = list.len().saturating_add(more);
        if list.capacity() >= capacity {
            return Ok(());
        }
        self.resize(list, capacity)
    }

    /// No more room in a list than it uses.
    pub(crate) fn shrink<T>(&mut self, list: &mut Vec<T>) -> Result<(), Uncut> {
        if list.capacity() == list.len() {
            return Ok(());
        }
        self.resize(list, list.len())
    }

    /// A list moves: it has two homes meanwhile.
    #[cold]
    fn resize<T>(&mut self, list: &mut Vec<T>, capacity: usize) -> Result<(), Uncut> {
        let before_bytes = list_bytes(list);
        self.take(capacity.saturating_mul(size_of::<T>()))?;
        if capacity > list.capacity() {
            list.reserve_exact(capacity - list.len());
        } else {
            list.shrink_to(capacity);
        }
        debug_assert_eq!(list.capacity(), capacity);
        self.give_back(before_bytes);
        Ok(())
    }

    /// Room for one more entry of a map.
    pub(crate) fn reserve_entry<K: Eq + Hash, V>(
        &mut self,
        map: &mut HashMap<K, V>,
    ) -> Result<(), Uncut> {
        if map.len() < map.capacity() {
            return Ok(());
        }
        let before_bytes = map_bytes(map);
        let bytes = table_bytes(map.capacity() + 1, size_of::<(K, V)>());
        self.take(bytes)?;
        map.reserve(1);
        debug_assert_eq!(map_bytes(map), bytes);
        self.give_back(before_bytes);
        Ok(())
    }
}

/// Bytes of a list, what it may grow into included.
pub(crate) fn list_bytes<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// Bytes of a map, what it may grow into included.
pub(crate) fn map_bytes<K, V>(map: &HashMap<K, V>) -> usize {
    match map.capacity() {
        0 => 0,
        capacity => table_bytes(capacity, size_of::<(K, V)>()),
    }
}

/// Entries fill at most seven eighths of a map's places, three of the least four. Behind
/// them, where an address of sixteen begins, each place has a byte, and there are sixteen
/// more.
fn table_bytes(capacity: usize, entry_bytes: usize) -> usize {
    let places = (capacity * 8).div_ceil(7).next_power_of_two().max(4);
    (places * entry_bytes).next_multiple_of(16) + places + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LARGE: Uncut = Uncut::TooLarge { limit_bytes: 100 };

    #[test]
    fn what_is_refused_does_not_count() {
        let mut allowance = Allowance::new(100);
        assert_eq!(allowance.take(60), Ok(()));
        for bytes in [41, usize::MAX] {
            assert_eq!(allowance.take(bytes), Err(TOO_LARGE));
        }
        assert_eq!(allowance.take(40), Ok(()));
        allowance.give_back(90);
        assert_eq!((allowance.held_bytes(), allowance.most_bytes()), (10, 100));
    }

    #[test]
    fn a_list_has_two_homes_while_it_moves() {
        let mut allowance = Allowance::new(100);
        let mut list = Vec::<u64>::new();
        // The least is four, then it doubles.
        for (len, most_bytes) in [(1, 32), (4, 32), (5, 96), (8, 96)] {
            while list.len() < len {
                allowance.reserve(&mut list, 1).expect("room enough");
                list.push(0);
            }
            assert_eq!(allowance.most_bytes(), most_bytes);
            assert_eq!(allowance.held_bytes(), list_bytes(&list));
        }
        for more in [1, usize::MAX] {
            assert_eq!(allowance.reserve(&mut list, more), Err(TOO_LARGE));
            assert_eq!(allowance.reserve_exact(&mut list, more), Err(TOO_LARGE));
        }
        assert_eq!((list.capacity(), allowance.held_bytes()), (8, 64));
        list.truncate(5);
        assert_eq!(allowance.shrink(&mut list), Err(TOO_LARGE));
        list.truncate(4);
        assert_eq!(allowance.shrink(&mut list), Ok(()));
        assert_eq!((list.capacity(), allowance.held_bytes()), (4, 32));
    }

    /// That a map grows as is reckoned is asserted where it does.
    #[test]
    fn a_map_is_counted_as_it_grows() {
        let mut allowance = Allowance::new(1 << 20);
        let mut map = HashMap::new();
        for key in 0..5000u32 {
            allowance.reserve_entry(&mut map).expect("room enough");
            map.insert(key, key);
            assert_eq!(allowance.held_bytes(), map_bytes(&map));
        }
        // 8192 places of nine bytes, and half of that.
        assert_eq!(allowance.held_bytes(), 8192 * 9 + 16);
        assert_eq!(allowance.most_bytes(), 12_288 * 9 + 32);
    }
}
