//! Every row of a request's last part checked, a segment at a time: columns live no longer than it takes
//! to check them, so that a part of 2^27 rows fits a small machine.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::{Result, ensure};
use blstrs::Scalar;
use cuzk_core::{CircuitSpec, Part, Workload};
use cuzk_filecoin::FilecoinCircuit;
use cuzk_synth::{AssignColumns, Extent, FilledSegment, Template};
use cuzk_tests::record::{Case, Record, Series};

use super::segments::{in_threads, template};
use super::{core_seconds, request};
use crate::one_proof::peak_anonymous_bytes;

pub(crate) fn run(circuit: FilecoinCircuit, threads: usize) -> Result<Record> {
    let id = circuit.id();
    let mut record = Record::new(
        format!("synth-check-{id}"),
        "all rows of the last part hold, synthesised in segments whose columns are dropped as they \
         are checked",
        format!("cuzk-bench synth --check {id} --threads {threads} --out DIR"),
    );
    let (workload, json) = request(circuit)?;
    drop(json);
    // The last of several, so that its challenges have all bits of the partition.
    let index = workload.part_count() - 1;
    let part = workload.part(index)?;
    let begun = (Instant::now(), core_seconds()?);
    let template = template(&circuit, true)?;
    let surveyed = (Instant::now(), core_seconds()?);
    eprintln!(
        "{id}: surveyed in {:.1} s",
        (surveyed.0 - begun.0).as_secs_f64()
    );
    let inputs = check_all(&template, part.as_ref(), threads)?;
    let checked = (Instant::now(), core_seconds()?);
    ensure!(
        inputs[1..] == workload.public_inputs(index)?,
        "other public inputs"
    );

    let constraints = template.sizes().constraints;
    let ms = (checked.0 - surveyed.0).as_secs_f64() * 1000.0;
    let phases = [
        ("survey", (surveyed.0 - begun.0).as_secs_f64() * 1000.0),
        ("synthesis_and_check", ms),
    ];
    record.cases.push(Case {
        phases_ms: phases
            .map(|(name, ms)| (name.to_owned(), ms.round()))
            .into(),
        peak: BTreeMap::from([("host_bytes", peak_anonymous_bytes()?)]),
        more: BTreeMap::from([
            ("constraints", constraints.into()),
            ("part", index.into()),
            ("segments", part.segments().into()),
            ("template_bytes", template.bytes().into()),
            ("survey_core_s", rounded(surveyed.1 - begun.1).into()),
            ("core_s", rounded(checked.1 - surveyed.1).into()),
        ]),
        ..Case::alone(
            format!("{id}: one part, {constraints} rows checked, {threads} threads"),
            Series::new(vec![ms], "ms"),
        )
    });
    Ok(record)
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// The inputs of a part all of whose rows hold.
fn check_all(template: &Template, part: &dyn Part, threads: usize) -> Result<Vec<Scalar>> {
    let segments = part.segments();
    let each = template.blocks() / segments;
    ensure!(
        each * segments == template.blocks(),
        "segments divide the blocks"
    );
    let ranges = (0..segments).map(|segment| segment * each..(segment + 1) * each);
    let filled = in_threads(threads, ranges.collect(), |segment, blocks| {
        check(template, part, segment, blocks)
    })?;
    // The rows of the inputs hold by their form: they say input * 0 = 0.
    let mut inputs = Vec::new();
    for segment in filled {
        let shared = if inputs.is_empty() {
            0
        } else {
            template.shared().inputs
        };
        inputs.extend_from_slice(&segment.into_inputs()[shared..]);
    }
    Ok(inputs)
}

fn check(
    template: &Template,
    part: &dyn Part,
    segment: usize,
    blocks: Range<usize>,
) -> Result<FilledSegment> {
    let Extent {
        aux, constraints, ..
    } = template.block();
    let mut own = Rows::new(constraints * blocks.len(), aux * blocks.len());
    let shared = template.shared();
    let mut shared = (segment == 0).then(|| Rows::new(shared.constraints, shared.aux));
    let columns = template.alone(own.columns(), shared.as_mut().map(Rows::columns), blocks)?;
    let filled = template.fill(columns, |pass| part.synthesize(segment, pass))?;
    for rows in [shared, Some(own)].into_iter().flatten() {
        let fails = rows.fails();
        ensure!(
            fails.is_none(),
            "segment {segment}: row {fails:?} does not hold"
        );
    }
    eprintln!("segment {segment} holds");
    Ok(filled)
}

struct Rows {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    c: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Rows {
    fn new(constraints: usize, aux: usize) -> Self {
        let zeros = |len| vec![Scalar::from(0); len];
        Self {
            a: zeros(constraints),
            b: zeros(constraints),
            c: zeros(constraints),
            aux: zeros(aux),
        }
    }

    fn columns(&mut self) -> AssignColumns<'_> {
        AssignColumns {
            a: &mut self.a,
            b: &mut self.b,
            c: Some(&mut self.c),
            aux: &mut self.aux,
        }
    }

    /// The first row that does not hold.
    fn fails(&self) -> Option<usize> {
        let rows = self.a.iter().zip(&self.b).zip(&self.c);
        rows.into_iter().position(|((a, b), c)| *a * b != *c)
    }
}
