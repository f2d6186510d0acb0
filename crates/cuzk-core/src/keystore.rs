//! Keys, loaded once and shared by all jobs of a circuit.
//!
//! A key whose file has been replaced or written to since it was opened is loaded anew for
//! the next job; jobs that have it go on with what it was loaded as, and its memory stays
//! counted until the last of them has ended.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use cuzk_budget::{Budget, Consumer, Reclaim, Reservation};
use cuzk_gpu::{Key, KeyChecks, KeyError};

use crate::config::{Config, PointCheck};
use crate::error::ProveError;
use crate::keygen::{Sidecar, sidecar_path};
use crate::keys::points_of;
use crate::lock::lock;
use crate::{CircuitId, CircuitSpec};

/// On whom the decoded points of keys are booked.
pub(crate) const KEYS: Consumer = Consumer("keys");

/// Of the limit, one in so many bytes is for points that may be in memory and need not.
const SHARE_DIVISOR: u64 = 4;

/// The keys of one directory.
pub struct KeyStore {
    directory: PathBuf,
    check: PointCheck,
    digest: bool,
    allow_test: bool,
    budget: Budget,
    keys: Mutex<HashMap<CircuitId, Arc<Mutex<Slot>>>>,
    /// Keys whose files are others by now, as long as jobs use them. Locked after
    /// the table, and before no slot that is waited for.
    replaced: Mutex<Vec<Arc<Mutex<Slot>>>>,
    /// Counts uses that ended, so that each has a number.
    clock: Arc<AtomicU64>,
}

/// A key's place. Whoever loads the key holds its lock, so that other jobs of the
/// circuit wait for it and jobs of other circuits do not.
#[derive(Default)]
struct Slot {
    key: Option<Arc<Key>>,
    resident: Option<Reservation>,
    /// One handle here and one with each part that uses the resident points. Holds the
    /// number of the last use that ended.
    uses: Arc<AtomicU64>,
    /// Held by whoever decodes the points.
    decoding: Arc<Mutex<()>>,
}

impl Slot {
    /// Bytes of the decoded points, if they are in memory and no part uses them. A job
    /// whose parts wait for memory does not: it would wait for what it holds itself.
    fn idle_bytes(&self) -> Option<u64> {
        let unused = Arc::strong_count(&self.uses) == 1;
        let resident = self.resident.as_ref().filter(|_| unused)?;
        Some(resident.bytes())
    }

    /// Whether it is this key's place.
    fn has(&self, key: &Key) -> bool {
        let own = self.key.as_deref();
        own.is_some_and(|own| std::ptr::eq(own, key))
    }

    /// Whether anybody has the key, or uses its points.
    fn is_used(&self) -> bool {
        let key = self.key.as_ref();
        key.is_some_and(|key| Arc::strong_count(key) > 1) || Arc::strong_count(&self.uses) > 1
    }

    fn lease(&self, store: &KeyStore) -> KeyLease {
        KeyLease {
            uses: Some(Arc::clone(&self.uses)),
            decoding: Arc::clone(&self.decoding),
            clock: Arc::clone(&store.clock),
            budget: store.budget.clone(),
        }
    }
}

/// A part's use of a key's resident points: their memory stays until it is dropped.
pub(crate) struct KeyLease {
    uses: Option<Arc<AtomicU64>>,
    decoding: Arc<Mutex<()>>,
    clock: Arc<AtomicU64>,
    budget: Budget,
}

impl KeyLease {
    /// Decodes the points of the key that is leased, unless somebody did; whether it was this
    /// call. Others who need them wait meanwhile, and nobody else does.
    ///
    /// # Errors
    /// [`ProveError::Key`] if a point cannot be read.
    pub(crate) fn decode(&self, key: &Key) -> Result<bool, ProveError> {
        let _alone = lock(&self.decoding);
        let is_due = key.tier() != cuzk_gpu::KeyTier::Resident;
        if is_due {
            key.load_resident()?;
        }
        Ok(is_due)
    }
}

impl Drop for KeyLease {
    fn drop(&mut self) {
        if let Some(uses) = self.uses.take() {
            // Only the order of uses counts, and each number is given once.
            let number = 1 + self.clock.fetch_add(1, Ordering::Relaxed);
            uses.fetch_max(number, Ordering::Relaxed);
        }
        // Who waits for memory may have seen the points in use.
        self.budget.idle_grew();
    }
}

impl Slot {
    fn held(&self, key: &Arc<Key>) -> HeldKey {
        let is_decoded = key.tier() == cuzk_gpu::KeyTier::Resident;
        let resident = self.resident.as_ref().filter(|_| is_decoded);
        let resident = resident.map(Reservation::bytes);
        HeldKey {
            is_resident: resident.is_some(),
            bytes: resident.unwrap_or_else(|| key.file_bytes()),
            users: Arc::strong_count(key) - 1,
        }
    }
}

/// A key that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldKey {
    /// Whether its points are decoded in memory; otherwise they are in its file.
    pub is_resident: bool,
    /// Bytes of the decoded points if it is resident, otherwise of the file.
    pub bytes: u64,
    /// Uses of it: one for each job, and one more for each stage of a job that runs.
    pub users: usize,
}

/// What became of a key that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It was not loaded.
    NotLoaded,
    /// It stays, since jobs use it.
    InUse {
        /// How many.
        users: usize,
    },
    /// It is gone.
    Evicted {
        /// Its bytes, as [`HeldKey`] counts them.
        bytes: u64,
    },
}

impl KeyStore {
    /// A store without keys, which reads from the configured directory and counts
    /// resident points in `budget`.
    pub fn new(config: &Config, budget: Budget) -> Arc<Self> {
        let store = Arc::new(Self {
            directory: config.params_directory.clone(),
            check: config.params_check,
            digest: config.params_digest,
            allow_test: config.allow_test_params,
            budget: budget.clone(),
            keys: Mutex::default(),
            replaced: Mutex::default(),
            clock: Arc::default(),
        });
        let weak = Arc::downgrade(&store);
        budget.add_reclaimer(weak);
        store
    }

    /// Where the key of a circuit is expected.
    pub fn path(&self, circuit: &dyn CircuitSpec) -> PathBuf {
        self.directory.join(circuit.params_file())
    }

    /// Whether a key may be used, as far as that can be told without opening it.
    ///
    /// # Errors
    /// [`ProveError::MissingKey`], [`ProveError::TestKey`], [`ProveError::Sidecar`], and
    /// [`ProveError::Key`] if its directory cannot be searched.
    pub fn check_present(&self, circuit: &dyn CircuitSpec) -> Result<(), ProveError> {
        self.admit(circuit).map(drop)
    }

    /// The key of a circuit, loaded and checked if it is not there yet, or if its file has
    /// been replaced or written to since.
    ///
    /// # Errors
    /// As [`check_present`](Self::check_present), and [`ProveError::Key`] if the file is
    /// no key.
    pub fn load(&self, circuit: &dyn CircuitSpec) -> Result<Arc<Key>, ProveError> {
        // Asked before the table is locked: this is the workload's code.
        let id = circuit.id();
        self.drop_replaced();
        loop {
            let place = Arc::clone(self.slots().entry(id.clone()).or_default());
            let mut slot = lock(&place);
            // Whoever waited for it may have one that was replaced meanwhile, and is empty or
            // on no list any more. The table is locked by nobody who waits for a place.
            if !self.is_current(&id, &place) {
                continue;
            }
            match &slot.key {
                Some(key) if key.is_replaced() => {
                    let path = key.path().display();
                    tracing::warn!(circuit = %id, %path, "the file of the key is another one by now");
                }
                Some(key) => return Ok(Arc::clone(key)),
                None => {
                    let key = Arc::new(self.open(circuit)?);
                    slot.key = Some(Arc::clone(&key));
                    return Ok(key);
                }
            }
            drop(slot);
            self.replace(&id, place);
        }
    }

    /// Gives a circuit an empty place instead of this one, whose key stays as long as it is
    /// used. Somebody else may have done so.
    fn replace(&self, circuit: &CircuitId, place: Arc<Mutex<Slot>>) {
        let mut slots = self.slots();
        if let Some(current) = slots.get_mut(circuit)
            && Arc::ptr_eq(current, &place)
        {
            *current = Arc::default();
            lock(&self.replaced).push(place);
        }
        drop(slots);
        self.drop_replaced();
    }

    fn is_current(&self, circuit: &CircuitId, place: &Arc<Mutex<Slot>>) -> bool {
        let slots = self.slots();
        slots
            .get(circuit)
            .is_some_and(|current| Arc::ptr_eq(current, place))
    }

    /// Lets go of replaced keys that nobody uses any more.
    fn drop_replaced(&self) {
        let is_used = |place: &Arc<Mutex<Slot>>| try_lock(place).is_none_or(|slot| slot.is_used());
        let unused: Vec<_> = {
            let mut replaced = lock(&self.replaced);
            replaced.extract_if(.., |place| !is_used(place)).collect()
        };
        // Freed when nobody waits for the list: giving gigabytes back takes a while.
        drop(unused);
    }

    /// The place of a key that somebody has from [`load`](Self::load).
    fn place_of(&self, circuit: &CircuitId, key: &Key) -> Arc<Mutex<Slot>> {
        let look = || {
            // These first: whoever has the circuit's own place may be loading its next key.
            let replaced = lock(&self.replaced).clone();
            let current = self.slots().get(circuit).map(Arc::clone);
            let mut places = replaced.into_iter().chain(current);
            places.find(|place| lock(place).has(key))
        };
        // It may be replaced between the two, and is so once.
        let place = look().or_else(look);
        place.expect("a key that somebody has keeps its place")
    }

    /// Whether the key that the next job of a circuit has is loaded; not while it is being
    /// loaded.
    pub fn is_loaded(&self, circuit: &CircuitId) -> bool {
        let slot = self.slots().get(circuit).map(Arc::clone);
        let key = slot.and_then(|slot| try_lock(&slot)?.key.clone());
        key.is_some_and(|key| !key.is_replaced())
    }

    /// The resident points of a loaded key, if they are in memory.
    pub(crate) fn lease(&self, circuit: &CircuitId, key: &Key) -> Option<KeyLease> {
        let slot = self.place_of(circuit, key);
        let slot = lock(&slot);
        slot.resident.as_ref().map(|_| slot.lease(self))
    }

    /// Takes memory for the points of a loaded key; whoever proves with the lease decodes them
    /// there. If somebody else took it in the meantime, the reservation is given back.
    pub(crate) fn make_room(
        &self,
        circuit: &CircuitId,
        key: &Key,
        mut reservation: Reservation,
    ) -> KeyLease {
        let slot = self.place_of(circuit, key);
        let mut slot = lock(&slot);
        if slot.resident.is_none() {
            reservation.reassign(KEYS);
            slot.resident = Some(reservation);
        }
        slot.lease(self)
    }

    /// The most bytes that points take together of keys that may be in memory and need not.
    pub(crate) fn points_share(&self) -> u64 {
        self.budget.limit_bytes() / SHARE_DIVISOR
    }

    /// Whether the share of points has room for those of a key, beside the keys that are
    /// there.
    pub(crate) fn has_room(&self, key: &Key) -> bool {
        self.over_share(key) == 0
    }

    /// Bytes by which points would exceed their share with those of a key.
    fn over_share(&self, key: &Key) -> u64 {
        let held = self.budget.usage().held_by(KEYS);
        held.saturating_add(key.resident_bytes())
            .saturating_sub(self.points_share())
    }

    /// The same, where points that no part uses are given up.
    pub(crate) fn make_share(&self, key: &Key) -> bool {
        let over = self.over_share(key);
        key.resident_bytes() <= self.points_share() && (over == 0 || self.reclaim(over) >= over)
    }

    /// Brings the points of a loaded key into memory that is free now.
    pub(crate) fn load_points(&self, circuit: &CircuitId, key: &Key) -> Result<(), ProveError> {
        if let Some(lease) = self.lease(circuit, key) {
            return lease.decode(key).map(drop);
        }
        let reserved = self.budget.try_reserve(KEYS, key.resident_bytes());
        let reservation = reserved.map_err(|source| ProveError::Memory {
            what: "the key",
            source,
        })?;
        let lease = self.make_room(circuit, key, reservation);
        lease.decode(key).map(drop)
    }

    /// Closes a key that no job uses, and frees its points. Waits while the key is
    /// being loaded.
    pub fn evict(&self, circuit: &CircuitId) -> Eviction {
        self.drop_replaced();
        let Some(slot) = self.slots().get(circuit).map(Arc::clone) else {
            return Eviction::NotLoaded;
        };
        let mut slot = lock(&slot);
        let Some(key) = &slot.key else {
            return Eviction::NotLoaded;
        };
        let held = slot.held(key);
        if held.users > 0 {
            return Eviction::InUse { users: held.users };
        }
        *slot = Slot::default();
        Eviction::Evicted { bytes: held.bytes }
    }

    /// Every key that is loaded, in the order of circuit ids. A key that is being
    /// loaded or evicted now is left out, and so is one that jobs use while a later one of
    /// its circuit has its place.
    pub fn held(&self) -> Vec<(CircuitId, HeldKey)> {
        let slots: Vec<_> = self
            .slots()
            .iter()
            .map(|(circuit, slot)| (circuit.clone(), Arc::clone(slot)))
            .collect();
        let mut held: Vec<_> = slots
            .into_iter()
            .filter_map(|(circuit, slot)| {
                let slot = slot.try_lock().ok()?;
                let key = slot.key.as_ref()?;
                Some((circuit, slot.held(key)))
            })
            .collect();
        held.sort_by(|(left, _), (right, _)| left.cmp(right));
        held
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<CircuitId, Arc<Mutex<Slot>>>> {
        lock(&self.keys)
    }

    /// The path of a key that may be used, and its sidecar if it was generated.
    fn admit(&self, circuit: &dyn CircuitSpec) -> Result<(PathBuf, Option<Sidecar>), ProveError> {
        let path = self.path(circuit);
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => {
                let circuit = circuit.id();
                return Err(ProveError::MissingKey { circuit, path });
            }
            Err(source) => return Err(KeyError::Io { path, source }.into()),
        }
        let test = sidecar(&path)?;
        if let Some(sidecar) = &test
            && !self.allow_test
        {
            return Err(ProveError::TestKey {
                path,
                seed: sidecar.seed,
            });
        }
        Ok((path, test))
    }

    /// The key of a circuit as far as its counts: the loaded one if the next job has it, or
    /// the file's head without a check of its points.
    pub(crate) fn counts(&self, circuit: &dyn CircuitSpec) -> Result<Arc<Key>, ProveError> {
        let slot = self.slots().get(&circuit.id()).map(Arc::clone);
        // Whoever holds the lock loads the key now, which may take long.
        let loaded = slot.and_then(|slot| slot.try_lock().ok()?.key.clone());
        if let Some(key) = loaded.filter(|key| !key.is_replaced()) {
            return Ok(key);
        }
        let (path, _) = self.admit(circuit)?;
        let checks = KeyChecks {
            points: cuzk_gpu::PointCheck::None,
            digest: None,
        };
        Ok(Arc::new(Key::open(&path, &checks)?))
    }

    fn open(&self, circuit: &dyn CircuitSpec) -> Result<Key, ProveError> {
        let (path, test) = self.admit(circuit)?;
        // A generated key cannot have the published digest; its sidecar says so.
        let digest = circuit
            .params_digest()
            .filter(|_| self.digest && test.is_none());
        let points = points_of(self.check);
        Ok(Key::open(&path, &KeyChecks { points, digest })?)
    }

    /// Resident keys whose points no part uses, the one first whose last use is the
    /// longest ago.
    fn idle(&self) -> Vec<(u64, Arc<Mutex<Slot>>)> {
        let mut slots: Vec<_> = self.slots().values().map(Arc::clone).collect();
        slots.extend(lock(&self.replaced).iter().map(Arc::clone));
        let mut idle: Vec<_> = slots
            .into_iter()
            .filter_map(|slot| {
                let (used, bytes) = {
                    let slot = try_lock(&slot)?;
                    (slot.uses.load(Ordering::Relaxed), slot.idle_bytes()?)
                };
                Some((used, bytes, slot))
            })
            .collect();
        idle.sort_by_key(|(used, ..)| *used);
        idle.into_iter()
            .map(|(_, bytes, slot)| (bytes, slot))
            .collect()
    }
}

impl Reclaim for KeyStore {
    fn idle_bytes(&self) -> u64 {
        self.idle().iter().map(|(bytes, _)| bytes).sum()
    }

    fn reclaim(&self, wanted_bytes: u64) -> u64 {
        let mut freed = 0;
        for (_, slot) in self.idle() {
            if freed >= wanted_bytes {
                break;
            }
            // A slot that somebody took since is in use again.
            let Some(mut slot) = try_lock(&slot) else {
                continue;
            };
            if let (Some(bytes), Some(key)) = (slot.idle_bytes(), &slot.key) {
                key.drop_resident();
                slot.resident = None;
                freed += bytes;
            }
        }
        freed
    }
}

/// The slot, unless somebody works on it.
fn try_lock(slot: &Mutex<Slot>) -> Option<MutexGuard<'_, Slot>> {
    match slot.try_lock() {
        Ok(slot) => Some(slot),
        Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The sidecar of a key file, if it has one.
fn sidecar(params: &Path) -> Result<Option<Sidecar>, ProveError> {
    let path = sidecar_path(params);
    let text = match Sidecar::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let reason = error.to_string();
            return Err(ProveError::Sidecar { path, reason });
        }
    };
    let sidecar = Sidecar::parse(&text);
    sidecar
        .map(Some)
        .map_err(|reason| ProveError::Sidecar { path, reason })
}
