use std::collections::BTreeSet;

use cuzk_core::CircuitSpec;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};
use cuzk_synth::count;
use storage_proofs_core::parameter_cache::PARAMETERS;

/// The stock list of published keys is the oracle: our names are all of it, save
/// for a second form of SnapDeals that nobody uses on the chain.
#[test]
fn key_files_are_those_of_the_published_list() {
    let mut ours = BTreeSet::new();
    for circuit in FilecoinCircuit::all() {
        let id = circuit.id();
        let params = circuit.params_file();
        for file in [params.clone(), circuit.vk_file()] {
            let listed = PARAMETERS
                .get(&file)
                .unwrap_or_else(|| panic!("{id}: {file}"));
            assert_eq!(listed.sector_size, circuit.sector_size.bytes(), "{id}");
            assert!(ours.insert(file), "{id} shares a file with another circuit");
        }
        assert_eq!(
            circuit.params_digest(),
            Some(PARAMETERS[&params].digest.clone())
        );
    }
    let listed: BTreeSet<String> = PARAMETERS
        .keys()
        .filter(|file| !file.contains("empty-sector-update-poseidon"))
        .cloned()
        .collect();
    assert_eq!(ours, listed);
}

#[test]
fn ids_read_back() {
    let ids: Vec<String> = FilecoinCircuit::all()
        .map(|it| it.id().to_string())
        .collect();
    insta::assert_snapshot!(ids.join(" "), @"porep-2k porep-8m porep-512m porep-32g porep-64g snap-2k snap-8m snap-512m snap-32g snap-64g wpost-2k wpost-8m wpost-512m wpost-32g wpost-64g winning-2k winning-8m winning-512m winning-32g winning-64g");
    for circuit in FilecoinCircuit::all() {
        assert_eq!(circuit.id().as_str().parse(), Ok(circuit));
    }
    insta::assert_snapshot!(
        "porep-16g".parse::<FilecoinCircuit>().unwrap_err(),
        @"unknown circuit `porep-16g`, expected one of porep|snap|wpost|winning, a dash, 2k|8m|512m|32g|64g (porep-32g)"
    );
}

/// Sizes as measured for these circuits on the stock software, input rows and the
/// constant one included. WinningPoSt at 32 GiB stands for the larger trees.
#[test]
fn blank_circuits_have_the_known_sizes() {
    let cases = [(
        ProofKind::WinningPost,
        SectorSize::GiB32,
        370_723,
        133,
        375_210,
    )];
    for (kind, size, constraints, inputs, aux) in cases {
        let circuit = FilecoinCircuit::new(kind, size);
        let sizes = count(|pass| circuit.synthesize_blank(pass)).unwrap().sizes;
        assert_eq!(
            (sizes.constraints, sizes.inputs, sizes.aux),
            (constraints, inputs, aux),
            "{}",
            circuit.id()
        );
    }
}
