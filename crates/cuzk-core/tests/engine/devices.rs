//! Several devices side by side, and devices that fail for good. The devices are the
//! processor under other names.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use cuzk_budget::{Budget, Consumer, Priority, Wait};
use cuzk_core::{CircuitSpec, Engine, JobOptions, ProveError};
use cuzk_gpu::cpu::CpuBackend;
use cuzk_gpu::{
    Backend, BackendError, CColumn, CircuitShape, CircuitSizes, ColumnLayout, Columns, DeviceUse,
    Key, KeyTier, Pending, ProveRequest, pending,
};

use cuzk_pinned::{AcquireRequest, PinnedPool};
use cuzk_synth::count;

use crate::segments::{Chains, chains, house};
use crate::toy::{House, Squares, SquaresJob, cpu};
use crate::{PLENTY, prove, seeded, until};

/// A device that may be lost.
pub(crate) struct Card {
    inner: CpuBackend,
    ordinal: usize,
    /// What it says to everything, once it is lost.
    is_lost: AtomicBool,
    /// What it says before that, once: it fails in the middle of a proof.
    pub(crate) fails_first: AtomicBool,
    /// Proofs begin when as many devices have one.
    together: Option<Arc<Barrier>>,
    /// Whether its columns have as many rows as the circuit, which it cannot prove then.
    has_exact_rows: AtomicBool,
    seen: AtomicUsize,
    /// Keys that were preloaded.
    preloaded: AtomicUsize,
    /// Shapes of circuits that were, and are not those of a proof yet.
    shapes: Mutex<Vec<Arc<CircuitShape>>>,
}

impl Card {
    pub(crate) fn new(ordinal: usize) -> Self {
        Self {
            inner: cpu(true),
            ordinal,
            is_lost: AtomicBool::new(false),
            fails_first: AtomicBool::new(false),
            together: None,
            has_exact_rows: AtomicBool::new(false),
            seen: AtomicUsize::new(0),
            preloaded: AtomicUsize::new(0),
            shapes: Mutex::default(),
        }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    fn refuse(request: ProveRequest, error: BackendError) -> Pending {
        let (completion, pending) = pending();
        completion.columns_read(request.columns);
        completion.done(Err(error));
        pending
    }
}

impl Backend for Card {
    fn name(&self) -> &'static str {
        "card"
    }

    fn device(&self) -> Option<DeviceUse> {
        Some(DeviceUse {
            ordinal: self.ordinal,
            name: "Card".to_owned(),
            limit_bytes: 0,
            held_bytes: 0,
        })
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    fn c_column(&self) -> CColumn {
        self.inner.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        let layout = self.inner.layout(sizes);
        match self.has_exact_rows.load(Ordering::SeqCst) {
            true => ColumnLayout {
                rows: sizes.constraints,
                ..layout
            },
            false => layout,
        }
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.inner.work_bytes(sizes, key, tier)
    }

    fn preload(&self, _: &Arc<Key>) -> Result<KeyTier, BackendError> {
        if self.is_lost() {
            let ordinal = self.ordinal;
            return Err(BackendError::DeviceLost { ordinal });
        }
        self.preloaded.fetch_add(1, Ordering::SeqCst);
        Ok(KeyTier::Resident)
    }

    fn preload_shape(&self, shape: &Arc<CircuitShape>) -> Result<(), BackendError> {
        if self.is_lost() {
            let ordinal = self.ordinal;
            return Err(BackendError::DeviceLost { ordinal });
        }
        let mut shapes = self.shapes.lock().expect("no panic");
        shapes.push(Arc::clone(shape));
        Ok(())
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        let mut shapes = self.shapes.lock().expect("no panic");
        shapes.retain(|shape| !Arc::ptr_eq(shape, &request.shape));
        drop(shapes);
        self.seen.fetch_add(1, Ordering::SeqCst);
        if self.fails_first.swap(false, Ordering::SeqCst) {
            // As a device does: the call that fails says what it met, and later ones that
            // there is no device any more.
            self.is_lost.store(true, Ordering::SeqCst);
            let error = BackendError::Device {
                call: "cuStreamSynchronize",
                reason: "an illegal memory access was encountered".to_owned(),
            };
            return Self::refuse(request, error);
        }
        if self.is_lost() {
            let ordinal = self.ordinal;
            return Self::refuse(request, BackendError::DeviceLost { ordinal });
        }
        if let Some(together) = &self.together {
            together.wait();
        }
        self.inner.submit(request)
    }
}

pub(crate) fn engine(house: &House, cards: &[Arc<Card>]) -> Engine {
    let backends = cards
        .iter()
        .map(|card| Arc::clone(card) as Arc<dyn Backend>);
    house.engine_on_all(PLENTY, backends.collect())
}

/// The parts that each device has, and why it is out of service.
fn told(engine: &Engine) -> Vec<(usize, Option<String>)> {
    let devices = engine.devices().into_iter();
    devices.map(|state| (state.parts, state.lost)).collect()
}

/// The devices that proved a job's parts, in order of their numbers.
fn devices(engine: &Engine, parts: usize) -> Vec<Option<usize>> {
    let reply = prove(engine, &SquaresJob::new(20, 3, parts)).expect("a good job");
    let mut devices: Vec<_> = reply.parts.iter().map(|part| part.device).collect();
    devices.sort_unstable();
    devices
}

const LOST: &str = "device 0 failed earlier and is out of service until the process starts anew";
const ACCESS: &str = "device: cuStreamSynchronize: an illegal memory access was encountered";

#[test]
fn parts_go_to_the_device_with_the_least_to_do() {
    let house = House::new(&[20]);
    let together = Arc::new(Barrier::new(2));
    let cards = [0, 1].map(|ordinal| {
        let together = Some(Arc::clone(&together));
        Arc::new(Card {
            together,
            ..Card::new(ordinal)
        })
    });
    let engine = engine(&house, &cards);
    for _ in 0..3 {
        assert_eq!(devices(&engine, 2), [Some(0), Some(1)]);
    }
    assert_eq!(cards.map(|card| card.seen()), [3, 3]);
    assert_eq!(told(&engine), [(0, None), (0, None)]);
}

#[test]
fn a_lost_device_gets_no_part_and_its_part_goes_to_the_other() {
    let house = House::new(&[20]);
    // Lost unnoticed before, or in the middle of a proof of ours.
    for (fails_first, reason) in [(false, LOST), (true, ACCESS)] {
        let cards = [0, 1].map(|ordinal| Arc::new(Card::new(ordinal)));
        cards[0].is_lost.store(!fails_first, Ordering::SeqCst);
        cards[0].fails_first.store(fails_first, Ordering::SeqCst);
        let engine = engine(&house, &cards);
        assert_eq!(devices(&engine, 1), [Some(1)]);
        assert_eq!(engine.metrics().parts_retried.count(), 1);
        let lost = (0, Some(reason.to_owned()));
        assert_eq!(told(&engine), [lost, (0, None)]);
        assert_eq!(devices(&engine, 3), [Some(1); 3]);
        assert_eq!(engine.metrics().parts_retried.count(), 1, "no more");
        assert_eq!(cards[0].seen(), 1);
    }
}

/// The loss of one between two of its parts is noticed by what preloads a key: a part that
/// waits for a slot does not go there to fail.
#[test]
fn a_device_found_lost_by_a_preload_gets_no_part_that_waits() {
    let house = House::new(&[20]);
    let turns = [0, 1].map(|_| Arc::new(Barrier::new(2)));
    let cards = [0, 1].map(|ordinal| {
        let together = Some(Arc::clone(&turns[ordinal]));
        Arc::new(Card {
            together,
            ..Card::new(ordinal)
        })
    });
    let engine = engine(&house, &cards);
    let job = Arc::new(SquaresJob::new(20, 3, 3));
    let handle = engine.submit(job, JobOptions::default());
    let handle = handle.expect("there is a place");
    let metrics = engine.metrics();
    until(|| metrics.syntheses_cut.count() + metrics.syntheses_whole.count() == 3);
    until(|| cards.iter().all(|card| card.seen() == 1));
    cards[0].is_lost.store(true, Ordering::SeqCst);
    let preloaded = engine.preload(&Squares { rounds: 20 });
    preloaded.expect_err("one of them is lost");
    // What it has begun it ends.
    turns[0].wait();
    until(|| engine.devices()[0].parts == 0);
    turns[1].wait();
    turns[1].wait();
    let reply = handle.wait().expect("a good job");
    assert_eq!((reply.retries(), cards[0].seen()), (0, 1));
}

#[test]
fn with_every_device_lost_the_error_names_each() {
    let house = House::new(&[20]);
    let cards = [0, 1].map(|ordinal| Arc::new(Card::new(ordinal)));
    cards[0].fails_first.store(true, Ordering::SeqCst);
    cards[1].is_lost.store(true, Ordering::SeqCst);
    let engine = engine(&house, &cards);
    let job = SquaresJob::new(20, 3, 1);
    let first = prove(&engine, &job).expect_err("no device is left");
    assert!(
        matches!(
            first,
            ProveError::Backend {
                source: BackendError::DeviceLost { ordinal: 1 },
                ..
            }
        ),
        "{first}"
    );
    let next = prove(&engine, &job).expect_err("no device is left");
    assert!(matches!(next, ProveError::OutOfService { .. }), "{next}");
    assert_eq!(
        next.to_string(),
        format!(
            "nothing proves any more: device 0 (Card): {ACCESS}; device 1 (Card): {}",
            LOST.replace("device 0", "device 1")
        )
    );
    assert_eq!(cards.map(|card| card.seen()), [1, 1], "not asked again");
    let used = engine.budget().usage().used_bytes;
    let idle = engine.budget().usage().idle_bytes;
    assert_eq!(used, idle, "nobody holds anything");
}

/// A device that has too little memory for any proof, and may know it beforehand.
struct Small {
    inner: CpuBackend,
    knows: bool,
    seen: AtomicUsize,
}

impl Small {
    fn new(knows: bool) -> Arc<Self> {
        Arc::new(Self {
            inner: cpu(true),
            knows,
            seen: AtomicUsize::new(0),
        })
    }
}

impl Backend for Small {
    fn name(&self) -> &'static str {
        "small"
    }

    fn c_column(&self) -> CColumn {
        self.inner.c_column()
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.inner.layout(sizes)
    }

    fn work_bytes(&self, sizes: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        self.inner.work_bytes(sizes, key, tier)
    }

    fn check(&self, _: &CircuitSizes, _: &Key) -> Result<(), BackendError> {
        match self.knows {
            true => Err(too_small()),
            false => Ok(()),
        }
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        self.seen.fetch_add(1, Ordering::SeqCst);
        Card::refuse(request, wrong_length())
    }
}

fn wrong_length() -> BackendError {
    BackendError::Mismatch {
        what: "scalars in column a",
        have: 2,
        want: 3,
    }
}

fn too_small() -> BackendError {
    BackendError::DeviceMemory {
        what: "a proof and its key",
        asked: 3,
        free: 2,
        limit: 2,
    }
}

#[test]
fn what_would_end_the_same_way_is_not_tried_again() {
    let house = House::new(&[20]);
    let small = Small::new(false);
    let engine = house.engine_on(PLENTY, Arc::clone(&small) as Arc<dyn Backend>);
    let error = prove(&engine, &SquaresJob::new(20, 3, 1)).expect_err("refused");
    assert_eq!(error.to_string(), format!("part 0: {}", wrong_length()));
    assert_eq!(small.seen.load(Ordering::SeqCst), 1);
    assert_eq!(engine.metrics().parts_retried.count(), 0);
}

/// Told from the key's counts, before anything is synthesised.
#[test]
fn a_circuit_that_is_too_large_for_the_device_is_refused_at_admission() {
    let house = House::new(&[20]);
    let small = Small::new(true);
    let engine = house.engine_on(PLENTY, Arc::clone(&small) as Arc<dyn Backend>);
    let message = format!("the circuit is too large: {}", too_small());
    let admitted = engine.check(&Squares { rounds: 20 });
    let refused = admitted.expect_err("too large").to_string();
    assert_eq!(refused, message);

    let job = SquaresJob::new(20, 3, 1);
    let handle = engine.submit(Arc::new(job), JobOptions::default());
    let handle = handle.expect("a queue with room");
    let error = handle.wait().expect_err("too large").to_string();
    assert_eq!(error, message);
    let spans = handle.timeline().spans();
    assert!(
        spans.iter().all(|span| span.name != "synthesis"),
        "{spans:?}"
    );
    assert_eq!(small.seen.load(Ordering::SeqCst), 0);
}

/// Of two devices of different size the larger gets every part.
#[test]
fn parts_go_to_the_device_that_has_room_for_them() {
    let house = House::new(&[20]);
    let (small, large) = (Small::new(true), Small::new(false));
    let backends: Vec<Arc<dyn Backend>> = vec![small.clone(), large.clone()];
    let engine = house.engine_on_all(PLENTY, backends);
    engine
        .check(&Squares { rounds: 20 })
        .expect("one is enough");
    // It refuses what it gets, but it was asked.
    prove(&engine, &SquaresJob::new(20, 3, 1)).expect_err("refused");
    let seen = [small, large].map(|device| device.seen.load(Ordering::SeqCst));
    assert_eq!(seen, [0, 1]);
}

/// A device that takes one scalar a constraint and no more, as real ones do.
struct Exact {
    inner: CpuBackend,
    seen: AtomicUsize,
}

impl Exact {
    fn refusal(&self, request: &ProveRequest) -> Option<BackendError> {
        let have = request.columns.a.len();
        let want = request.shape.sizes.constraints;
        let what = "scalars in column a";
        (have != want).then_some(BackendError::Mismatch { what, have, want })
    }
}

impl Backend for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn c_column(&self) -> CColumn {
        CColumn::Absent
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        ColumnLayout {
            rows: sizes.constraints,
            aux: sizes.aux,
            c: CColumn::Absent,
        }
    }

    fn work_bytes(&self, _: &CircuitSizes, _: &Key, _: KeyTier) -> u64 {
        0
    }

    fn submit(&self, mut request: ProveRequest) -> Pending {
        self.seen.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.refusal(&request) {
            return Card::refuse(request, error);
        }
        let layout = self.inner.layout(&request.shape.sizes);
        let bytes: Vec<usize> = layout.lens().iter().map(|len| len * 32).collect();
        let taken = PinnedPool::heap(Budget::new(PLENTY))
            .try_acquire(&AcquireRequest {
                buffers: &bytes,
                bytes: 0,
                consumer: Consumer("a device"),
                wait: Wait::with_priority(Priority::NORMAL),
            })
            .expect("a budget with room");
        let mut columns = Columns::from_buffers(taken.buffers, &layout);
        for (to, from) in [
            (&mut columns.a, &request.columns.a),
            (&mut columns.b, &request.columns.b),
            (&mut columns.aux, &request.columns.aux),
        ] {
            to.scalars_mut()[..from.len()].copy_from_slice(from.scalars());
        }
        request.columns = columns;
        self.inner.submit(request)
    }
}

/// A circuit's first part is synthesised before its sizes are known, into columns that
/// are as long as the key's domain.
#[test]
fn the_first_proof_of_a_circuit_is_made_once() {
    let house = House::new(&[20]);
    let exact = Arc::new(Exact {
        inner: cpu(true),
        seen: AtomicUsize::new(0),
    });
    let engine = house.engine_on(PLENTY, Arc::clone(&exact) as Arc<dyn Backend>);
    prove(&engine, &SquaresJob::new(20, 3, 1)).expect("a proof");
    assert_eq!(exact.seen.load(Ordering::SeqCst), 1);
    assert_eq!(engine.metrics().parts_retried.count(), 0);
}

#[test]
fn a_key_is_preloaded_on_every_device_that_is_in_service() {
    let house = House::new(&[20]);
    let cards = [0, 1].map(|ordinal| Arc::new(Card::new(ordinal)));
    let engine = engine(&house, &cards);
    let preloaded = || {
        cards
            .each_ref()
            .map(|card| card.preloaded.load(Ordering::SeqCst))
    };
    engine.preload(&Squares { rounds: 20 }).expect("a key");
    assert_eq!(preloaded(), [1, 1]);
    // One that fails unnoticed is told and out of service, and keeps no other from the
    // key; one that is known to is left out.
    cards[0].is_lost.store(true, Ordering::SeqCst);
    let error = engine
        .preload(&Squares { rounds: 20 })
        .expect_err("a lost device");
    assert!(matches!(error, ProveError::Preload { .. }), "{error}");
    assert_eq!(preloaded(), [1, 2]);
    assert_eq!(told(&engine), [(0, Some(LOST.to_owned())), (0, None)]);
    assert_eq!(devices(&engine, 1), [Some(1)]);
    assert_eq!(cards[0].seen(), 0, "nothing is tried on it");
    engine
        .preload(&Squares { rounds: 20 })
        .expect("another device");
    assert_eq!(preloaded(), [1, 3]);
    // Of several that fail the first is told, and then nothing proves.
    for card in &cards {
        card.is_lost.store(true, Ordering::SeqCst);
    }
    engine
        .preload(&Squares { rounds: 20 })
        .expect_err("the other is lost too");
    assert!(!engine.is_in_service());
}

/// What a device keeps of a circuit that repeats is the very shape that its proofs come with.
#[test]
fn warming_brings_a_circuits_shape_to_every_device_that_is_in_service() {
    let circuit = Chains::new(None);
    let house = house(std::slice::from_ref(&circuit));
    let cards = [0, 1].map(|ordinal| Arc::new(Card::new(ordinal)));
    let engine = engine(&house, &cards);
    let shapes = |at: usize| cards[at].shapes.lock().expect("no panic").len();
    engine.warm(&[&circuit]).expect("there is room");
    assert_eq!([shapes(0), shapes(1)], [1, 1]);
    // One that is lost meanwhile is told, and keeps nothing from the others.
    cards[0].is_lost.store(true, Ordering::SeqCst);
    engine.warm(&[&circuit]).expect("there is room");
    assert_eq!([shapes(0), shapes(1)], [1, 2]);
    assert_eq!(told(&engine), [(0, Some(LOST.to_owned())), (0, None)]);
    let handle = engine.submit(Arc::new(chains(None, 1)), seeded());
    handle.expect("there is room").wait().expect("a good job");
    assert_eq!(shapes(1), 0, "the proof's shape is another");
}

/// A key tells the rows of a circuit to the next power of two, a survey tells them exactly.
#[test]
fn columns_are_warmed_for_the_rows_that_a_survey_counts() {
    let circuit = Chains::new(None);
    let house = house(std::slice::from_ref(&circuit));
    let card = Arc::new(Card::new(0));
    card.has_exact_rows.store(true, Ordering::SeqCst);
    let engine = engine(&house, &[card]);
    let counted = count(|pass| circuit.synthesize_blank(pass)).expect("a good circuit");
    let rows = counted.sizes.constraints;
    assert!(!rows.is_power_of_two());
    let plan = engine.warm(&[&circuit]).expect("there is room").to_string();
    assert!(
        plan.contains(&format!("columns x {rows} scalars")),
        "{plan}"
    );
}
