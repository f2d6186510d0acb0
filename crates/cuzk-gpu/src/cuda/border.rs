//! Declarations of `cuda/border.h`, and the one way to call them.

use std::ffi::{CStr, c_char, c_void};

use crate::error::BackendError;

/// Where a function writes why it failed.
#[repr(C)]
pub(super) struct Message {
    text: *mut c_char,
    len: usize,
}

/// A device's compute stream and the tables of its transforms, beyond the border.
#[repr(C)]
pub(super) struct RawDevice {
    _opaque: [u8; 0],
}

/// A scalar in memory, as `blstrs` has it.
#[repr(C)]
pub(super) struct RawScalar {
    pub(super) words: [u32; 8],
}

const _: () = assert!(size_of::<RawScalar>() == size_of::<blstrs::Scalar>());
const _: () = assert!(size_of::<blstrs::G1Affine>() == 96);
const _: () = assert!(size_of::<blstrs::G2Affine>() == 192);

/// An address on the device, which the host never reads.
pub(super) type Address = *mut c_void;

/// Declares the functions, or defines them as ones that only fail where this build
/// has no device code.
macro_rules! border {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        #[cfg(not(cuzk_cuda_stubs))]
        unsafe extern "C" {
            $($(#[$attribute])* pub(super) fn $name($($argument: $kind,)* message: Message) -> i32;)*
        }

        $(
            #[cfg(cuzk_cuda_stubs)]
            $(#[$attribute])*
            pub(super) unsafe extern "C" fn $name($($argument: $kind,)* message: Message) -> i32 {
                $(let _ = $argument;)*
                message.tell(c"this build has no device code");
                NO_DEVICE_CODE
            }
        )*
    };
}

border! {
    fn cuzk_device_open(ordinal: i32, device: *mut *mut RawDevice, stream: *mut *mut c_void, processors: *mut u32);
    fn cuzk_device_close(device: *mut RawDevice);
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare it with its definition"))]
    fn cuzk_transform(device: *mut RawDevice, scalars: Address, log_len: u32, direction: u32, coset: u32);
    fn cuzk_quotient_left(device: *mut RawDevice, a: Address, log_len: u32);
    fn cuzk_quotient(device: *mut RawDevice, a: Address, b: Address, c: Address, log_len: u32, c_given: u32, transforms: u32, vanishing_inverse: *const RawScalar);
    fn cuzk_split(device: *mut RawDevice, scalars: Address, scalars_len: usize, index: Address, count: usize, ones: Address, rest: Address, counts: Address);
    fn cuzk_gather_scalars(
        device: *mut RawDevice,
        scalars: Address,
        scalars_len: usize,
        index: Address,
        index_len: usize,
        entries: Address,
        entries_len: usize,
        count: usize,
        out: Address,
        out_len: usize,
    );
    fn cuzk_gather_points(
        device: *mut RawDevice,
        points: Address,
        points_len: usize,
        point_bytes: usize,
        entries: Address,
        entries_len: usize,
        count: usize,
        out: Address,
        out_len: usize,
    );
    fn cuzk_decode_g1(device: *mut RawDevice, stream: *mut c_void, bytes: Address, count: usize, first_index: u64, points: Address, fault: Address);
    fn cuzk_decode_g2(device: *mut RawDevice, stream: *mut c_void, bytes: Address, count: usize, first_index: u64, points: Address, fault: Address);
    fn cuzk_msm_g1(device: *mut RawDevice, points: Address, scalars: Address, count: usize, chunk: usize, window_bits: u32, work: Address, work_len: usize, rows: Address, rows_len: usize);
    fn cuzk_msm_g2(device: *mut RawDevice, points: Address, scalars: Address, count: usize, chunk: usize, window_bits: u32, work: Address, work_len: usize, rows: Address, rows_len: usize);
    fn cuzk_sum_g1(
        device: *mut RawDevice,
        points: Address,
        points_len: usize,
        entries: Address,
        entries_len: usize,
        count: Address,
        work: Address,
        work_len: usize,
        row: Address,
        row_len: usize,
    );
    fn cuzk_sum_g2(
        device: *mut RawDevice,
        points: Address,
        points_len: usize,
        entries: Address,
        entries_len: usize,
        count: Address,
        work: Address,
        work_len: usize,
        row: Address,
        row_len: usize,
    );
    fn cuzk_multiples_g1(
        device: *mut RawDevice,
        table: Address,
        table_len: usize,
        window_bits: u32,
        scalars: Address,
        count: usize,
        work: Address,
        work_len: usize,
        points: Address,
        points_len: usize,
    );
    fn cuzk_multiples_g2(
        device: *mut RawDevice,
        table: Address,
        table_len: usize,
        window_bits: u32,
        scalars: Address,
        count: usize,
        work: Address,
        work_len: usize,
        points: Address,
        points_len: usize,
    );
}

/// What every function returns where there is no device code.
#[cfg(cuzk_cuda_stubs)]
const NO_DEVICE_CODE: i32 = -3;

#[cfg(cuzk_cuda_stubs)]
impl Message {
    fn tell(&self, text: &CStr) {
        let bytes = text.to_bytes_with_nul();
        if bytes.len() <= self.len {
            // SAFETY: `call` made the message over a live buffer of `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.text, bytes.len()) };
        }
    }
}

/// Bytes of a message; longer ones are cut.
const MESSAGE_BYTES: usize = 512;

/// Calls a function of the border: zero is success, anything else an error with
/// the message that was written.
pub(super) fn call(
    what: &'static str,
    function: impl FnOnce(Message) -> i32,
) -> Result<(), BackendError> {
    let mut text = [0 as c_char; MESSAGE_BYTES];
    let code = function(Message {
        text: text.as_mut_ptr(),
        len: text.len(),
    });
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the buffer was zeroed and is written within its length with a
    // terminating zero, so one lies inside it.
    let reason = unsafe { CStr::from_ptr(text.as_ptr()) };
    Err(BackendError::Device {
        call: what,
        reason: format!("{} (code {code})", reason.to_string_lossy()),
    })
}
