//! `scaling`: several devices fed at the same time, each from prepared assignments of its
//! own, beside each of them alone.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use cuzk_gpu::{Phase, PhaseLane};
use cuzk_tests::mixed::Mixed;
use cuzk_tests::record::{Case, Record};
use serde_json::{Value, json};

use super::feed::{Made, feed};
use super::figures::figures;
use super::place::{Host, Place};
use super::prepared::Prepared;
use super::{On, Tier, write};
use crate::numbers;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Folder of the record.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// What proves.
    #[arg(long, value_enum, default_value_t = On::default())]
    backend: On,
    /// Numbers of the devices.
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    devices: Vec<usize>,
    /// Logarithms of the domains to measure.
    #[arg(long, value_parser = numbers::log_size, value_delimiter = ',', default_value = "22,24")]
    log_size: Vec<u32>,
    /// Share of full-size values, in percent, to a tenth.
    #[arg(long, value_parser = numbers::percent, default_value_t = 1.3)]
    full_share: f64,
    /// Where the keys are to be.
    #[arg(long, value_enum, default_value = "resident")]
    tier: Tier,
    /// Proofs that have a place on each device at the same time; one more waits.
    #[arg(long, value_parser = numbers::slots, default_value_t = 2)]
    slots: usize,
    /// Parts of each device in each measurement.
    #[arg(long, default_value_t = 40)]
    parts: usize,
    /// Pairs to measure: all devices, and each alone.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Distinct assignments of each device, by turns.
    #[arg(long, default_value_t = 4)]
    assignments: usize,
    /// Where test keys are made and found again; without it, where temporary files are.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// File, in the folder of the record, for the spans of all devices at once as JSON, of
    /// the last size.
    #[arg(long, value_name = "FILE")]
    spans: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let distinct: BTreeSet<usize> = options.devices.iter().copied().collect();
    ensure!(
        distinct.len() == options.devices.len() && distinct.len() > 1,
        "--devices: want two or more, each once"
    );
    ensure!(options.parts > 1, "--parts: want two or more");
    ensure!(options.pairs > 0, "--pairs: want one or more");
    let list = |values: &[u32]| {
        let words: Vec<String> = values.iter().map(u32::to_string).collect();
        words.join(",")
    };
    let devices: Vec<String> = options.devices.iter().map(usize::to_string).collect();
    let mut record = Record::new(
        "scaling",
        "two devices of one host that are fed at the same time prove at least 1.9 times the \
         parts of one alone, each busy for 95 % of the time",
        format!(
            "cuzk-bench scaling --devices {} --log-size {} --full-share {} --tier {} --slots {} \
             --parts {} --pairs {}{} --out DIR",
            devices.join(","),
            list(&options.log_size),
            options.full_share,
            options.tier.name(),
            options.slots,
            options.parts,
            options.pairs,
            options.backend.argument()
        ),
    );
    let slots = options.slots.to_string();
    record.tuning.insert("device.slots", slots);
    for &log_size in &options.log_size {
        let circuit = Mixed {
            log_size,
            full_per_mille: (options.full_share * 10.0).round() as u32,
        };
        let case = measure(options, circuit, &mut record)?;
        println!("{}", serde_json::to_string_pretty(&case)?);
        record.cases.push(case);
        record.write(&options.out)?;
    }
    println!("{}", record.write(&options.out)?.display());
    Ok(())
}

/// A device with what it proves.
struct Lane {
    device: usize,
    prepared: Prepared,
    place: Place,
}

/// What all devices made at the same time, in the order of the devices.
type Run = Vec<Vec<Made>>;

fn measure(options: &Options, circuit: Mixed, record: &mut Record) -> Result<Case> {
    let mut lanes = Vec::new();
    for &device in &options.devices {
        lanes.push(open(options, circuit, device)?);
    }
    record.machine.gpu = lanes[0].place.device_name();
    // The same witnesses and the same randomness: the same bytes everywhere.
    let first = lanes[0].prepared.expected();
    let agree = lanes.iter().all(|lane| lane.prepared.expected() == first);
    ensure!(agree, "the devices do not give the same proofs");

    let in_flight = options.slots + 1;
    run_on(&mut lanes, 2 * in_flight, in_flight)?;
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    let mut pairs = Vec::new();
    for pair in 0..options.pairs {
        // A B, then B A, so that drift of the machine falls on both.
        for is_together in [pair % 2 == 0, pair % 2 == 1] {
            if is_together {
                together.push(run_on(&mut lanes, options.parts, in_flight)?);
                continue;
            }
            let mut run = Run::new();
            for lane in &mut lanes {
                let lane = std::slice::from_mut(lane);
                run.extend(run_on(lane, options.parts, in_flight)?);
            }
            alone.push(run);
        }
        let all = part_ms(&together[pair])?;
        let each = alone[pair]
            .iter()
            .map(|made| part_ms(std::slice::from_ref(made)));
        let each: Vec<f64> = each.collect::<Result<_>>()?;
        pairs.push((all, mean(each.into_iter())));
    }
    if let Some(file) = &options.spans {
        let made: Vec<_> = together[0].iter().zip(&lanes).collect();
        let lanes: Vec<(String, &[Made])> = made
            .into_iter()
            .map(|(made, lane)| (lane.place.owner(), &made[..]))
            .collect();
        write(&options.out.join(file), &lanes)?;
    }
    let name = format!(
        "2^{}, {} % full scalars, {}, {} devices",
        circuit.log_size,
        options.full_share,
        options.tier.name(),
        lanes.len()
    );
    let mut case = Case::paired(name, "the mean device alone", &pairs);
    case.more.insert("parts", options.parts.into());
    let devices: Result<Vec<Value>> = lanes
        .iter()
        .enumerate()
        .map(|(at, lane)| {
            let mut of = serde_json::Map::new();
            of.insert("device".to_owned(), lane.device.into());
            for (suffix, runs) in [("", &together), ("_alone", &alone)] {
                let figures: Vec<_> = runs
                    .iter()
                    .map(|run: &Run| figures(&run[at], &[1.0], 1))
                    .collect::<Result<_>>()?;
                let mut put = |name: &str, value: f64| {
                    of.insert(
                        format!("{name}{suffix}"),
                        json!((value * 1e4).round() / 1e4),
                    );
                };
                put("busy", mean(figures.iter().map(|figures| figures.busy)));
                let rates = figures.iter().map(|figures| figures.upload_gb_per_s);
                put("upload_gb_per_s", mean(rates));
            }
            Ok(of.into())
        })
        .collect();
    case.more.insert("devices", devices?.into());
    Ok(case)
}

fn open(options: &Options, circuit: Mixed, device: usize) -> Result<Lane> {
    let host = Host::open(options.backend, device)?;
    let mut prepared = host.prepare(circuit, options.assignments, options.keys.as_deref())?;
    let place = host.start(options.tier, [options.slots, 1], prepared.key_bytes(), None)?;
    prepared.expect_alone(place.backend())?;
    Ok(Lane {
        device,
        prepared,
        place,
    })
}

/// Feeds all of these devices at the same time.
fn run_on(lanes: &mut [Lane], parts: usize, in_flight: usize) -> Result<Run> {
    std::thread::scope(|scope| {
        let fed: Vec<_> = lanes
            .iter_mut()
            .map(
                |Lane {
                     prepared, place, ..
                 }| {
                    let place: &Place = place;
                    scope.spawn(move || feed(place.backend(), prepared, parts, in_flight))
                },
            )
            .collect();
        fed.into_iter()
            .map(|thread| thread.join().ok().context("a feeder panicked")?)
            .collect()
    })
}

/// Milliseconds a part, from the first kernel on any device to the last on any.
fn part_ms(run: &[Vec<Made>]) -> Result<f64> {
    let is_kernel = |phase: &&Phase| phase.lane == PhaseLane::Compute;
    let kernels = run.iter().flatten().flat_map(|made| &made.phases);
    let kernels: Vec<(Instant, Instant)> = kernels
        .filter(is_kernel)
        .map(|phase| (phase.start, phase.end))
        .collect();
    let first = kernels.iter().map(|kernel| kernel.0).min();
    let last = kernels.iter().map(|kernel| kernel.1).max();
    let (first, last) = first.zip(last).context("no kernel")?;
    let parts: usize = run.iter().map(Vec::len).sum();
    Ok((last - first).as_secs_f64() * 1e3 / parts as f64)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| {
        (sum + value, count + 1)
    });
    sum / count as f64
}
