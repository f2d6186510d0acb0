//! Whether this processor can run this binary: a clear refusal instead of an
//! illegal instruction.

use crate::exit::{Exit, Failure};

/// Refuses a processor that lacks what the binary was built for.
pub(crate) fn check() -> Result<(), Failure> {
    let lacking = lacking();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failure,
        format!(
            "this binary was built for processors with {}; build it with \
             `--features portable` (or there) to run it here",
            lacking.join(", ")
        ),
    ))
}

/// Features that the binary uses and the processor does not have.
pub(crate) fn lacking() -> Vec<&'static str> {
    needed()
        .iter()
        .filter(|(_, has)| !has)
        .map(|(name, _)| *name)
        .collect()
}

/// Features that the binary uses, and whether the processor has them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn needed() -> Vec<(&'static str, bool)> {
    macro_rules! feature {
        ($list:ident, $name:tt) => {
            if cfg!(target_feature = $name) {
                $list.push(($name, std::is_x86_feature_detected!($name)));
            }
        };
    }
    let mut list = Vec::new();
    feature!(list, "avx");
    feature!(list, "avx2");
    feature!(list, "avx512f");
    feature!(list, "bmi1");
    feature!(list, "bmi2");
    feature!(list, "fma");
    feature!(list, "sse4.2");
    if cuzk_core::USES_ADX {
        list.push(("adx", std::is_x86_feature_detected!("adx")));
    }
    list
}

/// Features that the binary uses: other architectures have no optional ones here.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn needed() -> Vec<(&'static str, bool)> {
    Vec::new()
}
