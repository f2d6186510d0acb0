//! Support of the end-to-end tests and of the measuring program: the stock software
//! as an oracle beside ours.
#![forbid(unsafe_code)]

pub mod chain;
pub mod mixed;
pub mod oracle;
pub mod record;
pub mod request;
pub mod stats;
pub mod stock;
