//! The engine's way of synthesising a part, without an engine.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use blstrs::Scalar;
use cuzk_core::{CircuitSpec, Part};
use cuzk_filecoin::FilecoinCircuit;
use cuzk_synth::{AssignColumns, Extend, Template, survey};

/// More than any survey takes.
const SURVEY_BYTES: usize = 1 << 30;

/// The template of a circuit.
pub(crate) fn template(circuit: &FilecoinCircuit, with_c: bool) -> Result<Template> {
    surveyed(circuit, Extend::Whole, with_c)
}

/// The template of a circuit of which so much is read.
pub(crate) fn surveyed(
    circuit: &FilecoinCircuit,
    extend: Extend,
    with_c: bool,
) -> Result<Template> {
    let cut = circuit
        .cut()
        .context("the circuit does not say where it repeats")?;
    let found = survey(cut, extend, with_c, SURVEY_BYTES, |pass| {
        circuit.synthesize_blank(pass)
    })?;
    found.map_err(|uncut| anyhow!("{}: {uncut}", circuit.id()))
}

/// Fills columns by so many threads.
pub(crate) fn fill(
    template: &Template,
    part: &dyn Part,
    columns: AssignColumns<'_>,
    threads: usize,
) -> Result<Vec<Scalar>> {
    let cut = template.cut(columns, part.segments())?;
    let filled = in_threads(threads, cut.segments, |segment, columns| {
        Ok(template.fill(columns, |pass| part.synthesize(segment, pass))?)
    })?;
    Ok(template.finish(cut.rest, filled)?)
}

/// Does pieces of work by so many threads, and tells what they gave in their order.
pub(crate) fn in_threads<T: Send, R: Send>(
    threads: usize,
    pieces: Vec<T>,
    work: impl Fn(usize, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let done = Mutex::new(pieces.iter().map(|_| None).collect::<Vec<_>>());
    let pieces = Mutex::new(pieces.into_iter().enumerate());
    let worker = || {
        loop {
            // A statement of its own, so that the lock is not held while it is worked.
            let next = lock(&pieces).next();
            let Some((index, piece)) = next else {
                return;
            };
            let result = work(index, piece);
            lock(&done)[index] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.into_iter()
        .map(|result| result.context("all pieces are done")?)
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
