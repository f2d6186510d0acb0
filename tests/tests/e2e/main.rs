//! End to end: request files through the `cuzk` program, judged by the stock
//! software.

mod accepted;
mod bytes;
mod compare;
mod deadline;
mod draw;
mod ends;
mod full;
mod live;
mod one_proof;
mod python;
mod refused;
mod replay;
mod scaling;
mod served;
mod support;
mod synth;
