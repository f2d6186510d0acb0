//! Spans as a waterfall: a row for each lane, time from left to right.
//!
//! Lanes on which many wait at the same time are drawn as how many do. What would be
//! narrower than a pixel is joined to what it follows, so that a picture of thousands of
//! parts stays one that a browser opens.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::recorder::Recorded;
use super::rows::{Rows, rows};
use super::span::Span;
use super::utilisation::Utilisation;

const WIDTH: f64 = 1400.0;
/// Left of it stand the names of lanes.
const LEFT: f64 = 150.0;
const RIGHT: f64 = WIDTH - 20.0;
const LINE: f64 = 16.0;
/// A row is this high, or lower where there are many.
const ROW_MAX: f64 = 14.0;
const ROW_MIN: f64 = 5.0;
/// What all rows together should not be higher than.
const ROWS_HEIGHT: f64 = 900.0;
/// A lane of more rows is drawn as a number of spans.
const ROWS_PER_LANE_MAX: usize = 24;
const PROFILE: f64 = 30.0;
/// Width of a letter, about.
const LETTER: f64 = 6.8;
/// Narrower spans are joined.
const PIXEL: f64 = 1.0;

/// Colours of names that are known.
const COLOURS: [(&str, &str); 28] = [
    ("queue", "#b0b7c0"),
    ("reserve", "#8e99a8"),
    ("ready", "#cbb26a"),
    ("slot", "#b39ddb"),
    ("turn", "#9575cd"),
    ("key", "#8d6e63"),
    ("key_load", "#795548"),
    ("points", "#a1887f"),
    ("synthesis", "#7cb342"),
    ("survey", "#33691e"),
    ("segment", "#9ccc65"),
    ("whole", "#aed581"),
    ("pin", "#ffb74d"),
    ("staging", "#ffa726"),
    ("upload", "#fb8c00"),
    ("ntt", "#1e88e5"),
    ("msm_h", "#e53935"),
    ("msm_l", "#d81b60"),
    ("msm_a", "#8e24aa"),
    ("msm_b_g1", "#5e35b1"),
    ("msm_b_g2", "#3949ab"),
    ("finish", "#00897b"),
    ("twin", "#546e7a"),
    ("verify", "#26a69a"),
    ("verify_all", "#00695c"),
    ("explain", "#b71c1c"),
    ("prove", "#212121"),
    ("compute", "#1e88e5"),
];

/// Colours of all others, chosen by their names.
const OTHERS: [&str; 8] = [
    "#6d4c41", "#00acc1", "#c0ca33", "#f4511e", "#3f51b5", "#009688", "#ad1457", "#78909c",
];

/// The waterfall of a list of spans, with a heading. The same spans give the same text.
pub fn svg(heading: &str, recorded: &Recorded) -> String {
    let spans = &recorded.spans;
    let begins = spans.iter().map(|span| span.start_ms);
    let ends = spans.iter().map(|span| span.end_ms);
    let from = begins.reduce(f64::min).unwrap_or(0.0);
    let until = ends.reduce(f64::max).unwrap_or(0.0);
    let lanes = rows(spans);
    let mut picture = Picture {
        from,
        per_ms: (RIGHT - LEFT) / (until - from).max(1e-6),
        row: row_height(&lanes),
        y: 22.0,
        body: String::new(),
    };
    picture.head(heading, recorded, until - from);
    picture.legend(&lanes);
    picture.y += LINE / 2.0;
    let top = picture.y;
    for lane in &lanes {
        picture.lane(lane);
    }
    let bottom = picture.y;
    let axis = picture.axis(top, bottom, until);
    let height = bottom + 2.0 * LINE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{axis}{}</svg>\n",
        picture.body
    )
}

fn is_profile(lane: &Rows<'_>) -> bool {
    lane.rows.len() > ROWS_PER_LANE_MAX || lane.lane.is_wait() && lane.rows.len() > 1
}

fn row_height(lanes: &[Rows<'_>]) -> f64 {
    let drawn = lanes.iter().filter(|lane| !is_profile(lane));
    let count: usize = drawn.map(|lane| lane.rows.len()).sum();
    (ROWS_HEIGHT / count.max(1) as f64).clamp(ROW_MIN, ROW_MAX)
}

struct Picture {
    from: f64,
    per_ms: f64,
    row: f64,
    /// Where the next thing is drawn.
    y: f64,
    body: String,
}

impl Picture {
    fn x(&self, ms: f64) -> f64 {
        LEFT + (ms - self.from) * self.per_ms
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        // A string takes everything.
        let _ = writeln!(self.body, "{text}");
    }

    fn text(&mut self, x: f64, anchor: &str, text: &str) {
        let (y, text) = (self.y, escaped(text));
        self.line(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn head(&mut self, heading: &str, recorded: &Recorded, wall_ms: f64) {
        let heading = escaped(heading);
        let wall = length(wall_ms);
        let y = self.y;
        self.line(format_args!(
            "<text x=\"10\" y=\"{y:.1}\" font-size=\"15\">{heading}: {wall}</text>"
        ));
        self.y += LINE;
        for used in Utilisation::of(&recorded.spans) {
            let idle = used.by_reason().into_iter();
            let idle = idle.map(|(reason, ms)| format!("{} {}", reason.name(), length(ms)));
            let idle: Vec<String> = idle.collect();
            let mut text = format!(
                "{}: busy {:.1} % of {}",
                used.unit,
                100.0 * used.busy_share(),
                length(used.wall_ms)
            );
            if used.upload_ms > 0.0 {
                let percent = 100.0 * used.upload_hidden_share();
                text.push_str(&format!(", {percent:.1} % of uploads beside a kernel"));
            }
            if !idle.is_empty() {
                text.push_str(&format!("; idle: {}", idle.join(", ")));
            }
            self.text(10.0, "start", &text);
            self.y += LINE;
        }
        if recorded.dropped > 0 {
            let text = format!("{} older spans were not kept", recorded.dropped);
            self.text(10.0, "start", &text);
            self.y += LINE;
        }
    }

    /// The names that there are, in the order of lanes.
    fn legend(&mut self, lanes: &[Rows<'_>]) {
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let spans = lanes.iter().flat_map(|lane| lane.rows.iter().flatten());
        let names: Vec<&str> = spans
            .map(|span| span.name.as_ref())
            .filter(|name| known.insert(name))
            .collect();
        let mut x = 10.0;
        for name in names {
            let width = 24.0 + LETTER * name.chars().count() as f64;
            if x + width > RIGHT {
                x = 10.0;
                self.y += LINE;
            }
            let (y, colour) = (self.y - 9.0, colour(name));
            self.line(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
            ));
            self.text(x + 14.0, "start", name);
            x += width;
        }
    }

    fn lane(&mut self, lane: &Rows<'_>) {
        let top = self.y;
        let (height, label) = match is_profile(lane) {
            true => (
                PROFILE,
                format!("{} (up to {})", lane.lane, lane.rows.len()),
            ),
            false => (self.row * lane.rows.len() as f64, lane.lane.to_string()),
        };
        self.y = top + height / 2.0 + 4.0;
        self.text(LEFT - 6.0, "end", &label);
        if is_profile(lane) {
            self.profile(lane, top);
        } else {
            for (row, spans) in lane.rows.iter().enumerate() {
                self.row(spans, top + self.row * row as f64);
            }
        }
        self.y = top + height + 3.0;
        let (y, width) = (self.y - 1.5, RIGHT - LEFT);
        self.line(format_args!(
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"0.5\" fill=\"#dddddd\"/>"
        ));
    }

    fn row(&mut self, spans: &[&Span], y: f64) {
        let mut bars: Vec<Bar<'_>> = Vec::new();
        for span in spans {
            let (from, until) = (self.x(span.start_ms), self.x(span.end_ms));
            match bars.last_mut() {
                Some(bar) if bar.takes(span, from, until) => {
                    bar.until = until;
                    bar.count += 1;
                    if span.length_ms() > bar.span.length_ms() {
                        bar.span = span;
                    }
                }
                _ => bars.push(Bar {
                    span,
                    from,
                    until,
                    count: 1,
                }),
            }
        }
        for bar in bars {
            self.bar(&bar, y);
        }
    }

    fn bar(&mut self, bar: &Bar<'_>, y: f64) {
        let (span, x) = (bar.span, bar.from);
        let width = (bar.until - bar.from).max(0.5);
        let height = self.row - 1.0;
        let (colour, title) = (colour(&span.name), escaped(&bar.title()));
        self.line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"><title>{title}</title></rect>"
        ));
        let part = span.part.map(|part| part.to_string()).unwrap_or_default();
        let fits = width > LETTER * part.len() as f64 + 4.0 && height > 10.0;
        if bar.count == 1 && fits && !part.is_empty() {
            let (x, y) = (x + width / 2.0, y + height - 3.0);
            self.line(format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"9\" \
                 fill=\"#ffffff\" pointer-events=\"none\">{part}</text>"
            ));
        }
    }

    /// How many spans there are at each moment, as a surface.
    fn profile(&mut self, lane: &Rows<'_>, top: f64) {
        let spans = lane.rows.iter().flatten();
        let mut changes: Vec<(f64, i64)> = spans
            .flat_map(|span| [(span.start_ms, 1), (span.end_ms, -1)])
            .collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let bottom = top + PROFILE;
        let per_span = (PROFILE - 2.0) / lane.rows.len().max(1) as f64;
        let mut path = format!("M{LEFT:.1} {bottom:.1}");
        let mut count = 0;
        for same in changes.chunk_by(|a, b| a.0 == b.0) {
            count += same.iter().map(|(_, change)| change).sum::<i64>();
            let (x, y) = (self.x(same[0].0), bottom - per_span * count as f64);
            path.push_str(&format!("H{x:.1}V{y:.1}"));
        }
        path.push_str(&format!("V{bottom:.1}Z"));
        let first = lane.rows.iter().flatten().next();
        let colour = colour(first.map_or("", |span| span.name.as_ref()));
        let title = escaped(&lane.lane.to_string());
        self.line(format_args!(
            "<path d=\"{path}\" fill=\"{colour}\"><title>{title}</title></path>"
        ));
    }

    /// Lines at round times, to lie behind the lanes.
    fn axis(&mut self, top: f64, bottom: f64, until: f64) -> String {
        let lanes = std::mem::take(&mut self.body);
        let step = round_step((until - self.from) / 12.0);
        let in_seconds = until - self.from >= 10_000.0;
        let decimals = usize::from(step < 1000.0);
        let mut tick = 0;
        while step > 0.0 && f64::from(tick) * step <= until - self.from {
            let passed = f64::from(tick) * step;
            let (x, height) = (self.x(self.from + passed), bottom - top);
            self.line(format_args!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"0.5\" height=\"{height:.1}\" fill=\"#cccccc\"/>"
            ));
            self.y = bottom + LINE - 2.0;
            let label = match in_seconds {
                true => format!("{:.decimals$} s", passed / 1000.0),
                false => length(passed),
            };
            self.text(x, "middle", &label);
            tick += 1;
        }
        std::mem::replace(&mut self.body, lanes)
    }
}

/// One span, or several that would be too narrow to be told apart: then the longest.
struct Bar<'a> {
    span: &'a Span,
    from: f64,
    until: f64,
    count: usize,
}

impl Bar<'_> {
    /// Whether a span that follows belongs to it: all of one name that are narrow and
    /// touch, all that lie within one pixel.
    fn takes(&self, span: &Span, from: f64, until: f64) -> bool {
        let is_narrow = |width: f64| width < PIXEL;
        let are_alike = self.span.name == span.name
            && is_narrow(until - from)
            && (self.count > 1 || is_narrow(self.until - self.from))
            && from - self.until < PIXEL / 4.0;
        are_alike || is_narrow(until - self.from)
    }

    fn title(&self) -> String {
        let (name, whose) = (&self.span.name, self.span.whose());
        if self.count > 1 {
            return format!("{} spans, the longest {name} of {whose}", self.count);
        }
        let ms = self.span.length_ms();
        match self.span.gb_per_s() {
            Some(rate) => format!("{name} {whose}: {ms:.3} ms, {rate:.1} GB/s"),
            None => format!("{name} {whose}: {ms:.3} ms"),
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten that is at least as long.
fn round_step(ms: f64) -> f64 {
    if ms <= 0.0 {
        return 0.0;
    }
    let power = 10_f64.powi(ms.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= ms)
        .unwrap_or(steps[3])
}

/// A length of time as people read it.
fn length(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms >= 10.0 || ms == 0.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.2} ms"),
    }
}

fn colour(name: &str) -> &'static str {
    let known = COLOURS.iter().find(|(known, _)| *known == name);
    let sum = name.bytes().map(usize::from).sum::<usize>();
    known.map_or(OTHERS[sum % OTHERS.len()], |(_, colour)| colour)
}

/// Text that no markup is in. Characters that no XML may have are spaces.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
