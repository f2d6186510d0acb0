//! A circuit as its stored rows: what all blocks share, one block, and how often it is
//! repeated.

use blstrs::Scalar;
use sha2::{Digest, Sha256};

use crate::allowance::Allowance;
use crate::density::{Densities, DensityBits};
use crate::rows::{Coefficients, Matrix, Places, Rows};
use crate::{Sizes, Uncut, witness::Written};

/// Variables and rows of a range of a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Public inputs.
    pub inputs: usize,
    /// Auxiliary variables.
    pub aux: usize,
    /// Constraints.
    pub constraints: usize,
}

impl Extent {
    pub(crate) fn between(from: &Sizes, to: &Sizes) -> Self {
        Self {
            inputs: to.inputs - from.inputs,
            aux: to.aux - from.aux,
            constraints: to.constraints - from.constraints,
        }
    }

    pub(crate) fn and(self, times: usize, other: Self) -> Self {
        Self {
            inputs: self.inputs + times * other.inputs,
            aux: self.aux + times * other.aux,
            constraints: self.constraints + times * other.constraints,
        }
    }

    pub(crate) fn sizes(self) -> Sizes {
        Sizes {
            inputs: self.inputs,
            aux: self.aux,
            constraints: self.constraints,
        }
    }
}

/// A range of what is shared that has no input and no variable of a block's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Apart {
    /// What comes before it.
    pub(crate) begin: Extent,
    /// Itself.
    pub(crate) extent: Extent,
}

impl Apart {
    /// None if it has inputs, or nothing.
    pub(crate) fn between(from: &Sizes, to: &Sizes) -> Option<Self> {
        let this = Self {
            begin: Extent::between(&Sizes::default(), from),
            extent: Extent::between(from, to),
        };
        (this.extent.inputs == 0 && this.extent != Extent::default()).then_some(this)
    }

    /// Whether a shared variable is one of its own.
    pub(crate) fn has(&self, variable: u32) -> bool {
        let first = self.begin.aux;
        (first..first + self.extent.aux).contains(&(variable as usize))
    }

    /// Where a shared variable that is not stands among those that are not.
    pub(crate) fn skip(&self, variable: usize) -> usize {
        if variable < self.begin.aux {
            variable
        } else {
            variable - self.extent.aux
        }
    }
}

/// A circuit that repeats, stored once: from a witness it gives the same columns as a
/// synthesis of the whole circuit, without building a single linear combination.
///
/// Memory: six bytes a term and two a row and matrix, of the shared rows and one block.
/// For a PoRep of 32 GiB that is 180 MB without C.
#[derive(Debug)]
pub struct Template {
    shared: Extent,
    apart: Option<Apart>,
    block: Extent,
    /// Of each block, the shared variables that its rows use, by place.
    links: Vec<Box<[u32]>>,
    coefficients: Coefficients,
    shared_rows: Rows,
    block_rows: Rows,
    with_c: bool,
    digest: [u8; 32],
    /// Of the survey.
    allowance: Allowance,
}

impl Template {
    /// With the rows of C, in lists as they grew.
    pub(crate) fn new(
        (shared, shared_rows): (Extent, Rows),
        apart: Option<Apart>,
        (block, block_rows): (Extent, Rows),
        links: Vec<Box<[u32]>>,
        mut coefficients: Coefficients,
        mut allowance: Allowance,
    ) -> Result<Self, Uncut> {
        coefficients.finish(&mut allowance)?;
        let mut hash = Sha256::new();
        for extent in [shared, block] {
            for count in [extent.inputs, extent.aux, extent.constraints] {
                hash.update((count as u64).to_le_bytes());
            }
        }
        hash.update((links.len() as u64).to_le_bytes());
        for link in links.iter().flatten() {
            hash.update(link.to_le_bytes());
        }
        coefficients.hash(&mut hash);
        for rows in [&shared_rows, &block_rows] {
            rows.hash(&mut hash);
        }
        Ok(Self {
            shared,
            apart,
            block,
            links,
            coefficients,
            shared_rows,
            block_rows,
            with_c: true,
            digest: hash.finalize().into(),
            allowance,
        })
    }

    /// With no more memory than its rows take, of C `with_c`: one of the first block, once it
    /// is known to tell the circuit. While a list moves it has two homes, as in the survey, and
    /// counts with what that held.
    ///
    /// # Errors
    /// [`Uncut::TooLarge`] if that is more than the survey might take.
    pub fn trimmed(mut self, with_c: bool) -> Result<Self, Uncut> {
        self.with_c &= with_c;
        for rows in [&mut self.shared_rows, &mut self.block_rows] {
            if !with_c {
                self.allowance.give_back(rows.c.bytes());
                rows.c = Matrix::default();
            }
            rows.finish(&mut self.allowance)?;
        }
        debug_assert_eq!(self.bytes(), self.allowance.held_bytes() as u64);
        Ok(self)
    }

    /// What comes before the first block, the constant one included.
    pub fn shared(&self) -> Extent {
        self.shared
    }

    /// What all segments but the first leave out.
    pub(crate) fn apart(&self) -> Option<Apart> {
        self.apart
    }

    /// Bytes that each segment but the first takes beside the columns while it is filled:
    /// the variables that all blocks share, without those which it leaves out, and once more
    /// those that a block uses. Its public inputs are not counted.
    pub fn segment_bytes(&self) -> u64 {
        let left_out = self.apart.map_or(0, |apart| apart.extent.aux);
        let shared = (self.shared.aux - left_out) * size_of::<Scalar>();
        shared as u64 + self.first_segment_bytes()
    }

    /// Bytes that the first segment takes, which has what is shared in the columns.
    pub fn first_segment_bytes(&self) -> u64 {
        let linked = self.links.first().map_or(0, |links| links.len());
        (linked * size_of::<Scalar>()) as u64
    }

    /// One block.
    pub fn block(&self) -> Extent {
        self.block
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.links.len()
    }

    /// Whether all blocks use the same shared variables.
    pub fn is_uniform(&self) -> bool {
        self.links.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// The shared variables that the rows of a block use, by place.
    pub(crate) fn links(&self, block: usize) -> &[u32] {
        &self.links[block]
    }

    /// The rows that all blocks share.
    pub(crate) fn shared_rows(&self) -> &Rows {
        &self.shared_rows
    }

    /// The rows of one block.
    pub(crate) fn block_rows(&self) -> &Rows {
        &self.block_rows
    }

    pub(crate) fn coefficients(&self) -> &Coefficients {
        &self.coefficients
    }

    /// Whether C can be evaluated.
    pub fn has_c(&self) -> bool {
        self.with_c
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let links: usize = self.links.iter().map(|links| size_of_val(&**links)).sum();
        let bytes = size_of::<Self>()
            + self.shared_rows.bytes()
            + self.block_rows.bytes()
            + self.links.capacity() * size_of::<Box<[u32]>>()
            + links
            + self.coefficients.bytes();
        bytes as u64
    }

    /// The most bytes that the survey held that found it: the least limit with which it
    /// does.
    pub fn survey_bytes(&self) -> u64 {
        self.allowance.most_bytes() as u64
    }

    /// A digest of the three matrices and the numbers of blocks, variables and rows:
    /// equal for equal circuits.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Element counts of the whole circuit, the input rows included.
    pub fn sizes(&self) -> Sizes {
        let whole = self.shared.and(self.blocks(), self.block);
        Sizes {
            inputs: whole.inputs,
            aux: whole.aux,
            constraints: whole.constraints + whole.inputs,
        }
    }

    /// The densities of the whole circuit.
    pub fn densities(&self) -> Densities {
        let Sizes { inputs, aux, .. } = self.sizes();
        let zeros = |inputs: usize, aux: usize| Densities {
            a_aux: DensityBits::zeros(aux),
            b_inputs: DensityBits::zeros(inputs),
            b_aux: DensityBits::zeros(aux),
        };
        let mut whole = zeros(inputs, aux);
        let mut block = zeros(self.block.inputs, self.block.aux);
        let link_count = self.links.first().map_or(0, |links| links.len());
        let mut linked = zeros(self.shared.inputs, link_count);
        self.shared_rows.mark(&mut whole, &mut block);
        self.block_rows.mark(&mut linked, &mut block);
        whole.b_inputs.add_at(0, &linked.b_inputs);
        for (index, links) in self.links.iter().enumerate() {
            let begin = self.shared.and(index, self.block);
            whole.a_aux.add_at(begin.aux, &block.a_aux);
            whole.b_inputs.add_at(begin.inputs, &block.b_inputs);
            whole.b_aux.add_at(begin.aux, &block.b_aux);
            for (place, &variable) in links.iter().enumerate() {
                let pairs = [
                    (&linked.a_aux, &mut whole.a_aux),
                    (&linked.b_aux, &mut whole.b_aux),
                ];
                for (linked, whole) in pairs {
                    if linked.contains(place) {
                        whole.set(variable as usize);
                    }
                }
            }
        }
        whole
    }

    /// Writes the rows that all blocks share.
    pub(crate) fn evaluate_shared(&self, written: &Written<'_>, out: RowsOut<'_>) {
        let places = [&[][..], written.shared_aux, &[], written.shared_inputs];
        self.evaluate(&self.shared_rows, &places, out);
    }

    /// Writes the rows of block `block`, which is number `index` of those written.
    pub(crate) fn evaluate_block(
        &self,
        block: usize,
        index: usize,
        written: &Written<'_>,
        out: RowsOut<'_>,
    ) {
        let Extent { inputs, aux, .. } = self.block;
        let links = &self.links[block];
        let linked: Vec<Scalar> = links
            .iter()
            .map(|&variable| written.shared(variable as usize))
            .collect();
        let places = [
            &written.aux[index * aux..][..aux],
            &linked,
            &written.inputs[index * inputs..][..inputs],
            written.shared_inputs,
        ];
        self.evaluate(&self.block_rows, &places, out);
    }

    fn evaluate(&self, rows: &Rows, places: &Places<'_>, out: RowsOut<'_>) {
        rows.a.evaluate(&self.coefficients, places, out.a);
        rows.b.evaluate(&self.coefficients, places, out.b);
        if let Some(c) = out.c {
            assert!(self.with_c, "no column for C is cut or filled without it");
            rows.c.evaluate(&self.coefficients, places, c);
        }
    }
}

/// Where the values of rows go.
pub(crate) struct RowsOut<'a> {
    pub(crate) a: &'a mut [Scalar],
    pub(crate) b: &'a mut [Scalar],
    pub(crate) c: Option<&'a mut [Scalar]>,
}
