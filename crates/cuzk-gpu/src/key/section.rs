//! The sections of a key file and where they lie.

use std::fmt;

use crate::error::KeyError;
use crate::key::file::KeyFile;

/// Bytes of an uncompressed G1 point: two coordinates of 48, big-endian.
pub(crate) const G1_BYTES: usize = 96;
/// Bytes of an uncompressed G2 point: two coordinates of two times 48.
pub(crate) const G2_BYTES: usize = 192;
/// Bytes of a section's big-endian point count.
pub(crate) const COUNT_BYTES: usize = 4;

/// The fixed points at the start of the file in their order: alpha, beta (G1),
/// beta, gamma (G2), delta (G1), delta (G2).
pub(crate) const FIXED_POINT_BYTES: [usize; 6] =
    [G1_BYTES, G1_BYTES, G2_BYTES, G2_BYTES, G1_BYTES, G2_BYTES];
/// Bytes of all fixed points.
pub(crate) const FIXED_BYTES: usize = 3 * G1_BYTES + 3 * G2_BYTES;

/// A section of a key file, in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Section {
    /// The fixed points of the verifying key.
    VerifyingKey,
    /// Input commitments of the verifying key, one G1 point an input.
    Ic,
    /// H query: `domain - 1` G1 points.
    H,
    /// L query: one G1 point an auxiliary variable.
    L,
    /// A query: all inputs, then the auxiliary variables of A's density.
    A,
    /// B query in G1: inputs and auxiliary variables of B's densities.
    BG1,
    /// B query in G2, like [`Section::BG1`].
    BG2,
}

impl Section {
    /// The sections that start with a count, in file order.
    pub const COUNTED: [Section; 6] = [
        Section::Ic,
        Section::H,
        Section::L,
        Section::A,
        Section::BG1,
        Section::BG2,
    ];

    /// Bytes of one point in a counted section.
    ///
    /// # Panics
    /// For [`Section::VerifyingKey`], whose points are of both sizes.
    pub(crate) fn point_bytes(self) -> usize {
        match self {
            Section::VerifyingKey => panic!("the fixed points are of two sizes"),
            Section::Ic | Section::H | Section::L | Section::A | Section::BG1 => G1_BYTES,
            Section::BG2 => G2_BYTES,
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Section::VerifyingKey => "vk",
            Section::Ic => "ic",
            Section::H => "h",
            Section::L => "l",
            Section::A => "a",
            Section::BG1 => "b_g1",
            Section::BG2 => "b_g2",
        })
    }
}

/// Where the points of one counted section lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The section.
    pub(crate) section: Section,
    /// Its number of points.
    pub(crate) count: usize,
    /// Offset of its first point.
    pub(crate) offset: u64,
}

impl Span {
    /// Reads the count of the section that begins at `start` and checks that the
    /// file is long enough for its points.
    fn read(file: &KeyFile, section: Section, start: u64) -> Result<Self, KeyError> {
        let have = file.bytes().saturating_sub(start);
        let truncated = |need| KeyError::Truncated {
            path: file.path().to_owned(),
            section,
            offset: start,
            need,
            have,
        };
        if have < COUNT_BYTES as u64 {
            return Err(truncated(COUNT_BYTES as u64));
        }
        let mut count = [0; COUNT_BYTES];
        file.read_at(&mut count, start)?;
        let count = u32::from_be_bytes(count);
        // At most 2^32 points of 192 bytes: far from the end of 64 bits.
        let need = COUNT_BYTES as u64 + u64::from(count) * section.point_bytes() as u64;
        if have < need {
            return Err(truncated(need));
        }
        Ok(Self {
            section,
            count: usize::try_from(count).expect("usize holds 32 bits"),
            offset: start + COUNT_BYTES as u64,
        })
    }

    /// Offset of the point at `index`, which may be one past the last.
    pub(crate) fn point_offset(&self, index: usize) -> u64 {
        debug_assert!(index <= self.count);
        // Below the file's length, which `read` compared with.
        self.offset + index as u64 * self.section.point_bytes() as u64
    }

    /// Offset of the first byte after the section.
    pub(crate) fn end(&self) -> u64 {
        self.point_offset(self.count)
    }
}

/// The counted sections of a file whose length fits them exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionTable([Span; Section::COUNTED.len()]);

impl SectionTable {
    /// Reads the counts and compares them with the file's length.
    pub(crate) fn read(file: &KeyFile) -> Result<Self, KeyError> {
        let mut last = read_ic_span(file)?;
        let mut spans = [last; Section::COUNTED.len()];
        for (span, section) in spans.iter_mut().zip(Section::COUNTED).skip(1) {
            *span = Span::read(file, section, last.end())?;
            last = *span;
        }
        check_trailing(file, last.end())?;
        Ok(Self(spans))
    }

    /// Where a counted section lies.
    ///
    /// # Panics
    /// For [`Section::VerifyingKey`].
    pub(crate) fn span(&self, section: Section) -> Span {
        *self
            .0
            .iter()
            .find(|span| span.section == section)
            .expect("a section with a count")
    }

    /// All counted sections in file order.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }
}

/// Where the input commitments lie, in a file that begins with a verifying key.
///
/// # Errors
/// [`KeyError::Text`] for a file that begins as no key can but text does, and
/// [`KeyError::Truncated`].
pub(crate) fn read_ic_span(file: &KeyFile) -> Result<Span, KeyError> {
    refuse_text(file)?;
    if file.bytes() < FIXED_BYTES as u64 {
        return Err(KeyError::Truncated {
            path: file.path().to_owned(),
            section: Section::VerifyingKey,
            offset: 0,
            need: FIXED_BYTES as u64,
            have: file.bytes(),
        });
    }
    Span::read(file, Section::Ic, FIXED_BYTES as u64)
}

/// Refuses a file that goes on after `end`.
pub(crate) fn check_trailing(file: &KeyFile, end: u64) -> Result<(), KeyError> {
    match file.bytes().saturating_sub(end) {
        0 => Ok(()),
        extra => Err(KeyError::Trailing {
            path: file.path().to_owned(),
            offset: end,
            extra,
        }),
    }
}

/// Error pages and pointer files are the commonest wrong keys, and their text
/// read as a count would only give a puzzling number.
fn refuse_text(file: &KeyFile) -> Result<(), KeyError> {
    let mut start = [0; 32];
    let len = start
        .len()
        .min(usize::try_from(file.bytes()).unwrap_or(usize::MAX));
    let start = &mut start[..len];
    file.read_at(start, 0)?;
    // A random coordinate is text in fewer than one of 2^40 keys.
    let is_text = start
        .iter()
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    if start.is_empty() || !is_text {
        return Ok(());
    }
    Err(KeyError::Text {
        path: file.path().to_owned(),
        start: String::from_utf8_lossy(start).into_owned(),
    })
}
