//! `replay`: feeds one device from prepared assignments, as fast as it takes them, and says
//! what it did with its time. Nothing is synthesised meanwhile and no buffer allocated:
//! what stands still here is the device's own fault.

pub(crate) mod feed;
pub(crate) mod figures;
pub(crate) mod place;
pub(crate) mod prepared;
pub(crate) mod scaling;
pub(crate) mod witnesses;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use cuzk_gpu::{KeyTier, Phase, PhaseLane};
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record, Series};
use serde_json::Value;

use feed::{Made, feed};
use figures::{Figures, figures};
use place::{Allocations, Host, Place};
use prepared::Prepared;

use crate::numbers;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What proves.
    #[arg(long, value_enum, default_value_t = On::default())]
    backend: On,
    /// Logarithms of the domains to measure.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "22,24")]
    log_size: Vec<u32>,
    /// Shares of full-size values to measure, in percent, to a tenth.
    #[arg(long, value_parser = numbers::percent, value_delimiter = ',', default_value = "1.3")]
    full_share: Vec<f64>,
    /// Where the key is to be.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "resident")]
    tier: Vec<Tier>,
    /// Proofs that have a place on the device at the same time, or twice the batch where
    /// there is one and that is more; one more waits.
    #[arg(long, value_parser = numbers::slots, value_delimiter = ',', default_value = "2")]
    slots: Vec<usize>,
    /// Parts that share each pass of a key that is streamed.
    #[arg(long, value_parser = numbers::batch, value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// Parts of each case.
    #[arg(long, default_value_t = 64)]
    parts: usize,
    /// Parts that are proved alone, before, for their time.
    #[arg(long, default_value_t = 5)]
    alone: usize,
    /// Distinct assignments, by turns. Fewer than are waiting for their upload or on it
    /// would make the device wait.
    #[arg(long, default_value_t = 4)]
    assignments: usize,
    /// Number of the device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// GiB of the device's memory to take; all that is free without it.
    #[arg(long)]
    device_gib: Option<u64>,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// File, in the folder of the record, for the spans of the measured parts as JSON; with
    /// several cases one each, the case in its name.
    #[arg(long, value_name = "FILE")]
    spans: Option<PathBuf>,
}

/// What proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    /// The processor.
    #[cfg_attr(not(feature = "cuda"), default)]
    Cpu,
    /// A device, in programs built for it.
    #[cfg(feature = "cuda")]
    #[default]
    Cuda,
}

impl On {
    /// What a record's command says of it, where it is not what a record is of by itself.
    fn argument(self) -> &'static str {
        match self {
            Self::Cpu => " --backend cpu",
            #[cfg(feature = "cuda")]
            Self::Cuda => "",
        }
    }
}

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// On the device; of the processor, in its file.
    Resident,
    /// In page-locked memory, from which each part's pass brings it.
    Pinned,
    /// In its file.
    File,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Resident => "resident",
            Self::Pinned => "pinned",
            Self::File => "file",
        }
    }

    /// What a proof says of it.
    pub(crate) fn of_proof(self) -> KeyTier {
        match self {
            Self::Resident => KeyTier::Resident,
            Self::Pinned => KeyTier::Pinned,
            Self::File => KeyTier::File,
        }
    }
}

/// One way to feed.
#[derive(Clone, Copy, Debug)]
struct Setting {
    circuit: Mixed,
    tier: Tier,
    slots: usize,
    batch: usize,
}

impl Setting {
    fn case(&self) -> String {
        let Self {
            circuit,
            tier,
            slots,
            batch,
        } = self;
        let share = f64::from(circuit.full_per_mille) / 10.0;
        let passes = match batch {
            1 => String::new(),
            batch => format!(", {batch} parts a pass"),
        };
        format!(
            "2^{}, {share} % full scalars, {}, {slots} slots{passes}",
            circuit.log_size,
            tier.name()
        )
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.parts > 0 && options.alone > 0, "no parts");
    ensure!(options.assignments > 0, "no assignments");
    let mut record = new_record(options);
    let host = Host::open(options.backend, options.device)?;
    let mut failures = 0;
    for &log_size in &options.log_size {
        for &share in &options.full_share {
            let full_per_mille = (share * 10.0).round() as u32;
            let circuit = Mixed {
                log_size,
                full_per_mille,
            };
            let mut prepared =
                host.prepare(circuit, options.assignments, options.keys.as_deref())?;
            for setting in settings(options, circuit) {
                let measured = measure(options, &host, &mut prepared, setting, &mut record);
                let case = measured.unwrap_or_else(|error| {
                    failures += 1;
                    let mut case = Case::failed(setting.case());
                    case.more.insert("failed", format!("{error:#}").into());
                    case
                });
                println!("{}", serde_json::to_string_pretty(&case)?);
                record.cases.push(case);
                record.write(&options.out)?;
                prepared.recover()?;
            }
        }
    }
    println!("{}", record.write(&options.out)?.display());
    if failures > 0 {
        bail!("{failures} cases failed");
    }
    Ok(())
}

/// The ways to feed one circuit.
fn settings(options: &Options, circuit: Mixed) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &tier in &options.tier {
        for &slots in &options.slots {
            // A key that stays has no passes.
            let batches = match tier {
                Tier::Resident => &[1][..],
                _ => &options.batch,
            };
            settings.extend(batches.iter().map(|&batch| Setting {
                circuit,
                tier,
                slots: match batch {
                    1 => slots,
                    _ => slots.max(2 * batch),
                },
                batch,
            }));
        }
    }
    settings
}

fn new_record(options: &Options) -> Record {
    fn list<T: ToString>(values: &[T]) -> String {
        let words: Vec<String> = values.iter().map(T::to_string).collect();
        words.join(",")
    }
    let tiers: Vec<&str> = options.tier.iter().map(|tier| tier.name()).collect();
    let mut command = format!(
        "cuzk-bench replay --log-size {} --full-share {} --tier {} --slots {} --batch {} \
         --parts {}{}",
        list(&options.log_size),
        list(&options.full_share),
        tiers.join(","),
        list(&options.slots),
        list(&options.batch),
        options.parts,
        options.backend.argument(),
    );
    if let Some(gib) = options.device_gib {
        command += &format!(" --device-gib {gib}");
    }
    let mut record = Record::new(
        "utilisation",
        "a device that is fed from prepared assignments computes for 97 % of the time from its \
         first kernel to its last, makes 0.95 parts in the time of one alone, and takes at most \
         1.10 times the median for 95 % of them, with no allocation after it has warmed up and \
         95 % of the uploads behind kernels",
        command + " --out DIR",
    );
    let words = |values: &[usize]| list(values).replace(',', ", ");
    let tuning = &mut record.tuning;
    tuning.insert("device.slots", words(&options.slots));
    tuning.insert("tuning.key_batch", words(&options.batch));
    record
}

/// Proves every assignment alone, then feeds them.
fn measure(
    options: &Options,
    host: &Host,
    prepared: &mut Prepared,
    setting: Setting,
    record: &mut Record,
) -> Result<Case> {
    let Setting {
        tier, slots, batch, ..
    } = setting;
    let place = host.start(
        tier,
        [slots, batch],
        prepared.key_bytes(),
        options.device_gib,
    )?;
    record.machine.gpu = place.device_name().or(record.machine.gpu.take());
    prepared.expect_alone(place.backend())?;
    let mut alone = Vec::new();
    for _ in 0..options.alone {
        let made = feed(place.backend(), prepared, 1, 1)?;
        alone.push(figures::device_ms(&made[0].phases));
    }
    // Every slot has had its turn after this.
    feed(place.backend(), prepared, 2 * (slots + 1), slots + 1)?;
    let before = place.allocations();
    let made = feed(place.backend(), prepared, options.parts, slots + 1)?;
    let allocations = place.allocations() - before;
    let wanted = tier.of_proof();
    if let Some(part) = made
        .iter()
        .position(|made| made.tier.is_some_and(|at| at != wanted))
    {
        bail!("part {part} was proved with its key {:?}", made[part].tier);
    }
    if let Some(file) = &options.spans {
        write_spans(options, file, &setting, &place, &made)?;
    }
    let figures = figures(&made, &alone, batch)?;
    let place_bytes = [place.device_bytes(), prepared.pinned_bytes()];
    let name = setting.case();
    Ok(case(name, batch, &figures, &made, allocations, place_bytes))
}

/// The case of parts that were fed, `batch` of them to a pass of their key.
pub(crate) fn case(
    name: String,
    batch: usize,
    figures: &Figures,
    made: &[Made],
    allocations: Allocations,
    [device_bytes, pinned_bytes]: [u64; 2],
) -> Case {
    let share = |value: f64| Value::from((value * 1e4).round() / 1e4);
    let ms = |value: f64| Value::from((value * 1e3).round() / 1e3);
    let mut case = Case::alone(name, Series::new(figures.part_ms.clone(), "ms"));
    case.phases_ms = mean_phases(made);
    case.pcie_bytes = Some(figures.pcie_bytes / made.len() as u64);
    case.peak = BTreeMap::from([
        ("device_bytes", device_bytes),
        ("pinned_bytes", pinned_bytes),
    ]);
    let part_is = match batch {
        1 => "from one part's last kernel to the next one's".to_owned(),
        n => format!("from one part's last kernel to that of the {n}th after it, over {n}"),
    };
    case.more = BTreeMap::from([
        ("part_is", part_is.into()),
        ("parts", made.len().into()),
        ("busy", share(figures.busy)),
        ("longest_gap_ms", ms(figures.longest_gap_ms)),
        ("wall_s", ms(figures.wall_ms / 1e3)),
        ("alone_ms", ms(figures.alone_ms)),
        ("rate_of_alone", share(figures.rate_of_alone)),
        ("p95_over_median", share(figures.p95_over_median)),
        (
            "reply_p95_over_median",
            share(figures.reply_p95_over_median),
        ),
        ("uploads_overlapped", share(figures.uploads_overlapped)),
        ("upload_gb_per_s", ms(figures.upload_gb_per_s)),
        (
            "key_bytes_per_part",
            (figures.key_bytes / made.len() as u64).into(),
        ),
        ("allocations_after_warmup", allocations.sum().into()),
        ("device_allocations", allocations.device.into()),
        ("page_locked_allocations", allocations.page_locked.into()),
    ]);
    case
}

/// Milliseconds by phase, of the mean part.
fn mean_phases(made: &[Made]) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::<String, f64>::new();
    for phase in made.iter().flat_map(|made| &made.phases) {
        *sums.entry(phase.name.to_owned()).or_default() += phase.length_ms();
    }
    let parts = made.len() as f64;
    sums.values_mut()
        .for_each(|ms| *ms = (*ms / parts * 1e3).round() / 1e3);
    sums
}

/// Writes the spans of all parts, from the first submission on.
fn write_spans(
    options: &Options,
    file: &std::path::Path,
    setting: &Setting,
    place: &Place,
    made: &[Made],
) -> Result<()> {
    let cases = [
        options.log_size.len(),
        options.full_share.len(),
        options.tier.len(),
        options.slots.len(),
        options.batch.len(),
    ];
    let name = match cases.iter().product() {
        1usize => file.to_owned(),
        _ => {
            let Setting {
                circuit,
                tier,
                slots,
                batch,
            } = setting;
            let stem = file.file_stem().context("a name of a file")?;
            file.with_file_name(format!(
                "{}-{}-{}-{}-{slots}-{batch}.json",
                stem.to_string_lossy(),
                circuit.log_size,
                circuit.full_per_mille,
                tier.name(),
            ))
        }
    };
    write(&options.out.join(name), &[(place.owner(), made)])
}

/// Writes the spans of what each owner made, from the first submission on.
fn write(path: &std::path::Path, made: &[(String, &[Made])]) -> Result<()> {
    let all = made.iter().flat_map(|(_, made)| *made);
    let begin = all.map(|made| made.submitted).min();
    let begin = begin.context("nothing was proved")?;
    let spans: Vec<Value> = made
        .iter()
        .flat_map(|(owner, made)| made.iter().map(move |made| (owner, made)))
        .enumerate()
        .flat_map(|(part, (owner, made))| {
            let phases = made.phases.iter();
            phases.map(move |phase| span(owner, begin, part, phase))
        })
        .collect();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, serde_json::to_string(&spans)? + "\n")
        .with_context(|| path.display().to_string())
}

fn span(owner: &str, begin: std::time::Instant, part: usize, phase: &Phase) -> Value {
    let ms = |at: std::time::Instant| {
        (at.saturating_duration_since(begin).as_secs_f64() * 1e6).round() / 1e3
    };
    let lane = match phase.lane {
        PhaseLane::Host => "host".to_owned(),
        lane => format!("{owner} {}", lane.name()),
    };
    let mut span = serde_json::json!({
        "lane": lane,
        "name": phase.name,
        "part": part,
        "start_ms": ms(phase.start),
        "end_ms": ms(phase.end),
    });
    if let Some(bytes) = phase.bytes {
        span["bytes"] = bytes.into();
    }
    span
}
