//! A circuit at tau: from its stored rows by all threads where it repeats, by a pass over
//! the whole of it where it does not.
//!
//! Stored rows are there long before it is known that they are the circuit: of a PoRep of
//! 32 GiB the first of eighteen blocks tells them, and the comparison of the others takes one
//! thread a minute. So a key is begun from the first block while a few threads compare the
//! others, each its own, and made anew from a survey of the whole if one differs. A key gets
//! its name after that, and so does none that is not its circuit's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blstrs::Scalar;
use cuzk_synth::{
    Cut, Densities, Extend, QapAtTau, QapAux, QapColumns, Sizes, SynthError, Template, Uncut,
    count, qap, survey,
};
use ff::Field;
use rayon::prelude::*;

use super::{KeygenError, Progress};
use crate::CircuitSpec;

/// Pieces that threads evaluate at the same time: each is a few blocks.
const PIECES_MAX: usize = 64;

/// What a key needs of its circuit.
pub(super) struct AtTau {
    pub(super) sizes: Sizes,
    pub(super) densities: Densities,
    pub(super) qap: QapAtTau,
}

/// Reads a circuit and has its key made; `make` may be called twice, and its last result is
/// the circuit's.
pub(super) fn read<T: Send>(
    circuit: &dyn CircuitSpec,
    tau: Scalar,
    progress: Progress<'_>,
    make: impl Fn(AtTau) -> Result<T, KeygenError>,
) -> Result<T, KeygenError> {
    let whole = || make(whole(circuit, tau, progress)?);
    let stored = |template: &Template| {
        progress("qap", 0, 1);
        make(stored(template, tau)?)
    };
    let Some(cut) = circuit.cut() else {
        return whole();
    };
    progress("survey", 0, 1);
    let surveyed = || match look(circuit, cut, Extend::Whole, None)? {
        Ok(template) => stored(&template),
        Err(_) => whole(),
    };
    let blocks = match circuit.segments() {
        // Nothing would be gained, or nobody knows how many there are.
        0 | 1 | usize::MAX => return surveyed(),
        _ if !circuit.is_uniform() => return surveyed(),
        blocks => blocks,
    };
    let Ok(begun) = look(circuit, cut, Extend::FirstBlock { blocks }, None)? else {
        return surveyed();
    };
    let stop = Arc::new(AtomicBool::new(false));
    let (made, compared) = std::thread::scope(|scope| {
        let threads: Vec<_> = shares(blocks)
            .map(|Range { start: first, end }| {
                let (stop, want) = (Arc::clone(&stop), begun.digest());
                let extend = Extend::Compared { first, end };
                scope.spawn(move || {
                    let found = look(circuit, cut, extend, Some(stop))?;
                    Ok(found.is_ok_and(|found| found.digest() == want))
                })
            })
            .collect();
        let made = stored(&begun);
        // What a disk or a device refuses, it refuses whatever the circuit is.
        let is_lost = matches!(&made, Err(KeygenError::Key(_) | KeygenError::Multiplier(_)));
        stop.store(is_lost, Ordering::Relaxed);
        let compared: Vec<Result<bool, KeygenError>> = threads
            .into_iter()
            .map(|thread| {
                let found = thread.join();
                found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        (made, compared)
    });
    let given_up = |found: &Result<bool, KeygenError>| {
        matches!(found, Err(KeygenError::Circuit(SynthError::GivenUp)))
    };
    if compared.iter().any(given_up) {
        return made;
    }
    let compared: Vec<bool> = compared.into_iter().collect::<Result<_, _>>()?;
    if compared.iter().all(|is_same| *is_same) {
        return made;
    }
    drop((made, begun));
    surveyed()
}

/// The blocks but the first, in as many shares as threads compare: each reads the whole
/// circuit, if in a fraction of the time, and they take cores from those that multiply.
fn shares(blocks: usize) -> impl Iterator<Item = Range<usize>> {
    const THREADS_EACH: usize = 3;
    const SHARES_MAX: usize = 6;
    let shares = (rayon::current_num_threads() / THREADS_EACH).clamp(1, SHARES_MAX);
    let each = (blocks - 1).div_ceil(shares);
    let starts = (1..blocks).step_by(each);
    starts.map(move |start| start..blocks.min(start + each))
}

/// Surveys the blank circuit, until it is told to stop.
fn look(
    circuit: &dyn CircuitSpec,
    cut: Cut,
    extend: Extend,
    stop: Option<Arc<AtomicBool>>,
) -> Result<Result<Template, Uncut>, KeygenError> {
    /// Stored rows are a hundredth of what a key takes.
    const LIMIT_BYTES: usize = 1 << 34;
    let found = survey(cut, extend, true, LIMIT_BYTES, |pass| {
        if let Some(stop) = stop {
            pass.give_up_when(move || stop.load(Ordering::Relaxed));
        }
        circuit.synthesize_blank(pass)
    });
    Ok(found?)
}

/// Two passes over the circuit, each by one thread.
fn whole(
    circuit: &dyn CircuitSpec,
    tau: Scalar,
    progress: Progress<'_>,
) -> Result<AtTau, KeygenError> {
    progress("count", 0, 1);
    let counted = count(|pass| circuit.synthesize_blank(pass))?;
    progress("qap", 0, 1);
    let qap = qap(&counted.sizes, tau, |pass| circuit.synthesize_blank(pass))?;
    Ok(AtTau {
        sizes: counted.sizes,
        densities: counted.densities,
        qap,
    })
}

/// The rows that are stored, evaluated by all threads.
fn stored(template: &Template, tau: Scalar) -> Result<AtTau, KeygenError> {
    let sizes = template.sizes();
    // By all threads too: fresh memory is slow for one.
    let zeros = || -> Vec<Scalar> {
        let zeros = (0..sizes.aux).into_par_iter().map(|_| Scalar::ZERO);
        zeros.collect()
    };
    let mut aux = QapColumns {
        a: zeros(),
        b: zeros(),
        c: zeros(),
    };
    let columns = QapAux {
        a: &mut aux.a,
        b: &mut aux.b,
        c: &mut aux.c,
    };
    let (pieces, rest) = template.cut_qap(columns, tau, PIECES_MAX)?;
    let parts = pieces.into_par_iter();
    let parts = parts.map(|piece| template.evaluate_qap(piece)).collect();
    let inputs = template.finish_qap(rest, parts);
    Ok(AtTau {
        sizes,
        densities: template.densities(),
        qap: QapAtTau { inputs, aux },
    })
}
