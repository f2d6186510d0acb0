use std::ops::Range;

use cuzk_core::Workload;
use cuzk_filecoin::fixture::{FixtureOptions, generate};
use cuzk_filecoin::{ProofKind, SectorSize};
use filecoin_proofs::FallbackPoStSectorProof;
use filecoin_proofs::constants::{SectorShape32GiB, SectorShapeBase};
use filecoin_proofs::parameters::window_post_public_params;
use filecoin_proofs_api::RegisteredPoStProof;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_post::fallback::{FallbackPoStCompound, PublicInputs, PublicSector};

use crate::support::{WINDOW, WINNING, check_all, fate, refused, request, workload};

type Tree = SectorShapeBase;
type Sector = FallbackPoStSectorProof<Tree>;

fn sector(bytes: &[u8]) -> Sector {
    bincode::deserialize(bytes).expect("the sector proof is real")
}

fn changed(bytes: &mut Vec<u8>, change: impl FnOnce(&mut Sector)) {
    let mut sector = sector(bytes);
    change(&mut sector);
    *bytes = bincode::serialize(&sector).expect("sector proofs serialise");
}

#[test]
fn real_winning_post_satisfies_its_circuit() {
    let workload = workload(WINNING);
    insta::assert_snapshot!(workload.label(), @"winning-2k of miner 1000");
    check_all(&workload, 90_883);
}

#[test]
fn real_window_post_satisfies_its_circuit() {
    let workload = workload(WINDOW);
    insta::assert_snapshot!(
        workload.label(),
        @"wpost-2k partition 0 (2 sectors) of miner 1000"
    );
    check_all(&workload, 21_889);
}

/// A partition with one sector of two repeats it.
#[test]
fn part_filled_partition_satisfies_its_circuit() {
    let mut request = request(WINDOW);
    request.vanilla_proofs.pop();
    check_all(&request.workload().unwrap(), 21_889);
}

/// The chain clears the top bits of randomness, so a client that did not gets the
/// same proof.
#[test]
fn randomness_is_made_a_field_element() {
    let mut request = request(WINDOW);
    request.randomness[31] |= 0xc0;
    assert_eq!(fate(&request), None);
}

/// Since API 1.2 challenges do not depend on the partition, before they do.
#[test]
fn later_partitions() {
    let mut window = request(WINDOW);
    let first = window.workload().unwrap().public_inputs(0).unwrap();
    window.partition_index = 7;
    let later = window.workload().unwrap();
    later.check_vanilla().unwrap();
    assert_eq!(later.public_inputs(0).unwrap(), first);

    // Under the first API the challenges of the first sector of the first
    // partition are the same, those of the second sector are not.
    window.registered_proof = 5;
    window.partition_index = 0;
    insta::assert_snapshot!(
        fate(&window).unwrap(),
        @"check_vanilla: vanilla_proofs[1]: the proof of sector 12 does not hold for its comm_r and the challenges of this randomness"
    );
    window.vanilla_proofs.pop();
    assert_eq!(fate(&window), None);
    window.partition_index = 1;
    insta::assert_snapshot!(
        fate(&window).unwrap(),
        @"check_vanilla: vanilla_proofs[0]: the proof of sector 11 does not hold for its comm_r and the challenges of this randomness"
    );
}

/// The stock inputs of partition 1, of a list with the sectors of both.
#[test]
fn later_partitions_have_the_stock_inputs() {
    for sent in [1, 2] {
        let mut window = request(WINDOW);
        window.registered_proof = 5;
        window.partition_index = 1;
        let sectors: Vec<_> = window
            .vanilla_proofs
            .iter()
            .map(|bytes| sector(bytes))
            .map(|proof| PublicSector {
                id: proof.sector_id,
                comm_r: proof.comm_r,
            })
            .collect();
        let config = RegisteredPoStProof::StackedDrgWindow2KiBV1.as_v1_config();
        let params = window_post_public_params::<Tree>(&config).unwrap();
        let randomness: [u8; 32] = window.randomness.clone().try_into().unwrap();
        let inputs = PublicInputs {
            randomness: randomness.into(),
            prover_id: Default::default(),
            sectors: [&sectors[..], &sectors[..sent]].concat(),
            k: None,
        };
        let want = FallbackPoStCompound::<Tree>::generate_public_inputs(&inputs, &params, Some(1))
            .unwrap();
        window.vanilla_proofs.truncate(sent);
        let have = window.workload().unwrap().public_inputs(0).unwrap();
        assert_eq!(have, want, "{sent} sectors");
    }
}

#[test]
fn bad_fields_are_named() {
    let reasons = [
        refused(WINNING, |it| it.vanilla_proof = vec![0]),
        refused(WINNING, |it| it.vanilla_proofs.clear()),
        refused(WINNING, |it| {
            it.vanilla_proofs.push(it.vanilla_proofs[0].clone());
        }),
        refused(WINDOW, |it| {
            it.vanilla_proofs.push(it.vanilla_proofs[0].clone());
        }),
        refused(WINNING, |it| it.randomness.truncate(31)),
        refused(WINNING, |it| it.partition_index = 1),
        refused(WINDOW, |it| it.partition_index = 3000),
        // A WindowPoSt proof in a WinningPoSt request.
        refused(WINNING, |it| {
            it.vanilla_proofs = vec![request(WINDOW).vanilla_proofs[0].clone()];
        }),
        refused(WINDOW, |it| it.randomness[0] ^= 1),
        refused(WINNING, |it| it.randomness[0] ^= 1),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn bad_bincode_is_named() {
    let of_second =
        |change: &dyn Fn(&mut Vec<u8>)| refused(WINDOW, |it| change(&mut it.vanilla_proofs[1]));
    let of_sector = |change: &dyn Fn(&mut Sector)| of_second(&|bytes| changed(bytes, change));
    let reasons = [
        of_second(&|bytes| bytes.clear()),
        of_second(&|bytes| bytes.truncate(100)),
        of_second(&|bytes| bytes.push(0)),
        of_second(&|bytes| bytes[40..48].fill(0xff)),
        of_sector(&|it| it.vanilla_proof.sectors.clear()),
        of_sector(&|it| {
            it.vanilla_proof
                .sectors
                .push(it.vanilla_proof.sectors[0].clone())
        }),
        of_sector(&|it| it.vanilla_proof.sectors[0].inclusion_proofs.truncate(9)),
        of_sector(&|it| it.comm_r = [0xff; 32].into()),
        of_sector(&|it| it.vanilla_proof.sectors[0].comm_r_last = it.comm_r),
        of_sector(&|it| it.sector_id = 13.into()),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

/// Sectors are checked at the same time, and the first that is wrong is told each time, by
/// as many threads as there are, and if it is the only one.
#[test]
fn of_several_wrong_sectors_the_first_is_told() {
    const COUNT: usize = 24;
    let options = FixtureOptions {
        window_sector_count: Some(COUNT),
        ..FixtureOptions::default()
    };
    let fixture = generate(ProofKind::WindowPost, SectorSize::GiB32, 1, &options);
    let mut json = Vec::new();
    fixture.unwrap().write_json(&mut json).unwrap();
    let good = request(&json);
    let pools = [1, 2, 7].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().expect("a few threads")
    });
    let told = |wrong: Range<usize>| -> Vec<_> {
        let mut request = good.clone();
        for (place, bytes) in request.vanilla_proofs.iter_mut().enumerate() {
            let mut sector: FallbackPoStSectorProof<SectorShape32GiB> =
                bincode::deserialize(bytes).expect("a sector proof");
            if wrong.contains(&place) {
                // Of another replica.
                sector.comm_r = sector.vanilla_proof.sectors[0].comm_c;
            }
            *bytes = bincode::serialize(&sector).expect("sector proofs serialise");
        }
        let workload = request.workload().expect("it is well formed");
        let each = pools.iter().cycle().take(9);
        each.map(|pool| {
            pool.install(|| workload.check_vanilla())
                .map_err(|error| error.to_string())
        })
        .collect()
    };
    let first = u64::from(
        bincode::deserialize::<FallbackPoStSectorProof<SectorShape32GiB>>(&good.vanilla_proofs[0])
            .expect("a sector proof")
            .sector_id,
    );
    assert!(told(0..0).iter().all(Result::is_ok));
    for wrong in [
        0..COUNT,
        0..1,
        1..COUNT,
        11..12,
        11..13,
        13..COUNT,
        COUNT - 1..COUNT,
    ] {
        let place = wrong.start;
        let id = first + place as u64;
        let want = format!("vanilla_proofs[{place}]: the proof of sector {id} does not hold");
        for told in told(wrong.clone()) {
            let told = told.expect_err("it is wrong");
            assert!(told.starts_with(&want), "{wrong:?}: {told}");
        }
    }
}
