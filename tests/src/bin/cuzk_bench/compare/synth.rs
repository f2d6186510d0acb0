//! The synthesis of one part, alone: no key, no memory of a pool, no proof.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use blstrs::Scalar;
use cuzk_budget::Budget;
use cuzk_core::config::{HugePages, Sizing, Synthesis};
use cuzk_core::{ColumnMemory, Config, Part};
use cuzk_filecoin::FilecoinCircuit;
use cuzk_gpu::{CColumn, ColumnLayout, Columns};
use cuzk_synth::{AssignColumns, Sizes, Template, assign, assign_growing, count};

use super::{Options, Run, Runner, Timer, job, pages};
use crate::bed::buffers;
use crate::synth::counting::{Cost, counted};
use crate::synth::segments::{fill, template};

/// What an engine would do with a setting.
#[derive(Clone, Copy)]
struct Way {
    synthesis: Synthesis,
    sizing: Sizing,
    pages: HugePages,
    with_c: bool,
    threads: usize,
}

/// Columns of an engine's memory on such pages: taken once, and touched.
fn columns_on(pages: HugePages, sizes: &Sizes) -> Result<Columns> {
    let threads = std::thread::available_parallelism()?;
    let memory = ColumnMemory::on_pages(Budget::new(1 << 40), pages, threads);
    let layout = ColumnLayout {
        rows: sizes.constraints,
        aux: sizes.aux,
        c: CColumn::Synthesised,
    };
    let bytes: Vec<usize> = layout.lens().iter().map(|len| len * 32).collect();
    let buffers = buffers(memory.heap_pool(), &bytes)?;
    Ok(Columns::from_buffers(buffers, &layout))
}

/// Where to write.
fn places(columns: &mut Columns, with_c: bool) -> AssignColumns<'_> {
    let c = columns.c.as_mut().filter(|_| with_c);
    AssignColumns {
        a: columns.a.scalars_mut(),
        b: columns.b.scalars_mut(),
        c: c.map(|c| c.scalars_mut()),
        aux: columns.aux.scalars_mut(),
    }
}

/// The columns, with c where it is wanted.
fn scalars(columns: &Columns, with_c: bool) -> impl Iterator<Item = &[Scalar]> {
    let c = columns.c.as_ref().filter(|_| with_c);
    let all = [Some(&columns.a), Some(&columns.b), c, Some(&columns.aux)];
    all.into_iter().flatten().map(|column| column.scalars())
}

/// Where they lie.
fn addresses(columns: &Columns) -> Vec<Range<usize>> {
    scalars(columns, true)
        .map(<[Scalar]>::as_ptr_range)
        .map(|range| range.start.addr()..range.end.addr())
        .collect()
}

/// Makes what all settings share and lets them run.
pub(super) fn with(options: &Options, drive: impl FnOnce(Runner<'_>) -> Result<()>) -> Result<()> {
    let workload = job::of(&options.circuit, options.parts)?;
    let part = workload.part(0)?;
    let ways = ways(options)?;
    let templates = templates(options, &ways)?;
    let sizes = count(|pass| workload.circuit().synthesize_blank(pass))?.sizes;
    let mut expected = columns_on(HugePages::Auto, &sizes)?;
    let whole = assign(places(&mut expected, true), |pass| {
        part.synthesize_whole(pass)
    })?;
    ensure!(whole.sizes == sizes, "the witness has other sizes");
    // Settings with the same pages have the same columns, as one engine has.
    let mut owned: Vec<(HugePages, Columns)> = Vec::new();
    for way in &ways {
        if owned.iter().all(|(pages, _)| *pages != way.pages) {
            owned.push((way.pages, columns_on(way.pages, &sizes)?));
        }
    }
    let mut costs: BTreeMap<usize, Cost> = BTreeMap::new();
    drive(&mut |setting, spoil| {
        let way = ways[setting];
        let template = templates[usize::from(way.with_c)].as_ref();
        let owned = owned.iter_mut().find(|(pages, _)| *pages == way.pages);
        let (_, owned) = owned.context("columns of each kind")?;
        let timer = Timer::start();
        let mut inputs = once(way, part.as_ref(), template, owned)?;
        let mut metrics = timer.told();
        if spoil {
            inputs.pop();
        }
        ensure!(
            inputs == whole.inputs && scalars(owned, way.with_c).eq(scalars(&expected, way.with_c)),
            "other columns than the whole circuit's"
        );
        let cost = match costs.get(&setting) {
            Some(cost) => cost,
            None => {
                // Not timed: counting slows who allocates most.
                let run = || once(way, part.as_ref(), template, owned);
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
        if let Some(bytes) = pages::huge_bytes(&addresses(owned)) {
            metrics.insert("huge_bytes".to_owned(), bytes as f64);
        }
        let used = BTreeMap::from([
            ("threads".to_owned(), way.threads.to_string()),
            ("huge_pages".to_owned(), pages::offered()),
        ]);
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
            pages: config.tuning.huge_pages,
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
    owned: &mut Columns,
) -> Result<Vec<Scalar>> {
    let columns = places(owned, way.with_c);
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
