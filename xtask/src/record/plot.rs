//! Ratios as a picture: a line a case, from the low to the high end of its interval.

use std::fmt::Write;

use super::file::{Case, Record, Spread};

/// Pixels.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 340.0;
const FIGURES: f64 = 200.0;
const ROW: f64 = 24.0;
const TOP: f64 = 56.0;

/// Where the plot of a record stands in the repository.
pub(super) fn path(machine: &str, name: &str) -> String {
    format!("bench/plots/{machine}/{name}.svg")
}

/// The plot; none where the record compares nothing.
pub(super) fn svg(record: &Record) -> Option<String> {
    let compared = record.cases.iter();
    let compared: Vec<(&Case, Spread)> = compared
        .filter_map(|case| Some((case, case.ratio?)))
        .collect();
    if compared.is_empty() {
        return None;
    }
    let controls = compared
        .iter()
        .filter_map(|(case, _)| named(case, "control"));
    let ends = compared.iter().map(|(_, ratio)| *ratio).chain(controls);
    let (mut low, mut high) = (1.0_f64, 1.0_f64);
    for end in ends {
        (low, high) = (low.min(end.low), high.max(end.high));
    }
    // Room at both sides, and some width where nothing differs.
    let scale = Scale {
        low: (low / 1.02).max(1e-6).ln(),
        high: (high * 1.02).ln(),
    };
    let height = TOP + ROW * compared.len() as f64 + 24.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let title = escaped(&format!("{}, {}", record.name, place(record)));
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"20\" font-size=\"15\">{title}</text>"
    );
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"40\" fill=\"#555555\">how many times as good, with a 95 % interval; \
         grey: the same setting beside itself</text>"
    );
    let bottom = TOP + ROW * compared.len() as f64;
    for tick in ticks(low, high) {
        let x = scale.x(tick);
        let colour = if tick == 1.0 { "#333333" } else { "#dddddd" };
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{TOP:.1}\" width=\"1\" height=\"{:.1}\" fill=\"{colour}\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom - TOP,
            bottom + 16.0
        );
    }
    for (index, (case, ratio)) in compared.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{:.1}\">{}</text>",
            y + 4.0,
            escaped(&case.case)
        );
        if let Some(control) = named(case, "control") {
            bar(&mut text, &scale, control, y + 6.0, "#bbbbbb");
        }
        let colour = match case
            .more
            .get("verdict")
            .and_then(|verdict| verdict.as_str())
        {
            Some("win") => "#2e7d32",
            Some("loss") => "#c62828",
            _ => "#1e88e5",
        };
        bar(&mut text, &scale, *ratio, y, colour);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\">{:.3} [{:.3}, {:.3}]</text>",
            WIDTH - FIGURES + 20.0,
            y + 4.0,
            ratio.median,
            ratio.low,
            ratio.high
        );
    }
    text.push_str("</svg>\n");
    Some(text)
}

/// From a logarithm to pixels.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio.ln() - self.low) / (self.high - self.low);
        NAMES + share * (WIDTH - NAMES - FIGURES)
    }
}

/// One, and round numbers about it that lie within.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let all = [
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0,
        10.0, 20.0, 50.0, 100.0,
    ];
    let wide = high / low > 2.0;
    // Close to 1 they would stand on each other.
    let is_near = |tick: f64| tick != 1.0 && (0.85..1.15).contains(&tick);
    let within = all
        .into_iter()
        .filter(|tick| *tick == 1.0 || (low..=high).contains(tick));
    within.filter(|tick| !(wide && is_near(*tick))).collect()
}

fn bar(text: &mut String, scale: &Scale, ratio: Spread, y: f64, colour: &str) {
    let (left, right) = (scale.x(ratio.low), scale.x(ratio.high));
    let _ = writeln!(
        text,
        "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"3\" fill=\"{colour}\"/>\n\
         <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>",
        y - 1.5,
        (right - left).max(1.0),
        scale.x(ratio.median)
    );
}

/// A ratio that a case has beside its own: `control` is that of the same setting beside
/// itself.
pub(super) fn named(case: &Case, name: &str) -> Option<Spread> {
    serde_json::from_value(case.more.get(name)?.clone()).ok()
}

fn place(record: &Record) -> String {
    let machine = &record.machine;
    let cores = format!("{} cores, {}", machine.cores, machine.cpu);
    match &machine.gpu {
        Some(gpu) => format!("{gpu}, {cores}"),
        None => cores,
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
