//! Page-locked memory, from which a device copies at full speed.
//!
//! Two backings: [`CudaBacking`] asks the driver for memory,
//! [`RegisteredBacking`] maps memory itself, on huge pages where they are
//! offered, and has the driver lock it. The driver is loaded at run time: both
//! build and start where there is none, and [`open`] says what is missing.
//!
//! Both lock memory for every device of the process, and neither asks for
//! write-combined memory, which is slow to read back.

mod allocated;
mod driver;
mod mapping;
mod registered;
mod times;

pub use allocated::CudaBacking;
pub use driver::{DRIVER_VERSION_MIN, driver_version, open};
pub use registered::{RegisterOptions, RegisteredBacking};
pub use times::BackingTimes;

#[cfg(all(test, not(feature = "loom")))]
mod tests;

use std::sync::Mutex;

use crate::error::BackingError;

/// Bytes of a page: what is page-locked is whole pages.
const PAGE_BYTES: usize = 4096;

/// Rounds up to whole pages; `None` where no slice can be so large.
fn whole_pages(bytes: usize) -> Option<usize> {
    let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
    isize::try_from(rounded).ok().map(|_| rounded)
}

/// What went wrong where no error can be returned, kept for the next call that
/// can.
#[derive(Debug, Default)]
struct Trouble(Mutex<Option<String>>);

impl Trouble {
    fn record(&self, what: String) {
        let mut kept = self.0.lock().unwrap_or_else(|e| e.into_inner());
        kept.get_or_insert(what);
    }

    /// Passes on what was recorded, once.
    fn report(&self, backing: &'static str, bytes: usize) -> Result<(), BackingError> {
        let mut kept = self.0.lock().unwrap_or_else(|e| e.into_inner());
        match kept.take() {
            None => Ok(()),
            Some(reason) => Err(BackingError {
                backing,
                bytes,
                reason: format!("an earlier free failed: {reason}"),
            }),
        }
    }
}
