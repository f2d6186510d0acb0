//! Proving keys (SRS): files in bellperson's format, their reader and writer.
//!
//! A key file is a verifying key (six fixed points and the input commitments)
//! and the five queries of the prover, one after the other: see [`Section`]. Each
//! section but the first begins with its number of points, 32 bits, big-endian.
//! Points are uncompressed and big-endian: 96 bytes in G1, 192 in G2.
//!
//! [`Key::open`] reads the counts, compares them with the file's length, decodes
//! the verifying key and checks as much of the rest as [`KeyChecks`] asks for.
//! The queries stay in the file: they are decoded where they are used, or once
//! into host memory by [`Key::load_resident`].
//!
//! A file may be replaced (by renaming another over it) while a key is open: the
//! key goes on with the file it opened, and [`Key::is_replaced`] tells whoever would
//! use it once more. A file that is written to in place, whether its length changes or
//! not, is an error at the next read; one that was written to and had its time of that
//! set back gives proofs that fail the verification which every proof must pass, and
//! [`Key::check_unchanged`] says why.

mod digest;
mod file;
mod point;
mod section;
mod vk;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bellperson::groth16::VerifyingKey;
use blstrs::{Bls12, G1Affine, G2Affine};

pub use digest::{file_digest, file_digest_with};
pub use section::Section;
pub use vk::{read_vk, write_vk};
pub use writer::KeyWriter;

use crate::error::{KeyError, PointFault};
use crate::shape::{CircuitShape, CircuitSizes};
use crate::verify::Verifier;
use file::KeyFile;
use point::{Point, check_points, read_points, zeroed_points, zeroed_shared_points};
use section::{SectionTable, Span};

/// What is checked when a key is opened, beside the section table and the
/// verifying key, which always are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChecks {
    /// Checks of the queries' points.
    pub points: PointCheck,
    /// The published digest that the file must have; `None` skips it.
    pub digest: Option<String>,
}

/// How far the points of the queries are checked when a key is opened. The points
/// of a key opened without checks are checked as by [`PointCheck::OnCurve`] each
/// time they are decoded; a checked key's are only checked for their encoding
/// then, which is cheaper. The words are those of the configuration's `params.check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointCheck {
    /// `counts`: not at all, the sections' lengths alone; their points are not read.
    None,
    /// `curve`: encoding, infinity and the curve equation.
    OnCurve,
    /// `subgroup`: also the prime-order subgroup, which is far slower.
    Subgroup,
}

/// Where the decoded points of a key live, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyTier {
    /// In the file: decoded on each use.
    File,
    /// In page-locked memory of the host, for a device that has no room for them:
    /// decoded once, brought to it on each use.
    Pinned,
    /// In the memory that proofs are made in, the device's or the host's: decoded once,
    /// [`Key::resident_bytes`] of them.
    Resident,
}

impl fmt::Display for KeyTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyTier::File => "file",
            KeyTier::Pinned => "pinned",
            KeyTier::Resident => "resident",
        })
    }
}

/// A proving key: an open file whose section table fits its length, and its
/// verifying key in memory (96 bytes an input).
pub struct Key {
    file: KeyFile,
    sections: SectionTable,
    /// Checks of a point that is decoded from now on.
    read_check: PointCheck,
    vk: Arc<VerifyingKey<Bls12>>,
    verifier: OnceLock<Verifier>,
    resident: Mutex<Option<Resident>>,
}

/// The decoded queries.
struct Resident {
    h: Arc<[G1Affine]>,
    l: Arc<[G1Affine]>,
    a: Arc<[G1Affine]>,
    b_g1: Arc<[G1Affine]>,
    b_g2: Arc<[G2Affine]>,
}

impl Key {
    /// Opens a key file.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Text`], [`KeyError::Truncated`] and
    /// [`KeyError::Trailing`] before any point is read; then [`KeyError::Point`]
    /// for the verifying key and, as `checks` asks, the first wrong point of the
    /// first wrong query; then [`KeyError::Digest`].
    pub fn open(path: &Path, checks: &KeyChecks) -> Result<Self, KeyError> {
        let file = KeyFile::open(path)?;
        let sections = SectionTable::read(&file)?;
        let vk = vk::decode(&file, &sections.span(Section::Ic))?;
        // Hashing has one thread; the points take the others. A wrong point is
        // told first, since it names its place.
        let (points, digest) = rayon::join(
            || check_queries(&file, &sections, checks.points),
            || match &checks.digest {
                Some(want) => digest::check_digest(&file, want),
                None => Ok(()),
            },
        );
        points?;
        digest?;
        file.check_written()?;
        let read_check = match checks.points {
            PointCheck::None => PointCheck::OnCurve,
            PointCheck::OnCurve | PointCheck::Subgroup => PointCheck::None,
        };
        Ok(Self {
            file,
            sections,
            read_check,
            vk: Arc::new(vk),
            verifier: OnceLock::new(),
            resident: Mutex::new(None),
        })
    }

    /// Where the file was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// The verifying key. All its points are in their subgroups.
    pub fn vk(&self) -> &VerifyingKey<Bls12> {
        &self.vk
    }

    /// What checks proofs of this key, made on the first call; of several calls at the same
    /// time each may make one, and that of the first is kept. Of a key with up to 1,024
    /// public inputs it then keeps tables, about 24 KiB for each; of any other nothing
    /// beside the verifying key.
    pub fn verifier(&self) -> &Verifier {
        if let Some(made) = self.verifier.get() {
            return made;
        }
        // Nobody waits for it: tables are parallel work, which is not done while the
        // threads that would do it are those that wait.
        let made = Verifier::new(Arc::clone(&self.vk));
        self.verifier.get_or_init(|| made)
    }

    /// Number of points in a section.
    pub fn count(&self, section: Section) -> usize {
        match section {
            Section::VerifyingKey => section::FIXED_POINT_BYTES.len(),
            counted => self.sections.span(counted).count,
        }
    }

    /// Offset of a section's first point in the file, after its count.
    pub fn offset(&self, section: Section) -> u64 {
        match section {
            Section::VerifyingKey => 0,
            counted => self.sections.span(counted).offset,
        }
    }

    /// Whether there is a file at the key's path that is another one, or that may have
    /// other bytes than those it was opened with: by device, inode, length, and the
    /// nanoseconds at which it was written and changed last. A file that is gone has been
    /// replaced by nothing.
    pub fn is_replaced(&self) -> bool {
        self.file.is_replaced()
    }

    /// Whether the file that is open is as it was opened. Where nothing but its names
    /// changed, by a rename or a removal, it is; where its mode did, nobody can tell.
    ///
    /// # Errors
    /// [`KeyError::Changed`], [`KeyError::Rewritten`] and [`KeyError::Io`].
    pub fn check_unchanged(&self) -> Result<(), KeyError> {
        self.file.check_unchanged()
    }

    /// Compares the number of points in each section with what a circuit needs.
    ///
    /// # Errors
    /// [`KeyError::OtherCircuit`] names the first section that disagrees.
    pub fn check_shape(&self, shape: &CircuitShape) -> Result<(), KeyError> {
        self.check_sizes(&shape.sizes)?;
        let b = shape.b_inputs.ones() + shape.b_aux.ones();
        self.check_count(Section::A, shape.sizes.inputs + shape.a_aux.ones())?;
        self.check_count(Section::BG1, b)?;
        self.check_count(Section::BG2, b)
    }

    /// Compares the sections whose counts follow from a circuit's sizes alone.
    ///
    /// # Errors
    /// [`KeyError::OtherCircuit`] names the first section that disagrees.
    pub fn check_sizes(&self, sizes: &CircuitSizes) -> Result<(), KeyError> {
        self.check_count(Section::Ic, sizes.inputs)?;
        self.check_count(Section::H, sizes.domain() - 1)?;
        self.check_count(Section::L, sizes.aux)
    }

    fn check_count(&self, section: Section, want: usize) -> Result<(), KeyError> {
        let have = self.count(section);
        if have == want {
            return Ok(());
        }
        Err(KeyError::OtherCircuit {
            path: self.path().to_owned(),
            section,
            have: have as u64,
            want: want as u64,
        })
    }

    /// Decodes points of a G1 section from the file, in parallel.
    ///
    /// # Errors
    /// [`KeyError::Point`], [`KeyError::Changed`], [`KeyError::Rewritten`] and [`KeyError::Io`].
    ///
    /// # Panics
    /// If the section is not a counted one of G1 or has no such range.
    pub fn read_g1(
        &self,
        section: Section,
        range: Range<usize>,
    ) -> Result<Vec<G1Affine>, KeyError> {
        let mut points = zeroed_points(range.len());
        self.read_g1_into(section, range.start, &mut points)?;
        Ok(points)
    }

    /// Decodes the points from `start` on of a G1 section into `points`. On an
    /// error they are partly written.
    ///
    /// # Errors
    /// As [`Key::read_g1`].
    ///
    /// # Panics
    /// As [`Key::read_g1`].
    pub fn read_g1_into(
        &self,
        section: Section,
        start: usize,
        points: &mut [G1Affine],
    ) -> Result<(), KeyError> {
        self.read(section, start, points)
    }

    /// Decodes points of [`Section::BG2`] from the file, in parallel.
    ///
    /// # Errors
    /// As [`Key::read_g1`].
    ///
    /// # Panics
    /// If the section has no such range.
    pub fn read_g2(&self, range: Range<usize>) -> Result<Vec<G2Affine>, KeyError> {
        let mut points = zeroed_points(range.len());
        self.read_g2_into(range.start, &mut points)?;
        Ok(points)
    }

    /// Decodes the points from `start` on of [`Section::BG2`] into `points`. On an
    /// error they are partly written.
    ///
    /// # Errors
    /// As [`Key::read_g1`].
    ///
    /// # Panics
    /// As [`Key::read_g2`].
    pub fn read_g2_into(&self, start: usize, points: &mut [G2Affine]) -> Result<(), KeyError> {
        self.read(Section::BG2, start, points)
    }

    /// All points of a G1 query: shared if they are resident, else decoded now
    /// and the caller's alone.
    ///
    /// # Errors
    /// As [`Key::read_g1`]; none if the key is resident.
    ///
    /// # Panics
    /// If the section is not a counted one of G1.
    pub fn g1(&self, section: Section) -> Result<Arc<[G1Affine]>, KeyError> {
        let held = self.resident().as_ref().and_then(|held| match section {
            Section::H => Some(held.h.clone()),
            Section::L => Some(held.l.clone()),
            Section::A => Some(held.a.clone()),
            Section::BG1 => Some(held.b_g1.clone()),
            Section::VerifyingKey | Section::Ic | Section::BG2 => None,
        });
        held.map_or_else(|| self.decode_section(section), Ok)
    }

    /// All points of [`Section::BG2`], like [`Key::g1`].
    ///
    /// # Errors
    /// As [`Key::g1`].
    pub fn g2(&self) -> Result<Arc<[G2Affine]>, KeyError> {
        let held = self.resident().as_ref().map(|held| held.b_g2.clone());
        held.map_or_else(|| self.decode_section(Section::BG2), Ok)
    }

    /// Where the decoded points are now.
    pub fn tier(&self) -> KeyTier {
        match *self.resident() {
            Some(_) => KeyTier::Resident,
            None => KeyTier::File,
        }
    }

    /// Host memory in bytes that the decoded queries take if they are resident.
    pub fn resident_bytes(&self) -> u64 {
        self.query_spans()
            .map(|span| span.end() - span.offset)
            .sum()
    }

    /// Decodes all queries into host memory, unless they are there. Of several
    /// calls at the same time each may decode them; the first to finish keeps
    /// its own. Whoever counts [`Key::resident_bytes`] calls this once.
    ///
    /// # Errors
    /// As [`Key::read_g1`]; then nothing stays in memory.
    pub fn load_resident(&self) -> Result<(), KeyError> {
        if self.tier() == KeyTier::Resident {
            return Ok(());
        }
        // The lock is open meanwhile: a thread that waits for parallel work may
        // pick up a proof that asks for this key's points.
        let decoded = Resident {
            h: self.decode_section(Section::H)?,
            l: self.decode_section(Section::L)?,
            a: self.decode_section(Section::A)?,
            b_g1: self.decode_section(Section::BG1)?,
            b_g2: self.decode_section(Section::BG2)?,
        };
        self.resident().get_or_insert(decoded);
        Ok(())
    }

    /// Lets go of the decoded queries. What a proof under way still uses is freed
    /// when the proof has finished.
    pub fn drop_resident(&self) {
        let held = self.resident().take();
        // Freed after the lock is open again: giving gigabytes back takes a while.
        drop(held);
    }

    fn resident(&self) -> MutexGuard<'_, Option<Resident>> {
        // Nothing that can panic runs while it is locked.
        self.resident.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decode_section<P: Point>(&self, section: Section) -> Result<Arc<[P]>, KeyError> {
        let mut points = zeroed_shared_points(self.count(section));
        let slots = Arc::get_mut(&mut points).expect("nobody else has the new points");
        self.read(section, 0, slots)?;
        Ok(points)
    }

    fn read<P: Point>(
        &self,
        section: Section,
        start: usize,
        points: &mut [P],
    ) -> Result<(), KeyError> {
        let span = self.sections.span(section);
        read_points(&self.file, &span, start, points, self.read_check)
    }

    /// Reads points as the file has them, from `start` on, into `bytes`: 96 or 192
    /// bytes a point.
    ///
    /// # Errors
    /// [`KeyError::Changed`], [`KeyError::Rewritten`] and [`KeyError::Io`].
    ///
    /// # Panics
    /// If the section is not a counted one or has no such range.
    pub fn read_encoded(
        &self,
        section: Section,
        start: usize,
        bytes: &mut [u8],
    ) -> Result<(), KeyError> {
        let span = self.sections.span(section);
        let len = bytes.len() / section.point_bytes();
        assert!(
            start.checked_add(len).is_some_and(|end| end <= span.count),
            "{len} points from {start} of section {section}, which has {}",
            span.count
        );
        self.file.read_at(bytes, span.point_offset(start))
    }

    /// The error of a wrong point, for whoever decodes what
    /// [`Key::read_encoded`] reads.
    ///
    /// # Panics
    /// If the section is not a counted one.
    pub fn point_error(&self, section: Section, index: u64, what: PointFault) -> KeyError {
        KeyError::Point {
            path: self.path().to_owned(),
            section,
            index,
            offset: self.sections.span(section).offset + index * section.point_bytes() as u64,
            what,
        }
    }

    fn query_spans(&self) -> impl Iterator<Item = &Span> {
        self.sections
            .spans()
            .iter()
            .filter(|span| span.section != Section::Ic)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("file", &self.file)
            .field("sections", &self.sections)
            .finish_non_exhaustive()
    }
}

/// Checks the points of the five queries, in file order.
fn check_queries(
    file: &KeyFile,
    sections: &SectionTable,
    check: PointCheck,
) -> Result<(), KeyError> {
    if check == PointCheck::None {
        return Ok(());
    }
    for span in sections.spans() {
        match span.section {
            // Decoded with the verifying key.
            Section::VerifyingKey | Section::Ic => {}
            Section::BG2 => check_points::<G2Affine>(file, span, check)?,
            _ => check_points::<G1Affine>(file, span, check)?,
        }
    }
    Ok(())
}
