//! `cuzk verify`: checks a proof against the request it answers.

use std::fmt;

use cuzk_core::Workload;
use cuzk_core::keygen::sidecar_path;
use cuzk_core::keys::verifier;
use serde::Serialize;

use crate::args::{Args, VerifyArgs};
use crate::configuration;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::output;

#[derive(Serialize)]
struct Verdict {
    job: String,
    valid: bool,
    vk: String,
    is_test_key: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.valid { "valid" } else { "NOT valid" };
        let key = if self.is_test_key {
            " (an insecure test key)"
        } else {
            ""
        };
        writeln!(f, "{}: {verdict}, by {}{key}", self.job, self.vk)
    }
}

pub(super) fn run(args: &Args, verify: &VerifyArgs) -> Result<(), Failure> {
    let config = configuration::load(args, Some(&verify.keys))?.config;
    let workload = super::request(&verify.request)?.workload()?;
    // What is no proof is told before keys are looked for.
    let proofs = workload.decode(&files::read(&verify.proof)?)?;
    let circuit = workload.circuit();
    let path = config.params_directory.join(circuit.vk_file());
    if !path.exists() {
        return Err(Failure::new(
            Exit::Key,
            format!(
                "no verifying key for {}: {} is missing",
                circuit.id(),
                path.display()
            ),
        ));
    }
    let is_test_key = sidecar_path(&config.params_directory.join(circuit.params_file())).exists();
    if is_test_key && !config.allow_test_params {
        return Err(Failure::new(
            Exit::Key,
            format!(
                "{} belongs to an insecure test key; allow it with --allow-test-params",
                path.display()
            ),
        ));
    }
    // Whoever allows test keys knows that the published list does not hold them.
    let wants_published = config.params_digest && !config.allow_test_params;
    let digest = circuit.vk_digest().filter(|_| wants_published);
    let verifier = verifier(&path, digest)?;
    let valid = workload.verify(&verifier, &proofs)?;
    let verdict = Verdict {
        job: workload.label(),
        valid,
        vk: path.display().to_string(),
        is_test_key,
    };
    output::result(args.json, &verdict)?;
    if valid {
        Ok(())
    } else {
        Err(Failure::new(Exit::Invalid, "the proof is not valid"))
    }
}
