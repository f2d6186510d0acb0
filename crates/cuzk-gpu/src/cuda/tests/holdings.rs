//! Who gets which place in an arena, without a device.

use std::rc::Rc;
use std::sync::Arc;

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G2Projective, Scalar};
use proptest::prelude::*;

use crate::BackendError;
use crate::cpu::h::CSource;
use crate::cuda::arena::Arena;
use crate::cuda::holdings::{Fixed, Held, Holdings, Points, Preloaded, Wanted};
use crate::cuda::plan::Cutting;
use crate::cuda::points::{Encoding, PointBytes};
use crate::device::arena::ALIGN;
use crate::error::{KeyError, PointFault};
use crate::key::Section;
use crate::shape::{Bitmap, CircuitShape, CircuitSizes};

const CUTTING: Cutting = Cutting {
    chunk_max: 1 << 24,
    window_bits: None,
    processors: 132,
};

/// A key that has nothing but its length.
struct Length(usize);

impl PointBytes for Length {
    fn vk(&self) -> &VerifyingKey<Bls12> {
        unreachable!("nothing is proved")
    }

    fn count(&self, _: Section) -> usize {
        self.0
    }

    fn encoding(&self) -> Encoding {
        Encoding::Memory
    }

    fn read(&self, _: Section, _: usize, _: &mut [u8]) -> Result<(), KeyError> {
        unreachable!("nothing is read")
    }

    fn fault(&self, _: Section, _: u64, _: PointFault) -> KeyError {
        unreachable!("nothing is decoded")
    }

    fn b_g2_sum(&self, _: &[Scalar]) -> Result<G2Projective, KeyError> {
        unreachable!("nothing is summed")
    }
}

/// A circuit of 2^log constraints and as many variables, all in A and half of them in B.
fn shape(log: u32) -> Arc<CircuitShape> {
    let len = 1usize << log;
    let bits = |word| Bitmap::new(vec![word; len / 64].into(), len);
    Arc::new(CircuitShape {
        sizes: CircuitSizes {
            inputs: 1,
            aux: len,
            constraints: len,
        },
        a_aux: bits(u64::MAX),
        b_inputs: Bitmap::new(vec![0].into(), 1),
        b_aux: bits(0x5555_5555_5555_5555),
    })
}

/// A circuit and a key of it.
struct Case {
    shape: Arc<CircuitShape>,
    source: Arc<dyn PointBytes>,
}

impl Case {
    fn of(shape: &Arc<CircuitShape>) -> Self {
        Self {
            shape: Arc::clone(shape),
            source: Arc::new(Length(shape.sizes.constraints)),
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            source: &self.source,
            shape: &self.shape,
            cutting: &CUTTING,
            c_source: CSource::Product,
            is_key_resident: true,
            is_assignment_late: false,
            piece_log_max: 24,
            slots: 2,
        }
    }

    /// Takes what a proof wants and says that it was brought.
    fn take(&self, holdings: &mut Holdings) -> Result<Option<Held>, BackendError> {
        let held = holdings.take(&self.wanted())?;
        if let Some(held) = &held {
            held.lists.pretend_loaded();
            if let Points::Resident(key) = &held.points {
                key.pretend_loaded();
            }
        }
        Ok(held)
    }

    /// Bytes that a proof takes in an arena of its own.
    fn bytes(&self) -> u64 {
        const LARGE: u64 = 1 << 34;
        let mut holdings = Holdings::new(Arena::pretended(LARGE));
        let held = self.take(&mut holdings).expect("room");
        assert!(held.is_some());
        LARGE - holdings.free_bytes()
    }
}

fn is_resident(held: &Held) -> bool {
    matches!(held.points, Points::Resident(_))
}

fn whole(taken: Result<Option<Held>, BackendError>) -> Held {
    let held = taken.expect("it fits").expect("nobody is in its way");
    assert!(is_resident(&held));
    held
}

#[test]
fn a_key_stays_until_another_wants_its_place() {
    let shape = shape(12);
    let [first, second, third] = [(); 3].map(|()| Case::of(&shape));
    let key_bytes = (1u64 << 12) * (96 * 4 + 192);
    let mut holdings = Holdings::new(Arena::pretended(first.bytes() + key_bytes));
    for case in [&first, &second, &first] {
        drop(whole(case.take(&mut holdings)));
    }
    let idle = holdings.free_bytes();
    // The third makes the second go, which was used before the first.
    drop(whole(third.take(&mut holdings)));
    assert_eq!(holdings.free_bytes(), idle);
    let held = whole(first.take(&mut holdings));
    let free = holdings.free_bytes();
    // A key that nobody can ask for again goes by itself.
    drop(third);
    holdings.forget();
    assert_eq!(holdings.free_bytes(), free + key_bytes);
    drop(held);
    drop(whole(second.take(&mut holdings)));
    drop(whole(first.take(&mut holdings)));
}

#[test]
fn what_does_not_fit_beside_a_proof_waits_and_nothing_idle_goes_for_it() {
    let shape = shape(12);
    let [first, second] = [(); 2].map(|()| Case::of(&shape));
    let mut holdings = Holdings::new(Arena::pretended(first.bytes() + (64 << 10)));
    let held = whole(first.take(&mut holdings));
    let free = holdings.free_bytes();
    assert!(second.take(&mut holdings).expect("it fits alone").is_none());
    // Another proof with the same key wants a slot alone, and has no room for it.
    assert!(first.take(&mut holdings).expect("it fits alone").is_none());
    assert_eq!(holdings.free_bytes(), free);
    drop(held);
    drop(whole(second.take(&mut holdings)));
}

/// What was preloaded leaves what else a proof takes its room, in whichever order it came.
#[test]
fn a_key_and_its_lists_are_preloaded_where_a_proof_has_room_for_them() {
    let case = Case::of(&shape(12));
    let key = |holdings: &mut Holdings| {
        let place = holdings.place_for(&case.source, &case.wanted().needs());
        match place.expect("it fits alone") {
            Preloaded::Resident(key) => key.pretend_loaded(),
            Preloaded::NoRoom | Preloaded::InPieces => panic!("there is room"),
        }
    };
    let lists = |holdings: &mut Holdings| {
        let lists = holdings.place_for_lists(&case.shape);
        lists.expect("there is room").pretend_loaded();
    };
    for is_key_first in [true, false] {
        let mut holdings = Holdings::new(Arena::pretended(case.bytes()));
        if is_key_first {
            key(&mut holdings);
        }
        lists(&mut holdings);
        key(&mut holdings);
        drop(whole(case.take(&mut holdings)));
    }
}

/// Pieces have the places that the plan says, however many proofs use them; and they are as
/// large as leaves room for every slot.
#[test]
fn proofs_share_the_places_of_pieces() {
    let case = Case::of(&shape(18));
    let bytes = case.bytes();
    for room in [bytes - (1 << 20), bytes / 2] {
        let mut holdings = Holdings::new(Arena::pretended(room));
        let take = |holdings: &mut Holdings| {
            let held = case.take(holdings).expect("pieces fit");
            held.expect("there is room for every slot")
        };
        let first = take(&mut holdings);
        let free = holdings.free_bytes();
        let wanted = case.wanted();
        let planned = wanted.needs().ways_within(room).next();
        let (_, _, asked) = planned.expect("what was taken");
        assert_eq!(asked, room / 256 * 256 - free);
        let second = take(&mut holdings);
        let slot = free - holdings.free_bytes();
        let (Points::Pieces { places, .. }, Points::Pieces { places: others, .. }) =
            (&first.points, &second.points)
        else {
            panic!("no room for the key");
        };
        assert!(Rc::ptr_eq(places, others));
        assert!(slot < 128 << 18, "no places: {slot}");
        drop((first, second));
        // What is left is idle: the lists, the scratch, the places.
        drop(take(&mut holdings));
        assert_eq!(holdings.free_bytes(), free + slot);
    }
}

#[test]
fn a_key_without_room_comes_in_pieces_and_less_is_an_error() {
    let case = Case::of(&shape(18));
    let bytes = case.bytes();
    let mut holdings = Holdings::new(Arena::pretended(bytes - (1 << 20)));
    let held = case.take(&mut holdings).expect("pieces fit");
    assert!(!is_resident(&held.expect("nobody is in its way")));
    let mut holdings = Holdings::new(Arena::pretended(8 << 20));
    let error = case.take(&mut holdings).map(|_| ()).expect_err("no room");
    let BackendError::DeviceMemory {
        asked, free, limit, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((free, limit), (8 << 20, 8 << 20));
    assert!(asked > limit);
}

/// Where there is no room beside the columns the assignment lies where B was, also one that
/// is longer, and nothing is gathered there. Others wait for the place as they do for any.
#[test]
fn a_late_assignment_lies_where_b_was() {
    let case = Case::of(&shape(18));
    let needs = case.wanted();
    let needs = needs.needs();
    let apart = needs.ways().filter(|(way, ..)| !way.is_late());
    let apart = apart.map(|(_, _, asked)| asked).min().expect("a way");
    let least = needs.least_bytes();
    assert!(least < apart);
    for (room, is_late) in [(least, true), (apart - ALIGN, true), (apart, false)] {
        let mut holdings = Holdings::new(Arena::pretended(room));
        for _ in 0..2 {
            let held = case.take(&mut holdings).expect("it fits");
            let held = held.expect("nobody is in its way");
            assert_eq!(held.points.way().is_late(), is_late, "{room} of {least}");
            let regions = held.regions();
            let variables = regions.assignment;
            assert!(variables.bytes() >= ((1 << 18) + 1) * 32);
            assert!(regions.b.bytes() >= 32 << 18);
            assert_eq!(variables.start == regions.b.start, is_late);
            let spare = if is_late { 0 } else { regions.b.bytes() };
            assert_eq!(regions.spare.bytes(), spare);
            assert!(case.take(&mut holdings).expect("it fits alone").is_none());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(usize),
    End(prop::sample::Index),
    Fix(u64),
    Unfix(prop::sample::Index),
}

/// More begins than ends, so that proofs meet; memory that no proof has is rare.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..CASES).prop_map(Step::Begin),
        5 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => (1..40_u64).prop_map(|units| Step::Fix(units << 14)),
        1 => any::<prop::sample::Index>().prop_map(Step::Unfix),
    ];
    prop::collection::vec(step, 1..120)
}

const CASES: usize = 8;

proptest! {
    /// Circuits of three sizes with several keys each, in an arena that has room for the
    /// largest and a little more: a proof that is alone always gets its place, whatever
    /// lay where before, and everything is free at the end.
    #[test]
    fn a_proof_that_is_alone_finds_its_room(steps in steps(), more in 0..3_u64) {
        let shapes = [7, 10, 12].map(shape);
        let cases: Vec<Case> = (0..CASES).map(|at| Case::of(&shapes[at % 3])).collect();
        let arena = cases[2].bytes() + (640 << 10) + (more << 20);
        let mut holdings = Holdings::new(Arena::pretended(arena));
        let mut running: Vec<Held> = Vec::new();
        let mut fixed: Vec<Fixed> = Vec::new();
        for step in steps {
            match step {
                Step::Begin(at) => {
                    let taken = cases[at].take(&mut holdings);
                    let taken = taken.map_err(|error| TestCaseError::fail(error.to_string()))?;
                    prop_assert!(taken.is_some() || !running.is_empty());
                    if let Some(held) = taken {
                        prop_assert!(is_resident(&held));
                        running.push(held);
                    }
                }
                Step::End(at) if !running.is_empty() => {
                    drop(running.swap_remove(at.index(running.len())));
                }
                // At most what the arena has beyond the largest proof. Beside a proof it
                // may lie anywhere, and pieces of a key be all that fits later.
                Step::Fix(bytes) if fixed.is_empty() && running.is_empty() => {
                    let taken = holdings.fixed("a test", bytes);
                    fixed.push(taken.map_err(|error| TestCaseError::fail(error.to_string()))?);
                }
                Step::Unfix(at) if !fixed.is_empty() => {
                    drop(fixed.swap_remove(at.index(fixed.len())));
                }
                Step::End(_) | Step::Fix(_) | Step::Unfix(_) => {}
            }
        }
        drop((running, fixed, cases));
        holdings.forget();
        prop_assert_eq!(holdings.fixed_bytes(), 0);
        let scratch_alone = holdings.fixed("everything", arena / 256 * 256);
        prop_assert!(scratch_alone.is_ok(), "the scratch goes too");
    }
}
