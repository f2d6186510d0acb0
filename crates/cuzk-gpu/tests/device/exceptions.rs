//! An exception of any type, from any call of the runtime inside any function of the
//! border, is that function's error: the process lives, and what comes next is right.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use cudarc::driver::{result, sys};

use crate::border::{self, Address, Message, RawDevice};
use crate::case::Case;
use crate::faults::{Fault, failing};
use crate::gpu::{Gpu, proved};

/// The functions of the border.
const NAMES: [&str; 16] = [
    "cuzk_decode_g1",
    "cuzk_decode_g2",
    "cuzk_device_close",
    "cuzk_device_open",
    "cuzk_gather_points",
    "cuzk_gather_scalars",
    "cuzk_msm_g1",
    "cuzk_msm_g2",
    "cuzk_multiples_g1",
    "cuzk_multiples_g2",
    "cuzk_quotient",
    "cuzk_quotient_left",
    "cuzk_split",
    "cuzk_sum_g1",
    "cuzk_sum_g2",
    "cuzk_transform",
];

#[test]
fn every_function_of_the_cuda_border_is_tried() {
    let header = include_str!("../../cuda/border.h");
    let declared: BTreeSet<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("int32_t "))
        .filter_map(|line| line.split('(').next())
        .collect();
    assert_eq!(declared, NAMES.into());
}

/// The code and the message that an exception must become.
const THROWN: [(Fault, i32, &str); 4] = [
    (Fault::ThrowStandard, -2, "a made-up exception"),
    (Fault::ThrowLibrary, 700, "a made-up error of the library"),
    (Fault::ThrowBadAlloc, -2, "std::bad_alloc"),
    (Fault::ThrowInt, -2, "an exception of an unknown type"),
];

/// Entries, scalars and points of each call.
const COUNT: usize = 64;
const LOG_COUNT: u32 = 6;
/// The least that a multiplication takes.
const MSM_BITS: u32 = 10;
const TABLE_BITS: u32 = 4;
/// Windows of those bits, 255 in all, with a point a digit each.
const TABLE_LEN: usize = 64 << TABLE_BITS;
/// Bytes of one argument on the device: enough for every one of them.
const PART_BYTES: usize = 16 << 20;

/// Zeroed device memory, in parts.
struct Memory(sys::CUdeviceptr);

impl Memory {
    fn new() -> Self {
        // SAFETY: the context is current, `Gpu::free_bytes` made it so; zeroed before
        // anybody reads it.
        let start = unsafe {
            let start = result::malloc_sync(PART_BYTES * 4).expect("64 MiB of device memory");
            result::memset_d8_sync(start, 0, PART_BYTES * 4).expect("live memory");
            start
        };
        Self(start)
    }

    fn part(&self, at: usize) -> Address {
        (self.0 as usize + at * PART_BYTES) as *mut c_void
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; freeing waits for what still uses it.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

/// Calls a function, and gives its code and its message.
fn call(function: impl FnOnce(Message) -> i32) -> (i32, String) {
    let mut text = [0 as c_char; 512];
    let code = function(Message {
        text: text.as_mut_ptr(),
        len: text.len(),
    });
    // SAFETY: zeroed, and written within its length with a terminating zero.
    let message = unsafe { CStr::from_ptr(text.as_ptr()) };
    (code, message.to_string_lossy().into_owned())
}

/// A raw device with its stream.
fn open_raw() -> (RawDevice, *mut c_void) {
    let (mut device, mut stream, mut processors) = (null_mut(), null_mut(), 0);
    let opened = call(|message| {
        // SAFETY: the places are live.
        unsafe { border::cuzk_device_open(0, &mut device, &mut stream, &mut processors, message) }
    });
    assert_eq!(opened, (0, String::new()));
    (device, stream)
}

fn close_raw(device: RawDevice) {
    // SAFETY: opened and not closed yet; its stream is idle after the wait.
    let closed = call(|message| unsafe { border::cuzk_device_close(device, message) });
    assert_eq!(closed, (0, String::new()));
}

/// A function with arguments that it takes; `before` runs while nothing fails.
struct Entry<'a> {
    name: &'static str,
    before: Box<dyn Fn() + 'a>,
    function: Box<dyn Fn(Message) -> i32 + 'a>,
}

/// The functions that work on memory.
fn working<'a>(device: RawDevice, stream: *mut c_void, memory: &Memory) -> Vec<Entry<'a>> {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| memory.part(at));
    let one = &[0u32; 8];
    let entry = |name, function: Box<dyn Fn(Message) -> i32>| Entry {
        name,
        before: Box::new(|| {}),
        function,
    };
    type Sum = unsafe extern "C" fn(
        RawDevice,
        Address,
        usize,
        Address,
        usize,
        Address,
        Address,
        usize,
        Address,
        usize,
        Message,
    ) -> i32;
    type Msm = unsafe extern "C" fn(
        RawDevice,
        Address,
        Address,
        usize,
        usize,
        u32,
        Address,
        usize,
        Address,
        usize,
        Message,
    ) -> i32;
    type Decode = unsafe extern "C" fn(
        RawDevice,
        *mut c_void,
        Address,
        usize,
        u64,
        Address,
        Address,
        Message,
    ) -> i32;
    type Multiples = unsafe extern "C" fn(
        RawDevice,
        Address,
        usize,
        u32,
        Address,
        usize,
        Address,
        usize,
        Address,
        usize,
        Message,
    ) -> i32;
    // SAFETY, for each of the functions below: the device is open, the parts are far
    // larger than what `COUNT` elements take, and zeros are indices, scalars and points.
    let decode = |function: Decode| {
        Box::new(move |message| {
            // SAFETY: as above.
            unsafe { function(device, stream, a, COUNT, 0, b, c, message) }
        })
    };
    let msm = |function: Msm| {
        Box::new(move |message| {
            // SAFETY: as above.
            unsafe {
                function(
                    device, a, b, COUNT, COUNT, MSM_BITS, c, PART_BYTES, d, PART_BYTES, message,
                )
            }
        })
    };
    let sum = |function: Sum| {
        Box::new(move |message| {
            // SAFETY: as above; no entry is to be summed.
            unsafe {
                function(
                    device, a, COUNT, b, COUNT, b, c, PART_BYTES, d, PART_BYTES, message,
                )
            }
        })
    };
    let multiples = |function: Multiples| {
        Box::new(move |message| {
            // SAFETY: as above.
            unsafe {
                function(
                    device, a, TABLE_LEN, TABLE_BITS, b, COUNT, c, PART_BYTES, d, COUNT, message,
                )
            }
        })
    };
    vec![
        entry("cuzk_decode_g1", decode(border::cuzk_decode_g1)),
        entry("cuzk_decode_g2", decode(border::cuzk_decode_g2)),
        entry("cuzk_msm_g1", msm(border::cuzk_msm_g1)),
        entry("cuzk_msm_g2", msm(border::cuzk_msm_g2)),
        entry("cuzk_sum_g1", sum(border::cuzk_sum_g1)),
        entry("cuzk_sum_g2", sum(border::cuzk_sum_g2)),
        entry("cuzk_multiples_g1", multiples(border::cuzk_multiples_g1)),
        entry("cuzk_multiples_g2", multiples(border::cuzk_multiples_g2)),
        entry(
            "cuzk_transform",
            Box::new(move |message| {
                // SAFETY: as above.
                unsafe { border::cuzk_transform(device, a, LOG_COUNT, 0, 0, message) }
            }),
        ),
        entry(
            "cuzk_quotient",
            Box::new(move |message| {
                // SAFETY: as above.
                unsafe { border::cuzk_quotient(device, a, b, c, LOG_COUNT, 0, 6, one, message) }
            }),
        ),
        entry(
            "cuzk_quotient_left",
            Box::new(move |message| {
                // SAFETY: as above.
                unsafe { border::cuzk_quotient_left(device, a, LOG_COUNT, message) }
            }),
        ),
        entry(
            "cuzk_split",
            Box::new(move |message| {
                let (ones, rest) = (c, d);
                // SAFETY: as above.
                unsafe {
                    border::cuzk_split(device, a, COUNT, null_mut(), COUNT, ones, rest, b, message)
                }
            }),
        ),
        entry(
            "cuzk_gather_scalars",
            Box::new(move |message| {
                let index = null_mut();
                // SAFETY: as above.
                unsafe {
                    border::cuzk_gather_scalars(
                        device, a, COUNT, index, 0, b, COUNT, COUNT, c, COUNT, message,
                    )
                }
            }),
        ),
        entry(
            "cuzk_gather_points",
            Box::new(move |message| {
                // SAFETY: as above.
                unsafe {
                    border::cuzk_gather_points(
                        device, a, COUNT, 96, b, COUNT, COUNT, c, COUNT, message,
                    )
                }
            }),
        ),
    ]
}

#[test]
fn gpu_an_exception_of_any_type_is_an_error_of_its_function() {
    let Some(gpu) = Gpu::find() else { return };
    let case = Case::new(7, 8);
    let expected = case.on_cpu();
    let backend = gpu.open();
    assert!(gpu.free_bytes() > 0);
    let memory = Memory::new();
    let (device, stream) = open_raw();
    let opened: Cell<RawDevice> = Cell::new(null_mut());
    let close_opened = || match opened.replace(null_mut()) {
        device if device.is_null() => {}
        device => close_raw(device),
    };
    let mut entries = working(device, stream, &memory);
    entries.push(Entry {
        name: "cuzk_device_open",
        before: Box::new(close_opened),
        function: Box::new(|message| {
            let (mut device, mut stream, mut processors) = (null_mut(), null_mut(), 0);
            // SAFETY: the places are live.
            let code = unsafe {
                border::cuzk_device_open(0, &mut device, &mut stream, &mut processors, message)
            };
            opened.set(device);
            code
        }),
    });
    entries.push(Entry {
        name: "cuzk_device_close",
        before: Box::new(|| {
            if opened.get().is_null() {
                opened.set(open_raw().0);
            }
        }),
        function: Box::new(|message| {
            // SAFETY: opened before; one that was closed is forgotten.
            let code = unsafe { border::cuzk_device_close(opened.get(), message) };
            if code == 0 {
                opened.set(null_mut());
            }
            code
        }),
    });
    let tried: BTreeSet<&str> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(tried, NAMES.into());
    for Entry {
        name,
        before,
        function,
    } in &entries
    {
        let mut thrown = 0;
        for (fault, code, message) in THROWN {
            for at in 1.. {
                before();
                let (answer, counted) = failing(at, fault, || call(function));
                let Some(inside) = counted.failed else {
                    assert_eq!(answer, (0, String::new()), "{name}");
                    break;
                };
                assert_eq!(answer.0, code, "{name}: {fault:?} from {inside}");
                assert!(answer.1.contains(message), "{name}: {}", answer.1);
                thrown += 1;
            }
        }
        println!("{name}: {thrown} exceptions");
        assert!(thrown >= THROWN.len(), "{name}: from one call at least");
        result::ctx::synchronize().expect("a device that works");
        assert!(proved(&backend, case.job()) == expected, "after {name}");
    }
    drop(entries);
    close_opened();
    close_raw(device);
}
