//! Anonymous memory on pages that are chosen, touched by several threads.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::thread;

use crate::backing::Backing;
use crate::error::BackingError;
#[cfg(feature = "cuda")]
use crate::numa::{NODES_MAX, NumaNodes};

/// Bytes of an ordinary page: what is mapped is whole pages.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Bytes of a huge page, to which mappings are aligned so that they consist of
/// them from the first byte on.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that one thread takes at a time.
const STRIPE_BYTES: usize = 32 << 20;

/// What pages memory is asked on. It is advice: a kernel without huge pages, or none free,
/// gives ordinary ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Of 4 KiB, also where the kernel would give huge ones by itself.
    Ordinary,
    /// Of 2 MiB.
    Huge,
}

impl Pages {
    fn advice(self) -> libc::c_int {
        match self {
            Self::Ordinary => libc::MADV_NOHUGEPAGE,
            Self::Huge => libc::MADV_HUGEPAGE,
        }
    }
}

/// Rounds up to whole pages; `None` where no slice can be so large.
pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    isize::try_from(rounded).ok().map(|_| rounded)
}

/// Ordinary memory that is mapped anew for each buffer, on pages that are chosen, and
/// touched when it is allocated. The heap's are the allocator's choice.
#[derive(Clone, Copy, Debug)]
pub struct MappedBacking {
    /// The pages.
    pub pages: Pages,
    /// Threads that touch new memory.
    pub threads: NonZero<usize>,
}

// SAFETY: an anonymous mapping has the size asked, page alignment and zeros, is used by
// nobody else and may be used from any thread.
unsafe impl Backing for MappedBacking {
    fn name(&self) -> &'static str {
        "mapped"
    }

    fn is_page_locked(&self) -> bool {
        false
    }

    fn rounded(&self, bytes: usize) -> Option<usize> {
        whole_pages(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, BackingError> {
        let refuse = |reason: String| BackingError {
            backing: self.name(),
            bytes,
            reason,
        };
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return Err(refuse("not a number of whole pages".to_owned()));
        }
        let mapping = Mapping::new(bytes, self.pages);
        let mut mapping = mapping.map_err(|error| refuse(error.to_string()))?;
        mapping.touch(self.threads);
        Ok(mapping.into_start())
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller promises that `allocate` gave this memory, which consumed its
        // mapping, and that nobody uses it any more.
        drop(unsafe { Mapping::from_start(start, bytes) });
    }
}

/// Memory of the kernel's, mapped for this process alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes`, a number of whole pages and not zero, and says which pages are
    /// wanted. None is there yet.
    pub(crate) fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let reserved = bytes
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(reserved_start) = NonNull::new(start.cast::<u8>()) else {
            return Err(io::Error::other("the kernel mapped the null page"));
        };
        let address = reserved_start.addr().get();
        let head = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        // SAFETY: the reservation is longer than `bytes` by a huge page, so the
        // next aligned address and `bytes` after it lie within.
        let start = unsafe { reserved_start.add(head) };
        let tail = reserved - head - bytes;
        // SAFETY: head and tail are whole pages of the mapping made above that
        // lie outside the part that is kept; nobody knows them. What the kernel
        // refuses to unmap stays reserved and costs addresses only.
        unsafe {
            if head > 0 {
                libc::munmap(reserved_start.as_ptr().cast(), head);
            }
            if tail > 0 {
                libc::munmap(start.add(bytes).as_ptr().cast(), tail);
            }
        }
        // SAFETY: advice about memory that this mapping owns. Where huge pages
        // are not offered the call fails and ordinary ones are used.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, pages.advice()) };
        Ok(Self { start, bytes })
    }

    /// Takes up a mapping that was given away.
    ///
    /// # Safety
    /// `start` and `bytes` are those of a mapping that
    /// [`into_start`](Self::into_start) consumed, and nobody uses it any more.
    pub(crate) unsafe fn from_start(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    #[cfg(any(feature = "cuda", all(test, not(feature = "loom"))))]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives the memory away.
    pub(crate) fn into_start(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }

    /// Says on which nodes pages are to lie that nobody has touched yet: on one while it
    /// has room, on several by turns. Without nodes the kernel is not asked.
    #[cfg(feature = "cuda")]
    pub(crate) fn place(&mut self, nodes: &NumaNodes) -> io::Result<()> {
        const WORD_BITS: u32 = libc::c_ulong::BITS;
        let mode = match nodes.iter().len() {
            0 => return Ok(()),
            1 => libc::MPOL_PREFERRED,
            _ => libc::MPOL_INTERLEAVE,
        };
        let mut mask = [0 as libc::c_ulong; (NODES_MAX / WORD_BITS) as usize];
        for node in nodes.iter() {
            let word = mask.get_mut((node / WORD_BITS) as usize);
            *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % WORD_BITS);
        }
        // The kernel reads one bit less than it is told of.
        let bits = libc::c_ulong::from(NODES_MAX + 1);
        let flags: libc::c_ulong = 0;
        // SAFETY: the pages are this mapping's own, and where they lie changes nothing of
        // what they hold. The kernel reads `NODES_MAX` bits of the mask, which has so many.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes as libc::c_ulong,
                libc::c_long::from(mode),
                mask.as_ptr(),
                bits,
                flags,
            )
        };
        match answer {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes to every page, so that all of them are there and zero.
    pub(crate) fn touch(&mut self, threads: NonZero<usize>) {
        // SAFETY: the mapping owns these bytes and is borrowed mutably.
        let memory = unsafe {
            std::slice::from_raw_parts_mut(
                self.start.cast::<MaybeUninit<u8>>().as_ptr(),
                self.bytes,
            )
        };
        for_each_stripe(memory, threads, |stripe| {
            for first in stripe.iter_mut().step_by(PAGE_BYTES) {
                // SAFETY: a write through a unique reference; volatile, since a
                // zero written over zeros would be left out otherwise.
                unsafe { std::ptr::from_mut(first).write_volatile(MaybeUninit::new(0)) };
            }
        });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and is dropped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Runs `work` on all of `memory`, a stripe at a time, on `threads` threads.
pub(crate) fn for_each_stripe(
    memory: &mut [MaybeUninit<u8>],
    threads: NonZero<usize>,
    work: impl Fn(&mut [MaybeUninit<u8>]) + Sync,
) {
    let thread_count = threads.get().min(memory.len().div_ceil(STRIPE_BYTES));
    let stripes = Mutex::new(memory.chunks_mut(STRIPE_BYTES));
    let next = || stripes.lock().unwrap_or_else(|e| e.into_inner()).next();
    let run = || {
        while let Some(stripe) = next() {
            work(stripe);
        }
    };
    thread::scope(|scope| {
        for _ in 1..thread_count {
            // Where the machine has no more threads, fewer do the same work.
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use cuzk_budget::{Budget, Consumer, Priority, Wait};

    use super::*;
    use crate::{AcquireRequest, PinnedPool, PoolOptions};

    const THREADS: NonZero<usize> = NonZero::new(3).unwrap();
    const BOTH: [Pages; 2] = [Pages::Ordinary, Pages::Huge];

    #[test]
    fn mappings_start_on_a_huge_page_and_are_zero() {
        for (count, pages) in [1, 511, 512, 513].into_iter().zip(BOTH.into_iter().cycle()) {
            let bytes = count * PAGE_BYTES;
            let mut mapping = Mapping::new(bytes, pages).unwrap();
            assert_eq!(mapping.start().addr().get() % (2 << 20), 0);
            mapping.touch(THREADS);
            let start = mapping.into_start();
            // SAFETY: a mapping of so many bytes, zero since it is new.
            let memory = unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) };
            assert!(memory.iter().all(|&byte| byte == 0));
            // SAFETY: given away just now.
            drop(unsafe { Mapping::from_start(start, bytes) });
        }
    }

    #[test]
    fn stripes_cover_memory_once() {
        // None, one byte, and lengths around the stripe of 32 MiB.
        for len in [0, 1, (32 << 20) - 1, 32 << 20, (64 << 20) + 1] {
            let mut memory = vec![MaybeUninit::new(0_u8); len];
            for_each_stripe(&mut memory, THREADS, |stripe| {
                for byte in stripe {
                    // SAFETY: all of it is initialised above.
                    *byte = MaybeUninit::new(unsafe { byte.assume_init() } + 1);
                }
            });
            // SAFETY: as above.
            assert!(memory.iter().all(|byte| unsafe { byte.assume_init() } == 1));
        }
    }

    /// Whether the kernel was advised about the mapping that has this address, by the flag
    /// of that advice in `/proc/self/smaps`; none where it has no huge pages to advise of.
    fn is_advised(address: usize, flag: &str) -> Option<bool> {
        std::fs::metadata("/sys/kernel/mm/transparent_hugepage").ok()?;
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_inside = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next()?.split_once('-');
            let range = range.and_then(|(from, to)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(from)?..number(to)?)
            });
            if let Some(range) = range {
                is_inside = range.contains(&address);
            }
            if let (true, Some(flags)) = (is_inside, line.strip_prefix("VmFlags:")) {
                return Some(flags.split_whitespace().any(|have| have == flag));
            }
        }
        None
    }

    #[test]
    fn a_pool_of_mapped_memory_asks_for_its_pages() {
        for (pages, flag, other) in [(Pages::Huge, "hg", "nh"), (Pages::Ordinary, "nh", "hg")] {
            let backing = MappedBacking {
                pages,
                threads: THREADS,
            };
            let pool = PinnedPool::new(Budget::new(8 << 20), backing, PoolOptions::STANDARD);
            let request = AcquireRequest {
                buffers: &[(4 << 20) - 5],
                bytes: 0,
                consumer: Consumer("tests"),
                wait: Wait::with_priority(Priority::NORMAL),
            };
            let mut taken = pool.acquire(&request).expect("room for it");
            let buffer = &mut taken.buffers[0];
            assert_eq!(buffer.capacity(), 4 << 20);
            assert!(buffer.as_bytes().iter().all(|byte| *byte == 0));
            buffer.as_bytes_mut().fill(7);
            let address = buffer.as_bytes().as_ptr().addr();
            if let Some(is) = is_advised(address, flag) {
                assert!(is, "{flag}");
                assert_eq!(is_advised(address, other), Some(false), "{other}");
            }
            drop(taken);
            assert_eq!(pool.trim(u64::MAX), 4 << 20);
        }
    }

    #[test]
    fn what_is_no_number_of_pages_is_refused() {
        let backing = MappedBacking {
            pages: Pages::Huge,
            threads: THREADS,
        };
        for bytes in [0, 1, PAGE_BYTES + 1] {
            assert_eq!(backing.allocate(bytes).unwrap_err().bytes, bytes);
        }
        let more_than_there_is = (1 << 62) - PAGE_BYTES;
        let error = backing.allocate(more_than_there_is).unwrap_err();
        assert_eq!((error.backing, error.bytes), ("mapped", more_than_there_is));
    }
}
