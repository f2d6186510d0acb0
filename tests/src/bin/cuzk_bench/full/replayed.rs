//! The parts of the job once more, prepared before: what the device takes for them when
//! nothing is synthesised meanwhile.

use anyhow::Result;
use blstrs::Scalar;
use cuzk_core::{CircuitSpec, Workload, circuit_shape};
use cuzk_gpu::{CircuitShape, CircuitSizes, Columns};
use cuzk_synth::Template;
use cuzk_tests::record::Case;

use super::checks::template;
use super::some_parts::SomeParts;
use super::{Options, Phases, workload};
use crate::bed;
use crate::replay::feed::feed;
use crate::replay::figures::{device_ms, figures};
use crate::replay::place::Host;
use crate::replay::prepared::Prepared;
use crate::replay::witnesses::{Witnesses, into_columns};
use crate::replay::{Tier, case};
use crate::synth::segments::fill;

/// As many as a device has of itself.
const SLOTS: usize = 2;

/// Feeds the device from the first `count` parts, by turns, until it has proved as many as the
/// job has. Each proof is verified, or is the one that its part gave alone.
pub(super) fn replay(
    options: &Options,
    json: &[u8],
    count: usize,
    phases: &mut Phases,
) -> Result<Case> {
    let parts = workload(options, json, "")?;
    let jobs_parts = parts.part_count();
    let circuit = options.circuit();
    let template = template(&circuit, false)?;
    let witnesses = Parts {
        shape: circuit_shape(&template.sizes(), &template.densities()),
        template,
        parts,
        threads: options.threads(),
    };
    let host = Host::open(options.backend.into(), 0)?;
    let place = host.start(Tier::Resident, [SLOTS, 1], 0, None)?;
    let key = bed::open_key(&options.params())?;
    let mut prepared = phases.time("prepare", || {
        let witnesses = Box::new(witnesses);
        Prepared::new(host.pool(), witnesses, place.backend(), key, None, count)
    })?;
    let alone_ms = phases.time("alone", || {
        let alone = (0..count).map(|_| feed(place.backend(), &mut prepared, 1, 1));
        let alone = alone.map(|made| Ok(device_ms(&made?[0].phases)));
        alone.collect::<Result<Vec<f64>>>()
    })?;
    let before = place.allocations();
    let made = phases.time("replay", || {
        feed(place.backend(), &mut prepared, jobs_parts, SLOTS + 1)
    })?;
    let allocations = place.allocations() - before;
    let figures = figures(&made, &alone_ms, 1)?;
    let name = format!("{}: {jobs_parts} parts replayed from {count}", circuit.id());
    let bytes = [place.device_bytes(), prepared.pinned_bytes()];
    let mut case = case(name, 1, &figures, &made, allocations, bytes);
    // With the first part's upload and the last one's proof.
    case.more.insert("replay_s", phases.of("replay").into());
    Ok(case)
}

/// Parts of the job.
struct Parts {
    template: Template,
    shape: CircuitShape,
    parts: SomeParts,
    threads: usize,
}

/// One after the other: all threads fill each.
impl Witnesses for Parts {
    fn sizes(&self) -> CircuitSizes {
        self.shape.sizes
    }

    fn side_by_side(&self) -> usize {
        1
    }

    fn fill(&self, number: usize, columns: &mut Columns) -> Result<(Vec<Scalar>, CircuitShape)> {
        let part = self.parts.part(number)?;
        let into = into_columns(columns);
        let inputs = fill(&self.template, part.as_ref(), into, self.threads)?;
        Ok((inputs, self.shape.clone()))
    }
}
