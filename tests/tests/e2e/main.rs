//! End to end: request files through the `cuzk` program, judged by the stock
//! software.

mod accepted;
mod bytes;
mod refused;
mod support;
