//! Sizes on the device: windows, chunks, the pieces of a key, and the bytes that a circuit
//! takes.

use std::ops::Range;

use crate::accelerator::DEVICE_WINDOW_BITS;
use crate::cpu::h::CSource;
use crate::device::arena::ALIGN;
use crate::key::{Key, Section};
use crate::shape::{CircuitShape, CircuitSizes};

/// Bytes of a scalar.
pub(super) const SCALAR_BYTES: u64 = 32;
/// Bits of a scalar.
const SCALAR_BITS: u32 = 255;
/// Threads of a block of the kernel that sums listed points, by lanes of a warp.
const PARTIALS_PER_PROCESSOR: u64 = 256 / 32;

/// The queries with sums to make.
pub(super) const QUERIES: [Section; 5] = [
    Section::H,
    Section::L,
    Section::A,
    Section::BG1,
    Section::BG2,
];

pub(super) fn align(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN)
}

/// Bytes of a point of a section.
pub(super) fn point_bytes(section: Section) -> u64 {
    match section {
        Section::BG2 => 192,
        _ => 96,
    }
}

/// Bytes of a point in four coordinates, as sums leave it.
pub(super) fn row_bytes(section: Section) -> u64 {
    2 * point_bytes(section)
}

/// How a sum is cut: windows of a scalar, chunks of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) count: usize,
    pub(super) chunk: usize,
    pub(super) window_bits: u32,
}

/// Bits of windows that are chosen from. Wider ones are sorted in more steps, which cost
/// more than they save: `cuzk-bench device-prove --window-bits` shows it.
const WINDOW_BITS: std::ops::RangeInclusive<u32> = *DEVICE_WINDOW_BITS.start()..=16;
/// Additions that a processor has under way at full rate: the time of one in a thread times
/// those that a processor makes in a second. Fitted to the sums of `device-prove` on an H200
/// with windows of several widths; `peer-prove` has what came of it. An addition in G2
/// takes longer, and the device makes as many fewer.
const ADDITIONS_PER_PROCESSOR: u64 = 331;
/// Threads that turn the buckets of a window into its sum.
const INTEGRATE_THREADS: u64 = 256;

fn windows_of(bits: u32) -> u32 {
    (SCALAR_BITS - 1) / bits + 1
}

/// Bits of the windows with which a multiplication of `count` entries is done soonest:
/// those for which it takes the fewest times of an addition at full rate. Every entry is
/// added to a bucket in each window, at full rate unless there are so few buckets that
/// their additions, one after the other, take longer; then each bucket is added twice by
/// few threads. Never fewer for more entries.
fn window_bits(count: usize, processors: u32) -> u32 {
    let under_way = u64::from(processors) * ADDITIONS_PER_PROCESSOR;
    let cost = |bits: &u32| {
        let buckets = 1u64 << (bits - 1);
        // In parts of a bucket, so that nothing is rounded.
        let per_entry = (u64::from(windows_of(*bits)) * buckets).max(under_way);
        let filled = u128::from(per_entry) * count as u128 * u128::from(INTEGRATE_THREADS);
        let integrated = u128::from(2 * buckets * under_way) * u128::from(buckets);
        // Of the same denominator for every width.
        (filled + integrated) << (WINDOW_BITS.end() - bits)
    };
    let bits = WINDOW_BITS.min_by_key(cost);
    bits.expect("there are widths")
}

impl Cut {
    pub(super) fn windows(&self) -> usize {
        windows_of(self.window_bits) as usize
    }

    pub(super) fn chunks(&self) -> usize {
        self.count.div_ceil(self.chunk)
    }

    /// Bytes of the rows that the sum leaves.
    pub(super) fn rows_bytes(&self, section: Section) -> u64 {
        (self.chunks() * self.windows()) as u64 * row_bytes(section)
    }

    /// Bytes of working memory: buckets, partial sums, histogram, sorted entries
    /// and digits, as `cuda/msm.cuh` lays them out.
    pub(super) fn work_bytes(&self, section: Section, processors: u32) -> u64 {
        let windows = self.windows() as u64;
        let buckets = windows << (self.window_bits - 1);
        let chunk = self.chunk as u64;
        align(buckets * row_bytes(section))
            + partials_bytes(section, processors)
            + align(buckets * 4)
            + align(2 * chunk * 8)
            + align(windows * chunk * 4)
    }
}

/// Bytes of the partial sums of listed points.
pub(super) fn partials_bytes(section: Section, processors: u32) -> u64 {
    align(u64::from(processors) * PARTIALS_PER_PROCESSOR * row_bytes(section))
}

/// What decides how sums are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cutting {
    pub(super) chunk_max: usize,
    pub(super) window_bits: Option<u32>,
    pub(super) processors: u32,
}

impl Cutting {
    /// The cut of `count` entries, `chunk_max` at a time (a multiple of 32).
    pub(super) fn cut(&self, count: usize) -> Cut {
        let chunk = count.next_multiple_of(32).clamp(32, self.chunk_max);
        let chosen = || window_bits(chunk, self.processors);
        Cut {
            count,
            chunk,
            window_bits: self.window_bits.unwrap_or_else(chosen),
        }
    }

    /// The most that the cuts of up to `count` entries take: a smaller sum may have
    /// more windows than a larger one.
    fn most(&self, count: usize, bytes: impl Fn(&Cut) -> u64) -> u64 {
        let last_of_each_width = WINDOW_BITS.map(|bits| {
            let is_wider = |chunks: usize| window_bits(32 * (chunks + 1), self.processors) > bits;
            let (mut low, mut high) = (0, count / 32);
            while low < high {
                let middle = low.midpoint(high);
                match is_wider(middle) {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            32 * low
        });
        last_of_each_width
            .chain([count])
            .map(|len| bytes(&self.cut(len)))
            .fold(0, u64::max)
    }

    /// Bytes of scratch that the sum of a query takes at least: its lists, and what
    /// multiplying every entry takes. Gathered scalars go to `spare_bytes` of memory
    /// beside the scratch where they fit there.
    pub(super) fn query_bytes(
        &self,
        section: Section,
        count: usize,
        is_indexed: bool,
        spare_bytes: u64,
    ) -> u64 {
        let scalars = match is_indexed {
            true => align(count as u64 * SCALAR_BYTES),
            false => 0,
        };
        let scalars = if scalars <= spare_bytes { 0 } else { scalars };
        let work = self.most(count, |cut| cut.work_bytes(section, self.processors));
        2 * align(count as u64 * 4) + scalars + work
    }

    /// Bytes of scratch, beside the lists, for multiplying `count` gathered entries,
    /// whose points go to `spare_bytes` of memory beside it where they fit there.
    pub(super) fn gathered_bytes(&self, section: Section, count: usize, spare_bytes: u64) -> u64 {
        let points = align(count as u64 * point_bytes(section));
        let points = if points <= spare_bytes { 0 } else { points };
        align(count as u64 * SCALAR_BYTES)
            + points
            + self.cut(count).work_bytes(section, self.processors)
    }
}

/// Entries in each query of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) h: usize,
    pub(super) l: usize,
    pub(super) a: usize,
    pub(super) b: usize,
}

impl Counts {
    pub(super) fn of(shape: &CircuitShape) -> Self {
        Self {
            h: shape.sizes.domain() - 1,
            l: shape.sizes.aux,
            a: shape.sizes.inputs + shape.a_aux.ones(),
            b: shape.b_inputs.ones() + shape.b_aux.ones(),
        }
    }

    /// As far as a key tells: it has a point for each entry.
    pub(super) fn of_key(key: &Key) -> Self {
        Self {
            h: key.count(Section::H),
            l: key.count(Section::L),
            a: key.count(Section::A),
            b: key.count(Section::BG1),
        }
    }

    pub(super) fn of_section(&self, section: Section) -> usize {
        match section {
            Section::H => self.h,
            Section::L => self.l,
            Section::A => self.a,
            Section::BG1 | Section::BG2 => self.b,
            Section::VerifyingKey | Section::Ic => 0,
        }
    }

    /// Points in each piece of a section but the last, which has no more: pieces of a key
    /// have at most the bytes of 2^`log` points in G1, and are as many as that takes.
    pub(super) fn piece_len(&self, section: Section, way: Way) -> usize {
        let count = self.of_section(section);
        match way {
            Way::Whole => count.max(1),
            Way::InPieces { log, .. } => {
                let bytes = point_bytes(Section::H) << log;
                let most = (bytes / point_bytes(section)) as usize;
                count.div_ceil(count.div_ceil(most).max(1)).max(1)
            }
        }
    }

    /// How many pieces a section has.
    pub(super) fn pieces_of(&self, section: Section, way: Way) -> usize {
        let count = self.of_section(section);
        count.div_ceil(self.piece_len(section, way))
    }

    /// All pieces, in the order in which they are summed. The sums over `h` take far longer
    /// than its points take to come, those over the other sections not as long where most
    /// scalars are zero or one: so each piece of `h` is followed by a share of the others,
    /// which come while it is summed.
    pub(super) fn pieces(&self, way: Way) -> Vec<Piece> {
        let of = |section: Section| {
            let (count, len) = (self.of_section(section), self.piece_len(section, way));
            (0..count).step_by(len).map(move |start| Piece {
                section,
                range: start..count.min(start + len),
            })
        };
        let others = QUERIES.into_iter().filter(|&section| section != Section::H);
        let others: Vec<Piece> = others.flat_map(of).collect();
        let (count, turns) = (others.len(), self.pieces_of(Section::H, way));
        let mut others = others.into_iter();
        let mut pieces = Vec::with_capacity(count + turns);
        for (turn, piece) in of(Section::H).enumerate() {
            pieces.push(piece);
            let share = count * (turn + 1) / turns - count * turn / turns;
            pieces.extend(others.by_ref().take(share));
        }
        pieces.extend(others);
        pieces
    }
}

/// Some points of a section, which are brought and summed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) section: Section,
    pub(super) range: Range<usize>,
}

/// Bytes of the counters of a split.
pub(super) const COUNTERS_BYTES: u64 = 3 * 4;

/// Device bytes of one proof, by region. All but the scratch and the pieces are its slot's
/// own; those are shared, and a proof's, or a pass's of several, while it computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Workspace {
    /// Evaluations of A, then coefficients of h.
    pub(super) a: u64,
    /// Evaluations of B; after the transforms gathered points and scalars, or the
    /// assignment.
    pub(super) b: u64,
    /// Evaluations of C that come from synthesis. Where C is computed it has its place
    /// in the scratch.
    pub(super) c: u64,
    /// Inputs and auxiliary variables; nothing where they come to where B was.
    pub(super) assignment: u64,
    /// What sums leave, each piece of a query at a place of its own.
    pub(super) rows: u64,
    /// Counters of a split.
    pub(super) counters: u64,
    /// A computed C during the transforms, everything else after them.
    pub(super) scratch: u64,
    /// A place for a piece of a key that comes in pieces, and how many there are.
    pub(super) piece: u64,
    pub(super) places: usize,
}

impl Workspace {
    pub(super) fn of(
        sizes: &CircuitSizes,
        counts: &Counts,
        cutting: &Cutting,
        c_source: CSource,
        way: Way,
    ) -> Self {
        let column = align(sizes.domain() as u64 * SCALAR_BYTES);
        let (c, computed_c) = match c_source {
            CSource::Product => (0, column),
            CSource::Synthesised => (column, 0),
        };
        let variables = align((sizes.inputs + sizes.aux) as u64 * SCALAR_BYTES);
        let (b, assignment, spare) = match way.is_late() {
            true => (column.max(variables), 0, 0),
            false => (column, variables, column),
        };
        let scratch = QUERIES.iter().fold(computed_c, |most, &section| {
            let len = counts
                .of_section(section)
                .min(counts.piece_len(section, way));
            let bytes = match section {
                Section::H => cutting.most(len, |cut| cut.work_bytes(section, cutting.processors)),
                _ => cutting.query_bytes(section, len, section != Section::L, spare),
            };
            most.max(bytes)
        });
        let rows = QUERIES.map(|section| {
            let rows = rows_bytes(section, counts.piece_len(section, way), cutting);
            counts.pieces_of(section, way) as u64 * rows
        });
        let piece = |section| align(counts.piece_len(section, way) as u64 * point_bytes(section));
        let (piece, places) = match way {
            Way::Whole => (0, 0),
            Way::InPieces { places, .. } => {
                (QUERIES.map(piece).into_iter().fold(0, u64::max), places)
            }
        };
        Self {
            a: column,
            b,
            c,
            assignment,
            rows: rows.iter().sum(),
            counters: align(COUNTERS_BYTES),
            scratch,
            piece,
            places,
        }
    }

    /// Bytes of a slot.
    pub(super) fn slot(&self) -> u64 {
        self.a + self.b + self.c + self.assignment + self.rows + self.counters
    }

    /// Bytes of the places for pieces.
    pub(super) fn ring(&self) -> u64 {
        self.places as u64 * self.piece
    }

    /// Bytes that a proof takes beside its key and lists.
    pub(super) fn total(&self) -> u64 {
        self.slot() + self.scratch + self.ring()
    }
}

/// The smallest pieces of a key that are tried, unless larger ones are not allowed, as a
/// logarithm of their number of points. A device without room for these has none for the
/// columns of most circuits either.
const PIECE_LOG_MIN: u32 = 16;
/// Places for pieces, the better number first. With four no sum waits for the bus, with three
/// none where each section is one piece. More are worth less than larger pieces, and four of
/// a size more than two of twice that (`docs/decisions/0010-places-for-pieces.md`).
const PLACES: [usize; 2] = [PLACES_MAX, 3];
pub(super) const PLACES_MAX: usize = 4;

/// How a proof's key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// All of it is on the device.
    Whole,
    /// As many bytes at a time as 2^`log` points in G1 have, in so many places by turns.
    InPieces {
        log: u32,
        places: usize,
        /// Whether the assignment comes after the transforms, to where B was: a column less,
        /// for an upload that no transform hides. A key that is there as a whole would want
        /// that column for what it gathers.
        is_late: bool,
    },
}

impl Way {
    /// Whether the assignment comes after the transforms.
    pub(super) fn is_late(self) -> bool {
        matches!(self, Self::InPieces { is_late: true, .. })
    }
}

/// What a proof of a circuit takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs<'a> {
    pub(super) sizes: &'a CircuitSizes,
    pub(super) counts: Counts,
    pub(super) cutting: Cutting,
    pub(super) c_source: CSource,
    /// Whether a key may be on the device as a whole.
    pub(super) is_key_resident: bool,
    /// Whether the assignment always comes after the transforms.
    pub(super) is_assignment_late: bool,
    /// Most points of a piece, as a logarithm.
    pub(super) piece_log_max: u32,
    /// Proofs that are to have a slot at the same time.
    pub(super) slots: usize,
    /// Of the whole key on the device.
    pub(super) key_bytes: u64,
    pub(super) list_bytes: u64,
}

impl Needs<'_> {
    /// The ways that a proof may be made, with what it works in and the bytes that it takes
    /// in all: first those in which the assignment has a place of its own, the quickest of
    /// each kind before the others.
    pub(super) fn ways(&self) -> impl Iterator<Item = (Way, Workspace, u64)> {
        [false, true]
            .into_iter()
            .flat_map(|is_late| self.ways_of(is_late))
    }

    /// Those in which the assignment comes after the transforms, or the others.
    fn ways_of(&self, is_late: bool) -> impl Iterator<Item = (Way, Workspace, u64)> {
        let Self {
            sizes,
            counts,
            cutting,
            c_source,
            is_key_resident,
            is_assignment_late,
            piece_log_max,
            key_bytes,
            list_bytes,
            ..
        } = *self;
        let in_pieces = move |log, places| Way::InPieces {
            log,
            places,
            is_late,
        };
        let pieces = (PIECE_LOG_MIN.min(piece_log_max)..=piece_log_max)
            .rev()
            .flat_map(move |log| PLACES.map(|places| in_pieces(log, places)));
        let whole = (is_key_resident && !is_late).then_some(Way::Whole);
        let ways = whole.into_iter().chain(pieces);
        let allowed = ways.filter(move |_| is_late || !is_assignment_late);
        allowed.map(move |way| {
            let workspace = Workspace::of(sizes, &counts, &cutting, c_source, way);
            let key_bytes = if way == Way::Whole { key_bytes } else { 0 };
            (way, workspace, workspace.total() + list_bytes + key_bytes)
        })
    }

    /// Those for which there is room, the best first: where a key comes in pieces, the
    /// largest that leave room for every slot, and after these what leaves some without.
    /// The assignment comes late only where it has no place of its own in any of these.
    pub(super) fn ways_within(&self, room: u64) -> impl Iterator<Item = (Way, Workspace, u64)> {
        let within = move |is_late: bool, is_short: bool| {
            self.ways_of(is_late)
                .filter(move |(way, workspace, asked)| {
                    let others = workspace.slot() * (self.slots as u64 - 1);
                    let leaves_some_without = *way != Way::Whole && asked + others > room;
                    *asked <= room && leaves_some_without == is_short
                })
        };
        // None is worked out before it is wanted.
        let kinds = [(false, false), (false, true), (true, false), (true, true)];
        let kinds = kinds.into_iter();
        kinds.flat_map(move |(is_late, is_short)| within(is_late, is_short))
    }

    /// Bytes that a proof takes at the least, with nothing else on the device.
    pub(super) fn least_bytes(&self) -> u64 {
        let asked = self.ways().map(|(_, _, asked)| asked);
        asked.min().expect("there is a way")
    }

    /// What proofs of the circuit, up to all slots of them, take of an arena of which
    /// `fixed_bytes` are the backend's own: a line a consumer.
    pub(super) fn table(&self, arena_bytes: u64, fixed_bytes: u64) -> String {
        let slots = self.slots;
        let room = arena_bytes.saturating_sub(fixed_bytes);
        let Some((way, workspace, asked)) = self.ways_within(room).next() else {
            let least = self.least_bytes();
            return format!("a proof takes {least} bytes at least, the device has room for {room}");
        };
        let more = (room - asked) / workspace.slot().max(1);
        let used = slots.min(
            usize::try_from(more)
                .unwrap_or(usize::MAX)
                .saturating_add(1),
        );
        let mut lines = vec![("places for what comes from files".to_owned(), fixed_bytes)];
        match way {
            Way::Whole => lines.push(("the key".to_owned(), self.key_bytes)),
            Way::InPieces { log, places, .. } => lines.push((
                format!("{places} places for 2^{log} points of the key"),
                workspace.ring(),
            )),
        }
        lines.push(("index lists".to_owned(), self.list_bytes));
        lines.push(("scratch".to_owned(), workspace.scratch));
        let slot = workspace.slot();
        let late = match way.is_late() {
            true => ", the assignment where b was",
            false => "",
        };
        lines.push((
            format!("{used} of {slots} slots of {slot}{late}"),
            used as u64 * slot,
        ));
        let planned = lines.iter().map(|(_, bytes)| bytes).sum::<u64>();
        lines.push(("planned".to_owned(), planned));
        lines.push(("arena".to_owned(), arena_bytes));
        let lines = lines
            .iter()
            .map(|(name, bytes)| format!("{bytes:>13}  {name}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Bytes of the rows of a query at their most: its ones' row, and its rest's.
pub(super) fn rows_bytes(section: Section, count: usize, cutting: &Cutting) -> u64 {
    let rest = cutting.most(count, |cut| cut.rows_bytes(section));
    align(row_bytes(section)) + align(rest)
}
