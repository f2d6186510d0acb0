//! The synthesis of one part, alone: no key, no memory of a pool, no proof.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use blstrs::Scalar;
use cuzk_core::config::{Sizing, Synthesis};
use cuzk_core::{Config, Part};
use cuzk_filecoin::FilecoinCircuit;
use cuzk_synth::{AssignColumns, Sizes, Template, assign, assign_growing, count};

use super::{Options, Run, Runner, Timer, job};
use crate::synth::counting::{Cost, counted};
use crate::synth::segments::{fill, template};

/// What an engine would do with a setting.
#[derive(Clone, Copy)]
struct Way {
    synthesis: Synthesis,
    sizing: Sizing,
    with_c: bool,
    threads: usize,
}

/// Columns that a pool would have: allocated once, and touched.
struct Owned {
    a: Vec<Scalar>,
    b: Vec<Scalar>,
    c: Vec<Scalar>,
    aux: Vec<Scalar>,
}

impl Owned {
    fn new(sizes: &Sizes) -> Self {
        let ones = |len| vec![Scalar::from(1); len];
        Self {
            a: ones(sizes.constraints),
            b: ones(sizes.constraints),
            c: ones(sizes.constraints),
            aux: ones(sizes.aux),
        }
    }

    fn columns(&mut self, with_c: bool) -> AssignColumns<'_> {
        AssignColumns {
            a: &mut self.a,
            b: &mut self.b,
            c: with_c.then_some(&mut self.c[..]),
            aux: &mut self.aux,
        }
    }

    fn is_like(&self, other: &Self, with_c: bool) -> bool {
        self.a == other.a
            && self.b == other.b
            && self.aux == other.aux
            && (!with_c || self.c == other.c)
    }
}

/// Makes what all settings share and lets them run.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let workload = job::of(&options.circuit, options.parts)?;
    let part = workload.part(0)?;
    let ways = ways(options)?;
    let templates = templates(options, &ways)?;
    let sizes = count(|pass| workload.circuit().synthesize_blank(pass))?.sizes;
    let mut expected = Owned::new(&sizes);
    let whole = assign(expected.columns(true), |pass| part.synthesize_whole(pass))?;
    ensure!(whole.sizes == sizes, "the witness has other sizes");
    let mut owned = Owned::new(&sizes);
    let mut costs: BTreeMap<usize, Cost> = BTreeMap::new();
    drive(&mut |setting, spoil| {
        let way = ways[setting];
        let template = templates[usize::from(way.with_c)].as_ref();
        let timer = Timer::start();
        let mut inputs = once(way, part.as_ref(), template, &mut owned)?;
        let mut metrics = timer.told();
        if spoil {
            inputs.pop();
        }
        ensure!(
            inputs == whole.inputs && owned.is_like(&expected, way.with_c),
            "other columns than the whole circuit's"
        );
        let cost = match costs.get(&setting) {
            Some(cost) => cost,
            None => {
                // Not timed: counting slows who allocates most.
                let run = || once(way, part.as_ref(), template, &mut owned);
                let (done, cost) = counted(run);
                done?;
                costs.entry(setting).or_insert(cost)
            }
        };
        metrics.extend([
            ("allocations".to_owned(), cost.allocations as f64),
            ("peak_bytes".to_owned(), cost.peak_bytes as f64),
            (
                "reallocated_bytes".to_owned(),
                cost.reallocated_bytes as f64,
            ),
        ]);
        // Some systems have the counter and do not count.
        if let Some(instructions) = cost.instructions.filter(|count| *count > 0) {
            metrics.insert("instructions".to_owned(), instructions as f64);
        }
        let used = BTreeMap::from([("threads".to_owned(), way.threads.to_string())]);
        Ok(Run { metrics, used })
    })
}

fn ways(options: &Options) -> Result<Vec<Way>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut ways = Vec::new();
    for switches in options.switches()? {
        let config = switches.apply(Config::new("keys".into()), &[])?;
        ways.push(Way {
            synthesis: config.tuning.synthesis,
            sizing: config.tuning.sizing,
            with_c: !config.tuning.c_from_ab,
            threads: match (config.tuning.synthesis, config.tuning.sizing) {
                (Synthesis::Segments, Sizing::Exact) if config.threads == 0 => cores,
                (Synthesis::Segments, Sizing::Exact) => config.threads,
                // The whole circuit is one thread's.
                _ => 1,
            },
        });
    }
    Ok(ways)
}

/// Stored rows without and with those of c, where a setting wants them.
fn templates(options: &Options, ways: &[Way]) -> Result<[Option<Template>; 2]> {
    let mut templates = [None, None];
    for with_c in [false, true] {
        let is_used = |way: &Way| {
            way.with_c == with_c
                && way.synthesis == Synthesis::Segments
                && way.sizing == Sizing::Exact
        };
        if ways.iter().any(is_used) {
            let circuit: FilecoinCircuit = options
                .circuit
                .parse()
                .context("segments are for circuits that repeat")?;
            templates[usize::from(with_c)] = Some(template(&circuit, with_c)?);
        }
    }
    Ok(templates)
}

/// The part's columns, and its public inputs.
fn once(
    way: Way,
    part: &dyn Part,
    template: Option<&Template>,
    owned: &mut Owned,
) -> Result<Vec<Scalar>> {
    let columns = owned.columns(way.with_c);
    match (way.sizing, way.synthesis) {
        (Sizing::Exact, Synthesis::Segments) => {
            let Some(template) = template else {
                bail!("no stored rows");
            };
            fill(template, part, columns, way.threads)
        }
        (Sizing::Exact, Synthesis::Whole) => {
            Ok(assign(columns, |pass| part.synthesize_whole(pass))?.inputs)
        }
        // They grow and are copied, as the engine does.
        (Sizing::Growing, _) => {
            let (grown, assigned) = assign_growing(way.with_c, |pass| part.synthesize_whole(pass))?;
            columns.a.copy_from_slice(&grown.a);
            columns.b.copy_from_slice(&grown.b);
            columns.aux.copy_from_slice(&grown.aux);
            if let Some(c) = columns.c {
                c.copy_from_slice(&grown.c);
            }
            Ok(assigned.inputs)
        }
    }
}
