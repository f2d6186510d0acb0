//! The real requests under `tests/data`, for the tests of this crate.

use cuzk_core::{CircuitSpec, Workload};
use cuzk_synth::{Explained, assign_growing, count, explain};

use crate::{FilecoinWorkload, Request};

pub(crate) const POREP: &[u8] = include_bytes!("../tests/data/porep-2k.json");
pub(crate) const SNAP: &[u8] = include_bytes!("../tests/data/snap-2k.json");
pub(crate) const WINDOW: &[u8] = include_bytes!("../tests/data/wpost-2k.json");
pub(crate) const WINNING: &[u8] = include_bytes!("../tests/data/winning-2k.json");

pub(crate) fn request(file: &[u8]) -> Request {
    Request::from_json(file).expect("the request is real")
}

pub(crate) fn workload(file: &[u8]) -> FilecoinWorkload {
    request(file).workload().expect("the request is real")
}

/// What a request becomes when `change` is applied to it.
pub(crate) fn refused(file: &[u8], change: impl FnOnce(&mut Request)) -> String {
    let mut request = request(file);
    change(&mut request);
    match request.workload() {
        Ok(workload) => match workload.check_vanilla() {
            Ok(()) => panic!("{workload:?} was accepted"),
            Err(error) => format!("check_vanilla: {error}"),
        },
        Err(error) => error.to_string(),
    }
}

/// The whole truth about a real request: its vanilla proofs hold, every row of
/// every part holds, the blank circuit has the same sizes and densities, and the
/// inputs are those of a verifier.
pub(crate) fn check_all(workload: &FilecoinWorkload, constraints: usize) {
    workload.check_vanilla().expect("the vanilla proofs hold");
    let circuit = workload.circuit();
    let blank = count(|pass| circuit.synthesize_blank(pass)).expect("blank circuits count");
    assert_eq!(blank.sizes.constraints, constraints);
    for index in 0..workload.part_count() {
        let part = workload.part(index).expect("the part exists");
        assert_eq!(part.segments(), 1);
        let explained = explain(|pass| part.synthesize(0, pass)).expect("synthesises");
        assert_eq!(explained, Explained::Satisfied { constraints });
        let (_, assigned) =
            assign_growing(false, |pass| part.synthesize(0, pass)).expect("synthesises");
        assert_eq!(assigned.sizes, blank.sizes);
        assert_eq!(assigned.densities, blank.densities);
        let inputs = workload.public_inputs(index).expect("inputs compute");
        assert_eq!(assigned.inputs[1..], inputs);
    }
}
