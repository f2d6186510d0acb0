//! What a backend on a device is made of, apart from the device: how its memory is
//! divided. Nothing here knows a driver, so that all of it is tested without one.

pub(crate) mod arena;
