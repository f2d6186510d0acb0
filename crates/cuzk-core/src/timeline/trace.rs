//! Spans as a file for trace viewers: the JSON of Chrome's trace events, which Perfetto
//! reads too.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::lane::Lane;
use super::recorder::Recorded;
use super::rows::rows;
use super::span::{Label, Span};

/// The number under which viewers show the engine.
const PROCESS: u32 = 1;

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "displayTimeUnit")]
    display_time_unit: &'static str,
    #[serde(rename = "otherData")]
    other_data: HashMap<&'static str, String>,
    #[serde(rename = "traceEvents")]
    events: Vec<Event<'a>>,
}

/// One event, as the format names its fields.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    /// `X` is a stretch of time, `M` says something of a thread.
    ph: &'static str,
    pid: u32,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// Microseconds, like `dur`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Arguments<'a>,
}

#[derive(Default, Serialize)]
struct Arguments<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a Label>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gb_per_s: Option<f64>,
}

/// The trace of a list of spans. A lane is a thread of it, or several where its spans
/// overlap.
pub fn trace_json(recorded: &Recorded) -> String {
    let about = |tid, name, args| Event {
        name,
        ph: "M",
        pid: PROCESS,
        tid,
        cat: None,
        ts: None,
        dur: None,
        args,
    };
    let named = |name: String| Arguments {
        name: Some(name),
        ..Arguments::default()
    };
    let mut events = vec![about(0, "process_name", named("cuzk".to_owned()))];
    let mut tid = 0;
    for of in rows(&recorded.spans) {
        for (row, spans) in of.rows.iter().enumerate() {
            tid += 1;
            let name = match row {
                0 => of.lane.to_string(),
                _ => format!("{} ({})", of.lane, row + 1),
            };
            let order = Arguments {
                sort_index: Some(tid),
                ..Arguments::default()
            };
            events.push(about(tid, "thread_name", named(name)));
            events.push(about(tid, "thread_sort_index", order));
            events.extend(spans.iter().map(|span| stretch(tid, span)));
        }
    }
    let file = File {
        display_time_unit: "ms",
        other_data: HashMap::from([("dropped_spans", recorded.dropped.to_string())]),
        events,
    };
    serde_json::to_string(&file).unwrap_or_else(|_| Value::Null.to_string())
}

fn stretch(tid: usize, span: &Span) -> Event<'_> {
    // To a nanosecond, ends too, so that rounding makes nothing overlap.
    let [from, until] = [span.start_ms, span.end_ms].map(|ms| (ms * 1e6).round());
    Event {
        name: &span.name,
        ph: "X",
        pid: PROCESS,
        tid,
        cat: Some(category(span.lane)),
        ts: Some(from / 1000.0),
        dur: Some((until - from) / 1000.0),
        args: Arguments {
            job: span.job.as_ref(),
            part: span.part,
            bytes: span.bytes,
            gb_per_s: span.gb_per_s(),
            ..Arguments::default()
        },
    }
}

/// What viewers can filter by.
fn category(lane: Lane) -> &'static str {
    match lane {
        lane if lane.is_wait() => "wait",
        Lane::Unit(..) | Lane::Failed => "proving",
        _ => "host",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    #[test]
    fn a_trace_has_a_thread_for_each_lane_and_an_event_for_each_span() {
        let upload = Span {
            bytes: Some(2_000_000_000),
            ..span("device 0 upload", "upload", 0, 10.0, 50.0)
        };
        let whole = Span {
            part: None,
            job: Some("a \"job\"\n".into()),
            ..span("check", "verify_all", 0, 60.0, 60.5)
        };
        let spans = [
            span("queue", "queue", 0, 0.0, 10.0),
            span("queue", "queue", 1, 0.0, 20.0),
            upload,
            whole,
        ];
        let text = trace_json(&Recorded {
            spans: spans.to_vec(),
            dropped: 3,
        });
        let read: Value = serde_json::from_str(&text).expect("JSON");
        let pretty = serde_json::to_string_pretty(&read).expect("text");
        insta::assert_snapshot!(pretty);
    }

    #[test]
    fn no_two_events_of_a_thread_overlap() {
        let spans: Vec<Span> = (0..200)
            .map(|part| {
                let from = f64::from(part as u32 % 17);
                span(
                    "memory",
                    "reserve",
                    part,
                    from,
                    from + f64::from(part as u32 % 5),
                )
            })
            .collect();
        let recorded = Recorded { spans, dropped: 0 };
        let read: Value = serde_json::from_str(&trace_json(&recorded)).expect("JSON");
        let events = read["traceEvents"].as_array().expect("events");
        let mut ends: HashMap<u64, f64> = HashMap::new();
        let mut count = 0;
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let number = |field: &str| event[field].as_f64().expect("a number");
            let end = ends
                .entry(event["tid"].as_u64().expect("a thread"))
                .or_default();
            assert!(number("ts") >= *end, "{event}");
            *end = number("ts") + number("dur");
            count += 1;
        }
        assert_eq!(count, 200);
    }
}
