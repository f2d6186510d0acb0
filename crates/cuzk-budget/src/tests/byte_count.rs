use crate::ByteCount;

#[test]
fn large_numbers_have_a_unit_beside_them() {
    let cases = [
        (0, "0 bytes"),
        ((1 << 20) - 1, "1048575 bytes"),
        (1 << 20, "1.00 MiB (1048576 bytes)"),
        (15_070_144, "14.37 MiB (15070144 bytes)"),
        (47_400_000_000, "44.14 GiB (47400000000 bytes)"),
        (u64::MAX, "16.00 EiB (18446744073709551615 bytes)"),
    ];
    for (bytes, want) in cases {
        assert_eq!(ByteCount(bytes).to_string(), want);
    }
}
