use cuzk_core::Workload;

use super::*;
use crate::testing::{WINDOW, WINNING, check_all, refused, request, workload};

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
