use super::super::tests::span;
use super::*;

/// A job of so many parts on two devices, four threads that synthesise.
fn job(parts: usize) -> Recorded {
    let mut spans = Vec::new();
    let mut free = [0.0_f64; 2];
    for part in 0..parts {
        let begin = 20.0 * part as f64;
        let end = begin + 35.0;
        spans.push(span("queue", "queue", part, 0.0, begin));
        spans.push(span("synthesis", "synthesis", part, begin, end));
        for core in 0..2 {
            let lane = format!("core {}", 2 * (part % 2) + core);
            spans.push(span(&lane, "segment", part, begin, end - core as f64));
        }
        let device = part % 2;
        let lane = |work: &str| format!("device {device} {work}");
        spans.push(Span {
            bytes: Some(300_000_000),
            ..span(&lane("upload"), "upload", part, end, end + 6.0)
        });
        let mut at = free[device].max(end + 6.0);
        for (name, ms) in [("ntt", 10.0), ("msm_h", 14.0), ("msm_b_g2", 8.0)] {
            spans.push(span(&lane("compute"), name, part, at, at + ms));
            at += ms;
        }
        free[device] = at;
        spans.push(span("check", "verify", part, at, at + 0.05));
    }
    Recorded { spans, dropped: 0 }
}

#[test]
fn ten_parts_are_drawn_so() {
    let recorded = Recorded {
        dropped: 2,
        ..job(10)
    };
    let picture = svg("ten <parts> & \"two\" devices", &recorded);
    insta::assert_snapshot!(picture);
    assert_eq!(picture, svg("ten <parts> & \"two\" devices", &recorded));
}

/// Tags are closed, attributes quoted, and no text has markup.
fn assert_well_formed(picture: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = picture;
    while let Some(begin) = rest.find('<') {
        assert!(!rest[..begin].contains('>'), "markup in a text");
        let end = begin + rest[begin..].find('>').expect("a tag ends");
        let tag = &rest[begin + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?}");
}

/// Where a rectangle or a text is: none of them lies outside of the picture.
fn assert_within(picture: &str) {
    let number = |text: &str, name: &str| {
        let (_, value) = text.split_once(&format!(" {name}=\""))?;
        value.split_once('"')?.0.parse::<f64>().ok()
    };
    let height = number(picture, "height").expect("a height");
    for line in picture.lines().skip(2) {
        let [x, y, width] = ["x", "y", "width"].map(|name| number(line, name).unwrap_or(0.0));
        assert!(
            x >= 0.0 && x + width <= WIDTH && y >= 0.0 && y <= height,
            "{line}"
        );
    }
}

#[test]
fn many_parts_stay_a_picture() {
    for parts in [0, 1, 10, 200, 5000] {
        let picture = svg("parts", &job(parts));
        assert_well_formed(&picture);
        assert_within(&picture);
        let rects = picture.matches("<rect").count();
        assert!(rects < 20_000, "{rects} rectangles of {parts} parts");
        if parts == 200 {
            assert!(picture.contains(">queue (up to 200)<"));
            assert!(picture.contains(">device 1 compute<"));
        }
    }
}

#[test]
fn text_from_outside_is_no_markup() {
    let mut recorded = job(1);
    for span in &mut recorded.spans {
        span.job = Some("</title><script>\u{0}&\"".into());
        span.name = "<b>".into();
    }
    let picture = svg("</svg>", &recorded);
    assert_well_formed(&picture);
    assert!(!picture.contains("<script>") && !picture.contains("<b>"));
}

#[test]
fn steps_and_lengths_are_round() {
    let steps = [0.0, 0.07, 1.0, 1.1, 4.9, 6.0, 1234.0].map(round_step);
    assert_eq!(steps, [0.0, 0.1, 1.0, 2.0, 5.0, 10.0, 2000.0]);
    let lengths = [0.0, 0.05, 9.99, 10.0, 9999.0, 12_345.0].map(length);
    assert_eq!(
        lengths,
        ["0 ms", "0.05 ms", "9.99 ms", "10 ms", "9999 ms", "12.3 s"]
    );
}
