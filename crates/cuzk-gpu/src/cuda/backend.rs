//! The backend: what others hold of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SendError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use blstrs::Scalar;

use super::device::MemoryUse;
use super::multiples;
use super::owner::{About, Owner, Task};
use super::plan::{Counts, Needs, SCALAR_BYTES, point_bytes};
use super::points::PointBytes;
use super::preload;
use super::resident::{ResidentKey, ResidentShape};
use crate::accelerator::{DEVICE_SLOTS_MAX, DEVICE_WINDOW_BITS, DeviceBuffers, DeviceOptions};
use crate::backend::{Backend, DeviceUse, Pending, ProveRequest, Upload, pending};
use crate::column::{CColumn, ColumnLayout, Columns};
use crate::cpu::h::CSource;
use crate::cpu::msm;
use crate::device::executor::Event;
use crate::error::BackendError;
use crate::key::{Key, KeyTier, Section};
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

/// Elements of the largest domain that the device's transforms have tables for.
const DOMAIN_MAX: usize = 1 << 28;

/// Groth16 on one CUDA device.
pub struct CudaBackend {
    options: DeviceOptions,
    pub(super) about: About,
    upload: Upload,
    memory: Arc<MemoryUse>,
    /// Proofs that were taken and have not ended.
    taken: Arc<AtomicUsize>,
    outbox: Sender<Event<Task>>,
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
        let (outbox, inbox) = channel();
        let (opened, answer) = sync_channel(1);
        let taken = Arc::new(AtomicUsize::new(0));
        let (used, ended, to_itself) = (Arc::clone(&memory), Arc::clone(&taken), outbox.clone());
        let thread = std::thread::Builder::new()
            .name(format!("cuzk-cuda-{}", options.ordinal))
            .spawn(move || match Owner::open(options, buffers, used, ended) {
                Ok(owner) => {
                    let _ = opened.send(Ok(owner.about()));
                    owner.run(to_itself, inbox);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            })
            .map_err(|error| BackendError::Start {
                what: "the device's thread",
                reason: error.to_string(),
            })?;
        let about = answer.recv().unwrap_or(Err(BackendError::Lost))?;
        Ok(Self {
            options,
            about,
            upload,
            memory,
            taken,
            outbox,
            thread: Some(thread),
        })
    }

    /// The driver's name for the device.
    pub fn device_name(&self) -> &str {
        &self.about.name
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

    /// Page-locked allocations of the backend's own since the start, for what its slots
    /// fetch: those of its buffers are counted by their pools.
    pub fn page_locked_allocations(&self) -> u64 {
        self.memory.host_allocations.load(Ordering::Relaxed)
    }

    /// Bytes of keys' points that crossed the bus to the device since the start.
    pub fn key_bytes_brought(&self) -> u64 {
        self.memory.key_bytes.load(Ordering::Relaxed)
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
        let room = |taken: usize| (taken < self.proofs_max()).then_some(taken + 1);
        let counted = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, room);
        if counted.is_err() {
            completion.columns_read(job.columns);
            completion.done(Err(BackendError::QueueFull {
                limit: self.options.queue_len_max,
            }));
            return pending;
        }
        let task = Event::Message(Task::Prove(Box::new(job), completion));
        if let Err(SendError(Event::Message(Task::Prove(job, completion)))) = self.outbox.send(task)
        {
            // The thread is gone, and will take no other.
            self.taken.fetch_sub(1, Ordering::AcqRel);
            self.memory.is_lost.store(true, Ordering::Relaxed);
            completion.columns_read(job.columns);
            completion.done(Err(BackendError::Lost));
        }
        pending
    }

    /// Has the owner do something, and waits for its answer.
    fn answer<T>(
        &self,
        task: impl FnOnce(SyncSender<Result<T, BackendError>>) -> Task,
    ) -> Result<T, BackendError> {
        if self.is_lost() {
            let ordinal = self.options.ordinal;
            return Err(BackendError::DeviceLost { ordinal });
        }
        let (answer, answered) = sync_channel(1);
        let task = Event::Message(task(answer));
        self.outbox.send(task).map_err(|_| BackendError::Lost)?;
        answered.recv().unwrap_or(Err(BackendError::Lost))
    }

    /// Proofs that are taken at a time: one under way, and those behind it.
    fn proofs_max(&self) -> usize {
        let waiting = self.options.queue_len_max;
        waiting.saturating_add(1).max(self.options.slots)
    }

    /// Gives the device's thread something to do for key generation.
    pub(super) fn send(&self, request: multiples::Request) -> Result<(), BackendError> {
        let task = Event::Message(Task::Multiples(request));
        self.outbox.send(task).map_err(|_| BackendError::Lost)
    }
}

impl CudaBackend {
    /// What proofs of a circuit take on the device.
    pub(super) fn needs<'a>(
        &self,
        sizes: &'a CircuitSizes,
        counts: Counts,
        key: &dyn PointBytes,
    ) -> Needs<'a> {
        Needs {
            sizes,
            counts,
            cutting: self.about.cutting,
            c_source: self.options.c_source,
            is_key_resident: self.options.is_key_resident,
            is_assignment_late: self.options.is_assignment_late,
            piece_log_max: self.options.key_piece_log_max,
            slots: self.options.slots,
            key_bytes: ResidentKey::bytes(key),
            list_bytes: ResidentShape::bytes(&counts),
        }
    }
}

/// What no kernel could take.
pub(super) fn check_options(options: &DeviceOptions) -> Result<(), BackendError> {
    let chunk = options.chunk_len_max;
    let wrong = match options.window_bits {
        Some(bits) if !DEVICE_WINDOW_BITS.contains(&bits) => {
            format!("windows of {bits} bits, not 10 to 20")
        }
        _ if chunk < 32 || !chunk.is_multiple_of(32) => {
            format!("chunks of {chunk} entries, no multiple of 32")
        }
        _ if !(1..=DEVICE_SLOTS_MAX).contains(&options.slots) => {
            format!("{} slots, not 1 to {DEVICE_SLOTS_MAX}", options.slots)
        }
        _ if !(5..=24).contains(&options.key_piece_log_max) => {
            format!(
                "pieces of 2^{} points, not 2^5 to 2^24",
                options.key_piece_log_max
            )
        }
        _ if options.key_batch == 0 => "passes of a key for no proof".to_owned(),
        _ if options.key_batch > options.slots => {
            let (batch, slots) = (options.key_batch, options.slots);
            format!("passes of a key for {batch} proofs, of which {slots} have a slot")
        }
        _ => return Ok(()),
    };
    Err(BackendError::Start {
        what: "the device's thread",
        reason: wrong,
    })
}

/// The columns that a backend with these options wants.
pub(super) fn layout(options: &DeviceOptions, sizes: &CircuitSizes) -> ColumnLayout {
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
        // The thread finishes what it has. If it is gone it hears nothing.
        let _ = self.outbox.send(Event::Message(Task::End));
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
            name: self.about.name.clone(),
            limit_bytes: self.about.arena_bytes,
            held_bytes: self.device_bytes(),
        })
    }

    fn is_lost(&self) -> bool {
        self.memory.is_lost.load(Ordering::Relaxed)
    }

    fn keeps_keys(&self) -> bool {
        true
    }

    fn slots(&self) -> usize {
        self.options.slots
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

    fn plan(&self, shape: &CircuitShape, key: &Key) -> Option<String> {
        let About {
            arena_bytes,
            fixed_bytes,
            ..
        } = self.about;
        let needs = self.needs(&shape.sizes, Counts::of(shape), key);
        Some(needs.table(arena_bytes, fixed_bytes))
    }

    fn work_bytes(&self, _: &CircuitSizes, key: &Key, tier: KeyTier) -> u64 {
        // Everything is on the device but rows of sums, and what the host is told to do.
        let count = |section| key.count(section) as u64;
        let mut bytes = 1 << 20;
        if self.options.is_split_on_host {
            // Blocks, and what grows as they are put together.
            bytes += 12 * (count(Section::L) + count(Section::A) + count(Section::BG1));
        }
        if self.options.is_b_g2_on_host {
            let points = key.count(Section::BG2);
            let threads = self.options.load_threads.get();
            let decoded = match tier {
                KeyTier::File => point_bytes(Section::BG2) * points as u64,
                KeyTier::Pinned | KeyTier::Resident => 0,
            };
            bytes += SCALAR_BYTES * points as u64 + decoded;
            bytes += msm::work_bytes(points, threads, point_bytes(Section::BG2) as usize);
        }
        bytes
    }

    fn check(&self, sizes: &CircuitSizes, key: &Key) -> Result<(), BackendError> {
        let About {
            arena_bytes,
            fixed_bytes,
            ..
        } = self.about;
        // No transform is larger; more memory would not help.
        if sizes.constraints > DOMAIN_MAX {
            return Err(BackendError::Mismatch {
                what: "rows of a circuit for a device, at most",
                have: sizes.constraints,
                want: DOMAIN_MAX,
            });
        }
        let room = arena_bytes.saturating_sub(fixed_bytes);
        let asked = self.needs(sizes, Counts::of_key(key), key).least_bytes();
        if asked <= room {
            return Ok(());
        }
        Err(BackendError::DeviceMemory {
            what: "a proof and its key",
            asked,
            free: room,
            limit: arena_bytes,
        })
    }

    fn preload(&self, key: &Arc<Key>) -> Result<KeyTier, BackendError> {
        let source: Arc<Key> = Arc::clone(key);
        let request = preload::Request {
            source,
            sizes: CircuitSizes {
                inputs: key.count(Section::Ic),
                aux: key.count(Section::L),
                // As many as make that domain.
                constraints: key.count(Section::H) + 1,
            },
            counts: Counts::of_key(key),
        };
        self.answer(|answer| Task::Preload(request, answer))
    }

    fn preload_shape(&self, shape: &Arc<CircuitShape>) -> Result<(), BackendError> {
        self.answer(|answer| Task::PreloadShape(Arc::clone(shape), answer))
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
