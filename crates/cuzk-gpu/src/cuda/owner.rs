//! The thread that owns a device, and the proofs that it carries.
//!
//! Each proof is a future. It gets its place in the arena and uploads its columns, which it
//! gives back; meanwhile it sees to it that its key is there, waits for its turn to compute,
//! and leaves the rest to a thread of the host. Whatever it waits for, others move.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::arena::Arena;
use super::backend::CudaJob;
use super::carried::Carried;
use super::device::{Device, MemoryUse};
use super::holdings::{Held, Holdings, Wanted};
use super::host_key::HostKeys;
use super::multiples::{self, Tables};
use super::pass::{PieceEvents, Waiting};
use super::plan::Cutting;
use super::preload::{self, CountedIn};
use super::prove::Seat;
use super::staging::Staging;
use super::upload::Ring;
use super::warm::warm_up;
use crate::accelerator::{DeviceBuffers, DeviceOptions};
use crate::backend::Completion;
use crate::device::executor::{Event, Executor, caught};
use crate::device::turn::{News, Turn};
use crate::error::BackendError;
use crate::groth16::Statement;
use crate::key::KeyTier;
use crate::shape::CircuitShape;

/// What the thread is given to do.
pub(super) enum Task {
    Prove(Box<CudaJob>, Completion),
    /// A key to be brought, and who hears where it is then.
    Preload(preload::Request, SyncSender<Result<KeyTier, BackendError>>),
    /// The lists of a circuit to be brought, and who hears that they are there.
    PreloadShape(Arc<CircuitShape>, SyncSender<Result<(), BackendError>>),
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
    pub(super) options: DeviceOptions,
    /// Seats that no proof has.
    seats: RefCell<Vec<Seat>>,
    /// Who gets the next place in the arena.
    admission: Turn<()>,
    /// That a proof has left the arena.
    pub(super) room: News,
    /// Who uploads columns, and chunks for those that are not page-locked.
    pub(super) uploads: Turn<Option<Ring>>,
    /// Who brings a key.
    pub(super) staging: Turn<Staging>,
    /// Keys in page-locked memory of the host.
    pub(super) host_keys: Turn<HostKeys>,
    /// Of the places for pieces of keys.
    pub(super) pieces: Rc<PieceEvents>,
    /// Who computes.
    pub(super) compute: Turn<()>,
    tables: RefCell<Tables>,
    /// Threads that sort or sum, where the host is told to.
    pub(super) threads: Option<Arc<ThreadPool>>,
    pub(super) holdings: RefCell<Holdings>,
    /// Proofs that were taken and have not ended.
    taken: Arc<AtomicUsize>,
    pub(super) device: Device,
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
            pieces: Rc::new(PieceEvents::new(&device)?),
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
        let gathered = Waiting::default();
        // Keys that are brought for no proof take no slot.
        let preloading = Cell::new(0);
        let mut executor = Executor::new(outbox, inbox);
        let mut waiting = VecDeque::new();
        let mut has_ended = false;
        loop {
            while executor.len() - preloading.get() < self.options.slots
                && let Some((job, completion)) = waiting.pop_front()
            {
                executor.spawn(self.run_proof(&gathered, job, completion));
            }
            if has_ended && executor.len() == 0 {
                return;
            }
            match executor.next_message() {
                None => {}
                Some(Task::Prove(job, completion)) => waiting.push_back((*job, completion)),
                Some(Task::Preload(request, answer)) => {
                    let counted = CountedIn::of(&preloading);
                    let brought = async move { self.preload(&request).await };
                    executor.spawn(preload::answered(counted, brought, answer));
                }
                Some(Task::PreloadShape(shape, answer)) => {
                    let counted = CountedIn::of(&preloading);
                    let brought = async move { self.preload_shape(&shape).await };
                    executor.spawn(preload::answered(counted, brought, answer));
                }
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

    async fn run_proof<'o>(&'o self, gathered: &Waiting<'o>, job: CudaJob, completion: Completion) {
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
            gathered,
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
        let result = result.unwrap_or_else(|_| Err(panicked()));
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

    pub(super) fn cutting(&self) -> Cutting {
        Cutting {
            chunk_max: self.options.chunk_len_max,
            window_bits: self.options.window_bits,
            processors: self.device.processors(),
        }
    }

    /// Waits for a place in the arena.
    pub(super) async fn admit(&self, wanted: &Wanted<'_>) -> Result<Held, BackendError> {
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

pub(super) fn panicked() -> BackendError {
    BackendError::Panic("on the device's thread".to_owned())
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
