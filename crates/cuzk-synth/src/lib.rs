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
#![forbid(unsafe_code)]

mod assign;
mod count;
mod qap;

mod allowance;
mod rows;
mod survey;
mod template;

mod replay;
mod witness;

mod explain;

mod density;
mod error;
mod hints;
mod linear;
mod pass;
mod sizes;

pub use assign::{AssignColumns, Assigned, GrownColumns, assign, assign_growing};
pub use count::{Counted, count};
pub use density::{Densities, DensityBits};
pub use error::{ColumnName, HintError, SegmentPart, SynthError};
pub use explain::{Explained, FailedConstraint, explain};
pub use hints::{CutHint, Hint, HintStore};
pub use pass::Pass;
pub use qap::{QapAtTau, QapColumns, qap};
pub use replay::{CutColumns, FilledSegment, RestColumns, SegmentColumns};
pub use sizes::Sizes;
pub use survey::{Cut, Extend, Uncut, survey};
pub use template::{Extent, Template};

use pass::run;
