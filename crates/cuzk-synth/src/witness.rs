//! The witness pass: values of variables and nothing else. Rows come from a template,
//! so no linear combination is asked for.

use blstrs::Scalar;

use crate::error::{SegmentPart, SynthError};
use crate::template::{Apart, Extent};

/// Values that a witness pass wrote.
pub(crate) struct Written<'a> {
    pub(crate) shared_inputs: &'a [Scalar],
    pub(crate) shared_aux: &'a [Scalar],
    /// What of the shared variables is missing.
    pub(crate) apart: Option<Apart>,
    /// Of the blocks, one after the other.
    pub(crate) inputs: &'a [Scalar],
    /// Of the blocks, one after the other.
    pub(crate) aux: &'a [Scalar],
}

impl Written<'_> {
    /// The value of a shared variable that is not missing.
    pub(crate) fn shared(&self, variable: usize) -> Scalar {
        let place = self.apart.map_or(variable, |apart| apart.skip(variable));
        self.shared_aux[place]
    }
}

/// State of the pass. A segment is what all blocks share, then its own blocks. The first
/// one writes all into the columns; the others keep what is shared beside them, but for
/// what stands apart, which they leave out.
pub(crate) struct Witness<'a> {
    shared: Extent,
    /// What is to be left out.
    apart: Option<Apart>,
    inputs: Vec<Scalar>,
    shared_aux: &'a mut [Scalar],
    /// Shared variables so far.
    shared_aux_len: usize,
    aux: &'a mut [Scalar],
    /// Variables of the blocks so far, also those that `aux` has no room for.
    aux_len: usize,
    rows: usize,
}

impl<'a> Witness<'a> {
    /// `shared_aux` has a place for each shared variable that is not left out. `inputs` is
    /// how many there are to be, so that no more is held for them.
    pub(crate) fn new(
        shared: Extent,
        inputs: usize,
        apart: Option<Apart>,
        shared_aux: &'a mut [Scalar],
        aux: &'a mut [Scalar],
    ) -> Self {
        Self {
            shared,
            apart,
            inputs: Vec::with_capacity(inputs),
            shared_aux,
            shared_aux_len: 0,
            aux,
            aux_len: 0,
            rows: 0,
        }
    }

    #[inline]
    pub(crate) fn alloc(&mut self, value: Scalar) {
        if let Some(place) = self.shared_aux.get_mut(self.shared_aux_len) {
            *place = value;
            self.shared_aux_len += 1;
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

    /// Whether what is to be left out would begin here.
    pub(crate) fn leaves_out(&self) -> bool {
        let at = Extent {
            inputs: self.inputs.len(),
            aux: self.shared_aux_len,
            constraints: self.rows,
        };
        self.apart.is_some_and(|apart| apart.begin == at)
    }

    /// Whether the segment has the variables and rows of so many blocks.
    pub(crate) fn check(&self, blocks: usize, block: Extent) -> Result<(), SynthError> {
        let mut want = self.shared.and(blocks, block);
        if let Some(Apart { extent, .. }) = self.apart {
            want.aux -= extent.aux;
            want.constraints -= extent.constraints;
        }
        let have = Extent {
            inputs: self.inputs.len(),
            aux: self.shared_aux_len + self.aux_len,
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
        // So many places there are, and those of what is shared are written first.
        assert_eq!(
            (self.shared_aux_len, self.aux_len),
            (self.shared_aux.len(), self.aux.len()),
            "columns of the template's sizes"
        );
        Ok(())
    }

    /// The values, once they are checked.
    pub(crate) fn written(&self) -> Written<'_> {
        let (shared_inputs, inputs) = self.inputs.split_at(self.shared.inputs);
        Written {
            shared_inputs,
            shared_aux: self.shared_aux,
            apart: self.apart,
            inputs,
            aux: &self.aux[..self.aux_len],
        }
    }

    pub(crate) fn into_inputs(self) -> Vec<Scalar> {
        self.inputs
    }
}
