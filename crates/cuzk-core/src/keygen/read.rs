//! A circuit at tau: from its stored rows by all threads where it repeats, by a pass over
//! the whole of it where it does not.
//!
//! Stored rows are there long before it is known that they are the circuit: of a PoRep of
//! 32 GiB the first of eighteen blocks tells them, and the comparison of the others takes one
//! thread a minute. So a key is begun from the first block while a few threads compare the
//! others, and made anew from a survey of the whole if one differs. A key gets its name after
//! that, and so does none that is not its circuit's. A circuit that says that it is a loop over
//! its blocks is taken at its word: of that one with three blocks is compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blstrs::Scalar;
use cuzk_synth::{
    Comparison, Cut, Densities, Extend, Pass, QapAtTau, QapAux, QapColumns, Sizes, SynthError,
    Template, Uncut, count, qap, survey,
};
use ff::Field;
use rayon::prelude::*;

use super::{KeygenError, Progress};
use crate::CircuitSpec;
use crate::workload::{COMPARED_BLOCKS, shortened, uniform_blocks};

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
    let surveyed = || match look(circuit, cut, Extend::Whole)? {
        Ok(template) => stored(&template),
        Err(_) => whole(),
    };
    let Some(blocks) = uniform_blocks(circuit) else {
        return surveyed();
    };
    let Ok(begun) = look(circuit, cut, Extend::FirstBlock { blocks })? else {
        return surveyed();
    };
    if let Some(blank) = shortened(circuit, blocks) {
        let comparison = Comparison::new(&begun, cut)?.with_blocks(COMPARED_BLOCKS);
        match comparison.walk(blank) {
            Ok(()) if comparison.is_equal() => return stored(&begun),
            // What the short circuit refuses says nothing of the whole.
            Ok(()) | Err(SynthError::Circuit(_)) => {}
            Err(error) => return Err(error.into()),
        }
        drop(begun);
        return surveyed();
    }
    let comparison = Comparison::new(&begun, cut)?;
    let stop = Arc::new(AtomicBool::new(false));
    let walk = || {
        let stop = Arc::clone(&stop);
        comparison.walk(|pass| {
            pass.give_up_when(move || stop.load(Ordering::Relaxed));
            circuit.synthesize_blank(pass)
        })
    };
    let (made, is_lost, walked) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..walks(blocks)).map(|_| scope.spawn(walk)).collect();
        let made = stored(&begun);
        // What a disk or a device refuses, it refuses whatever the circuit is.
        let is_lost = matches!(&made, Err(KeygenError::Key(_) | KeygenError::Multiplier(_)));
        stop.store(is_lost, Ordering::Relaxed);
        let walked = threads.into_iter().map(|thread| {
            let walked = thread.join();
            walked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (made, is_lost, walked.collect::<Result<(), SynthError>>())
    });
    if is_lost {
        return made;
    }
    match walked {
        Ok(()) if comparison.is_equal() => return made,
        Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    drop((made, begun));
    surveyed()
}

/// As many threads as compare: each reads the whole circuit, if in a fraction of the time,
/// and they take cores from those that multiply.
fn walks(blocks: usize) -> usize {
    const THREADS_EACH: usize = 3;
    const WALKS_MAX: usize = 6;
    let walks = rayon::current_num_threads() / THREADS_EACH;
    walks.clamp(1, WALKS_MAX).min(blocks - 1)
}

/// Surveys the blank circuit.
fn look(
    circuit: &dyn CircuitSpec,
    cut: Cut,
    extend: Extend,
) -> Result<Result<Template, Uncut>, KeygenError> {
    /// Stored rows are a hundredth of what a key takes.
    const LIMIT_BYTES: usize = 1 << 34;
    let blank = |pass: &mut Pass<'_>| circuit.synthesize_blank(pass);
    Ok(survey(cut, extend, true, LIMIT_BYTES, blank)?)
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
