//! The backend and the thread that owns its device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use blstrs::Scalar;
use cuzk_pinned::StagingRing;

use super::arena::Arena;
use super::device::{Device, MemoryUse};
use super::holdings::{Holdings, Points, Wanted, least_bytes};
use super::multiples::{self, Tables};
use super::plan::{Counts, Cutting};
use super::points::PointBytes;
use super::probe::processors;
use super::prove::{Bench, Clock, KeyPoints, prove, upload};
use super::resident::Staging;
use super::warm::warm_up;
use crate::accelerator::{DeviceBuffers, DeviceOptions};
use crate::backend::{
    Backend, Completion, DeviceUse, Pending, ProveRequest, Proved, Upload, pending,
};
use crate::column::{CColumn, ColumnLayout, Columns};
use crate::cpu::h::CSource;
use crate::error::BackendError;
use crate::groth16::{Statement, check};
use crate::key::{Key, KeyTier};
use crate::shape::{CircuitShape, CircuitSizes};
use crate::watch::Watch;

/// A proof to be made with points from any source.
pub struct CudaJob {
    /// The columns, in the backend's layout.
    pub columns: Columns,
    /// Public inputs, the constant one first.
    pub inputs: Vec<Scalar>,
    /// Sizes and densities of the circuit.
    pub shape: Arc<CircuitShape>,
    /// The proving key.
    pub source: Arc<dyn PointBytes>,
    /// Groth16's blinding scalars.
    pub r: Scalar,
    /// See `r`.
    pub s: Scalar,
    /// Who is shown the intermediates, if anybody.
    pub watch: Option<Arc<dyn Watch>>,
}

/// What the device's thread is given to do.
pub(super) enum Task {
    Prove(Box<CudaJob>, Completion),
    Multiples(multiples::Request),
}

/// Groth16 on one CUDA device.
pub struct CudaBackend {
    options: DeviceOptions,
    name: String,
    limit_bytes: u64,
    /// Bytes of these that proofs and keys may take.
    room_bytes: u64,
    upload: Upload,
    memory: Arc<MemoryUse>,
    queue: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl CudaBackend {
    /// Opens the device on a thread of its own, launches every kernel of a proof once
    /// and takes the memory that all proofs work in.
    ///
    /// # Errors
    /// [`BackendError::Device`] with what is missing, [`BackendError::DeviceMemory`]
    /// where others leave less than `memory_bytes_max`, and [`BackendError::Start`].
    pub fn start(options: DeviceOptions, buffers: DeviceBuffers) -> Result<Self, BackendError> {
        check_options(&options)?;
        let memory = Arc::new(MemoryUse::default());
        let upload = match buffers.columns {
            Some(_) => Upload::Staged,
            None => Upload::FromColumns,
        };
        let (queue, jobs) = sync_channel(options.queue_len_max);
        let (opened, answer) = sync_channel(1);
        let counted = Arc::clone(&memory);
        let thread = std::thread::Builder::new()
            .name(format!("cuzk-cuda-{}", options.ordinal))
            .spawn(move || match Owner::open(options, buffers, counted) {
                Ok(mut owner) => {
                    let device = &owner.device;
                    let arena_bytes = device.memory().arena_bytes.load(Ordering::Relaxed);
                    let _ = opened.send(Ok((device.name(), arena_bytes)));
                    owner.run(&jobs);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            })
            .map_err(|error| BackendError::Start {
                what: "the device's thread",
                reason: error.to_string(),
            })?;
        let (name, limit_bytes) = answer.recv().unwrap_or(Err(BackendError::Lost))?;
        // Until the first proof only what stays for good is held.
        let fixed_bytes = memory.held_bytes.load(Ordering::Relaxed);
        Ok(Self {
            options,
            name,
            limit_bytes,
            room_bytes: limit_bytes.saturating_sub(fixed_bytes),
            upload,
            memory,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// The driver's name for the device.
    pub fn device_name(&self) -> &str {
        &self.name
    }

    /// Bytes of the device's arena that are in use now: keys, index lists, slots,
    /// scratch, places for pieces of keys.
    pub fn device_bytes(&self) -> u64 {
        self.memory.held_bytes.load(Ordering::Relaxed)
    }

    /// Allocations on the device since the start.
    pub fn device_allocations(&self) -> u64 {
        self.memory.allocations.load(Ordering::Relaxed)
    }

    /// The columns of a circuit: two of one scalar a constraint (three if C comes
    /// from synthesis), and the auxiliary assignment.
    pub fn column_layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        layout(&self.options, sizes)
    }

    /// Starts a proof with points from any source and returns at once.
    pub fn submit_job(&self, job: CudaJob) -> Pending {
        let (completion, pending) = pending();
        if self.memory.is_lost.load(Ordering::Relaxed) {
            completion.columns_read(job.columns);
            completion.done(Err(BackendError::DeviceLost {
                ordinal: self.options.ordinal,
            }));
            return pending;
        }
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        let (refused, error) = match queue.try_send(Task::Prove(Box::new(job), completion)) {
            Ok(()) => return pending,
            Err(TrySendError::Full(refused)) => (
                refused,
                BackendError::QueueFull {
                    limit: self.options.queue_len_max,
                },
            ),
            Err(TrySendError::Disconnected(refused)) => (refused, BackendError::Lost),
        };
        if let Task::Prove(job, completion) = refused {
            completion.columns_read(job.columns);
            completion.done(Err(error));
        }
        pending
    }

    /// Gives the device's thread something to do, once there is room in its queue.
    pub(super) fn send(&self, task: Task) -> Result<(), BackendError> {
        let queue = self.queue.as_ref().expect("the queue lives until the drop");
        queue.send(task).map_err(|_| BackendError::Lost)
    }
}

/// What no kernel could take.
fn check_options(options: &DeviceOptions) -> Result<(), BackendError> {
    let chunk = options.chunk_len_max;
    let wrong = match options.window_bits {
        Some(bits) if !(10..=20).contains(&bits) => format!("windows of {bits} bits, not 10 to 20"),
        _ if chunk < 32 || !chunk.is_multiple_of(32) => {
            format!("chunks of {chunk} entries, no multiple of 32")
        }
        _ => return Ok(()),
    };
    Err(BackendError::Start {
        what: "the device's thread",
        reason: wrong,
    })
}

fn layout(options: &DeviceOptions, sizes: &CircuitSizes) -> ColumnLayout {
    ColumnLayout {
        rows: sizes.constraints,
        aux: sizes.aux,
        c: c_column(options),
    }
}

fn c_column(options: &DeviceOptions) -> CColumn {
    match options.c_source {
        CSource::Product => CColumn::Absent,
        CSource::Synthesised => CColumn::Synthesised,
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics, and a drop has nobody to report to.
            let _ = thread.join();
        }
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device(&self) -> Option<DeviceUse> {
        Some(DeviceUse {
            ordinal: self.options.ordinal,
            name: self.name.clone(),
            limit_bytes: self.limit_bytes,
            held_bytes: self.device_bytes(),
        })
    }

    fn is_lost(&self) -> bool {
        self.memory.is_lost.load(Ordering::Relaxed)
    }

    fn keeps_keys(&self) -> bool {
        true
    }

    fn c_column(&self) -> CColumn {
        c_column(&self.options)
    }

    fn layout(&self, sizes: &CircuitSizes) -> ColumnLayout {
        self.column_layout(sizes)
    }

    fn upload(&self) -> Upload {
        self.upload
    }

    fn work_bytes(&self, _: &CircuitSizes, _: &Key, _: KeyTier) -> u64 {
        // Everything is on the device; what a proof takes here are its rows.
        1 << 20
    }

    fn check(&self, sizes: &CircuitSizes, key: &Key) -> Result<(), BackendError> {
        // A driver that answers no question proves nothing either, and then says why.
        let Ok(processors) = processors(self.options.ordinal) else {
            return Ok(());
        };
        let cutting = Cutting {
            chunk_max: self.options.chunk_len_max,
            window_bits: self.options.window_bits,
            processors,
        };
        let counts = Counts::of_key(key);
        let asked = least_bytes(sizes, &counts, &cutting, self.options.c_source);
        if asked <= self.room_bytes {
            return Ok(());
        }
        Err(BackendError::DeviceMemory {
            what: "a proof and its key",
            asked,
            free: self.room_bytes,
            limit: self.limit_bytes,
        })
    }

    fn submit(&self, request: ProveRequest) -> Pending {
        self.submit_job(CudaJob {
            columns: request.columns,
            inputs: request.inputs,
            shape: request.shape,
            source: request.key,
            r: request.r,
            s: request.s,
            watch: request.watch,
        })
    }
}

/// The device and everything on it, on the device's thread. Fields are dropped in
/// this order: what lies on the device before the device.
struct Owner {
    options: DeviceOptions,
    staging: Staging,
    /// Page-locked chunks for columns that are not page-locked. Dropped before the
    /// device, whose events it may hold.
    ring: Option<StagingRing>,
    tables: Tables,
    clock: Clock,
    holdings: Holdings,
    device: Device,
}

impl Owner {
    fn open(
        options: DeviceOptions,
        buffers: DeviceBuffers,
        memory: Arc<MemoryUse>,
    ) -> Result<Self, BackendError> {
        let device = Device::open(options.ordinal, None, memory)?;
        // Measured after this, free memory is what no kernel needs.
        warm_up(&device)?;
        let mut holdings = Holdings::new(Arena::new(&device, options.memory_bytes_max)?);
        let staging = Staging::new(&device, &mut holdings, buffers.keys, options.load_threads)?;
        let clock = Clock::new(&device)?;
        Ok(Self {
            options,
            staging,
            ring: buffers.columns,
            tables: Tables::default(),
            clock,
            holdings,
            device,
        })
    }

    fn run(&mut self, tasks: &Receiver<Task>) {
        for task in tasks {
            match task {
                Task::Prove(job, completion) => self.run_proof(*job, completion),
                Task::Multiples(request) => {
                    // Whoever waits for an answer hears that there is none.
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        self.tables.serve(&self.device, &mut self.holdings, request);
                    }));
                }
            }
        }
    }

    fn run_proof(&mut self, job: CudaJob, completion: Completion) {
        let CudaJob {
            columns,
            inputs,
            shape,
            source,
            r,
            s,
            watch,
        } = job;
        let mut columns = Some(columns);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let statement = Statement {
                inputs: &inputs,
                shape: &shape,
                r,
                s,
            };
            self.carry_out(
                &mut columns,
                &statement,
                &shape,
                &source,
                &completion,
                watch.as_deref(),
            )
        }))
        .unwrap_or_else(|_| Err(BackendError::Panic("on the device's thread".to_owned())));
        if result.is_err() {
            // Before the columns go back, and before the next proof writes where this
            // one may still work.
            self.device.settle();
        }
        // Whoever hears of the end may drop the key, if nobody uses it.
        drop((source, shape));
        if let Some(columns) = columns {
            completion.columns_read(columns);
        }
        completion.done(result);
    }

    fn cutting(&self) -> Cutting {
        Cutting {
            chunk_max: self.options.chunk_len_max,
            window_bits: self.options.window_bits,
            processors: self.device.processors(),
        }
    }

    fn carry_out(
        &mut self,
        columns: &mut Option<Columns>,
        statement: &Statement<'_>,
        shape: &Arc<CircuitShape>,
        source: &Arc<dyn PointBytes>,
        completion: &Completion,
        watch: Option<&dyn Watch>,
    ) -> Result<Proved, BackendError> {
        let sizes = &shape.sizes;
        let layout = layout(&self.options, sizes);
        let read = columns.as_ref().expect("the columns of a new job");
        check(read, &layout, statement, |section| source.count(section))?;
        let cutting = self.cutting();
        let wanted = Wanted {
            source,
            shape,
            cutting: &cutting,
            c_source: self.options.c_source,
        };
        let held = self.holdings.take(&wanted)?;
        let held = held.expect("no other proof is under way");
        held.lists.load(&self.device, shape)?;
        if let Points::Resident(key) = &held.points {
            key.load(&self.device, &mut self.staging, &**source)?;
        }
        let regions = held.regions();
        let bench = Bench {
            device: &self.device,
            regions: &regions,
            cutting,
            clock: &self.clock,
            c_source: self.options.c_source,
            transforms: self.options.transforms,
            is_split: self.options.is_split,
            watch,
        };
        upload(&bench, self.ring.as_mut(), read, statement.inputs, sizes)?;
        completion.columns_read(columns.take().expect("the columns of a new job"));
        let mut points = match &held.points {
            Points::Resident(key) => KeyPoints::Resident(key),
            Points::Pieces { places, len } => KeyPoints::Streamed {
                source: &**source,
                staging: &mut self.staging,
                place: places[0].region(),
                piece_len: *len,
            },
        };
        prove(&bench, statement, source.vk(), &mut points, &held.lists)
    }
}
