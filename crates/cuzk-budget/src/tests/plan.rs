//! Plans as people read them.

use super::{COLUMNS, KEYS};
use crate::{Consumer, Factor, Plan, PlanError};

#[test]
fn a_plan_prints_one_line_a_consumer_with_its_arithmetic() {
    let mut plan = Plan::new("host memory", 24 << 30);
    let factors = [
        Factor::new(2, "parts"),
        Factor::new(3, "columns"),
        Factor::new(134_217_728, "scalars"),
        Factor::new(32, "bytes"),
    ];
    assert_eq!(plan.add(COLUMNS, &factors).unwrap(), 24 << 30);
    insta::assert_snapshot!(plan, @r"
    host memory
      columns  2 parts x 3 columns x 134,217,728 scalars x 32 bytes  25,769,803,776 B     24.000 GiB
      planned                                                        25,769,803,776 B     24.000 GiB
      limit                                                          25,769,803,776 B     24.000 GiB
      left                                                                        0 B      0.000 GiB
    ");
    plan.check().unwrap();

    plan.add(KEYS, &[Factor::new(1_115_000_000, "bytes")])
        .unwrap();
    let allowance = [Factor::new(1, "allowance"), Factor::new(1 << 28, "bytes")];
    plan.add(Consumer("process"), &allowance).unwrap();
    insta::assert_snapshot!(plan, @r"
    host memory
      columns  2 parts x 3 columns x 134,217,728 scalars x 32 bytes  25,769,803,776 B     24.000 GiB
      keys     1,115,000,000 bytes                                    1,115,000,000 B      1.038 GiB
      process  1 allowance x 268,435,456 bytes                          268,435,456 B      0.250 GiB
      planned                                                        27,153,239,232 B     25.288 GiB
      limit                                                          25,769,803,776 B     24.000 GiB
      lacking                                                         1,383,435,456 B      1.288 GiB
    ");
    insta::assert_snapshot!(plan.check().unwrap_err(), @"the plan of host memory needs 25.29 GiB (27153239232 bytes) of 24.00 GiB (25769803776 bytes); most of it is `columns` with 24.00 GiB (25769803776 bytes)");
}

#[test]
fn products_and_sums_that_overflow_are_refused() {
    let mut plan = Plan::new("host memory", u64::MAX);
    let error = plan
        .add(
            COLUMNS,
            &[Factor::new(1 << 59, "scalars"), Factor::new(32, "bytes")],
        )
        .unwrap_err();
    insta::assert_snapshot!(error, @"the bytes of `columns` (576,460,752,303,423,488 scalars x 32 bytes) overflow the plan of host memory");
    plan.add(COLUMNS, &[Factor::new(u64::MAX, "bytes")])
        .unwrap();
    assert!(matches!(
        plan.add(KEYS, &[Factor::new(1, "bytes")]),
        Err(PlanError::Overflow { consumer: KEYS, .. })
    ));
    assert_eq!(plan.planned_bytes(), u64::MAX);
    plan.check().unwrap();
}
