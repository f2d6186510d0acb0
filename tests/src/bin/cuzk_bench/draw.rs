//! `draw`: a list of spans that a measurement wrote, as a waterfall and as a trace.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use cuzk_core::timeline::{Recorded, Utilisation, read_spans, svg, trace_json};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The spans (JSON): a list of objects with lane, name, start_ms, end_ms, and where
    /// they are known job, part and bytes.
    spans: PathBuf,
    /// Where the waterfall goes (SVG); it must not exist.
    out: PathBuf,
    /// Where a trace goes that chrome://tracing and Perfetto open; it must not exist.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The heading [default: the name of the list].
    #[arg(long, value_name = "TEXT")]
    heading: Option<String>,
}

/// Draws, and prints how busy each device was.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options {
        spans: path, out, ..
    } = options;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let spans = read_spans(&text).with_context(|| path.display().to_string())?;
    let recorded = Recorded { spans, dropped: 0 };
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let heading = options.heading.as_deref().unwrap_or(&name);
    write(out, &svg(heading, &recorded))?;
    if let Some(trace) = &options.trace {
        write(trace, &trace_json(&recorded))?;
    }
    for used in Utilisation::of(&recorded.spans) {
        print!("{used}");
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let file = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.with_context(|| path.display().to_string())
}
