//! Whether this processor can run this binary: a clear refusal instead of an
//! illegal instruction.

use crate::exit::{Exit, Failure};

/// Refuses a processor that lacks what the binary was built for.
pub(crate) fn check() -> Result<(), Failure> {
    judge(&needed())
}

/// Refuses if a feature is not there.
fn judge(features: &[(&'static str, bool)]) -> Result<(), Failure> {
    let lacking: Vec<&str> = features
        .iter()
        .filter(|(_, has)| !has)
        .map(|(name, _)| *name)
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Failure,
        format!(
            "this binary was built for processors with {}, which this one lacks; build it with \
             `--features portable`, or on this machine",
            lacking.join(", ")
        ),
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_a_feature_is_refused_in_words() {
        judge(&[("avx2", true)]).expect("nothing is lacking");
        let refused = judge(&[("avx2", true), ("adx", false)]).expect_err("adx is lacking");
        assert_eq!(
            refused.to_string(),
            "this binary was built for processors with adx, which this one lacks; build it with \
             `--features portable`, or on this machine"
        );
    }

    #[test]
    fn this_machine_runs_what_it_built() {
        check().expect("the tests were built here");
    }
}
