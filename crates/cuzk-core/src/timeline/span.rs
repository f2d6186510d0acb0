//! One span, and lists of them as files have them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::lane::Lane;

/// One stretch of work or waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// What was done: `queue` and `key` before a part starts, `reserve`, `synthesis`,
    /// within it `survey` for the first part of a circuit, `segment` or `whole` for each
    /// thread's work and `pin`, then `slot` and `turn` while a backend has the part and
    /// does nothing for it, the backend's phases (`upload`, `ntt`, `msm_h`, …), or
    /// `prove` if it failed, `verify`, `explain` after a proof that does not verify, and
    /// `verify_all`.
    pub name: Cow<'static, str>,
    /// Where it lies.
    pub lane: Lane,
    /// The job it was done for, by its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Label>,
    /// The part it was done for; `None` for the job as a whole.
    #[serde(default)]
    pub part: Option<usize>,
    /// Milliseconds from the epoch of the list that it is in: a job's submission, or the
    /// engine's start.
    pub start_ms: f64,
    /// See `start_ms`.
    pub end_ms: f64,
    /// Bytes that were copied, where the work is a copy whose bytes are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Span {
    /// Length in milliseconds.
    pub fn length_ms(&self) -> f64 {
        self.end_ms - self.start_ms
    }

    /// Rate of a copy in GB/s (10^9 bytes), if its bytes are known and it took any time.
    pub fn gb_per_s(&self) -> Option<f64> {
        let ms = self.length_ms();
        let bytes = self.bytes.filter(|_| ms > 0.0)?;
        Some(bytes as f64 / ms / 1e6)
    }

    /// For whom: `job/part`, as far as it is known.
    pub fn whose(&self) -> String {
        match (&self.job, self.part) {
            (Some(job), Some(part)) => format!("{job}/{part}"),
            (Some(job), None) => job.to_string(),
            (None, Some(part)) => format!("part {part}"),
            (None, None) => "the job".to_owned(),
        }
    }
}

/// The label of a job. Clones share the text, so that a span of it allocates nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(Arc<str>);

#[cfg(test)]
impl Label {
    /// How many hold the text.
    pub(super) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Label {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// Why a list of spans cannot be read.
#[derive(Debug, Error)]
pub enum SpansError {
    /// It is no list of spans; the message has the line and what was wanted.
    #[error("spans: {0}")]
    Json(#[from] serde_json::Error),
    /// A span ends before it begins.
    #[error("spans: number {index} ({name}): end_ms {end_ms} is before start_ms {start_ms}")]
    Backwards {
        /// Its place in the list, from 0.
        index: usize,
        /// Its name.
        name: String,
        /// Its beginning.
        start_ms: f64,
        /// Its end.
        end_ms: f64,
    },
}

/// Reads a list of spans: a JSON array of objects with `lane` and `name`, `start_ms` and
/// `end_ms`, and where they are known `job`, `part` and `bytes`.
///
/// ```
/// let text = r#"[{"lane": "device 0 compute", "name": "msm_h", "part": 3,
///                 "start_ms": 10.5, "end_ms": 12}]"#;
/// let spans = cuzk_core::timeline::read_spans(text)?;
/// assert_eq!(spans[0].length_ms(), 1.5);
/// # Ok::<(), cuzk_core::timeline::SpansError>(())
/// ```
///
/// # Errors
/// [`SpansError`].
pub fn read_spans(text: &str) -> Result<Vec<Span>, SpansError> {
    let spans: Vec<Span> = serde_json::from_str(text)?;
    // JSON has no infinities, so only the order is left to be checked.
    match spans.iter().position(|span| span.end_ms < span.start_ms) {
        None => Ok(spans),
        Some(index) => {
            let Span {
                name,
                start_ms,
                end_ms,
                ..
            } = &spans[index];
            Err(SpansError::Backwards {
                index,
                name: name.to_string(),
                start_ms: *start_ms,
                end_ms: *end_ms,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::lane::{Unit, Work};

    #[test]
    fn spans_are_read_as_they_are_written() {
        let span = Span {
            name: "upload".into(),
            lane: Lane::Unit(Unit::Device(1), Work::Upload),
            job: Some("porep-1".into()),
            part: Some(3),
            start_ms: 1.5,
            end_ms: 101.5,
            bytes: Some(5_000_000_000),
        };
        assert_eq!(span.gb_per_s(), Some(50.0));
        assert_eq!(span.whose(), "porep-1/3");
        let bare = Span {
            job: None,
            part: None,
            bytes: None,
            ..span.clone()
        };
        assert_eq!(
            (bare.gb_per_s(), bare.whose()),
            (None, "the job".to_owned())
        );
        let spans = vec![span, bare];
        let text = serde_json::to_string(&spans).expect("text");
        assert_eq!(read_spans(&text).expect("spans"), spans);
        assert!(read_spans("[]").expect("none").is_empty());
    }

    #[test]
    fn what_is_no_span_is_told_with_its_place() {
        let with = |field: &str| {
            let text = format!(
                "[\n{{\"lane\": \"queue\", \"name\": \"queue\", \"start_ms\": 2, \"end_ms\": 3}},\n{{{field}}}]"
            );
            read_spans(&text).expect_err("no span").to_string()
        };
        let errors = [
            r#""lane": "gpu", "name": "ntt", "start_ms": 0, "end_ms": 1"#,
            r#""lane": "queue", "name": "ntt", "start_ms": 0"#,
            r#""lane": "queue", "name": "ntt", "start_ms": 0, "end_ms": 1, "color": 3"#,
            r#""lane": "queue", "name": "ntt", "start_ms": 2.5, "end_ms": 1"#,
            r#""lane": "queue", "name": "ntt", "start_ms": 1e400, "end_ms": 1"#,
        ]
        .map(with);
        insta::assert_snapshot!(errors.join("\n"));
    }
}
