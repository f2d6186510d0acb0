//! Rows of constraints, stored: what a survey keeps and a replay evaluates.
//!
//! A term takes six bytes: a variable's place in four, and in two which of the few
//! thousand different coefficients it has. PoRep of 32 GiB has 7.2 million rows a
//! challenge, with 17 million terms in A, 7 million in B and 16 million in C.

use std::collections::HashMap;

use bellpepper_core::LinearCombination;
use blstrs::Scalar;
use ff::Field;
use sha2::{Digest, Sha256};

use crate::allowance::{Allowance, list_bytes, map_bytes};
use crate::density::Densities;
use crate::template::Extent;
use crate::{Sizes, Uncut};

/// Where a variable stands, in the two highest bits of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Place {
    BlockAux = 0,
    SharedAux = 1,
    BlockInput = 2,
    SharedInput = 3,
}

const PLACE_BITS: u32 = 30;
const INDEX_MASK: u32 = (1 << PLACE_BITS) - 1;

/// Codes of the two most frequent coefficients, one and minus one.
const ONE: u16 = 0;
const MINUS_ONE: u16 = 1;

/// A variable by its place and its index there; `None` past 2^30 of them.
pub(crate) fn code(place: Place, index: usize) -> Option<u32> {
    let index = u32::try_from(index).ok().filter(|&i| i <= INDEX_MASK)?;
    Some((place as u32) << PLACE_BITS | index)
}

/// The place of a code, and its index there.
pub(crate) fn place(code: u32) -> (Place, usize) {
    let place = match code >> PLACE_BITS {
        0 => Place::BlockAux,
        1 => Place::SharedAux,
        2 => Place::BlockInput,
        _ => Place::SharedInput,
    };
    (place, (code & INDEX_MASK) as usize)
}

/// What variables are called that no row may use: it reaches beyond every block.
pub(crate) const SKIPPED: usize = usize::MAX >> 1;

/// From where the variables of a row are counted: what is shared, and the block that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) shared: Extent,
    /// Where its block begins, unless the row is shared too.
    pub(crate) begin: Option<Sizes>,
}

impl Origin {
    /// The code of an input. What lies between the shared ones and the block is of another
    /// block, and has none.
    pub(crate) fn input(&self, index: usize) -> Option<u32> {
        match self.begin {
            Some(begin) if index >= self.shared.inputs => {
                code(Place::BlockInput, index.checked_sub(begin.inputs)?)
            }
            _ => code(Place::SharedInput, index),
        }
    }

    /// The code of an auxiliary variable, likewise.
    pub(crate) fn aux(&self, index: usize) -> Option<u32> {
        match self.begin {
            Some(begin) if index >= self.shared.aux => {
                code(Place::BlockAux, index.checked_sub(begin.aux)?)
            }
            _ => code(Place::SharedAux, index),
        }
    }
}

/// Values by place, in the order of [`Place`].
pub(crate) type Places<'a> = [&'a [Scalar]; 4];

/// Sums by place, in the same order.
pub(crate) type PlacesMut<'a> = [&'a mut [Scalar]; 4];

/// A variable's code with its coefficient.
pub(crate) type Term = (u32, Scalar);

/// The coefficients of a circuit, each once.
#[derive(Debug)]
pub(crate) struct Coefficients {
    values: Vec<Scalar>,
    /// Codes of all but the first two. Empty once the survey is over.
    known: HashMap<[u8; 32], u16>,
}

impl Coefficients {
    pub(crate) fn new(allowance: &mut Allowance) -> Result<Self, Uncut> {
        let mut values = Vec::new();
        allowance.reserve(&mut values, 2)?;
        // In the order of their codes.
        values.extend([Scalar::ONE, -Scalar::ONE]);
        let known = HashMap::new();
        Ok(Self { values, known })
    }

    /// The code of a coefficient.
    fn code(&mut self, coefficient: &Scalar, allowance: &mut Allowance) -> Result<u16, Uncut> {
        if *coefficient == self.values[usize::from(ONE)] {
            return Ok(ONE);
        }
        if *coefficient == self.values[usize::from(MINUS_ONE)] {
            return Ok(MINUS_ONE);
        }
        let bytes = coefficient.to_bytes_le();
        if let Some(&code) = self.known.get(&bytes) {
            return Ok(code);
        }
        let code = u16::try_from(self.values.len()).map_err(|_| Uncut::TooVaried)?;
        allowance.reserve(&mut self.values, 1)?;
        allowance.reserve_entry(&mut self.known)?;
        self.values.push(*coefficient);
        self.known.insert(bytes, code);
        Ok(code)
    }

    pub(crate) fn finish(&mut self, allowance: &mut Allowance) -> Result<(), Uncut> {
        allowance.give_back(map_bytes(&self.known));
        self.known = HashMap::new();
        allowance.shrink(&mut self.values)
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        list_bytes(&self.values) + map_bytes(&self.known)
    }

    pub(crate) fn hash(&self, hash: &mut Sha256) {
        hash.update((self.values.len() as u64).to_le_bytes());
        for value in &self.values {
            hash.update(value.to_bytes_le());
        }
    }
}

/// Rows of one matrix, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    /// Terms of each row.
    lens: Vec<u16>,
    variables: Vec<u32>,
    coefficients: Vec<u16>,
}

/// Where a walk over a matrix stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    row: usize,
    term: usize,
}

impl Matrix {
    /// Bytes that it holds, what it may grow into included.
    pub(crate) fn bytes(&self) -> usize {
        list_bytes(&self.lens) + list_bytes(&self.variables) + list_bytes(&self.coefficients)
    }

    /// Adds a row.
    pub(crate) fn push(
        &mut self,
        terms: &[Term],
        coefficients: &mut Coefficients,
        allowance: &mut Allowance,
    ) -> Result<(), Uncut> {
        let len = u16::try_from(terms.len()).map_err(|_| Uncut::TooVaried)?;
        allowance.reserve(&mut self.lens, 1)?;
        allowance.reserve(&mut self.variables, terms.len())?;
        allowance.reserve(&mut self.coefficients, terms.len())?;
        for (variable, coefficient) in terms {
            let code = coefficients.code(coefficient, allowance)?;
            self.variables.push(*variable);
            self.coefficients.push(code);
        }
        self.lens.push(len);
        Ok(())
    }

    /// Whether the row under the cursor has exactly these terms; moves on to the next.
    /// Of shared variables `linked` says whether the one that is stored so stands for the
    /// one of this code here.
    pub(crate) fn matches(
        &self,
        cursor: &mut Cursor,
        terms: &[Term],
        coefficients: &Coefficients,
        mut linked: impl FnMut(usize, u32) -> bool,
    ) -> bool {
        let Some(&len) = self.lens.get(cursor.row) else {
            return false;
        };
        let range = cursor.term..cursor.term + usize::from(len);
        cursor.row += 1;
        cursor.term = range.end;
        let codes = &self.coefficients[range.clone()];
        let stored = self.variables[range].iter().zip(codes);
        terms.len() == usize::from(len)
            && stored.zip(terms).all(|((&variable, &code), term)| {
                let same = match place(variable) {
                    (Place::SharedAux, link) => {
                        place(term.0).0 == Place::SharedAux && linked(link, term.0)
                    }
                    _ => variable == term.0,
                };
                same && coefficients.values[usize::from(code)] == term.1
            })
    }

    /// Writes the value of each row; `out` has a place for each.
    pub(crate) fn evaluate(
        &self,
        coefficients: &Coefficients,
        places: &Places<'_>,
        out: &mut [Scalar],
    ) {
        assert_eq!(self.lens.len(), out.len(), "a place for each row");
        let mut terms = self.variables.iter().zip(&self.coefficients);
        for (&len, out) in self.lens.iter().zip(out) {
            let mut sum = Scalar::ZERO;
            for (&variable, &code) in terms.by_ref().take(usize::from(len)) {
                let place = places[(variable >> PLACE_BITS) as usize];
                let value = &place[(variable & INDEX_MASK) as usize];
                add_term(&mut sum, code, &coefficients.values, value);
            }
            *out = sum;
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.lens.len()
    }

    /// Terms of the longest row.
    fn longest(&self) -> usize {
        self.lens.iter().copied().max().unwrap_or(0).into()
    }

    /// Begins a walk from the first row on.
    pub(crate) fn walk<'a>(&'a self, coefficients: &'a Coefficients) -> Walk<'a> {
        Walk {
            lens: self.lens.iter(),
            variables: self.variables.iter(),
            codes: self.coefficients.iter(),
            coefficients: &coefficients.values,
        }
    }

    /// Calls `mark` with each variable that the rows use, as often as they do.
    pub(crate) fn variables(&self, mut mark: impl FnMut(Place, usize)) {
        for &variable in &self.variables {
            let (place, index) = place(variable);
            mark(place, index);
        }
    }

    pub(crate) fn finish(&mut self, allowance: &mut Allowance) -> Result<(), Uncut> {
        allowance.shrink(&mut self.lens)?;
        allowance.shrink(&mut self.variables)?;
        allowance.shrink(&mut self.coefficients)
    }

    pub(crate) fn hash(&self, hash: &mut Sha256) {
        hash.update((self.lens.len() as u64).to_le_bytes());
        hash.update((self.variables.len() as u64).to_le_bytes());
        // A few thousand numbers at a time, so that the digest is not called for each.
        let mut bytes = Vec::with_capacity(1 << 14);
        let mut add = |more: &[u8]| {
            bytes.extend_from_slice(more);
            if bytes.len() >= 1 << 14 {
                hash.update(&bytes);
                bytes.clear();
            }
        };
        self.lens.iter().for_each(|len| add(&len.to_le_bytes()));
        self.variables
            .iter()
            .for_each(|code| add(&code.to_le_bytes()));
        self.coefficients
            .iter()
            .for_each(|code| add(&code.to_le_bytes()));
        hash.update(&bytes);
    }
}

/// A walk over the rows of a matrix.
pub(crate) struct Walk<'a> {
    lens: std::slice::Iter<'a, u16>,
    variables: std::slice::Iter<'a, u32>,
    codes: std::slice::Iter<'a, u16>,
    coefficients: &'a [Scalar],
}

impl Walk<'_> {
    /// Adds the next row, times `basis`, to the variables that it uses. After the last row
    /// it does nothing.
    #[inline]
    pub(crate) fn add_row(&mut self, basis: Scalar, places: &mut PlacesMut<'_>) {
        let len = usize::from(self.lens.next().copied().unwrap_or(0));
        let terms = self.variables.by_ref().zip(self.codes.by_ref());
        for (&variable, &code) in terms.take(len) {
            let sum = &mut places[(variable >> PLACE_BITS) as usize];
            let sum = &mut sum[(variable & INDEX_MASK) as usize];
            match code {
                ONE => *sum += basis,
                MINUS_ONE => *sum -= basis,
                code => *sum += basis * self.coefficients[usize::from(code)],
            }
        }
    }
}

/// Half of the values are zero, nearly all others one, and four of five coefficients one
/// or minus one: a multiplication is for what is left, and an addition for what is not the
/// first of its row.
#[inline]
fn add_term(sum: &mut Scalar, code: u16, coefficients: &[Scalar], value: &Scalar) {
    if *value == Scalar::ZERO {
        return;
    }
    let product = match code {
        ONE => *value,
        code => {
            let coefficient = coefficients[usize::from(code)];
            if *value == Scalar::ONE {
                coefficient
            } else if code == MINUS_ONE {
                -*value
            } else {
                *value * coefficient
            }
        }
    };
    if *sum == Scalar::ZERO {
        *sum = product;
    } else {
        *sum += product;
    }
}

/// The matrices of a range of rows.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    /// Without rows where nobody evaluates C.
    pub(crate) c: Matrix,
}

impl Rows {
    pub(crate) fn bytes(&self) -> usize {
        self.a.bytes() + self.b.bytes() + self.c.bytes()
    }

    /// Terms of the longest row.
    pub(crate) fn longest(&self) -> usize {
        let matrices = [&self.a, &self.b, &self.c].into_iter();
        matrices.map(Matrix::longest).max().unwrap_or(0)
    }

    /// Marks the variables that are dense in these rows.
    pub(crate) fn mark(&self, shared: &mut Densities, block: &mut Densities) {
        self.a.variables(|place, index| match place {
            Place::SharedAux => shared.a_aux.set(index),
            Place::BlockAux => block.a_aux.set(index),
            // Inputs are all in the A query.
            Place::SharedInput | Place::BlockInput => {}
        });
        self.b.variables(|place, index| match place {
            Place::SharedAux => shared.b_aux.set(index),
            Place::BlockAux => block.b_aux.set(index),
            Place::SharedInput => shared.b_inputs.set(index),
            Place::BlockInput => block.b_inputs.set(index),
        });
    }

    pub(crate) fn finish(&mut self, allowance: &mut Allowance) -> Result<(), Uncut> {
        let mut matrices = [&mut self.a, &mut self.b, &mut self.c].into_iter();
        matrices.try_for_each(|matrix| matrix.finish(allowance))
    }

    pub(crate) fn hash(&self, hash: &mut Sha256) {
        for matrix in [&self.a, &self.b, &self.c] {
            matrix.hash(hash);
        }
    }
}

/// Gathers the terms of a linear combination whose coefficient is not zero, with the
/// codes that `input` and `aux` give, no more than a row may have.
pub(crate) fn gather(
    into: &mut Vec<Term>,
    lc: &LinearCombination<Scalar>,
    input: impl Fn(usize) -> Result<u32, Uncut>,
    aux: impl Fn(usize) -> Result<u32, Uncut>,
    allowance: &mut Allowance,
) -> Result<(), Uncut> {
    into.clear();
    let mut add = |code: Result<u32, Uncut>, coefficient: &Scalar| {
        if *coefficient == Scalar::ZERO {
            return Ok(());
        }
        if into.len() == usize::from(u16::MAX) {
            return Err(Uncut::TooVaried);
        }
        allowance.reserve(into, 1)?;
        into.push((code?, *coefficient));
        Ok(())
    };
    lc.iter_inputs()
        .try_for_each(|(&index, value)| add(input(index), value))?;
    lc.iter_aux()
        .try_for_each(|(&index, value)| add(aux(index), value))
}
