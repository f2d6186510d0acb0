//! The backend on a device when things go wrong: calls that fail, exceptions beyond the
//! border, other processes beside this one.
//!
//! Calls of CUDA are made to fail by the linker and `cuda/tests/faults.cpp`, see
//! `faults`. Tests that need a device are named `gpu_…`, print *skipped* where there is
//! none, and fail instead under `CUZK_REQUIRE_GPU=1`. They take turns, since a call that
//! is to fail is the process's, whoever makes it.

mod border;
mod case;
mod exceptions;
mod failures;
mod faults;
mod gpu;
mod opening;
mod processes;
mod wrapped;
