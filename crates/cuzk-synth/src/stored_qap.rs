//! The QAP at one point from a circuit's stored rows: a few blocks at a time, by whoever
//! likes, into columns that the caller owns.
//!
//! A block adds to the variables of its own, which lie in a range of the columns that is
//! nobody else's, and to shared variables and inputs, whose sums each piece keeps apart until
//! all are there. So pieces need no lock and no order; memory beside the columns is three
//! scalars for each shared variable that a block uses, for each block, and for each input
//! that is shared, for each piece.

use std::ops::Range;

use blstrs::Scalar;
use ff::Field;

use crate::error::{ColumnName, SynthError};
use crate::qap::{Lagrange, QapColumns};
use crate::rows::{Coefficients, PlacesMut, Rows};
use crate::template::{Extent, Template};

/// Evaluations of the polynomials of auxiliary variables, one each, all zero at first.
#[derive(Debug)]
pub struct QapAux<'a> {
    /// Of A.
    pub a: &'a mut [Scalar],
    /// Of B.
    pub b: &'a mut [Scalar],
    /// Of C.
    pub c: &'a mut [Scalar],
}

/// A few blocks, to be evaluated.
#[derive(Debug)]
pub struct QapPiece<'a> {
    blocks: Range<usize>,
    /// The variables of its blocks.
    own: QapAux<'a>,
    lagrange: Lagrange,
}

/// What is left for the end: the variables that all blocks share.
#[derive(Debug)]
pub struct QapRest<'a> {
    shared: QapAux<'a>,
    lagrange: Lagrange,
}

/// What a piece adds to what it has not alone.
#[derive(Debug)]
pub struct QapPart {
    first: usize,
    /// Of each block, its shared variables, by place.
    linked: Vec<QapColumns>,
    shared_inputs: QapColumns,
    /// Inputs of its blocks.
    inputs: QapColumns,
}

impl<'a> QapAux<'a> {
    fn split(self, len: usize) -> (Self, Self) {
        let (a, a_rest) = self.a.split_at_mut(len);
        let (b, b_rest) = self.b.split_at_mut(len);
        let (c, c_rest) = self.c.split_at_mut(len);
        let rest = Self {
            a: a_rest,
            b: b_rest,
            c: c_rest,
        };
        (Self { a, b, c }, rest)
    }
}

impl QapColumns {
    fn zeros(len: usize) -> Self {
        let column = || vec![Scalar::ZERO; len];
        Self {
            a: column(),
            b: column(),
            c: column(),
        }
    }

    fn add(&mut self, other: &Self) {
        for (sums, more) in [
            (&mut self.a, &other.a),
            (&mut self.b, &other.b),
            (&mut self.c, &other.c),
        ] {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
    }

    fn extend(&mut self, other: &Self) {
        self.a.extend_from_slice(&other.a);
        self.b.extend_from_slice(&other.b);
        self.c.extend_from_slice(&other.c);
    }
}

impl Template {
    /// Cuts columns, all zero and as long as the circuit has auxiliary variables, into at
    /// most `pieces` pieces of whole blocks for an evaluation at `tau`.
    ///
    /// # Errors
    /// [`SynthError::TauInDomain`] and [`SynthError::DomainTooLarge`] if there is no
    /// Lagrange basis, [`SynthError::HintTooSmall`] if a column is too short, and
    /// [`SynthError::NoC`] if the template [has none](Self::has_c).
    pub fn cut_qap<'a>(
        &self,
        aux: QapAux<'a>,
        tau: Scalar,
        pieces: usize,
    ) -> Result<(Vec<QapPiece<'a>>, QapRest<'a>), SynthError> {
        if !self.has_c() {
            return Err(SynthError::NoC);
        }
        let want = self.sizes();
        for (column, have) in [
            (ColumnName::A, aux.a.len()),
            (ColumnName::B, aux.b.len()),
            (ColumnName::C, aux.c.len()),
        ] {
            if have < want.aux {
                return Err(SynthError::HintTooSmall { column, have, want });
            }
        }
        let lagrange = Lagrange::new(want.constraints, tau)?;
        let (shared, mut left) = aux.split(self.shared().aux);
        let each = self.blocks().div_ceil(pieces.max(1));
        let mut cut = Vec::new();
        for first in (0..self.blocks()).step_by(each.max(1)) {
            let blocks = first..self.blocks().min(first + each);
            let (own, rest) = left.split(blocks.len() * self.block().aux);
            left = rest;
            let begin = self.shared().and(first, self.block());
            cut.push(QapPiece {
                blocks,
                own,
                lagrange: lagrange.starting(begin.constraints),
            });
        }
        Ok((cut, QapRest { shared, lagrange }))
    }

    /// Evaluates a piece.
    pub fn evaluate_qap(&self, piece: QapPiece<'_>) -> QapPart {
        let QapPiece {
            blocks,
            mut own,
            mut lagrange,
        } = piece;
        let Extent { inputs, aux, .. } = self.block();
        let mut part = QapPart {
            first: blocks.start,
            linked: Vec::with_capacity(blocks.len()),
            shared_inputs: QapColumns::zeros(self.shared().inputs),
            inputs: QapColumns::zeros(blocks.len() * inputs),
        };
        for (index, block) in blocks.enumerate() {
            let links = self.links(block);
            let mut linked = QapColumns::zeros(links.len());
            let (this, rest) = own.split(aux);
            own = rest;
            let at = index * inputs..(index + 1) * inputs;
            let places = [
                [
                    this.a,
                    &mut linked.a,
                    &mut part.inputs.a[at.clone()],
                    &mut part.shared_inputs.a,
                ],
                [
                    this.b,
                    &mut linked.b,
                    &mut part.inputs.b[at.clone()],
                    &mut part.shared_inputs.b,
                ],
                [
                    this.c,
                    &mut linked.c,
                    &mut part.inputs.c[at],
                    &mut part.shared_inputs.c,
                ],
            ];
            add_rows(
                self.block_rows(),
                self.coefficients(),
                &mut lagrange,
                places,
            );
            part.linked.push(linked);
        }
        part
    }

    /// Adds up what pieces share, in any order. The columns are complete then; it returns
    /// those of the inputs, the constant one first.
    ///
    /// # Panics
    /// If the parts are not those of all pieces.
    pub fn finish_qap(&self, rest: QapRest<'_>, mut parts: Vec<QapPart>) -> QapColumns {
        let QapRest {
            shared: aux,
            mut lagrange,
        } = rest;
        parts.sort_unstable_by_key(|part| part.first);
        let mut inputs = QapColumns::zeros(self.shared().inputs);
        let QapColumns { a, b, c } = &mut inputs;
        let places: [PlacesMut<'_>; 3] = [
            [&mut [], &mut *aux.a, &mut [], a],
            [&mut [], &mut *aux.b, &mut [], b],
            [&mut [], &mut *aux.c, &mut [], c],
        ];
        add_rows(
            self.shared_rows(),
            self.coefficients(),
            &mut lagrange,
            places,
        );
        for part in &parts {
            inputs.add(&part.shared_inputs);
            for (block, linked) in (part.first..).zip(&part.linked) {
                for (place, &variable) in self.links(block).iter().enumerate() {
                    let variable = variable as usize;
                    aux.a[variable] += linked.a[place];
                    aux.b[variable] += linked.b[place];
                    aux.c[variable] += linked.c[place];
                }
            }
        }
        for part in &parts {
            inputs.extend(&part.inputs);
        }
        let sizes = self.sizes();
        assert_eq!(inputs.a.len(), sizes.inputs, "parts of all pieces");
        // The rows of the inputs come last: input * 0 = 0.
        let mut lagrange = lagrange.starting(sizes.constraints - sizes.inputs);
        for value in &mut inputs.a {
            *value += lagrange.next();
        }
        inputs
    }
}

/// Adds rows to the variables that they use, the places of each matrix apart.
fn add_rows(
    rows: &Rows,
    coefficients: &Coefficients,
    lagrange: &mut Lagrange,
    [mut a, mut b, mut c]: [PlacesMut<'_>; 3],
) {
    let mut walks = [&rows.a, &rows.b, &rows.c].map(|matrix| matrix.walk(coefficients));
    for _ in 0..rows.a.rows() {
        let basis = lagrange.next();
        for (walk, places) in walks.iter_mut().zip([&mut a, &mut b, &mut c]) {
            walk.add_row(basis, places);
        }
    }
}
