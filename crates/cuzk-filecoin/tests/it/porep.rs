use cuzk_core::Workload;
use cuzk_filecoin::Request;
use serde_json::{Value, json};

use crate::support::{POREP, WINNING, bare_c1, check_all, fate, refused, request, workload};

/// Why a bare C1 output is refused after `change`.
fn refused_c1(change: impl FnOnce(&mut Value)) -> String {
    let mut c1: Value = serde_json::from_slice(&bare_c1()).unwrap();
    change(&mut c1);
    refused(POREP, |it| it.vanilla_proof = c1.to_string().into_bytes())
}

/// The same for its second challenge proof.
fn refused_challenge(change: impl FnOnce(&mut Value)) -> String {
    refused_c1(|c1| change(&mut c1["vanilla_proofs"]["StackedDrg2KiBV1"][0][1]))
}

#[test]
fn real_porep_satisfies_its_circuit() {
    let workload = workload(POREP);
    insta::assert_snapshot!(workload.label(), @"porep-2k sector 11 of miner 1000");
    check_all(&workload, 2_687_961);
}

#[test]
fn bare_and_wrapped_are_the_same() {
    let wrapped = workload(POREP).public_inputs(0).unwrap();
    for bytes in [bare_c1(), request(POREP).vanilla_proof] {
        let request = Request::from_c1(&bytes, 1000, 11).unwrap();
        assert_eq!((request.sector_size, request.registered_proof), (2048, 5));
        let workload = request.workload().unwrap();
        workload.check_vanilla().unwrap();
        assert_eq!(workload.public_inputs(0).unwrap(), wrapped);
    }
}

#[test]
fn wrong_owner_is_named() {
    let c1 = bare_c1();
    let reasons = [(1001, 11), (1000, 12)]
        .map(|(miner, sector)| fate(&Request::from_c1(&c1, miner, sector).unwrap()).unwrap());
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn bad_fields_are_named() {
    let wrapper = |change: &dyn Fn(&mut Value)| {
        refused(POREP, |it| {
            let mut wrapper: Value = serde_json::from_slice(&it.vanilla_proof).unwrap();
            change(&mut wrapper);
            it.vanilla_proof = wrapper.to_string().into_bytes();
        })
    };
    let bytes = |bytes: &[u8]| refused(POREP, |it| it.vanilla_proof = bytes.to_vec());
    let c1 = bare_c1();
    let reasons = [
        bytes(b""),
        bytes(b"\n<html><body>504 Gateway Time-out</body></html>"),
        bytes(b"{}"),
        bytes(b"[1, 2]"),
        bytes(b"\x00\x01\x02"),
        bytes(&c1[..c1.len() / 2]),
        bytes(&c1[..c1.len() - 1]),
        refused(POREP, |it| {
            it.vanilla_proofs = request(WINNING).vanilla_proofs
        }),
        refused(POREP, |it| it.registered_proof = 0),
        refused(POREP, |it| it.sector_number = 12),
        refused(POREP, |it| it.miner_id = 1001),
        wrapper(&|it| it["SectorSize"] = json!(8 << 20)),
        wrapper(&|it| it["Phase1Out"] = json!("!!!!")),
        wrapper(&|it| it["Phase1Out"] = json!("PGh0bWw+")),
        wrapper(&|it| it["Phase1Out"] = json!("")),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

#[test]
fn bad_c1_outputs_are_named() {
    let reasons = [
        refused_c1(|it| it["registered_proof"] = json!("StackedDrg2KiBV1")),
        refused_c1(|it| it["registered_proof"] = json!("StackedDrg4KiBV1")),
        refused_c1(|it| it["vanilla_proofs"] = json!({"StackedDrg32GiBV1": []})),
        refused_c1(|it| it["vanilla_proofs"] = json!({"StackedDrg2KiBV1": []})),
        refused_c1(|it| it["vanilla_proofs"] = json!({"StackedDrg2KiBV1": [[]]})),
        refused_c1(|it| it["comm_r"] = json!(vec![0; 32])),
        refused_c1(|it| it["comm_d"] = json!(vec![255; 32])),
        refused_c1(|it| it["seed"] = json!(vec![0; 32])),
        refused_c1(|it| it["seed"] = json!(vec![0; 31])),
        refused_c1(|it| it["seed"] = json!(vec![1; 32])),
        refused_c1(|it| it["ticket"] = json!(vec![1; 32])),
        refused_c1(|it| it["comm_r"] = it["replica_id"].clone()),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}

/// Counts and lengths that circuits index by, and values that hashes see.
#[test]
fn bad_challenge_proofs_are_named() {
    let shorten = |list: &mut Value| {
        list.as_array_mut().unwrap().pop();
    };
    let ones = json!(vec![255; 32]);
    let reasons = [
        refused_challenge(|it| shorten(&mut it["labeling_proofs"])),
        refused_challenge(|it| shorten(&mut it["replica_column_proofs"]["drg_parents"])),
        refused_challenge(|it| shorten(&mut it["replica_column_proofs"]["exp_parents"])),
        refused_challenge(|it| {
            shorten(&mut it["replica_column_proofs"]["c_x"]["column"]["rows"]);
        }),
        refused_challenge(|it| it["labeling_proofs"][1]["parents"][36] = json!(vec![0; 32])),
        refused_challenge(|it| it["labeling_proofs"][0]["node"] = json!(1)),
        refused_challenge(|it| it["encoding_proof"]["layer_index"] = json!(1)),
        refused_challenge(|it| {
            shorten(&mut it["comm_d_proofs"]["data"]["Single"]["path"]["path"]);
        }),
        refused_challenge(|it| {
            let path = &mut it["comm_r_last_proof"]["data"]["Single"]["path"]["path"];
            path[0]["index"] = json!(8);
        }),
        refused_challenge(|it| {
            let path = &mut it["comm_r_last_proof"]["data"]["Single"]["path"]["path"];
            shorten(&mut path[1]["hashes"]);
        }),
        refused_challenge(|it| {
            let column = &mut it["replica_column_proofs"]["exp_parents"][3];
            let path = &mut column["inclusion_proof"]["data"]["Single"]["path"]["path"];
            path[0]["hashes"][6] = ones.clone();
        }),
        refused_challenge(|it| it["comm_r_last_proof"]["data"]["Single"]["root"] = ones.clone()),
        refused_challenge(|it| {
            let leaf = &mut it["comm_d_proofs"]["data"]["Single"]["leaf"];
            *leaf = json!(vec![1; 32]);
        }),
        refused_challenge(|it| {
            let path = &mut it["comm_d_proofs"]["data"]["Single"]["path"]["path"];
            path[0]["hashes"][0] = json!(vec![1; 32]);
        }),
        refused_challenge(|it| {
            let root = &mut it["comm_r_last_proof"]["data"]["Single"]["root"];
            *root = json!(vec![1; 32]);
        }),
    ];
    insta::assert_snapshot!(reasons.join("\n"));
}
