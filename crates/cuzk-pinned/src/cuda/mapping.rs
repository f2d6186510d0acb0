//! Anonymous memory on huge pages, touched by several threads.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::thread;

use super::PAGE_BYTES;
use crate::numa::{NODES_MAX, NumaNodes};

/// Bytes of a huge page, to which mappings are aligned so that they consist of
/// them from the first byte on.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that one thread takes at a time.
const STRIPE_BYTES: usize = 32 << 20;

/// Memory of the kernel's, mapped for this process alone.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes`, a number of whole pages and not zero, and asks for huge
    /// pages. No page is there yet.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
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
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { start, bytes })
    }

    /// Takes up a mapping that was given away.
    ///
    /// # Safety
    /// `start` and `bytes` are those of a mapping that
    /// [`into_start`](Self::into_start) consumed, and nobody uses it any more.
    pub(super) unsafe fn from_start(start: NonNull<u8>, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives the memory away.
    pub(super) fn into_start(self) -> NonNull<u8> {
        let start = self.start;
        std::mem::forget(self);
        start
    }

    /// Says on which nodes pages are to lie that nobody has touched yet: on one while it
    /// has room, on several by turns. Without nodes the kernel is not asked.
    pub(super) fn place(&mut self, nodes: &NumaNodes) -> io::Result<()> {
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
    pub(super) fn touch(&mut self, threads: NonZero<usize>) {
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
pub(super) fn for_each_stripe(
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
