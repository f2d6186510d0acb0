//! Calls of CUDA that fail on demand: what `cuda/tests/faults.cpp` offers.

use std::ffi::{CStr, c_char};

use crate::border::functions;

functions! {
    fn cuzk_faults_arm(at: u64, how: u32);
    fn cuzk_faults_disarm(count: *mut u64) -> *const c_char;
    fn cuzk_faults_unknown() -> *const c_char;
}

/// What happens at the call that is named, and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Fault {
    /// It fails; the next does not.
    Once = 0,
    /// Likewise, with the error of a device without room.
    OutOfMemory = 1,
    /// It and all that follow fail, as after a kernel that failed.
    Sticky = 2,
    /// A question whether something has passed fails, once. These are counted apart.
    Poll = 3,
    /// Exceptions from calls of the runtime, thrown once.
    ThrowStandard = 4,
    ThrowLibrary = 5,
    ThrowBadAlloc = 6,
    ThrowInt = 7,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Calls made.
    pub(crate) calls: u64,
    /// The one that failed first, if any did.
    pub(crate) failed: Option<&'static str>,
}

/// Fails call number `at`, counted from one, of what `work` does. With `at` zero it
/// counts only.
pub(crate) fn failing<T>(at: u64, fault: Fault, work: impl FnOnce() -> T) -> (T, Counted) {
    // SAFETY: plain values, kept in atomics.
    unsafe { cuzk_faults_arm(at, fault as u32) };
    let value = work();
    let mut calls = 0;
    // SAFETY: the place is live.
    let name = unsafe { cuzk_faults_disarm(&raw mut calls) };
    (
        value,
        Counted {
            calls,
            failed: text(name),
        },
    )
}

/// A function of the driver that this program looked up and that nothing here fails.
pub(crate) fn unknown_function() -> Option<&'static str> {
    // SAFETY: it takes nothing.
    text(unsafe { cuzk_faults_unknown() })
}

fn text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: a literal, or a name that is written once.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_str().expect("names of functions are ASCII"))
}
