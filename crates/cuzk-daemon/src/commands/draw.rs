//! Files with pictures of where the time went, for every command that proves.

use std::path::Path;

use cuzk_core::timeline::{Recorded, svg, trace_json};

use crate::args::DrawArgs;
use crate::exit::{Exit, Failure};
use crate::files::NewFile;

/// The files, not written yet.
pub(super) struct Drawings {
    trace: Option<NewFile>,
    timeline: Option<NewFile>,
}

impl Drawings {
    /// Begins the files, so that what cannot be written is told before anything is
    /// proved. `other` is a file that the command writes besides.
    pub(super) fn begin(draw: &DrawArgs, other: Option<&Path>) -> Result<Self, Failure> {
        let DrawArgs { trace, timeline } = draw;
        let (trace, timeline) = (trace.as_deref(), timeline.as_deref());
        for (one, another) in [(trace, timeline), (trace, other), (timeline, other)] {
            if let Some(path) = one.filter(|_| one == another) {
                let why = format!("{}: named for two files", path.display());
                return Err(Failure::new(Exit::Usage, why));
            }
        }
        let begin = |path: Option<&Path>| path.map(NewFile::create).transpose();
        Ok(Self {
            trace: begin(trace)?,
            timeline: begin(timeline)?,
        })
    }

    /// Writes them, both if one fails.
    pub(super) fn finish(self, heading: &str, recorded: &Recorded) -> Result<(), Failure> {
        let Self { trace, timeline } = self;
        let trace = trace.map(|file| file.finish_with(trace_json(recorded).as_bytes()));
        let timeline = timeline.map(|file| file.finish_with(svg(heading, recorded).as_bytes()));
        trace.unwrap_or(Ok(())).and(timeline.unwrap_or(Ok(())))
    }
}
