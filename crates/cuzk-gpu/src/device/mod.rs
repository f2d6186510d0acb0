//! What a backend on a device is made of, apart from the device: how its memory is
//! divided, and how one thread carries several proofs. Nothing here knows a driver, so
//! that all of it is tested without one.
//!
//! One thread owns a device. Each proof is a future that this thread polls
//! (`executor`); it waits for the device through fences that a thread of their own
//! waits for (`waiter`), for what others must not touch at the same time (`turn`), and
//! for work of the host that other threads do (`host`). Each of these ends by a message
//! to the owner's loop, so that it sleeps while nobody can move, and never waits for
//! one proof while another could.

pub(crate) mod arena;
pub(crate) mod executor;
pub(crate) mod host;
pub(crate) mod node;
pub(crate) mod oneshot;
pub(crate) mod relay;
pub(crate) mod sorted;
pub(crate) mod timebase;
pub(crate) mod turn;
pub(crate) mod waiter;

#[cfg(test)]
mod tests;
