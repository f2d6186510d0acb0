//! A job's spans as lines of text.

use std::collections::BTreeMap;
use std::fmt;

use super::Timeline;
use super::lane::{Lane, Work};
use super::span::Span;

/// Columns of the bar.
const WIDTH: f64 = 50.0;

impl fmt::Display for Timeline {
    /// A line a span, with a bar where in the job it lies. What one part has several of
    /// (work of threads, pieces of a key) is one line, from the first to the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spans = self.spans();
        let end = spans.iter().map(|span| span.end_ms).fold(0.0, f64::max);
        let scale = |ms: f64| {
            let at = if end > 0.0 { ms / end * WIDTH } else { 0.0 };
            at.round() as usize
        };
        for line in lines(&spans) {
            let Line { span, count } = line;
            let part = span
                .part
                .map_or(String::from("job"), |part| format!("part {part}"));
            let name = match count {
                1 => span.name.to_string(),
                _ => format!("{} x{count}", span.name),
            };
            let from = scale(span.start_ms);
            let length = scale(span.end_ms).saturating_sub(from).max(1);
            let bar = format!("{}{}", " ".repeat(from), "#".repeat(length));
            writeln!(
                f,
                "{part:<8} {name:<12} {ms:>10.1} ms  |{bar:<width$}|",
                ms = span.length_ms(),
                width = WIDTH as usize + 1,
            )?;
        }
        match self.dropped() {
            0 => Ok(()),
            dropped => writeln!(f, "({dropped} more spans were not kept)"),
        }
    }
}

struct Line {
    span: Span,
    count: usize,
}

/// The spans in the order of their beginnings, those joined that a part has several of in
/// one attempt.
fn lines(spans: &[Span]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut joined: BTreeMap<(Option<usize>, &str, usize), usize> = BTreeMap::new();
    let mut attempts: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    for span in spans {
        let attempt = attempts.entry(span.part).or_default();
        *attempt += usize::from(span.name == "synthesis");
        if is_work(span.lane) {
            let key = (span.part, &*span.name, *attempt);
            let at = joined.entry(key).or_insert(lines.len());
            if let Some(line) = lines.get_mut(*at) {
                line.span.end_ms = line.span.end_ms.max(span.end_ms);
                line.count += 1;
                continue;
            }
        }
        let span = span.clone();
        lines.push(Line { span, count: 1 });
    }
    lines
}

fn is_work(lane: Lane) -> bool {
    match lane {
        Lane::Unit(_, work) => work != Work::Wait,
        other => matches!(other, Lane::Core(_)),
    }
}
