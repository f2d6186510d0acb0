//! Spans of a lane on rows, so that on each row one ends before the next begins.

use std::collections::BTreeMap;

use super::lane::Lane;
use super::span::Span;

/// The spans of a lane, on as few rows as hold them.
pub(super) struct Rows<'a> {
    pub(super) lane: Lane,
    pub(super) rows: Vec<Vec<&'a Span>>,
}

/// All lanes that have spans, in their order.
pub(super) fn rows(spans: &[Span]) -> Vec<Rows<'_>> {
    let mut lanes: BTreeMap<Lane, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        lanes.entry(span.lane).or_default().push(span);
    }
    let lanes = lanes.into_iter();
    lanes
        .map(|(lane, spans)| Rows {
            lane,
            rows: on_rows(spans),
        })
        .collect()
}

/// Each span on the first row that is free when it begins.
fn on_rows(mut spans: Vec<&Span>) -> Vec<Vec<&Span>> {
    // Longer ones first, so that one that others lie within comes before them.
    spans.sort_by(|a, b| (a.start_ms.total_cmp(&b.start_ms)).then(b.end_ms.total_cmp(&a.end_ms)));
    let mut rows: Vec<Vec<&Span>> = Vec::new();
    for span in spans {
        let is_free = |row: &&mut Vec<&Span>| {
            let last = row.last();
            last.is_none_or(|last| last.end_ms <= span.start_ms)
        };
        match rows.iter_mut().find(is_free) {
            Some(row) => row.push(span),
            None => rows.push(vec![span]),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    #[test]
    fn what_overlaps_lies_on_different_rows() {
        let spans = [
            span("device 0 compute", "ntt", 1, 5.0, 9.0),
            span("queue", "queue", 0, 0.0, 10.0),
            span("queue", "queue", 1, 0.0, 4.0),
            span("queue", "queue", 2, 4.0, 8.0),
            span("queue", "queue", 3, 5.0, 5.0),
        ];
        let told: Vec<_> = rows(&spans)
            .iter()
            .map(|of| {
                let row = |row: &Vec<&Span>| row.iter().filter_map(|span| span.part).collect();
                let rows: Vec<Vec<usize>> = of.rows.iter().map(row).collect();
                (of.lane.to_string(), rows)
            })
            .collect();
        let queue = vec![vec![0], vec![1, 2], vec![3]];
        let compute = vec![vec![1]];
        assert_eq!(
            told,
            [
                ("queue".to_owned(), queue),
                ("device 0 compute".to_owned(), compute)
            ]
        );
    }
}
