//! What is declared of `cuda/border.h` and `cuda/tests/faults.cpp`. Where the build has
//! no device code the functions are there too, so that this compiles, and never called:
//! no device opens there.

use std::ffi::{c_char, c_void};

/// Declares functions, or defines them as ones that end the process.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        #[cfg(not(cuzk_cuda_stubs))]
        unsafe extern "C" {
            $(pub(crate) fn $name($($argument: $kind),*) $(-> $result)?;)*
        }

        $(
            #[cfg(cuzk_cuda_stubs)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
                $(let _ = $argument;)*
                std::process::abort()
            }
        )*
    };
}

pub(crate) use functions;

/// A device beyond the border.
pub(crate) type RawDevice = *mut c_void;
/// An address on the device.
pub(crate) type Address = *mut c_void;

/// Where a function writes why it failed.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Message {
    pub(crate) text: *mut c_char,
    pub(crate) len: usize,
}

functions! {
    fn cuzk_device_open(
        ordinal: i32,
        device: *mut RawDevice,
        stream: *mut *mut c_void,
        processors: *mut u32,
        message: Message,
    ) -> i32;
    fn cuzk_device_close(device: RawDevice, message: Message) -> i32;
    fn cuzk_transform(
        device: RawDevice,
        scalars: Address,
        log_len: u32,
        direction: u32,
        coset: u32,
        message: Message,
    ) -> i32;
    fn cuzk_quotient_left(
        device: RawDevice,
        a: Address,
        log_len: u32,
        message: Message,
    ) -> i32;
    fn cuzk_quotient(
        device: RawDevice,
        a: Address,
        b: Address,
        c: Address,
        log_len: u32,
        c_given: u32,
        transforms: u32,
        vanishing_inverse: *const [u32; 8],
        message: Message,
    ) -> i32;
    fn cuzk_split(
        device: RawDevice,
        scalars: Address,
        scalars_len: usize,
        index: Address,
        count: usize,
        ones: Address,
        rest: Address,
        counts: Address,
        message: Message,
    ) -> i32;
    fn cuzk_gather_scalars(
        device: RawDevice,
        scalars: Address,
        scalars_len: usize,
        index: Address,
        index_len: usize,
        entries: Address,
        entries_len: usize,
        count: usize,
        out: Address,
        out_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_gather_points(
        device: RawDevice,
        points: Address,
        points_len: usize,
        point_bytes: usize,
        entries: Address,
        entries_len: usize,
        count: usize,
        out: Address,
        out_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_decode_g1(
        device: RawDevice,
        stream: *mut c_void,
        bytes: Address,
        count: usize,
        first_index: u64,
        points: Address,
        fault: Address,
        message: Message,
    ) -> i32;
    fn cuzk_decode_g2(
        device: RawDevice,
        stream: *mut c_void,
        bytes: Address,
        count: usize,
        first_index: u64,
        points: Address,
        fault: Address,
        message: Message,
    ) -> i32;
    fn cuzk_msm_g1(
        device: RawDevice,
        points: Address,
        scalars: Address,
        count: usize,
        chunk: usize,
        window_bits: u32,
        work: Address,
        work_len: usize,
        rows: Address,
        rows_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_msm_g2(
        device: RawDevice,
        points: Address,
        scalars: Address,
        count: usize,
        chunk: usize,
        window_bits: u32,
        work: Address,
        work_len: usize,
        rows: Address,
        rows_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_sum_g1(
        device: RawDevice,
        points: Address,
        points_len: usize,
        entries: Address,
        entries_len: usize,
        count: Address,
        work: Address,
        work_len: usize,
        row: Address,
        row_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_sum_g2(
        device: RawDevice,
        points: Address,
        points_len: usize,
        entries: Address,
        entries_len: usize,
        count: Address,
        work: Address,
        work_len: usize,
        row: Address,
        row_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_multiples_g1(
        device: RawDevice,
        table: Address,
        table_len: usize,
        window_bits: u32,
        scalars: Address,
        count: usize,
        work: Address,
        work_len: usize,
        points: Address,
        points_len: usize,
        message: Message,
    ) -> i32;
    fn cuzk_multiples_g2(
        device: RawDevice,
        table: Address,
        table_len: usize,
        window_bits: u32,
        scalars: Address,
        count: usize,
        work: Address,
        work_len: usize,
        points: Address,
        points_len: usize,
        message: Message,
    ) -> i32;
}
