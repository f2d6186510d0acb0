//! The backends that proofs are made on: what each has to do, and which ones are out of
//! service. Which one a part goes to is the scheduler's decision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzk_gpu::{Backend, BackendError, CircuitShape, CircuitSizes, DeviceUse, Key};

use crate::error::ProveError;
use crate::schedule::{DeviceIndex, DeviceSet};

/// A device that proofs are made on, as others are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// The device.
    pub device: DeviceUse,
    /// Parts that it has now.
    pub parts: usize,
    /// Why it gets no part any more, if it has failed for good.
    pub lost: Option<String>,
}

/// Backends of one kind. Columns of a part are made before it is known which one proves
/// it, so all want the same.
pub(crate) struct Backends {
    members: Vec<Arc<dyn Backend>>,
    ledger: Mutex<Ledger>,
}

/// What the backends are doing.
struct Ledger {
    states: Vec<State>,
}

#[derive(Clone, Default)]
struct State {
    parts: usize,
    lost: Option<String>,
}

impl Backends {
    /// # Panics
    /// If there is none, there are too many, or they are not of one kind.
    pub(crate) fn new(members: Vec<Arc<dyn Backend>>) -> Self {
        let first = members.first().expect("an engine has a backend");
        let kind = |backend: &Arc<dyn Backend>| {
            let (c, upload) = (backend.c_column(), backend.upload());
            (backend.name(), c, upload, backend.keeps_keys())
        };
        assert!(
            members.len() <= DeviceSet::DEVICES_MAX,
            "{} backends",
            members.len()
        );
        assert!(
            members.iter().all(|member| kind(member) == kind(first)),
            "backends of one kind"
        );
        let states = vec![State::default(); members.len()];
        Self {
            members,
            ledger: Mutex::new(Ledger { states }),
        }
    }

    /// One of them, for what all have in common.
    pub(crate) fn any(&self) -> &dyn Backend {
        &*self.members[0]
    }

    /// Parts that each works on at the same time.
    pub(crate) fn slots(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.slots()).collect()
    }

    /// A part's turn on a backend that the scheduler chose.
    pub(crate) fn turn(&self, device: DeviceIndex) -> Turn<'_> {
        let DeviceIndex(at) = device;
        self.ledger().states[at].parts += 1;
        Turn { backends: self, at }
    }

    /// The backends in service that can prove a circuit.
    ///
    /// # Errors
    /// [`ProveError::OutOfService`] with why, for each, and [`ProveError::TooLarge`] if
    /// none of those in service could prove the circuit.
    pub(crate) fn able(&self, sizes: &CircuitSizes, key: &Key) -> Result<DeviceSet, ProveError> {
        let fits = self.fits(sizes, key);
        let able = able(&self.ledger(), fits);
        match able {
            Ok(able) => Ok(able.into_iter().map(DeviceIndex).collect()),
            Err(Some(source)) => Err(ProveError::TooLarge { source }),
            Err(None) => Err(self.out_of_service()),
        }
    }

    /// That nothing proves any more, and why.
    pub(crate) fn out_of_service(&self) -> ProveError {
        let ledger = self.ledger();
        ProveError::OutOfService {
            reasons: self.why_none(&ledger),
        }
    }

    /// Whether a backend is out of service.
    pub(crate) fn is_lost(&self, device: DeviceIndex) -> bool {
        self.ledger().states[device.0].lost.is_some()
    }

    /// Takes a backend out of service, unless it is.
    pub(crate) fn lose(&self, device: DeviceIndex, reason: String) {
        let backend = name(&*self.members[device.0]);
        let mut ledger = self.ledger();
        let lost = &mut ledger.states[device.0].lost;
        if lost.is_none() {
            tracing::error!(
                backend,
                reason,
                "out of service until the process starts anew"
            );
            *lost = Some(reason);
        }
    }

    /// Brings a key to each that is in service and keeps keys itself. One that cannot keeps
    /// no other from it; one that is found lost gets no part any more.
    ///
    /// # Errors
    /// [`ProveError::Key`], [`ProveError::TooLarge`] and [`ProveError::Preload`], with what
    /// the first one said that could not.
    pub(crate) fn preload(&self, key: &Arc<Key>) -> Result<(), ProveError> {
        let brought = self.on_each("key", |member| {
            let tier = member.preload(key)?;
            tracing::debug!(backend = name(member), ?tier, "key preloaded");
            Ok(())
        });
        match brought {
            None => Ok(()),
            Some(BackendError::Key(error)) => Err(ProveError::Key(error)),
            Some(source @ BackendError::DeviceMemory { .. }) => {
                Err(ProveError::TooLarge { source })
            }
            Some(source) => Err(ProveError::Preload { source }),
        }
    }

    /// Brings what stays of a circuit to each that is in service, as far as it has room. What
    /// fails is told, and met again by the first proof.
    pub(crate) fn preload_shape(&self, shape: &Arc<CircuitShape>) {
        let _told = self.on_each("a circuit's lists", |member| member.preload_shape(shape));
    }

    /// Has each that is in service bring something; the first failure of any. All are told.
    fn on_each(
        &self,
        what: &'static str,
        bring: impl Fn(&dyn Backend) -> Result<(), BackendError>,
    ) -> Option<BackendError> {
        let states = self.ledger().states.clone();
        let members = self.members.iter().zip(states).enumerate();
        let mut first = None;
        for (at, (member, _)) in members.filter(|(_, (_, state))| state.lost.is_none()) {
            if let Err(error) = bring(&**member) {
                tracing::warn!(backend = name(&**member), %error, "{what} not preloaded");
                self.note(DeviceIndex(at), &error);
                first = first.or(Some(error));
            }
        }
        first
    }

    /// Notes a failure. A backend that has failed for good gets no part after this.
    fn note(&self, device: DeviceIndex, error: &BackendError) {
        let backend = &self.members[device.0];
        if matches!(error, BackendError::DeviceLost { .. }) || backend.is_lost() {
            self.lose(device, error.to_string());
        }
    }

    fn fits(&self, sizes: &CircuitSizes, key: &Key) -> Vec<Result<(), BackendError>> {
        let members = self.members.iter();
        members.map(|member| member.check(sizes, key)).collect()
    }

    /// Whether any of them takes parts.
    pub(crate) fn is_in_service(&self) -> bool {
        let ledger = self.ledger();
        ledger.states.iter().any(|state| state.lost.is_none())
    }

    /// The devices among them.
    pub(crate) fn devices(&self) -> Vec<DeviceState> {
        let ledger = self.ledger();
        let members = self.members.iter().zip(&ledger.states);
        members
            .filter_map(|(member, state)| {
                Some(DeviceState {
                    device: member.device()?,
                    parts: state.parts,
                    lost: state.lost.clone(),
                })
            })
            .collect()
    }

    fn why_none(&self, ledger: &Ledger) -> String {
        let reasons = self.members.iter().zip(&ledger.states);
        let reasons = reasons.map(|(member, state)| {
            let reason = state.lost.as_deref().unwrap_or_default();
            format!("{}: {reason}", name(&**member))
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Nothing under the lock panics half way.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which ones are in service and fit: at least one. Without any, why one in service does
/// not fit, if one is.
fn able(
    ledger: &Ledger,
    fits: Vec<Result<(), BackendError>>,
) -> Result<Vec<usize>, Option<BackendError>> {
    let mut able = Vec::new();
    let mut too_large = None;
    for (at, (state, fits)) in ledger.states.iter().zip(fits).enumerate() {
        match fits {
            _ if state.lost.is_some() => {}
            Ok(()) => able.push(at),
            Err(source) => too_large = too_large.or(Some(source)),
        }
    }
    match able.is_empty() {
        false => Ok(able),
        true => Err(too_large),
    }
}

fn name(backend: &dyn Backend) -> String {
    match backend.device() {
        Some(device) => format!("device {} ({})", device.ordinal, device.name),
        None => backend.name().to_owned(),
    }
}

/// A part's turn on a backend, until dropped.
pub(crate) struct Turn<'a> {
    backends: &'a Backends,
    at: usize,
}

impl Turn<'_> {
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backends.members[self.at]
    }

    /// Notes a failure. A backend that has failed for good gets no part after this.
    pub(crate) fn failed(&self, error: &BackendError) {
        self.backends.note(DeviceIndex(self.at), error);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.backends.ledger().states[self.at].parts -= 1;
    }
}
