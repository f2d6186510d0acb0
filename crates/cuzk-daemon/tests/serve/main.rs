//! The server as its clients meet it: on real transports, with real proofs of 2 KiB
//! sectors.

mod commands;
mod ends;
mod held;
mod hostile;
mod keys;
mod limits;
mod lost;
mod names;
mod numbers;
mod pictures;
mod program;
mod support;
mod waits;
