//! Under construction.

pub mod fixture;
