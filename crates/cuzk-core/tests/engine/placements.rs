//! Where columns lie: every placement, every policy where page-locked memory is
//! refused, and what the reply says of it.

use std::num::NonZero;
use std::sync::Arc;

use cuzk_budget::{Budget, BudgetError};
use cuzk_core::config::{HugePages, Placement, PlacementRefused, Sizing};
use cuzk_core::{ColumnMemory, Engine, JobHandle, ProveError};
use cuzk_pinned::{
    Backing, FaultyBacking, PageLocker, PretendBacking, PretendLock, StagingOptions,
};
use cuzk_synth::HintStore;

use crate::toy::{House, SquaresJob, cpu};
use crate::uploading::{Stop, Uploading};
use crate::{PLENTY, prove, seeded, until};

const POLICIES: [PlacementRefused; 3] = [
    PlacementRefused::Wait,
    PlacementRefused::FallBack,
    PlacementRefused::Fail,
];
const LOCKED: PretendBacking = PretendBacking {
    chunk_bytes: NonZero::new(8192),
};

fn memory(share_bytes: u64, backing: impl Backing + 'static, lock: &PretendLock) -> ColumnMemory {
    let locker = PageLocker::new(lock.clone(), 8192);
    ColumnMemory::heap(Budget::new(PLENTY)).with_page_locked(share_bytes, backing, locker)
}

/// Page-locked memory without a limit of its own.
fn plenty() -> ColumnMemory {
    memory(PLENTY, LOCKED, &PretendLock::default())
}

fn house(placement: Placement, refused: PlacementRefused) -> House {
    let mut house = House::new(&[20]);
    house.config.tuning.placement = placement;
    house.config.tuning.placement_refused = refused;
    house
}

fn start(house: &House, memory: ColumnMemory) -> (Engine, Arc<Uploading>) {
    let (backend, _) = Uploading::new(None, Stop::Never);
    let engine = house.start(memory, backend.clone(), HintStore::in_memory());
    (engine.expect("page-locked memory is there"), backend)
}

fn submit(engine: &Engine) -> JobHandle {
    let job = Arc::new(SquaresJob::new(20, 2, 1));
    engine.submit(job, seeded()).expect("there is a place")
}

/// Bytes of a part's columns, in the whole pages that a page-locked pool takes.
fn column_bytes(house: &House) -> u64 {
    let lens = house.column_lens(20);
    lens.iter()
        .map(|len| len.next_multiple_of(4096) as u64)
        .sum()
}

/// Nothing is held but what could be had, and what is fixed.
fn assert_at_rest(engine: &Engine, fixed_bytes: u64) {
    let usage = engine.budget().usage();
    assert_eq!(
        usage.used_bytes,
        usage.idle_bytes + fixed_bytes,
        "{usage:?}"
    );
}

#[test]
fn every_placement_gives_the_same_proof_and_says_what_it_was() {
    let job = SquaresJob::new(20, 2, 3);
    let expected = prove(&House::new(&[20]).engine(PLENTY), &job).expect("a good job");
    assert_eq!(
        (expected.placement(), expected.is_pinned()),
        ("heap", false)
    );
    for (placement, name, is_pinned) in [
        (Placement::Auto, "direct", true),
        (Placement::Heap, "heap", false),
        (Placement::Register, "register", true),
        (Placement::Staged, "staged", false),
        (Placement::Direct, "direct", true),
    ] {
        let lock = PretendLock::default();
        let mut memory = memory(PLENTY, LOCKED, &lock);
        let ring = (placement == Placement::Staged).then(|| {
            let options = StagingOptions {
                chunk_bytes: NonZero::new(1000).expect("not zero"),
                ..StagingOptions::with_threads(NonZero::new(2).expect("not zero"))
            };
            memory.staging_ring(options).expect("there is room")
        });
        let fixed_bytes = ring.as_ref().map_or(0, |ring| ring.held_bytes());
        let (backend, _) = Uploading::new(ring, Stop::Never);
        let house = house(placement, PlacementRefused::Fail);
        let engine = house
            .start(memory, backend.clone(), HintStore::in_memory())
            .expect("page-locked memory is there");
        let reply = prove(&engine, &job).expect("a good job");
        assert_eq!(reply.proof, expected.proof, "{placement}");
        assert_eq!((reply.placement(), reply.is_pinned()), (name, is_pinned));
        assert_eq!(backend.seen(), [is_pinned; 3], "{placement}");
        let counts = engine.metrics().placements.counts();
        let expected = ["heap", "register", "staged", "direct"]
            .map(|known| (known, if known == name { 3 } else { 0 }));
        assert_eq!(counts, expected);
        assert_eq!(engine.metrics().placements_refused.count(), 0);
        let locks = if placement == Placement::Register {
            3
        } else {
            0
        };
        assert!(lock.locks() >= locks * house.column_lens(20).len() as u64);
        assert_eq!((lock.locked(), lock.locks() > 0), (0, locks > 0));
        assert_at_rest(&engine, fixed_bytes);
    }
}

#[test]
fn grown_columns_are_copied_into_page_locked_memory() {
    let mut house = house(Placement::Direct, PlacementRefused::Fail);
    house.config.tuning.sizing = Sizing::Growing;
    let (engine, backend) = start(&house, plenty());
    let reply = prove(&engine, &SquaresJob::new(20, 2, 1)).expect("a good job");
    assert_eq!((reply.placement(), backend.seen()), ("direct", vec![true]));
}

#[test]
fn a_backend_that_does_not_upload_reads_the_heap_unless_told_otherwise() {
    let job = SquaresJob::new(20, 2, 1);
    for (placement, name) in [(Placement::Auto, "heap"), (Placement::Direct, "direct")] {
        let house = house(placement, PlacementRefused::Wait);
        let engine = house.start(plenty(), Arc::new(cpu(true)), HintStore::in_memory());
        let engine = engine.expect("page-locked memory is there");
        let reply = prove(&engine, &job).expect("a good job");
        assert_eq!(
            (reply.placement(), reply.is_pinned()),
            (name, name == "direct")
        );
    }
}

#[test]
fn a_full_share_is_waited_for_fallen_back_from_or_an_error() {
    for policy in POLICIES {
        let house = house(Placement::Direct, policy);
        let (backend, permit) = Uploading::new(None, Stop::WithColumns);
        let memory = memory(column_bytes(&house), LOCKED, &PretendLock::default());
        let engine = house
            .start(memory, backend.clone(), HintStore::in_memory())
            .expect("page-locked memory is there");
        let first = submit(&engine);
        until(|| backend.seen().len() == 1);
        let second = submit(&engine);
        let end = match policy {
            PlacementRefused::Wait => {
                until(|| engine.budget().usage().waiters == 1);
                permit.send(()).expect("the backend waits");
                permit.send(()).expect("the backend waits");
                second
                    .wait()
                    .map(|reply| (reply.placement(), reply.is_pinned()))
            }
            PlacementRefused::FallBack => {
                until(|| engine.metrics().placements_refused.count() == 1);
                permit.send(()).expect("the backend waits");
                permit.send(()).expect("the backend waits");
                second
                    .wait()
                    .map(|reply| (reply.placement(), reply.is_pinned()))
            }
            PlacementRefused::Fail => {
                let end = second.wait();
                permit.send(()).expect("the backend waits");
                end.map(|reply| (reply.placement(), reply.is_pinned()))
            }
        };
        match (policy, end) {
            (PlacementRefused::Wait, Ok(("direct", true))) => {}
            (PlacementRefused::FallBack, Ok(("heap", false))) => {}
            (PlacementRefused::Fail, Err(ProveError::PageLocked { part: 0, source })) => {
                let told = source.to_string();
                assert!(told.contains("of page-locked memory"), "{told}");
            }
            (policy, end) => panic!("{policy}: {end:?}"),
        }
        let reply = first.wait().expect("a good job");
        assert_eq!((reply.placement(), reply.is_pinned()), ("direct", true));
        let refused = u64::from(policy == PlacementRefused::FallBack);
        assert_eq!(engine.metrics().placements_refused.count(), refused);
        drop(permit);
        let reply = prove(&engine, &SquaresJob::new(20, 2, 1)).map(|reply| reply.placement());
        assert_eq!(reply.expect("the share is free again"), "direct");
        assert_at_rest(&engine, 0);
    }
}

#[test]
fn a_full_budget_is_waited_for_whatever_the_policy() {
    for policy in POLICIES {
        let house = house(Placement::Direct, policy);
        let (backend, permit) = Uploading::new(None, Stop::WithColumns);
        // Room for a part and a half, all of which may be page-locked.
        let part_bytes = house.part_bytes(20, cuzk_gpu::KeyTier::File) + 4 * 4096;
        let memory = ColumnMemory::heap(Budget::new(part_bytes * 3 / 2)).with_page_locked(
            PLENTY,
            LOCKED,
            PageLocker::new(PretendLock::default(), 8192),
        );
        let engine = house
            .start(memory, backend.clone(), HintStore::in_memory())
            .expect("page-locked memory is there");
        let first = submit(&engine);
        until(|| backend.seen().len() == 1);
        let second = submit(&engine);
        until(|| engine.budget().usage().waiters == 1);
        drop(permit);
        for handle in [first, second] {
            let reply = handle.wait().expect("a good job");
            assert_eq!(reply.placement(), "direct", "{policy}");
        }
        assert_eq!(engine.metrics().placements_refused.count(), 0);
    }
}

#[test]
fn without_a_driver_an_engine_starts_only_if_it_may_fall_back() {
    let absent = || {
        let memory = ColumnMemory::heap(Budget::new(PLENTY));
        memory.without_page_locked("no CUDA driver")
    };
    for placement in [
        Placement::Auto,
        Placement::Register,
        Placement::Staged,
        Placement::Direct,
    ] {
        for policy in [PlacementRefused::Wait, PlacementRefused::Fail] {
            let (backend, _) = Uploading::new(None, Stop::Never);
            let house = house(placement, policy);
            let error = house.start(absent(), backend, HintStore::in_memory());
            let error = error.err().expect("there is no page-locked memory");
            assert_eq!(
                error.to_string(),
                format!(
                    "tuning.placement = \"{placement}\": no page-locked memory: no CUDA driver"
                )
            );
        }
        let house = house(placement, PlacementRefused::FallBack);
        let (engine, backend) = start(&house, absent());
        let reply = prove(&engine, &SquaresJob::new(20, 2, 2)).expect("a good job");
        assert_eq!((reply.placement(), reply.is_pinned()), ("heap", false));
        assert_eq!(backend.seen(), [false; 2]);
        assert_eq!(engine.metrics().placements_refused.count(), 2);
    }
    // Nothing is refused where nothing was asked.
    let house = house(Placement::Heap, PlacementRefused::Fail);
    let (engine, _) = start(&house, absent());
    prove(&engine, &SquaresJob::new(20, 2, 1)).expect("a good job");
    assert_eq!(engine.metrics().placements_refused.count(), 0);
}

#[test]
fn chunks_that_do_not_fit_the_share_are_an_error_or_the_heap() {
    let options = StagingOptions {
        chunk_bytes: NonZero::new(4096).expect("not zero"),
        ..StagingOptions::with_threads(NonZero::new(2).expect("not zero"))
    };
    for policy in POLICIES {
        let house = house(Placement::Staged, policy);
        let tuning = &house.config.tuning;
        // A page less than the ring, then all of it.
        let mut short = memory(3 * 4096, LOCKED, &PretendLock::default());
        match (policy, short.staging_ring_for(tuning, options)) {
            (PlacementRefused::FallBack, Ok(None)) => {
                let (engine, backend) = start(&house, short);
                let reply = prove(&engine, &SquaresJob::new(20, 2, 2)).expect("a good job");
                assert_eq!(
                    (reply.placement(), backend.seen()),
                    ("heap", vec![false; 2])
                );
                assert_eq!(engine.metrics().placements_refused.count(), 2);
            }
            (PlacementRefused::Wait | PlacementRefused::Fail, Err(error)) => {
                let told = error.to_string();
                assert!(told.contains("asked 16384 bytes of page-locked"), "{told}");
                assert_eq!(short.budget().usage().used_bytes, 0);
            }
            (policy, end) => panic!("{policy}: {end:?}"),
        }
        let mut memory = memory(4 * 4096, LOCKED, &PretendLock::default());
        let ring = memory.staging_ring_for(tuning, options);
        assert!(ring.expect("it fits").is_some(), "{policy}");
        let mut other = house.config.tuning;
        other.placement = Placement::Direct;
        let ring = memory.staging_ring_for(&other, options);
        assert!(ring.expect("nothing is asked").is_none());
    }
}

#[test]
fn memory_that_the_driver_refuses_is_an_error_or_the_heap() {
    for policy in POLICIES {
        let house = house(Placement::Direct, policy);
        for fails_at in 1..=house.column_lens(20).len() as u64 {
            let backing = FaultyBacking::new(LOCKED, fails_at);
            let (engine, backend) = start(&house, memory(PLENTY, backing, &PretendLock::default()));
            let job = SquaresJob::new(20, 2, 1);
            match (policy, prove(&engine, &job)) {
                (PlacementRefused::FallBack, Ok(reply)) => {
                    assert_eq!((reply.placement(), reply.is_pinned()), ("heap", false));
                    assert_eq!(backend.seen(), [false]);
                }
                (PlacementRefused::Wait, Err(ProveError::Allocation { part: 0, source }))
                | (PlacementRefused::Fail, Err(ProveError::PageLocked { part: 0, source })) => {
                    let told = source.to_string();
                    assert!(told.contains("was to fail"), "{told}");
                }
                (policy, end) => panic!("{policy}: {end:?}"),
            }
            let reply = prove(&engine, &job).expect("the driver gives it now");
            assert_eq!((reply.placement(), reply.is_pinned()), ("direct", true));
            assert_at_rest(&engine, 0);
        }
    }
}

#[test]
fn pages_that_the_driver_does_not_lock_are_an_error_or_the_heap() {
    for policy in POLICIES {
        let house = house(Placement::Register, policy);
        let columns = house.column_lens(20).len() as u64;
        for fails_at in 1..=columns {
            let lock = PretendLock::failing_at(fails_at);
            let (engine, backend) = start(&house, memory(PLENTY, LOCKED, &lock));
            let job = SquaresJob::new(20, 2, 1);
            match (policy, prove(&engine, &job)) {
                (PlacementRefused::FallBack, Ok(reply)) => {
                    assert_eq!((reply.placement(), reply.is_pinned()), ("heap", false));
                    assert_eq!(backend.seen(), [false]);
                }
                (
                    PlacementRefused::Wait | PlacementRefused::Fail,
                    Err(ProveError::PageLocked { part: 0, source }),
                ) => assert!(source.to_string().contains("was to fail"), "{source}"),
                (policy, end) => panic!("{policy}: {end:?}"),
            }
            assert_eq!(lock.locked(), 0);
            let reply = prove(&engine, &job).expect("the driver locks it now");
            assert_eq!((reply.placement(), reply.is_pinned()), ("register", true));
            assert_eq!(lock.locked(), 0);
            assert_at_rest(&engine, 0);
        }
    }
}

#[test]
fn a_part_that_never_fits_the_share_is_refused_at_once_or_falls_back() {
    for policy in POLICIES {
        let house = house(Placement::Direct, policy);
        let share_bytes = column_bytes(&house) - 1;
        let (engine, _) = start(&house, memory(share_bytes, LOCKED, &PretendLock::default()));
        let checked = engine.check(&crate::toy::Squares { rounds: 20 });
        match (policy, prove(&engine, &SquaresJob::new(20, 2, 1))) {
            (PlacementRefused::FallBack, Ok(reply)) => {
                assert_eq!(reply.placement(), "heap");
                assert!(checked.is_ok());
            }
            (PlacementRefused::FallBack, Err(error)) => panic!("{error}"),
            (_, Ok(_)) => panic!("{policy}: it cannot fit"),
            (_, Err(error)) => assert!(
                matches!(
                    &error,
                    ProveError::Memory { source: BudgetError::TooLarge { ledger, .. }, .. }
                        if **ledger == *"page-locked memory"
                ) || matches!(&error, ProveError::PageLocked { .. }),
                "{error:?}"
            ),
        }
        assert_at_rest(&engine, 0);
    }
}

#[test]
fn a_part_that_leaves_no_room_for_the_ring_is_refused_at_once() {
    let house = house(Placement::Staged, PlacementRefused::Wait);
    let part_bytes = house.part_bytes(20, cuzk_gpu::KeyTier::File);
    let options = StagingOptions {
        chunk_bytes: NonZero::new(4096).expect("not zero"),
        ..StagingOptions::with_threads(NonZero::new(1).expect("not zero"))
    };
    for (short_bytes, fits) in [(0, true), (1, false)] {
        let budget = Budget::new(part_bytes + 2 * 4096 - short_bytes);
        let locker = PageLocker::new(PretendLock::default(), 8192);
        let mut memory = ColumnMemory::heap(budget).with_page_locked(PLENTY, LOCKED, locker);
        let ring = memory.staging_ring(options).expect("there is room");
        let (backend, _) = Uploading::new(Some(ring), Stop::Never);
        let engine = house.start(memory, backend, HintStore::in_memory());
        let engine = engine.expect("there are chunks");
        // A wait would never end: the ring stays.
        match prove(&engine, &SquaresJob::new(20, 2, 1)) {
            Ok(reply) => assert_eq!((reply.placement(), fits), ("staged", true)),
            Err(ProveError::Memory {
                source: BudgetError::TooLarge { asked_bytes, .. },
                ..
            }) => assert_eq!((asked_bytes, fits), (part_bytes, false)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_part_that_leaves_the_share_no_room_for_the_ring_is_refused_at_once() {
    let house = house(Placement::Direct, PlacementRefused::Wait);
    let options = StagingOptions {
        chunk_bytes: NonZero::new(4096).expect("not zero"),
        ..StagingOptions::with_threads(NonZero::new(1).expect("not zero"))
    };
    for short_bytes in [0, 1] {
        let share_bytes = column_bytes(&house) + 2 * 4096 - short_bytes;
        let mut memory = memory(share_bytes, LOCKED, &PretendLock::default());
        let ring = memory.staging_ring(options).expect("there is room");
        let (engine, _) = start(&house, memory);
        match prove(&engine, &SquaresJob::new(20, 2, 1)) {
            Ok(reply) => assert_eq!((reply.placement(), short_bytes), ("direct", 0)),
            Err(ProveError::Memory {
                source:
                    BudgetError::TooLarge {
                        ledger,
                        asked_bytes,
                        ..
                    },
                ..
            }) => {
                assert_eq!((&*ledger, short_bytes), ("page-locked memory", 1));
                assert_eq!(asked_bytes, column_bytes(&house));
            }
            Err(error) => panic!("{error}"),
        }
        drop(ring);
    }
}

#[test]
fn columns_are_given_back_when_they_are_read() {
    for placement in [Placement::Direct, Placement::Register] {
        let house = house(placement, PlacementRefused::Fail);
        let (backend, permit) = Uploading::new(None, Stop::WithoutColumns);
        let lock = PretendLock::default();
        let memory = memory(PLENTY, LOCKED, &lock);
        let engine = house
            .start(memory, backend.clone(), HintStore::in_memory())
            .expect("page-locked memory is there");
        let handle = submit(&engine);
        until(|| backend.seen().len() == 1);
        let expected = column_bytes(&house);
        // The proof is not done: its columns are idle and unlocked, its working memory
        // is held.
        until(|| engine.budget().usage().idle_bytes >= expected - 4 * 4096);
        until(|| lock.locked() == 0);
        let usage = engine.budget().usage();
        assert!(usage.used_bytes > usage.idle_bytes, "{usage:?}");
        permit.send(()).expect("the backend waits");
        handle.wait().expect("a good job");
        assert_at_rest(&engine, 0);
    }
}

/// What is set aside for keys is no part's, whether a key has it or not; a key that finds
/// no room is refused, and the parts go on.
#[test]
fn memory_for_keys_is_set_aside() {
    let lock = PretendLock::default();
    let mut memory = memory(64 * 4096, LOCKED, &lock);
    let refused = memory.key_memory(65 * 4096).err();
    assert_eq!(
        refused.as_deref(),
        Some("asked 266240 bytes for keys, 262144 of 262144 are left")
    );
    let keys = memory.key_memory(48 * 4096).expect("room in the share");
    assert_eq!(memory.page_locked_bytes(), 0, "taken when a key wants it");
    let taken = (keys.take)(&[4096 * 30, 4096 * 10]).expect("room");
    assert_eq!(
        taken.iter().map(|buffer| buffer.len()).sum::<usize>(),
        40 * 4096
    );
    assert!((keys.take)(&[25 * 4096]).is_none(), "no room beside it");
    drop(taken);
    assert!((keys.take)(&[25 * 4096]).is_some());
    let column_bytes = [20 * 4096];
    assert!(
        memory.key_memory(column_bytes[0]).is_err(),
        "set aside for the others"
    );
}

#[test]
fn ordinary_columns_lie_on_the_pages_that_were_asked_for() {
    let mut proofs = Vec::new();
    for (huge, capacity) in [
        (HugePages::Auto, 1),
        (HugePages::Always, 4096),
        (HugePages::Never, 4096),
    ] {
        for placement in [Placement::Heap, Placement::Register] {
            let locker = PageLocker::new(PretendLock::default(), 8192);
            let memory = ColumnMemory::on_pages(Budget::new(PLENTY), huge, NonZero::<usize>::MIN)
                .with_page_locked(PLENTY, LOCKED, locker);
            // What is mapped is whole pages; the allocator gives what was asked.
            assert_eq!(memory.heap_pool().capacity_of(1), Some(capacity), "{huge}");
            let house = house(placement, PlacementRefused::Wait);
            let (engine, _) = start(&house, memory);
            let reply = submit(&engine).wait().expect("a good job");
            assert_eq!(reply.placement(), placement.to_string(), "{huge}");
            proofs.push(reply.proof.clone());
        }
    }
    proofs.dedup();
    assert_eq!(proofs.len(), 1, "the same witness and blinding");
}
