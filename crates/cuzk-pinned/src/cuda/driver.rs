//! Finding the driver and opening a device, with an error for each way to fail.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::error::CudaError;

/// Oldest CUDA version that the driver must support, as it writes it itself:
/// 1000 x major + 10 x minor. An older one lacks functions that are loaded by
/// name at their first use.
pub const DRIVER_VERSION_MIN: u32 = 13_000;

/// CUDA version that the installed driver supports, as in
/// [`DRIVER_VERSION_MIN`].
///
/// # Errors
/// [`CudaError::NoDriver`], or [`CudaError::Call`] if it does not answer.
pub fn driver_version() -> Result<u32, CudaError> {
    // SAFETY: loads the driver's library and unloads it; its initialisers are
    // those of the installed driver, which the process is to use anyway.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the library is present, checked above; this function has been in
    // it since its first version, may be called before `cuInit`, and writes one
    // integer.
    let answer = unsafe { sys::cuDriverGetVersion(&mut version) };
    answer
        .result()
        .map_err(|error| call("cuDriverGetVersion", error))?;
    u32::try_from(version).map_err(|_| CudaError::Call {
        call: "cuDriverGetVersion",
        reason: format!("answers {version}"),
    })
}

/// Opens the device of this number: its primary context, which everything that
/// uses CUDA in this process shares.
///
/// # Errors
/// [`CudaError`], which says what is missing.
pub fn open(ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    let version = driver_version()?;
    if version < DRIVER_VERSION_MIN {
        return Err(CudaError::OldDriver {
            version,
            version_min: DRIVER_VERSION_MIN,
        });
    }
    result::init().map_err(|error| call("cuInit", error))?;
    let count = result::device::get_count().map_err(|error| call("cuDeviceGetCount", error))?;
    let count = usize::try_from(count).unwrap_or(0);
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    CudaContext::new(ordinal).map_err(|error| call("cuDevicePrimaryCtxRetain", error))
}

/// The error of a call, by the driver's name for it.
pub(super) fn call(call: &'static str, error: DriverError) -> CudaError {
    CudaError::Call {
        call,
        reason: reason(error),
    }
}

/// Name and description of a driver's error.
pub(super) fn reason(error: DriverError) -> String {
    let text = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(
            |_| format!("error {}", error.0 as u32),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    format!(
        "{} ({})",
        text(error.error_name()),
        text(error.error_string())
    )
}
