//! The witness pass: values of variables and nothing else. Rows come from a template,
//! so no linear combination is asked for.

use blstrs::Scalar;

use crate::error::{SegmentPart, SynthError};
use crate::template::Extent;

/// Values that a witness pass wrote.
pub(crate) struct Written<'a> {
    pub(crate) shared_inputs: &'a [Scalar],
    pub(crate) shared_aux: &'a [Scalar],
    /// Of the blocks, one after the other.
    pub(crate) inputs: &'a [Scalar],
    /// Of the blocks, one after the other.
    pub(crate) aux: &'a [Scalar],
}

/// State of the pass. A segment is what all blocks share, then its own blocks: what is
/// shared is written beside the columns, and what is its own into them.
pub(crate) struct Witness<'a> {
    shared: Extent,
    inputs: Vec<Scalar>,
    shared_aux: Vec<Scalar>,
    aux: &'a mut [Scalar],
    /// Variables of the blocks so far, also those that `aux` has no room for.
    aux_len: usize,
    rows: usize,
}

impl<'a> Witness<'a> {
    pub(crate) fn new(shared: Extent, aux: &'a mut [Scalar]) -> Self {
        Self {
            shared,
            inputs: Vec::with_capacity(shared.inputs),
            shared_aux: Vec::with_capacity(shared.aux),
            aux,
            aux_len: 0,
            rows: 0,
        }
    }

    #[inline]
    pub(crate) fn alloc(&mut self, value: Scalar) {
        if self.shared_aux.len() < self.shared.aux {
            self.shared_aux.push(value);
            return;
        }
        if let Some(place) = self.aux.get_mut(self.aux_len) {
            *place = value;
        }
        self.aux_len += 1;
    }

    pub(crate) fn alloc_input(&mut self, value: Scalar) {
        self.inputs.push(value);
    }

    #[inline]
    pub(crate) fn enforce(&mut self) {
        self.rows += 1;
    }

    /// Whether the segment has the variables and rows of so many blocks.
    pub(crate) fn check(&self, blocks: usize, block: Extent) -> Result<(), SynthError> {
        let want = self.shared.and(blocks, block);
        let have = Extent {
            inputs: self.inputs.len(),
            aux: self.shared_aux.len() + self.aux_len,
            constraints: self.rows,
        };
        let pairs = [
            (SegmentPart::Inputs, have.inputs, want.inputs),
            (SegmentPart::Aux, have.aux, want.aux),
            (SegmentPart::Constraints, have.constraints, want.constraints),
        ];
        for (part, have, want) in pairs {
            if have != want {
                return Err(SynthError::OtherSegment { part, have, want });
            }
        }
        Ok(())
    }

    /// The values, once they are checked.
    pub(crate) fn written(&self) -> Written<'_> {
        let (shared_inputs, inputs) = self.inputs.split_at(self.shared.inputs);
        Written {
            shared_inputs,
            shared_aux: &self.shared_aux,
            inputs,
            aux: &self.aux[..self.aux_len],
        }
    }

    pub(crate) fn into_inputs(self) -> Vec<Scalar> {
        self.inputs
    }
}
