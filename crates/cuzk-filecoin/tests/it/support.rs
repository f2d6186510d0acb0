//! The real requests, and what tests do with them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blstrs::Scalar;
use cuzk_core::{Part, Workload};
use cuzk_filecoin::{FilecoinWorkload, Request};
use cuzk_synth::{
    AssignColumns, Comparison, Explained, Extend, GrownColumns, Sizes, Template, assign_growing,
    count, explain, survey,
};
use serde_json::Value;

/// More than the stored rows of any circuit of 2 KiB take.
const SURVEY_BYTES: usize = 256 << 20;

pub(crate) const POREP: &[u8] = include_bytes!("../data/porep-2k.json");
pub(crate) const SNAP: &[u8] = include_bytes!("../data/snap-2k.json");
pub(crate) const WINDOW: &[u8] = include_bytes!("../data/wpost-2k.json");
pub(crate) const WINNING: &[u8] = include_bytes!("../data/winning-2k.json");

pub(crate) fn request(file: &[u8]) -> Request {
    Request::from_json(file).expect("the file is a request")
}

pub(crate) fn workload(file: &[u8]) -> FilecoinWorkload {
    request(file).workload().expect("the request is valid")
}

pub(crate) fn base64_of(value: &Value) -> Vec<u8> {
    STANDARD
        .decode(value.as_str().expect("a string"))
        .expect("base64")
}

/// The C1 output of the real PoRep without its wrapper.
pub(crate) fn bare_c1() -> Vec<u8> {
    let wrapper: Value =
        serde_json::from_slice(&request(POREP).vanilla_proof).expect("the wrapper is JSON");
    base64_of(&wrapper["Phase1Out"])
}

/// Why a request is refused, by the parser or by the check of its vanilla proofs.
pub(crate) fn fate(request: &Request) -> Option<String> {
    match request.workload() {
        Ok(workload) => workload
            .check_vanilla()
            .err()
            .map(|error| format!("check_vanilla: {error}")),
        Err(error) => Some(error.to_string()),
    }
}

/// Why a real request is refused after `change`.
pub(crate) fn refused(file: &[u8], change: impl FnOnce(&mut Request)) -> String {
    let mut request = request(file);
    change(&mut request);
    fate(&request).expect("the request is refused")
}

/// The whole truth about a request: its vanilla proofs hold, every row of
/// every part holds, the blank circuit has the same sizes and densities, the inputs are
/// those of a verifier, and segments give the columns of the whole.
pub(crate) fn check_all(workload: &FilecoinWorkload, constraints: usize) {
    workload.check_vanilla().expect("the vanilla proofs hold");
    let circuit = workload.circuit();
    let blank = count(|pass| circuit.synthesize_blank(pass)).expect("blank circuits count");
    assert_eq!(blank.sizes.constraints, constraints);
    let cut = circuit.cut().expect("every circuit repeats");
    let template = survey(cut, Extend::Whole, true, SURVEY_BYTES, |pass| {
        circuit.synthesize_blank(pass)
    })
    .expect("blank circuits synthesise")
    .expect("every circuit repeats");
    assert_eq!(template.sizes(), blank.sizes);
    assert_eq!(template.densities(), blank.densities);
    if template.is_uniform() {
        // As a template comes back that was reclaimed.
        let blocks = template.blocks();
        let again = survey(
            cut,
            Extend::FirstBlock { blocks },
            true,
            SURVEY_BYTES,
            |pass| circuit.synthesize_blank(pass),
        );
        let again = again
            .expect("blank circuits synthesise")
            .expect("it repeats");
        assert_eq!(again.digest(), template.digest());
        assert_eq!(again.densities(), blank.densities);
    }
    // Each block with the shared variables of its own.
    let comparison = Comparison::new(&template, cut).expect("it has the rows of C");
    let walked = comparison.walk(|pass| circuit.synthesize_blank(pass));
    walked.expect("blank circuits synthesise");
    assert!(comparison.is_equal());
    for index in 0..workload.part_count() {
        let part = workload.part(index).expect("the part exists");
        let explained = explain(|pass| part.synthesize_whole(pass)).expect("synthesises");
        assert_eq!(explained, Explained::Satisfied { constraints });
        let (whole, assigned) =
            assign_growing(true, |pass| part.synthesize_whole(pass)).expect("synthesises");
        assert_eq!(assigned.sizes, blank.sizes);
        assert_eq!(assigned.densities, blank.densities);
        let inputs = workload.public_inputs(index).expect("inputs compute");
        assert_eq!(assigned.inputs[1..], inputs);
        assert_eq!(workload.circuit().segments(), part.segments());
        is_begun_by_its_first_segment(part.as_ref(), &template, &whole);
        assert!(in_segments(part.as_ref(), &template) == (whole, assigned.inputs));
    }
}

/// A segment is of the circuit also where its rows are not taken from a template, and the
/// first one is how the whole begins.
fn is_begun_by_its_first_segment(part: &dyn Part, template: &Template, whole: &GrownColumns) {
    let (shared, block) = (template.shared(), template.block());
    let each = template.blocks() / part.segments();
    let rows = shared.constraints + each * block.constraints;
    let aux = shared.aux + each * block.aux;
    for segment in 0..part.segments() {
        let (columns, assigned) =
            assign_growing(true, |pass| part.synthesize(segment, pass)).expect("synthesises");
        // Groth16 adds a row for each input.
        assert_eq!(assigned.sizes.constraints, rows + assigned.inputs.len());
        assert_eq!(columns.aux.len(), aux);
        let holds = |row: usize| columns.a[row] * columns.b[row] == columns.c[row];
        assert!((0..rows).all(holds), "segment {segment}");
        if segment == 0 {
            assert!(columns.a[..rows] == whole.a[..rows]);
            assert!(columns.b[..rows] == whole.b[..rows]);
            assert!(columns.c[..rows] == whole.c[..rows]);
            assert!(columns.aux == whole.aux[..aux]);
        }
    }
}

/// The columns and inputs of a part, filled in segments, the last one first.
fn in_segments(part: &dyn Part, template: &Template) -> (GrownColumns, Vec<Scalar>) {
    let Sizes {
        aux, constraints, ..
    } = template.sizes();
    let zeros = |len| vec![Scalar::from(0); len];
    let mut columns = GrownColumns {
        a: zeros(constraints),
        b: zeros(constraints),
        c: zeros(constraints),
        aux: zeros(aux),
    };
    let into = AssignColumns {
        a: &mut columns.a,
        b: &mut columns.b,
        c: Some(&mut columns.c),
        aux: &mut columns.aux,
    };
    let cut = template.cut(into, part.segments()).expect("room enough");
    let segments = cut.segments.into_iter().enumerate().rev();
    let mut filled: Vec<_> = segments
        .map(|(segment, columns)| {
            let filled = template.fill(columns, |pass| part.synthesize(segment, pass));
            filled.expect("the segment is of the circuit")
        })
        .collect();
    filled.reverse();
    let inputs = template.finish(cut.rest, filled);
    let inputs = inputs.expect("all segments of the part, in order");
    (columns, inputs)
}
