use std::collections::BTreeSet;

use bellpepper_core::SynthesisError;
use cuzk_core::CircuitSpec;
use cuzk_filecoin::{FilecoinCircuit, ProofKind, SectorSize};
use cuzk_synth::{Extend, Pass, Template, count, survey};
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

/// What a blank circuit says of its blocks.
fn surveyed(
    circuit: FilecoinCircuit,
    extend: Extend,
    blank: impl Fn(&mut Pass<'_>) -> Result<(), SynthesisError>,
) -> Template {
    let cut = circuit.cut().expect("it repeats");
    let surveyed = survey(cut, extend, true, 1 << 30, blank);
    surveyed.expect("a blank circuit").expect("it repeats")
}

/// Of as many blocks as are asked for, all like the first one of the whole circuit.
#[test]
fn posts_are_loops_over_their_sectors() {
    for kind in [ProofKind::WindowPost, ProofKind::WinningPost] {
        for size in [SectorSize::KiB2, SectorSize::GiB32] {
            let circuit = FilecoinCircuit::new(kind, size);
            for blocks in [1, 3] {
                let short = circuit.shortened(blocks).expect("a loop");
                let short = surveyed(circuit, Extend::Whole, short);
                let first = surveyed(circuit, Extend::FirstBlock { blocks }, |pass| {
                    circuit.synthesize_blank(pass)
                });
                let id = circuit.id();
                assert_eq!(short.blocks(), blocks, "{id}");
                assert_eq!(short.sizes(), first.sizes(), "{id}");
                assert_eq!(short.digest(), first.digest(), "{id}");
            }
        }
    }
    for kind in [ProofKind::PoRep, ProofKind::SnapDeals] {
        let circuit = FilecoinCircuit::new(kind, SectorSize::KiB2);
        assert!(circuit.shortened(3).is_none(), "{}", circuit.id());
    }
}

/// One sector and their number come to the sizes of the whole window, those of the published
/// key.
#[test]
fn a_window_has_the_known_sizes() {
    let circuit = FilecoinCircuit::new(ProofKind::WindowPost, SectorSize::GiB32);
    let blocks = circuit.segments();
    let first = surveyed(circuit, Extend::FirstBlock { blocks }, |pass| {
        circuit.synthesize_blank(pass)
    });
    let sizes = first.sizes();
    assert_eq!(
        (sizes.constraints, sizes.inputs, sizes.aux),
        (125_305_057, 25_840, 126_902_376)
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
