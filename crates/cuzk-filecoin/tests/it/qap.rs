//! Keys come from stored rows: all kinds have the same QAP as from a pass over the whole
//! circuit, bit for bit.

use blstrs::Scalar;
use cuzk_core::CircuitSpec;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};
use cuzk_synth::{Extend, QapAtTau, QapAux, QapColumns, qap, survey};
use ff::Field;
use rayon::prelude::*;

const LIMIT_BYTES: usize = 1 << 30;

#[test]
fn the_stored_rows_of_all_kinds_have_the_qap_of_the_whole_circuit() {
    let tau = Scalar::from(0x0123_4567_89ab_cdef);
    for kind in ProofKind::ALL {
        let circuit = FilecoinCircuit::new(kind, SectorSize::KiB2);
        let cut = circuit.cut().expect("it repeats");
        let blank = |pass: &mut cuzk_synth::Pass<'_>| circuit.synthesize_blank(pass);
        let template = survey(cut, Extend::Whole, true, LIMIT_BYTES, blank)
            .expect("a blank circuit needs no witness")
            .expect("it repeats");
        // A key is begun from the first block where this is so.
        assert_eq!(template.blocks(), circuit.segments(), "{}", circuit.id());
        assert_eq!(
            template.is_uniform(),
            circuit.is_uniform(),
            "{}",
            circuit.id()
        );
        let sizes = template.sizes();
        let whole = qap(&sizes, tau, blank).expect("tau is no root");

        let zeros = || vec![Scalar::ZERO; sizes.aux];
        let mut aux = QapColumns {
            a: zeros(),
            b: zeros(),
            c: zeros(),
        };
        let columns = QapAux {
            a: &mut aux.a,
            b: &mut aux.b,
            c: &mut aux.c,
        };
        let (pieces, rest) = template.cut_qap(columns, tau, 3).expect("long enough");
        let parts = pieces
            .into_par_iter()
            .map(|piece| template.evaluate_qap(piece))
            .collect();
        let inputs = template.finish_qap(rest, parts);
        assert!(QapAtTau { inputs, aux } == whole, "{}", circuit.id());
    }
}
