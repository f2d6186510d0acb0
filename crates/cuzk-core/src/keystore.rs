//! Keys, loaded once and shared by all jobs of a circuit.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use cuzk_budget::{Budget, Consumer, Reclaim, Reservation};
use cuzk_gpu::{Key, KeyChecks};

use crate::config::{Config, KeyTier, PointCheck};
use crate::error::ProveError;
use crate::keygen::{Sidecar, sidecar_path};
use crate::keys::points_of;
use crate::{CircuitId, CircuitSpec};

/// On whom the decoded points of keys are booked.
const KEYS: Consumer = Consumer("keys");

/// The keys of one directory.
pub struct KeyStore {
    directory: PathBuf,
    check: PointCheck,
    digest: bool,
    allow_test: bool,
    tier: KeyTier,
    budget: Budget,
    keys: Mutex<HashMap<CircuitId, Arc<Mutex<Slot>>>>,
}

/// A key's place. Whoever loads the key holds its lock, so that other jobs of the
/// circuit wait for it and jobs of other circuits do not.
#[derive(Default)]
struct Slot {
    key: Option<Arc<Key>>,
    resident: Option<Reservation>,
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
            tier: config.tuning.key_tier,
            budget: budget.clone(),
            keys: Mutex::default(),
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
    /// [`ProveError::MissingKey`], [`ProveError::TestKey`] and
    /// [`ProveError::Sidecar`].
    pub fn check_present(&self, circuit: &dyn CircuitSpec) -> Result<(), ProveError> {
        self.admit(circuit).map(drop)
    }

    /// The key of a circuit, loaded and checked if it is not there yet.
    ///
    /// # Errors
    /// [`ProveError::MissingKey`], [`ProveError::TestKey`], [`ProveError::Key`], and
    /// [`ProveError::Memory`] if it must be resident and there is no room.
    pub fn load(&self, circuit: &dyn CircuitSpec) -> Result<Arc<Key>, ProveError> {
        let slot = Arc::clone(self.slots().entry(circuit.id()).or_default());
        let mut slot = slot.lock().expect("loading does not panic");
        let key = match &slot.key {
            Some(key) => Arc::clone(key),
            None => {
                let key = Arc::new(self.open(circuit)?);
                slot.key = Some(Arc::clone(&key));
                key
            }
        };
        if slot.resident.is_none() && self.tier != KeyTier::File {
            match self.budget.try_reserve(KEYS, key.resident_bytes()) {
                Ok(reservation) => {
                    key.load_resident()?;
                    slot.resident = Some(reservation);
                }
                Err(_) if self.tier == KeyTier::Auto => {}
                Err(source) => {
                    return Err(ProveError::Memory {
                        what: "the key",
                        source,
                    });
                }
            }
        }
        Ok(key)
    }

    /// Drops a key that no job uses; whether there was one.
    pub fn evict(&self, circuit: &CircuitId) -> bool {
        let Some(slot) = self.slots().get(circuit).map(Arc::clone) else {
            return false;
        };
        let mut slot = slot.lock().expect("loading does not panic");
        let idle = slot
            .key
            .as_ref()
            .is_some_and(|key| Arc::strong_count(key) == 1);
        if idle {
            *slot = Slot::default();
        }
        idle
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<CircuitId, Arc<Mutex<Slot>>>> {
        self.keys
            .lock()
            .expect("no code panics while it holds the key table")
    }

    /// The path of a key that may be used, and its sidecar if it was generated.
    fn admit(&self, circuit: &dyn CircuitSpec) -> Result<(PathBuf, Option<Sidecar>), ProveError> {
        let path = self.path(circuit);
        if !path.exists() {
            return Err(ProveError::MissingKey {
                circuit: circuit.id(),
                path,
            });
        }
        let test = self.sidecar(&path)?;
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

    fn open(&self, circuit: &dyn CircuitSpec) -> Result<Key, ProveError> {
        let (path, test) = self.admit(circuit)?;
        // A generated key cannot have the published digest; its sidecar says so.
        let digest = circuit
            .params_digest()
            .filter(|_| self.digest && test.is_none());
        let points = points_of(self.check);
        Ok(Key::open(&path, &KeyChecks { points, digest })?)
    }

    fn sidecar(&self, params: &std::path::Path) -> Result<Option<Sidecar>, ProveError> {
        let path = sidecar_path(params);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(ProveError::Sidecar {
                    path,
                    reason: error.to_string(),
                });
            }
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| ProveError::Sidecar {
                path,
                reason: error.to_string(),
            })
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
            let Ok(mut slot) = slot.try_lock() else {
                continue;
            };
            if let (Some(key), Some(reservation)) = (&slot.key, &slot.resident)
                && Arc::strong_count(key) == 1
            {
                freed += reservation.bytes();
                key.drop_resident();
                slot.resident = None;
            }
        }
        freed
    }
}

impl KeyStore {
    /// Resident keys that no job uses, the largest first.
    fn idle(&self) -> Vec<(u64, Arc<Mutex<Slot>>)> {
        let slots: Vec<_> = self.slots().values().map(Arc::clone).collect();
        let mut idle: Vec<_> = slots
            .into_iter()
            .filter_map(|slot| {
                let bytes = {
                    let held = slot.try_lock().ok()?;
                    let key = held.key.as_ref()?;
                    (Arc::strong_count(key) == 1)
                        .then(|| held.resident.as_ref())??
                        .bytes()
                };
                Some((bytes, slot))
            })
            .collect();
        idle.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        idle
    }
}
