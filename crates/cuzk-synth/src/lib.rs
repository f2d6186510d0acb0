//! Circuits to assignments.
//!
//! A bellpepper circuit is synthesised into [`Pass`], one concrete constraint
//! system that does one of these things:
//!
//! | pass | gives | needs a witness |
//! |---|---|---|
//! | [`assign()`] | the columns a, b, aux (c as asked), inputs, densities | yes |
//! | [`count()`] | sizes and densities | no |
//! | [`qap()`] | the QAP at one point, for key generation | no |
//! | [`survey()`] | whether the circuit repeats, and its rows, stored once | no |
//! | [`Comparison::walk`] | whether a circuit is what its first block tells, by several threads | no |
//! | [`Template::fill`] | a range of the columns, its rows evaluated from those | yes |
//! | [`explain()`] | whether every row holds, and the first that does not | yes |
//!
//! Columns are slices that the caller owns; this crate knows no pool, no device
//! and no key. It holds no unsafe code.
//!
//! Invariants: a zero coefficient never makes a variable dense; every pass over
//! one circuit numbers variables and rows alike; values never appear in errors.
//!
//! ```
//! use bellpepper_core::{ConstraintSystem, num::AllocatedNum};
//! use blstrs::Scalar;
//! use cuzk_synth::{AssignColumns, Pass, assign, count};
//!
//! // x * x = y, y public.
//! let square = |x: u64| move |pass: &mut Pass<'_>| {
//!     let x = AllocatedNum::alloc(pass.namespace(|| "x"), || Ok(Scalar::from(x)))?;
//!     x.square(pass.namespace(|| "square"))?.inputize(pass.namespace(|| "y"))
//! };
//! let sizes = count(square(0))?.sizes;
//! let zeros = |len| vec![Scalar::from(0); len];
//! let (mut a, mut b, mut aux) =
//!     (zeros(sizes.constraints), zeros(sizes.constraints), zeros(sizes.aux));
//! let columns = AssignColumns { a: &mut a, b: &mut b, c: None, aux: &mut aux };
//! let assigned = assign(columns, square(5))?;
//! assert_eq!(assigned.inputs, [Scalar::from(1), Scalar::from(25)]);
//! # Ok::<(), cuzk_synth::SynthError>(())
//! ```
//!
//! A circuit that needs a value it was not given, such as a blank one in [`assign()`], ends
//! with [`SynthError::Circuit`].
//!
//! # Segments
//!
//! A circuit that repeats is surveyed once, blank. Its [`Template`] then fills the columns in
//! segments, in any order and at the same time; a segment synthesises what all blocks share
//! and its own blocks, and evaluates its rows from stored ones.
//!
//! ```
//! use bellpepper_core::{ConstraintSystem, SynthesisError, num::AllocatedNum};
//! use blstrs::Scalar;
//! use cuzk_synth::{AssignColumns, Cut, Extend, Pass, assign_growing, survey};
//! use std::ops::Range;
//!
//! // The first number is shared; a block multiplies it by one of its own, for a public product.
//! fn products(
//!     pass: &mut Pass<'_>,
//!     witness: Option<(u64, [u64; 2])>,
//!     blocks: Range<usize>,
//! ) -> Result<(), SynthesisError> {
//!     let value = |x: Option<u64>| x.map(Scalar::from).ok_or(SynthesisError::AssignmentMissing);
//!     let shared = || value(witness.map(|(shared, _)| shared));
//!     let shared = AllocatedNum::alloc(pass.namespace(|| "shared"), shared)?;
//!     for block in blocks {
//!         let mut space = pass.namespace(|| format!("block {block}"));
//!         let own = || value(witness.map(|(_, own)| own[block]));
//!         let own = AllocatedNum::alloc(space.namespace(|| "own"), own)?;
//!         let product = shared.mul(space.namespace(|| "product"), &own)?;
//!         product.inputize(space.namespace(|| "public"))?;
//!     }
//!     Ok(())
//! }
//!
//! let cut = Cut { depth: 0, name: "block ", apart: None };
//! let surveyed = survey(cut, Extend::Whole, false, 1 << 20, |pass| products(pass, None, 0..2))?;
//! let template = surveyed.expect("it repeats");
//! let witness = Some((5, [6, 7]));
//!
//! let sizes = template.sizes();
//! let zeros = |len| vec![Scalar::from(0); len];
//! let (mut a, mut b, mut aux) =
//!     (zeros(sizes.constraints), zeros(sizes.constraints), zeros(sizes.aux));
//! let columns = AssignColumns { a: &mut a, b: &mut b, c: None, aux: &mut aux };
//! let cut = template.cut(columns, 2)?;
//! let mut filled = Vec::new();
//! for segment in cut.segments {
//!     let range = segment.blocks();
//!     filled.push(template.fill(segment, |pass| products(pass, witness, range))?);
//! }
//! let inputs = template.finish(cut.rest, filled)?;
//!
//! let (whole, assigned) = assign_growing(false, |pass| products(pass, witness, 0..2))?;
//! assert_eq!((a, b, aux, inputs), (whole.a, whole.b, whole.aux, assigned.inputs));
//! # Ok::<(), cuzk_synth::SynthError>(())
//! ```
//!
//! Circuits are bellpepper-core's and scalars blstrs': depend on both, in the versions that
//! this workspace names. The sizes and densities found here become the shape that a prover
//! wants with `cuzk_core::circuit_shape`.
#![forbid(unsafe_code)]

mod assign;
mod count;
mod qap;

mod allowance;
mod compare;
mod rows;
mod survey;
mod template;
mod uncut;

mod replay;
mod stored_qap;
mod witness;

mod explain;

mod density;
mod error;
mod hints;
mod linear;
mod pass;
mod sizes;

pub use assign::{AssignColumns, Assigned, GrownColumns, assign, assign_growing};
pub use compare::Comparison;
pub use count::{Counted, count};
pub use density::{Densities, DensityBits};
pub use error::{ColumnName, HintError, SegmentPart, SynthError};
pub use explain::{Explained, FailedConstraint, explain};
pub use hints::{CutHint, Hint, HintStore};
pub use pass::Pass;
pub use qap::{QapAtTau, QapColumns, qap};
pub use replay::{CutColumns, FilledSegment, RestColumns, SegmentColumns};
pub use sizes::Sizes;
pub use stored_qap::{QapAux, QapPart, QapPiece, QapRest};
pub use survey::{Cut, Extend, survey};
pub use template::{Extent, Template};
pub use uncut::Uncut;

use pass::run;
