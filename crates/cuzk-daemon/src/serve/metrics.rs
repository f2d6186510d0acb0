//! Everything that is counted, as Prometheus reads it.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use cuzk_core::Engine;
use cuzk_core::timeline::{Sums, Unit};

use super::durations::BUCKET_SECONDS;
use super::intake::Intake;
use super::jobs::Jobs;

/// The metrics page.
pub(super) fn text(engine: &Engine, jobs: &Jobs, intake: &Intake, uptime: Duration) -> String {
    let mut page = Page(String::new());
    let counted = engine.metrics();
    for (name, what, counter) in [
        (
            "proofs_completed",
            "Jobs that ended with a proof.",
            &counted.jobs_completed,
        ),
        (
            "proofs_failed",
            "Jobs that ended with an error.",
            &counted.jobs_failed,
        ),
        (
            "proofs_cancelled",
            "Jobs that were given up.",
            &counted.jobs_cancelled,
        ),
        (
            "retries",
            "Parts that were tried again.",
            &counted.parts_retried,
        ),
        (
            "stages_given_up",
            "Stages that took longer than their limit.",
            &counted.stages_given_up,
        ),
        (
            "verification_failures",
            "Proofs that did not verify and did not leave.",
            &counted.verification_failures,
        ),
        (
            "hint_misses",
            "Circuits that outgrew their hint.",
            &counted.hint_misses,
        ),
        (
            "cuts_refused",
            "Circuits that were said to repeat, and do not.",
            &counted.cuts_refused,
        ),
        (
            "placement_refused",
            "Parts that were given ordinary memory for page-locked.",
            &counted.placements_refused,
        ),
        (
            "tiers_lowered",
            "Parts whose key stayed in its file for want of room.",
            &counted.tiers_lowered,
        ),
    ] {
        page.one("counter", &format!("{name}_total"), what, counter.count());
    }
    page.labelled(
        "synthesis_total",
        "Parts synthesised, by how.",
        "synthesis",
        [
            ("segments", counted.syntheses_cut.count()),
            ("whole", counted.syntheses_whole.count()),
        ],
    );
    page.labelled(
        "synthesis_instead_total",
        "Parts synthesised whole although segments were asked for, by why.",
        "why",
        counted.syntheses_instead.counts(),
    );
    page.labelled(
        "placement_total",
        "Parts proved, by where their columns were read.",
        "placement",
        counted.placements.counts(),
    );
    page.one(
        "gauge",
        "uptime_seconds",
        "Since the start.",
        uptime.as_secs(),
    );

    let load = jobs.load();
    let pending: usize = load.iter().map(|(_, load)| load.pending).sum();
    let running: usize = load.iter().map(|(_, load)| load.running).sum();
    page.one("gauge", "queue_depth", "Jobs that wait.", pending);
    page.one("gauge", "running_jobs", "Jobs that are worked on.", running);
    let devices = engine.devices();
    let lost = devices.iter().filter(|state| state.lost.is_some()).count();
    page.one(
        "gauge",
        "gpu_workers",
        "Devices that prove, besides the processor.",
        devices.len() - lost,
    );
    page.one(
        "gauge",
        "gpu_lost",
        "Devices that are out of service.",
        lost,
    );

    let usage = engine.budget().usage();
    let limit = usage.limit_bytes;
    page.one(
        "gauge",
        "budget_limit_bytes",
        "Memory that may be counted.",
        limit,
    );
    page.one(
        "gauge",
        "budget_used_bytes",
        "Memory that is counted.",
        usage.used_bytes,
    );
    page.one(
        "gauge",
        "budget_idle_bytes",
        "Counted memory that nobody uses.",
        usage.idle_bytes,
    );
    page.one(
        "gauge",
        "budget_peak_bytes",
        "The most that was counted.",
        usage.peak_bytes,
    );
    page.one(
        "gauge",
        "budget_waiters",
        "Requests that wait for memory.",
        usage.waiters,
    );
    let memory = engine.memory();
    page.one(
        "gauge",
        "pinned_bytes",
        "Memory that is page-locked.",
        memory.page_locked_bytes(),
    );
    page.one(
        "gauge",
        "pinned_limit_bytes",
        "Memory that may be page-locked.",
        memory.page_locked_limit_bytes(),
    );
    let pinned_allocations = memory
        .page_locked_pool()
        .map(|pool| pool.stats().allocations);
    page.one(
        "counter",
        "pinned_allocations_total",
        "Page-locked buffers allocated.",
        pinned_allocations.unwrap_or(0),
    );
    page.one(
        "gauge",
        "requests_bytes",
        "Requests that are read, wait or run.",
        intake.held_bytes(),
    );
    page.one(
        "gauge",
        "requests_limit_bytes",
        "What requests may hold together.",
        intake.limit_bytes(),
    );
    page.times(&engine.sums());
    page.durations(jobs);
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, kind: &str, name: &str, what: &str) {
        self.line(format_args!("# HELP cuzk_{name} {what}"));
        self.line(format_args!("# TYPE cuzk_{name} {kind}"));
    }

    fn one(&mut self, kind: &str, name: &str, what: &str, value: impl Display) {
        self.head(kind, name, what);
        self.line(format_args!("cuzk_{name} {value}"));
    }

    fn labelled<const N: usize>(
        &mut self,
        name: &str,
        what: &str,
        label: &str,
        counts: [(&str, u64); N],
    ) {
        self.head("counter", name, what);
        for (value, count) in counts {
            self.line(format_args!("cuzk_{name}{{{label}=\"{value}\"}} {count}"));
        }
    }

    /// Where the time went.
    fn times(&mut self, sums: &Sums) {
        self.one(
            "counter",
            "spans_dropped_total",
            "Spans of the timeline that are not kept any more.",
            sums.dropped,
        );
        let name = "stage_seconds_total";
        self.head("counter", name, "Time spent, by what was done.");
        for of in &sums.stages {
            let (stage, seconds) = (of.stage, of.seconds);
            self.line(format_args!("cuzk_{name}{{stage=\"{stage}\"}} {seconds}"));
        }
        let name = "stage_spans_total";
        self.head("counter", name, "How often it was done.");
        for of in &sums.stages {
            let (stage, count) = (of.stage, of.count);
            self.line(format_args!("cuzk_{name}{{stage=\"{stage}\"}} {count}"));
        }
        let device = |unit: Unit| match unit {
            Unit::Cpu => "cpu".to_owned(),
            Unit::Device(ordinal) => ordinal.to_string(),
        };
        let name = "device_busy_seconds_total";
        self.head("counter", name, "Time in which a device computed.");
        for of in &sums.units {
            let (device, busy) = (device(of.unit), of.busy);
            self.line(format_args!("cuzk_{name}{{device=\"{device}\"}} {busy}"));
        }
        let name = "device_gap_seconds_total";
        self.head(
            "counter",
            name,
            "Time between kernels, by what everybody did; told eight stretches of work later.",
        );
        for of in &sums.units {
            let device = device(of.unit);
            for (reason, seconds) in of.gaps {
                let reason = reason.name();
                self.line(format_args!(
                    "cuzk_{name}{{device=\"{device}\",reason=\"{reason}\"}} {seconds}"
                ));
            }
        }
    }

    fn durations(&mut self, jobs: &Jobs) {
        let name = "proof_duration_seconds";
        self.head("histogram", name, "From submission to proof.");
        for (kind, histogram) in jobs.durations().kinds() {
            for (end, count) in BUCKET_SECONDS.iter().zip(histogram.buckets) {
                self.line(format_args!(
                    "cuzk_{name}_bucket{{proof_kind=\"{kind}\",le=\"{end}\"}} {count}"
                ));
            }
            let (count, seconds) = (histogram.count, histogram.seconds);
            self.line(format_args!(
                "cuzk_{name}_bucket{{proof_kind=\"{kind}\",le=\"+Inf\"}} {count}"
            ));
            self.line(format_args!(
                "cuzk_{name}_sum{{proof_kind=\"{kind}\"}} {seconds}"
            ));
            self.line(format_args!(
                "cuzk_{name}_count{{proof_kind=\"{kind}\"}} {count}"
            ));
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes everything");
    }
}
