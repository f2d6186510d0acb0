//! Support of the end-to-end tests and of the measuring program: the stock software
//! as an oracle beside ours.
#![forbid(unsafe_code)]

pub mod oracle;
pub mod request;
