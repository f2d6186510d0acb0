//! On which nodes the kernel is asked to put memory: asked back from the kernel itself.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{Books, OPTIONS, RegisteredBacking};
use crate::Backing;
use crate::numa::NODES_MAX;

const BYTES: usize = 9 * 4096;

/// The kernel's policy for the page at this address, and the nodes of it.
fn policy(address: NonNull<u8>) -> io::Result<(libc::c_int, Vec<u32>)> {
    /// The policy of an address and not of the thread.
    const MPOL_F_ADDR: libc::c_ulong = 2;
    const WORD_BITS: u32 = libc::c_ulong::BITS;
    let mut mode: libc::c_int = -1;
    let mut mask = [0 as libc::c_ulong; (NODES_MAX / WORD_BITS) as usize];
    let bits = libc::c_ulong::from(NODES_MAX + 1);
    // SAFETY: the kernel writes one integer and `NODES_MAX` bits, for which there is room.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            mask.as_mut_ptr(),
            bits,
            address.as_ptr(),
            MPOL_F_ADDR,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let has = |node: &u32| mask[(node / WORD_BITS) as usize] >> (node % WORD_BITS) & 1 == 1;
    Ok((mode, (0..NODES_MAX).filter(has).collect()))
}

/// Whether there are policies here: not in a kernel without NUMA, nor where a container
/// forbids them.
fn has_policies() -> bool {
    let probe = 0_u8;
    match policy(NonNull::from(&probe)) {
        Ok(_) => true,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            println!("skipped: no memory policies here: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn backing(nodes: &[u32]) -> RegisteredBacking {
    let backing = RegisteredBacking::with_lock(Box::new(Books::default()), OPTIONS).unwrap();
    backing.on_nodes(nodes.iter().copied().collect())
}

/// Policies of the first and the last page of a buffer, which is zero and used.
fn policies_of_a_buffer(backing: &RegisteredBacking) -> [(libc::c_int, Vec<u32>); 2] {
    let start = backing.allocate(BYTES).unwrap();
    // SAFETY: allocated above, of this length.
    let last = unsafe { start.add(BYTES - 1) };
    let policies = [start, last].map(|address| policy(address).unwrap());
    // SAFETY: as above, and nobody else has it.
    let memory = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), BYTES) };
    assert!(memory.iter().all(|&byte| byte == 0));
    memory.fill(7);
    // SAFETY: allocated above, of this length, and freed once.
    unsafe { backing.free(start, BYTES) };
    policies
}

fn both<T: Clone>(of: T) -> [T; 2] {
    [of.clone(), of]
}

#[test]
fn memory_has_the_policy_that_its_nodes_ask_for() {
    if !has_policies() {
        return;
    }
    let without = policies_of_a_buffer(&backing(&[]));
    assert_eq!(without, both((libc::MPOL_DEFAULT, vec![])));
    let one = policies_of_a_buffer(&backing(&[0]));
    assert_eq!(one, both((libc::MPOL_PREFERRED, vec![0])));
    // Of several nodes the kernel keeps those that there are.
    let several = policies_of_a_buffer(&backing(&[0, 1]));
    let [(mode, nodes), _] = &several;
    assert_eq!((*mode, nodes.first()), (libc::MPOL_INTERLEAVE, Some(&0)));
    assert_eq!(several[0], several[1]);
}

#[test]
fn what_the_kernel_refuses_is_told_once_and_changes_nothing() {
    // No host has the last node that a kernel could have, and no kernel one after it.
    for node in [NODES_MAX - 1, NODES_MAX, u32::MAX] {
        let backing = backing(&[node]);
        let told = Arc::new(AtomicUsize::new(0));
        let subscriber = Warnings(Arc::clone(&told), node);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                let start = backing.allocate(BYTES).unwrap();
                if let Ok(policy) = policy(start) {
                    assert_eq!(policy, (libc::MPOL_DEFAULT, vec![]));
                }
                // SAFETY: allocated above, of this length, and freed once.
                unsafe { backing.free(start, BYTES) };
            }
        });
        assert_eq!(told.load(Ordering::SeqCst), 1, "node {node}");
    }
}

/// Counts warnings that name a node.
struct Warnings(Arc<AtomicUsize>, u32);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut names = Names(self.1.to_string(), false);
        event.record(&mut names);
        assert!(names.1, "the warning names the node");
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Whether an event's field `nodes` is this text.
struct Names(String, bool);

impl Visit for Names {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.1 |= field.name() == "nodes" && format!("{value:?}") == self.0;
    }
}
