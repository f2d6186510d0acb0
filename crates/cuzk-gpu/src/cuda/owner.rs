//! The thread that owns a device, and the proofs that it carries.
//!
//! Each proof is a future. It gets its place in the arena, uploads its columns and gives
//! them back, sees to it that its key is there, waits for its turn to compute, and leaves
//! the rest to a thread of the host. Whatever it waits for, others move meanwhile.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use blstrs::{G2Projective, Scalar};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::arena::Arena;
use super::backend::{CudaJob, layout};
use super::device::{Device, MemoryUse};
use super::holdings::{Held, Holdings, Points, Wanted};
use super::host_key::{HostKey, HostKeys};
use super::key_points::{KeyPoints, Origin};
use super::multiples::{self, Tables};
use super::plan::Cutting;
use super::points::PointBytes;
use super::prove::{Bench, Computed, OnHost, Seat, prove};
use super::resident::ResidentKey;
use super::staging::Staging;
use super::upload::{Arrivals, Ring, arrivals, upload};
use super::warm::warm_up;
use crate::accelerator::{DeviceBuffers, DeviceOptions};
use crate::backend::{Completion, Proved};
use crate::column::Columns;
use crate::device::executor::{Event, Executor, both, caught};
use crate::device::host::on_thread;
use crate::device::oneshot::oneshot;
use crate::device::sorted::{SortedQueries, b_scalars};
use crate::device::turn::{News, Turn};
use crate::error::BackendError;
use crate::groth16::{Statement, check};
use crate::phase::{Phase, PhaseLane};
use crate::shape::CircuitShape;
use crate::watch::Watch;

/// What the thread is given to do.
pub(super) enum Task {
    Prove(Box<CudaJob>, Completion),
    Multiples(multiples::Request),
    /// Nothing more.
    End,
}

/// What does not change of an open device.
pub(super) struct About {
    /// The driver's name for it.
    pub(super) name: String,
    pub(super) arena_bytes: u64,
    /// Bytes of the arena that are no proof's.
    pub(super) fixed_bytes: u64,
    pub(super) cutting: Cutting,
}

/// The device and everything on it. Fields are dropped in this order: what lies on the
/// device before the device.
pub(super) struct Owner {
    options: DeviceOptions,
    /// Seats that no proof has.
    seats: RefCell<Vec<Seat>>,
    /// Who gets the next place in the arena.
    admission: Turn<()>,
    /// That a proof has left the arena.
    room: News,
    /// Who uploads columns, and chunks for those that are not page-locked.
    uploads: Turn<Option<Ring>>,
    /// Who brings a key.
    staging: Turn<Staging>,
    /// Keys in page-locked memory of the host.
    host_keys: Turn<HostKeys>,
    /// Who computes.
    compute: Turn<()>,
    tables: RefCell<Tables>,
    /// Threads that sort or sum, where the host is told to.
    threads: Option<Arc<ThreadPool>>,
    holdings: RefCell<Holdings>,
    /// Proofs that were taken and have not ended.
    taken: Arc<AtomicUsize>,
    device: Device,
}

impl Drop for Owner {
    /// Before buffers go to their pools. Each proof has waited for what it queued, unless
    /// the device failed.
    fn drop(&mut self) {
        self.device.wait_all();
    }
}

impl Owner {
    pub(super) fn open(
        options: DeviceOptions,
        buffers: DeviceBuffers,
        memory: Arc<MemoryUse>,
        taken: Arc<AtomicUsize>,
    ) -> Result<Self, BackendError> {
        let device = Device::open(options.ordinal, memory)?;
        // Measured after this, free memory is what no kernel needs.
        warm_up(&device)?;
        let mut holdings = Holdings::new(Arena::new(&device, options.memory_bytes_max)?);
        let staging = Staging::new(&device, &mut holdings, buffers.keys, options.load_threads)?;
        let seats = (0..options.slots).map(|_| Seat::new(&device));
        let ring = buffers.columns.map(|ring| Arc::new(Mutex::new(ring)));
        Ok(Self {
            seats: RefCell::new(seats.collect::<Result<_, _>>()?),
            admission: Turn::new(()),
            room: News::default(),
            uploads: Turn::new(ring),
            staging: Turn::new(staging),
            host_keys: Turn::new(HostKeys::new(buffers.host_keys)),
            compute: Turn::new(()),
            tables: RefCell::default(),
            threads: host_threads(&options)?,
            holdings: RefCell::new(holdings),
            taken,
            options,
            device,
        })
    }

    /// What does not change.
    pub(super) fn about(&self) -> About {
        About {
            name: self.device.name(),
            arena_bytes: self.device.memory().arena_bytes.load(Ordering::Relaxed),
            fixed_bytes: self.holdings.borrow().fixed_bytes(),
            cutting: self.cutting(),
        }
    }

    /// Does what comes until it hears that nothing more does, and everything is done.
    pub(super) fn run(&self, outbox: Sender<Event<Task>>, inbox: Receiver<Event<Task>>) {
        let mut executor = Executor::new(outbox, inbox);
        let mut waiting = VecDeque::new();
        let mut has_ended = false;
        loop {
            while executor.len() < self.options.slots
                && let Some((job, completion)) = waiting.pop_front()
            {
                executor.spawn(self.run_proof(job, completion));
            }
            if has_ended && executor.len() == 0 {
                return;
            }
            match executor.next_message() {
                None => {}
                Some(Task::Prove(job, completion)) => waiting.push_back((*job, completion)),
                Some(Task::Multiples(request)) => self.serve(request),
                Some(Task::End) => has_ended = true,
            }
        }
    }

    /// Carries out a request of key generation, and waits for it.
    fn serve(&self, request: multiples::Request) {
        // Whoever waits for an answer hears that there is none.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut tables = self.tables.borrow_mut();
            tables.serve(&self.device, &mut self.holdings.borrow_mut(), request);
        }));
        self.room.tell();
    }

    async fn run_proof(&self, job: CudaJob, completion: Completion) {
        let CudaJob {
            columns,
            inputs,
            shape,
            source,
            r,
            s,
            watch,
        } = job;
        let seat = self.seats.borrow_mut().pop();
        let mut seat = seat.expect("a seat for each slot");
        let mut columns = Some(Arc::new(columns));
        let (mut held, mut host_key) = (None, None);
        let carried = Carried {
            owner: self,
            statement: Statement {
                inputs: &inputs,
                shape: &shape,
                r,
                s,
            },
            shape: &shape,
            source: &source,
            watch: watch.as_ref(),
        };
        let out = carried.out(
            &mut columns,
            &mut held,
            &mut host_key,
            &mut seat,
            &completion,
        );
        let result = caught(out).await;
        let result = result
            .unwrap_or_else(|_| Err(BackendError::Panic("on the device's thread".to_owned())));
        if result.is_err() {
            // Before the columns go back, and before the next proof writes where this
            // one may still work.
            self.device.settle().await;
        }
        drop((held, host_key));
        self.seats.borrow_mut().push(seat);
        self.room.tell();
        // Whoever hears of the end may drop the key, if nobody uses it.
        drop((source, shape));
        // Nobody else has them, unless a thread was left alone by a panic.
        if let Some(columns) = columns.and_then(Arc::into_inner) {
            completion.columns_read(columns);
        }
        self.taken.fetch_sub(1, Ordering::AcqRel);
        completion.done(result);
    }

    fn cutting(&self) -> Cutting {
        Cutting {
            chunk_max: self.options.chunk_len_max,
            window_bits: self.options.window_bits,
            processors: self.device.processors(),
        }
    }

    /// Waits for a place in the arena.
    async fn admit(&self, wanted: &Wanted<'_>) -> Result<Held, BackendError> {
        let _turn = self.admission.take().await;
        loop {
            let moment = self.room.now();
            let held = self.holdings.borrow_mut().take(wanted)?;
            if let Some(held) = held {
                return Ok(held);
            }
            self.room.since(moment).await;
        }
    }
}

/// Threads for what the host sorts or sums, if it does.
fn host_threads(options: &DeviceOptions) -> Result<Option<Arc<ThreadPool>>, BackendError> {
    if !options.is_split_on_host && !options.is_b_g2_on_host {
        return Ok(None);
    }
    let built = ThreadPoolBuilder::new()
        .num_threads(options.load_threads.get())
        .thread_name(|at| format!("cuzk-host-{at}"))
        .build();
    let pool = built.map_err(|error| BackendError::Start {
        what: "the host's threads",
        reason: error.to_string(),
    })?;
    Ok(Some(Arc::new(pool)))
}

/// What the host takes out of a proof's columns.
struct Prepared {
    sorted: Option<Arc<SortedQueries>>,
    b_scalars: Option<Vec<Scalar>>,
}

/// One proof.
struct Carried<'a> {
    owner: &'a Owner,
    statement: Statement<'a>,
    shape: &'a Arc<CircuitShape>,
    source: &'a Arc<dyn PointBytes>,
    watch: Option<&'a Arc<dyn Watch>>,
}

impl Carried<'_> {
    /// Carries the proof out. What was queued may still be under way if this ends with
    /// an error.
    async fn out(
        &self,
        columns: &mut Option<Arc<Columns>>,
        held: &mut Option<Held>,
        host_key: &mut Option<Rc<HostKey>>,
        seat: &mut Seat,
        completion: &Completion,
    ) -> Result<Proved, BackendError> {
        let owner = self.owner;
        let options = &owner.options;
        let device = &owner.device;
        let sizes = &self.shape.sizes;
        let read = columns.as_ref().expect("the columns of a new job");
        let layout = layout(options, sizes);
        let count = |section| self.source.count(section);
        check(read, &layout, &self.statement, count)?;
        let cutting = owner.cutting();
        let wanted = Wanted {
            source: self.source,
            shape: self.shape,
            cutting: &cutting,
            c_source: options.c_source,
            is_key_resident: options.is_key_resident,
        };
        let held = &*held.insert(owner.admit(&wanted).await?);
        let regions = held.regions();
        seat.prepare(device, regions.rows.bytes(), self.statement.inputs)?;
        let bench = Bench {
            device,
            regions: &regions,
            cutting,
            clock: &seat.clock,
            host: &seat.host,
            inputs_len: self.statement.inputs.len(),
            c_source: options.c_source,
            transforms: options.transforms,
            is_split: options.is_split,
            watch: self.watch.map(|watch| &**watch),
        };
        let prepared = owner
            .threads
            .as_ref()
            .map(|threads| self.prepare(threads, read, held));
        let (arriving, mut arrivals) = arrivals(read.c.is_some());
        let (told, host_has_read) = oneshot::<()>();
        let uploading = async {
            let uploaded = {
                let read = columns.as_ref().expect("nobody took them");
                let ring = owner.uploads.take().await;
                upload(&bench, ring.as_ref(), read, sizes, arriving).await
            };
            // Either way of its end will do.
            let _ = host_has_read.await;
            // Whatever became of both, nobody reads the columns after this.
            uploaded?;
            let read = columns.take().and_then(Arc::into_inner);
            completion.columns_read(read.expect("nobody else has them"));
            Ok::<_, BackendError>(())
        };
        let computing = async {
            let prepared = match prepared {
                Some(prepared) => Some(prepared.await),
                None => None,
            };
            told.send(());
            let Prepared { sorted, b_scalars } = match prepared {
                Some(prepared) => prepared??,
                None => Prepared {
                    sorted: None,
                    b_scalars: None,
                },
            };
            let b_g2 = b_scalars.map(|scalars| self.sum_b_g2(scalars));
            let is_b_g2 = b_g2.is_some();
            let computed = self
                .compute(&bench, &mut arrivals, held, host_key, sorted, is_b_g2)
                .await;
            // Whatever became of the others, nobody reads the key after this.
            let b_g2 = match b_g2 {
                Some(b_g2) => Some(b_g2.await),
                None => None,
            };
            Ok::<_, BackendError>((computed?, b_g2))
        };
        let (uploaded, computed) = both(uploading, computing).await;
        // A computation that waits for an upload that failed only says that it did.
        uploaded?;
        let ((mut computed, loaded), b_g2) = computed?;
        let mut phases = std::mem::take(&mut computed.phases);
        if let Some(b_g2) = b_g2 {
            let (sum, phase) = b_g2??;
            computed.b_g2_on_host = Some(sum);
            phases.push(phase);
        }
        phases.extend(loaded);
        let tier = computed.tier;
        let (source, watch) = (Arc::clone(self.source), self.watch.cloned());
        let (r, s) = (self.statement.r, self.statement.s);
        let finish = move || {
            let begin = Instant::now();
            let proof = computed.finish(source.vk(), r, s, watch.as_deref());
            let phase = Phase::new("finish", PhaseLane::Host, begin, Instant::now());
            (proof, phase)
        };
        let (proof, finished) = on_thread("putting a proof together", finish).await?;
        phases.push(finished);
        phases.sort_by_key(|phase| phase.start);
        Ok(Proved {
            proof,
            phases,
            tier: Some(tier),
        })
    }

    /// Has the host take out of the columns what it is to work on.
    fn prepare(
        &self,
        threads: &Arc<ThreadPool>,
        columns: &Arc<Columns>,
        held: &Held,
    ) -> impl Future<Output = Result<Result<Prepared, BackendError>, BackendError>> + use<> {
        let options = &self.owner.options;
        // A key that comes in pieces would want its lists in pieces.
        let is_resident = matches!(held.points, Points::Resident(_));
        let is_split = options.is_split_on_host && is_resident;
        let is_b_g2 = options.is_b_g2_on_host;
        let (threads, columns) = (Arc::clone(threads), Arc::clone(columns));
        let (inputs, shape) = (self.statement.inputs.to_vec(), Arc::clone(self.shape));
        on_thread("sorting scalars", move || {
            threads.install(|| {
                let aux = columns.aux.scalars();
                let sorted = is_split.then(|| SortedQueries::of(&inputs, aux, &shape));
                let lists = sorted
                    .iter()
                    .flat_map(|sorted| [&sorted.l, &sorted.a, &sorted.b]);
                if let Some(count) = lists.map(|list| list.wrong).find(|&wrong| wrong != 0) {
                    let what = "the assignment";
                    return Err(BackendError::Unreduced { what, count });
                }
                Ok(Prepared {
                    sorted: sorted.map(Arc::new),
                    b_scalars: is_b_g2.then(|| b_scalars(&inputs, aux, &shape)),
                })
            })
        })
    }

    /// Has the host make the sum over `b_g2`: that, and its phase.
    fn sum_b_g2(
        &self,
        scalars: Vec<Scalar>,
    ) -> impl Future<Output = Result<Result<(G2Projective, Phase), BackendError>, BackendError>> + use<>
    {
        let threads = self.owner.threads.clone().expect("made for this");
        let source = Arc::clone(self.source);
        on_thread("the sum over b_g2", move || {
            let begin = Instant::now();
            let sum = threads.install(|| source.b_g2_sum(&scalars))?;
            let phase = Phase::new("msm_b_g2", PhaseLane::Host, begin, Instant::now());
            Ok((sum, phase))
        })
    }

    /// Sees to the key, and computes when it is this proof's turn, from when its first
    /// column is there. Also returns the phase of a key that was loaded.
    async fn compute(
        &self,
        bench: &Bench<'_>,
        arrivals: &mut Arrivals,
        held: &Held,
        host_key: &mut Option<Rc<HostKey>>,
        sorted: Option<Arc<SortedQueries>>,
        is_b_g2: bool,
    ) -> Result<(Computed, Option<Phase>), BackendError> {
        let owner = self.owner;
        // Turns are taken in the order of uploads, which have begun.
        arrivals.left().await?;
        let loaded = self.load(held).await?;
        if let Points::Pieces { .. } = &held.points {
            *host_key = owner.host_keys.take().await.place_of(self.source).await?;
        }
        let is_loaded = |key: &Option<Rc<HostKey>>| key.as_ref().is_some_and(|key| key.is_loaded());
        // Before the turn to compute, which nobody keeps while another brings a key. One
        // proof at a time has it, so one at a time fetches a key to stay in host memory.
        let staging = match &held.points {
            Points::Pieces { .. } if !is_loaded(host_key) => Some(owner.staging.take().await),
            Points::Resident(_) if sorted.is_some() => Some(owner.staging.take().await),
            _ => None,
        };
        let queued = {
            let _turn = owner.compute.take().await;
            let (mut points, sorted) = match &held.points {
                Points::Resident(key) => (KeyPoints::Resident(key), sorted.zip(staging)),
                Points::Pieces { places, len } => {
                    let from = match host_key {
                        Some(key) if key.is_loaded() => Origin::Host(key),
                        keep => Origin::Source {
                            source: self.source,
                            staging: staging.expect("a key that is loaded stays so"),
                            keep: keep.as_deref(),
                        },
                    };
                    let streamed = KeyPoints::Streamed {
                        from,
                        places: places.each_ref().map(|place| place.region()),
                        piece_len: *len,
                        count: 0,
                    };
                    (streamed, None)
                }
            };
            let on_host = OnHost { sorted, is_b_g2 };
            let lists = &held.lists;
            let statement = &self.statement;
            prove(bench, arrivals, statement, &mut points, lists, on_host).await?
        };
        Ok((queued.computed(bench).await?, loaded))
    }

    /// Brings the lists of the circuit, and the key if it is to stay, unless they are
    /// there. Returns the phase of a key.
    async fn load(&self, held: &Held) -> Result<Option<Phase>, BackendError> {
        let device = &self.owner.device;
        let key = match &held.points {
            Points::Resident(key) if !key.is_loaded() => Some(&**key),
            _ => None,
        };
        if held.lists.is_loaded() && key.is_none() {
            return Ok(None);
        }
        let mut staging = self.owner.staging.take().await;
        // Another proof may have brought them meanwhile.
        if !held.lists.is_loaded() {
            held.lists.load(device, &mut staging, self.shape).await?;
        }
        let is_absent = |key: &&ResidentKey| !key.is_loaded();
        let Some(key) = key.filter(is_absent) else {
            return Ok(None);
        };
        let begin = Instant::now();
        key.load(device, &mut staging, self.source).await?;
        Ok(Some(Phase {
            bytes: Some(ResidentKey::bytes(&**self.source)),
            ..Phase::new("key_load", PhaseLane::Key, begin, Instant::now())
        }))
    }
}
