//! Explain: why a proof does not verify. The witness is checked row by row: an
//! unsatisfied one is the caller's error, anything else is ours and worth another
//! try.

use blstrs::Scalar;
use cuzk_budget::{Consumer, Wait};
use cuzk_gpu::{Key, Section};
use cuzk_synth::{Explained, explain as explain_rows};

use super::reserve::budget_priority;
use super::{Job, Shared, refused, segments};
use crate::Filling;
use crate::error::{Failure, ProveError};

/// On whom the assignment that is checked is booked.
const EXPLAIN: Consumer = Consumer("explain");

/// Says why the proof of a part does not verify whose columns were filled like this.
pub(crate) fn explain(
    shared: &Shared,
    job: &Job,
    key: &Key,
    part: usize,
    synthesis: Filling,
) -> Failure {
    let circuit = match job.workload.part(part) {
        Ok(circuit) => circuit,
        Err(error) => return Failure::fatal(error),
    };
    let variables = key.count(Section::Ic) + key.count(Section::L);
    // The assignment grows as the circuit is read, so up to twice its size is held.
    let bytes = 2 * variables as u64 * size_of::<Scalar>() as u64;
    let waiting = shared.waits.enter(&job.label, part, "explain", bytes);
    let held = job.standing.ask(|priority, over| {
        let wait = Wait::with_priority(budget_priority(priority)).cancelled_by(over);
        shared.memory.budget().reserve(EXPLAIN, bytes, &wait)
    });
    let held = match held {
        Ok(held) => held,
        Err(_) if job.standing.is_given_up() => return Failure::fatal(ProveError::Cancelled),
        Err(source) => {
            let what = "the check of a witness whose proof does not verify";
            return Failure::fatal(ProveError::Memory { what, source });
        }
    };
    drop(waiting);
    let explained = explain_rows(|pass| {
        job.ends(pass);
        circuit.synthesize_whole(pass)
    });
    drop(held);
    match explained {
        Err(source) => refused(part, source),
        Ok(Explained::Unsatisfied(failed)) => {
            Failure::fatal(ProveError::Unsatisfied { part, failed })
        }
        Ok(Explained::Satisfied { .. }) => {
            tracing::error!(job = job.label, part, "a proof does not verify");
            // Of two keys no proof can be made, and trying again does not change that.
            if let Err(changed) = key.check_unchanged() {
                return Failure::fatal(changed);
            }
            if synthesis == Filling::Segments {
                segments::distrust(shared, job);
            }
            Failure::ours(ProveError::InvalidProof { part })
        }
    }
}
