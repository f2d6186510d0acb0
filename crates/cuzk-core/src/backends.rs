//! The backends that proofs are made on, where there are several: which one a part goes
//! to, and which ones are out of service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzk_gpu::{Backend, BackendError, DeviceUse};

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
    failures: u64,
}

#[derive(Clone, Default)]
struct State {
    parts: usize,
    /// Which failure of any was its last, counted from one.
    last_failure: u64,
    lost: Option<String>,
}

impl Backends {
    /// # Panics
    /// If there is none, or they are not of one kind.
    pub(crate) fn new(members: Vec<Arc<dyn Backend>>) -> Self {
        let first = members.first().expect("an engine has a backend");
        let kind = |backend: &Arc<dyn Backend>| {
            let (c, upload) = (backend.c_column(), backend.upload());
            (backend.name(), c, upload, backend.keeps_keys())
        };
        assert!(
            members.iter().all(|member| kind(member) == kind(first)),
            "backends of one kind"
        );
        let states = vec![State::default(); members.len()];
        Self {
            members,
            ledger: Mutex::new(Ledger {
                states,
                failures: 0,
            }),
        }
    }

    /// One of them, for what all have in common.
    pub(crate) fn any(&self) -> &dyn Backend {
        &*self.members[0]
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The backend that has the fewest parts, for one part more. Of equal ones it is
    /// the one whose last failure is the longest ago: a part that is tried again tries
    /// another one.
    ///
    /// # Errors
    /// If none is in service: why, for each.
    pub(crate) fn take(&self) -> Result<Turn<'_>, String> {
        let mut ledger = self.ledger();
        let states = ledger.states.iter().enumerate();
        let least = states
            .filter(|(_, state)| state.lost.is_none())
            .min_by_key(|(_, state)| (state.parts, state.last_failure))
            .map(|(at, _)| at);
        let Some(at) = least else {
            return Err(self.why_none(&ledger));
        };
        ledger.states[at].parts += 1;
        Ok(Turn { backends: self, at })
    }

    /// Whether there is one that takes parts.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn check(&self) -> Result<(), String> {
        let ledger = self.ledger();
        match ledger.states.iter().any(|state| state.lost.is_none()) {
            true => Ok(()),
            false => Err(self.why_none(&ledger)),
        }
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
        let backend = self.backend();
        let is_lost = matches!(error, BackendError::DeviceLost { .. }) || backend.is_lost();
        let mut ledger = self.backends.ledger();
        ledger.failures += 1;
        let failure = ledger.failures;
        let state = &mut ledger.states[self.at];
        state.last_failure = failure;
        if is_lost && state.lost.is_none() {
            state.lost = Some(error.to_string());
            drop(ledger);
            let backend = name(backend);
            tracing::error!(backend, %error, "out of service until the process starts anew");
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.backends.ledger().states[self.at].parts -= 1;
    }
}
