//! What a backend shows, and what it makes of a change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bellperson::groth16::{prepare_verifying_key, verify_proof};
use blstrs::Scalar;

use super::proofs::generated;
use super::{Case, Make, QUEUE_LEN_MAX, bytes, proved};
use crate::backend::{Backend, ProveRequest};
use crate::column::scalar_bytes_mut;
use crate::cpu::CpuBackend;
use crate::cpu::h::{CSource, Transforms};
use crate::cpu::tests::circuit::RandomCircuit;
use crate::cpu::tests::options;
use crate::watch::{Intermediate, Watch};

/// Flips the lowest bit of the first byte of one intermediate.
pub(crate) struct Flip(pub(crate) Intermediate);

impl Watch for Flip {
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
        if which == self.0 && offset_bytes == 0 {
            bytes[0] ^= 1;
        }
    }
}

/// Everything that was shown.
#[derive(Default)]
struct Notes(Mutex<BTreeMap<Intermediate, Vec<u8>>>);

impl Watch for Notes {
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
        assert!(!bytes.is_empty(), "{which}: an empty piece");
        let mut notes = self.0.lock().expect("no panic under the lock");
        let last = notes.last_key_value().map(|(last, _)| *last);
        assert!(last <= Some(which), "{which} after {last:?}");
        let note = notes.entry(which).or_default();
        assert_eq!(note.len() as u64, offset_bytes, "{which}: pieces in order");
        note.extend_from_slice(bytes);
    }
}

fn notes(backend: &dyn Backend, case: &Case<RandomCircuit>) -> BTreeMap<Intermediate, Vec<u8>> {
    let notes = Arc::new(Notes::default());
    let request = ProveRequest {
        watch: Some(Arc::clone(&notes) as Arc<dyn Watch>),
        ..case.request(backend, Scalar::from(3), Scalar::from(4))
    };
    let proof = proved(backend, request).proof;
    let stock = case.stock(Scalar::from(3), Scalar::from(4));
    assert!(bytes(&proof) == stock, "a watched proof is the same");
    let notes = notes.0.lock().expect("no panic under the lock");
    notes.clone()
}

pub(crate) fn intermediates_are_the_cpus(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let cpu = CpuBackend::new(options(CSource::Product, Transforms::Seven)).expect("threads");
    for products in [0, 1, 12, 13, 100] {
        let circuit = RandomCircuit {
            early_inputs: products.min(2),
            late_inputs: 0,
            ..RandomCircuit::of_products(products, 61)
        };
        let case = Case::meaningless(circuit, 62);
        let (ours, theirs) = (notes(&*backend, &case), notes(&cpu, &case));
        let domain = case.shape.sizes.domain();
        for which in Intermediate::ALL {
            let shown = ours.get(&which).map(Vec::as_slice).unwrap_or_default();
            let want = match which {
                Intermediate::A | Intermediate::B => 32 * domain,
                Intermediate::Assignment => 32 * (case.shape.sizes.inputs + case.shape.sizes.aux),
                Intermediate::Quotient => 32 * (domain - 1),
                Intermediate::SumBG2 => 192,
                _ => 96,
            };
            assert_eq!(shown.len(), want, "{which} of {products} products");
        }
        let mut a = case.assignment.a.clone();
        assert!(ours[&Intermediate::A].starts_with(scalar_bytes_mut(&mut a)));
        for which in Intermediate::ALL {
            assert!(ours.get(&which) == theirs.get(&which), "{which}");
        }
    }
}

pub(crate) fn what_is_changed_goes_on_changed(make: &Make) {
    let Some(backend) = make(QUEUE_LEN_MAX) else {
        return;
    };
    let (case, _) = generated(RandomCircuit::of_products(30, 71), 72);
    let prepared = prepare_verifying_key(&case.parameters.vk);
    let inputs = &case.assignment.inputs[1..];
    let (r, s) = (Scalar::from(5), Scalar::from(6));
    let stock = case.stock(r, s);
    for which in Intermediate::ALL {
        let mut request = case.request(&*backend, r, s);
        request.watch = Some(Arc::new(Flip(which)));
        match backend.submit(request).done() {
            Ok(flipped) => {
                let accepted = verify_proof(&prepared, &flipped.proof, inputs);
                assert_eq!(accepted.ok(), Some(false), "{which}");
            }
            // Two that compare find it themselves.
            Err(error) => assert!(error.to_string().ends_with(&which.to_string()), "{error}"),
        }
        let next = proved(&*backend, case.request(&*backend, r, s));
        assert!(bytes(&next.proof) == stock, "the next after {which}");
    }
}
