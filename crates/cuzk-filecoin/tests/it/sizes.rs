use cuzk_filecoin::{ProofKind, SectorSize};

#[test]
fn sizes_read_what_people_write() {
    for size in SectorSize::ALL {
        let forms = [
            size.to_string(),
            size.to_string().to_lowercase(),
            size.short_name().to_owned(),
            size.short_name().to_uppercase(),
            size.bytes().to_string(),
        ];
        for form in forms {
            assert_eq!(form.parse(), Ok(size), "{form}");
        }
        assert_eq!(SectorSize::from_bytes(size.bytes()), Some(size));
    }
    assert_eq!(SectorSize::from_bytes(2047), None);
    insta::assert_snapshot!(
        "16GiB".parse::<SectorSize>().unwrap_err(),
        @"unknown sector size `16GiB`, expected one of 2KiB, 8MiB, 512MiB, 32GiB, 64GiB"
    );
}

#[test]
fn kinds_read_both_names() {
    for (kind, number) in ProofKind::ALL.into_iter().zip(1..) {
        assert_eq!(kind.short_name().parse(), Ok(kind));
        assert_eq!(kind.wire_name().parse(), Ok(kind));
        assert_eq!(kind.wire_number(), number);
        assert_eq!(ProofKind::from_wire_number(number), Some(kind));
    }
    assert_eq!(ProofKind::from_wire_number(0), None);
    insta::assert_snapshot!(
        "c2".parse::<ProofKind>().unwrap_err(),
        @"unknown proof kind `c2`, expected one of porep, snap, wpost, winning"
    );
}
