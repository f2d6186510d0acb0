//! Engines whose last handle is dropped where they work themselves.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellperson::groth16::Proof;
use blstrs::Bls12;
use cuzk_core::{
    CircuitSpec, Engine, Part, ProofReply, ProveError, Verifier, Workload, WorkloadError,
};

use crate::backends::Faulty;
use crate::gate::Gate;
use crate::toy::{House, SquaresJob};
use crate::{PLENTY, seeded, until};

/// Far longer than all of it takes.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Where the last handle goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Part,
    Encode,
    /// With the job itself, wherever that is.
    Drop,
}

struct Owner {
    job: SquaresJob,
    engine: Mutex<Option<Arc<Engine>>>,
    gate: Arc<Gate>,
    at: At,
}

impl Owner {
    fn come_to(&self, at: At) {
        if self.at == at {
            let engine = self.engine.lock().expect("no panic under the lock").take();
            drop(engine.expect("it is dropped once"));
        }
    }
}

impl Workload for Owner {
    fn label(&self) -> String {
        self.job.label()
    }

    fn circuit(&self) -> Arc<dyn CircuitSpec> {
        self.job.circuit()
    }

    fn part_count(&self) -> usize {
        self.job.part_count()
    }

    fn part(&self, index: usize) -> Result<Box<dyn Part>, WorkloadError> {
        self.gate.pass();
        self.come_to(At::Part);
        self.job.part(index)
    }

    fn verify(&self, verifier: &Verifier, proofs: &[Proof<Bls12>]) -> Result<bool, WorkloadError> {
        self.job.verify(verifier, proofs)
    }

    fn encode(&self, proofs: &[Proof<Bls12>]) -> Result<Vec<u8>, WorkloadError> {
        self.come_to(At::Encode);
        self.job.encode(proofs)
    }
}

/// How a job ends whose workload has the last handle of its engine, once all of the engine is
/// gone.
fn end(at: At) -> Result<ProofReply, ProveError> {
    let (done, watched) = channel();
    std::thread::spawn(move || {
        let house = House::new(&[20]);
        let backend = Arc::new(Faulty::corrupting(0));
        let left = Arc::downgrade(&backend);
        let engine = Arc::new(house.engine_on(PLENTY, backend));
        let gate = Arc::new(Gate::default());
        let owner = Owner {
            job: SquaresJob::new(20, 2, 1),
            engine: Mutex::new(Some(Arc::clone(&engine))),
            gate: Arc::clone(&gate),
            at,
        };
        let handle = engine.submit(Arc::new(owner), seeded());
        let handle = handle.expect("there is a place");
        until(|| gate.came() == 1);
        drop(engine);
        gate.open();
        let result = handle.wait();
        until(|| left.strong_count() == 0);
        done.send(result).expect("somebody watches");
    });
    let ended = watched.recv_timeout(WATCHDOG);
    ended.unwrap_or_else(|_| panic!("{at:?}: the engine waits for itself"))
}

#[test]
fn an_engine_that_its_workload_drops_ends() {
    let error = end(At::Part).expect_err("nobody is left who wants it");
    assert!(matches!(error, ProveError::Cancelled), "{error}");
    for at in [At::Encode, At::Drop] {
        end(at).expect("its proof is being handed over");
    }
}
