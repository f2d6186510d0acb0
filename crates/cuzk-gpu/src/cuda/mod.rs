//! The device code and the functions through which Rust calls it.

mod border;

use blstrs::Scalar;

pub use border::CudaError;

// Its objects are linked only if the crate is named.
use sppark as _;

/// The transform of `values` on a device, in place and in natural order.
///
/// # Errors
/// If there is no such device, the runtime refuses, or this build has no device code.
///
/// # Panics
/// If the number of values is no power of two.
pub fn smoke(device: u16, values: &mut [Scalar]) -> Result<(), CudaError> {
    assert!(values.len().is_power_of_two(), "{} values", values.len());
    let start = values.as_mut_ptr().cast();
    // SAFETY: the slice is borrowed for the call, and a scalar is its 32 bytes in
    // Montgomery form, which any transform's result is too.
    unsafe { border::cuzk_cuda_smoke(i32::from(device), start, values.len()) }.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::ntt::{Domain, Points};

    /// Without a device the error comes across the border as a value.
    #[test]
    fn gpu_the_transform_is_the_cpus_or_says_why_not() {
        let mut values: Vec<Scalar> = (1..=1024).map(Scalar::from).collect();
        let mut expected = values.clone();
        let domain = Domain::new(values.len()).expect("a power of two");
        domain.forward(&mut expected, Points::Subgroup);
        match smoke(0, &mut values) {
            Ok(()) => assert!(values == expected, "another transform"),
            Err(error) => {
                let required = std::env::var("CUZK_REQUIRE_GPU").is_ok_and(|value| value == "1");
                assert!(!required, "{error}");
                println!("skipped: {error}");
                assert_ne!(error.code, 0);
                assert!(!error.message.is_empty());
            }
        }
    }
}
