//! The declarations: what `cuda/status.h` and `cuda/entry.cu` say, in Rust.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};

/// What the device code could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cuda error {code}: {message}")]
pub struct CudaError {
    /// The runtime's code; below 0 ours.
    pub code: i32,
    /// What failed, in the words of the runtime.
    pub message: String,
}

/// `cuzk_status`: what every function returns.
#[repr(C)]
pub(crate) struct Status {
    code: i32,
    message_len: u32,
    message: [u8; 248],
}

const _: () = assert!(size_of::<Status>() == 256);
const _: () = assert!(offset_of!(Status, message) == 8);

impl Status {
    pub(crate) fn into_result(self) -> Result<(), CudaError> {
        if self.code == 0 {
            return Ok(());
        }
        let len = self.message.len().min(self.message_len as usize);
        Err(CudaError {
            code: self.code,
            message: String::from_utf8_lossy(&self.message[..len]).into_owned(),
        })
    }

    /// What a function returns in a build without device code.
    #[cfg(cuzk_cuda_stubs)]
    fn not_compiled() -> Self {
        let text = b"this build has no device code (CUZK_CUDA_SKIP was set)";
        let mut message = [0; 248];
        message[..text.len()].copy_from_slice(text);
        Self {
            code: -1,
            message_len: text.len() as u32,
            message,
        }
    }
}

/// Declares functions of the device code. In a build without it each is a function of
/// the same form that fails.
macro_rules! device_code {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(not(cuzk_cuda_stubs))]
        unsafe extern "C" {
            $($(#[$attribute])* pub(crate) fn $name($($argument: $type),*) -> Status;)*
        }
        $(
            $(#[$attribute])*
            #[cfg(cuzk_cuda_stubs)]
            pub(crate) unsafe fn $name($($argument: $type),*) -> Status {
                let _ = ($($argument,)*);
                Status::not_compiled()
            }
        )*
    };
}

device_code! {
    /// Transforms `count` scalars in host memory, in place.
    fn cuzk_cuda_smoke(device: i32, scalars: *mut c_void, count: usize);
}
