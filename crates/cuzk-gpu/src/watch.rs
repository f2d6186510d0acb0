//! What a backend computes on the way to a proof, shown to somebody who may look at it
//! and change it: to find where two backends part, and to see that a wrong value never
//! becomes a proof that leaves.

use std::fmt;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::Curve;

use crate::column::scalar_bytes_mut;
use crate::groth16::Sums;

/// One of the values on the way from columns to a proof, in the order in which they
/// come to be.
///
/// Every backend shows the same bytes. A scalar is 32 bytes and a coordinate of a point
/// 48, as they lie in memory: limbs of 64 bits in Montgomery form, little-endian,
/// below the modulus. A sum is an affine point: x and y, in G2 each with the coefficient
/// of `u` second, and zeros for the point at infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Intermediate {
    /// Evaluations of A where the transforms find them: as many scalars as the domain
    /// has, zeros after the last constraint.
    A,
    /// Evaluations of B, like `A`.
    B,
    /// Public inputs and then the auxiliary variables.
    Assignment,
    /// Coefficients of the quotient polynomial, lowest first, without the last, which
    /// no proof uses: one scalar less than the domain. Nothing for a domain of one.
    Quotient,
    /// The sum over the key's section h, 96 bytes, like the next three.
    SumH,
    /// The sum over section l.
    SumL,
    /// The sum over section a.
    SumA,
    /// The sum over section `b_g1`.
    SumBG1,
    /// The sum over section `b_g2`, 192 bytes.
    SumBG2,
}

impl Intermediate {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::A,
        Self::B,
        Self::Assignment,
        Self::Quotient,
        Self::SumH,
        Self::SumL,
        Self::SumA,
        Self::SumBG1,
        Self::SumBG2,
    ];
}

impl fmt::Display for Intermediate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "column a",
            Self::B => "column b",
            Self::Assignment => "the assignment",
            Self::Quotient => "the quotient polynomial",
            Self::SumH => "the sum over h",
            Self::SumL => "the sum over l",
            Self::SumA => "the sum over a",
            Self::SumBG1 => "the sum over b_g1",
            Self::SumBG2 => "the sum over b_g2",
        })
    }
}

/// Somebody who is shown the intermediates of a proof. It sees witness data.
pub trait Watch: Send + Sync {
    /// Called with each piece of each intermediate, all of one before the first of the
    /// next and each from its start to its end; `offset_bytes` says where the piece
    /// begins. Pieces are whole scalars or a whole point, of any length a backend likes.
    /// The proof goes on with the bytes as they are afterwards, whatever they are.
    fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]);
}

impl fmt::Debug for dyn Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Shows a piece of a column that begins with scalar `from`.
pub(crate) fn show_scalars(
    watch: &dyn Watch,
    which: Intermediate,
    from: usize,
    scalars: &mut [Scalar],
) {
    if !scalars.is_empty() {
        let offset_bytes = from as u64 * size_of::<Scalar>() as u64;
        watch.seen(which, offset_bytes, scalar_bytes_mut(scalars));
    }
}

/// Shows the sums, for a backend that has all of them before it shows one.
pub(crate) fn show_sums(watch: &dyn Watch, sums: &mut Sums) {
    show_g1(watch, Intermediate::SumH, &mut sums.h);
    show_g1(watch, Intermediate::SumL, &mut sums.l);
    show_g1(watch, Intermediate::SumA, &mut sums.a);
    show_g1(watch, Intermediate::SumBG1, &mut sums.b_g1);
    show_g2(watch, &mut sums.b_g2);
}

fn show_g1(watch: &dyn Watch, which: Intermediate, sum: &mut G1Projective) {
    let mut point: G1Affine = sum.to_affine();
    let raw = point.as_mut();
    if show_limbs(watch, which, &mut [&mut raw.x.l, &mut raw.y.l]) {
        *sum = point.into();
    }
}

fn show_g2(watch: &dyn Watch, sum: &mut G2Projective) {
    let mut point: G2Affine = sum.to_affine();
    let raw = point.as_mut();
    let [x0, x1] = &mut raw.x.fp;
    let [y0, y1] = &mut raw.y.fp;
    let coordinates = &mut [&mut x0.l, &mut x1.l, &mut y0.l, &mut y1.l];
    if show_limbs(watch, Intermediate::SumBG2, coordinates) {
        *sum = point.into();
    }
}

/// Shows coordinates and takes them back; whether any has changed.
fn show_limbs(watch: &dyn Watch, which: Intermediate, coordinates: &mut [&mut [u64; 6]]) -> bool {
    let limbs = coordinates.iter().flat_map(|limbs| limbs.iter());
    let before: Vec<u8> = limbs.flat_map(|limb| limb.to_le_bytes()).collect();
    let mut bytes = before.clone();
    watch.seen(which, 0, &mut bytes);
    let limbs = coordinates.iter_mut().flat_map(|limbs| limbs.iter_mut());
    for (limb, bytes) in limbs.zip(bytes.as_chunks().0) {
        *limb = u64::from_le_bytes(*bytes);
    }
    bytes != before
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use group::Group;

    use super::*;

    /// Notes what it is shown and flips the lowest bit of one.
    struct Note {
        flip: Option<Intermediate>,
        seen: Mutex<Vec<(Intermediate, u64, Vec<u8>)>>,
    }

    impl Watch for Note {
        fn seen(&self, which: Intermediate, offset_bytes: u64, bytes: &mut [u8]) {
            if self.flip == Some(which) {
                bytes[0] ^= 1;
            }
            let mut seen = self.seen.lock().expect("no panic under the lock");
            seen.push((which, offset_bytes, bytes.to_vec()));
        }
    }

    fn sums() -> Sums {
        Sums {
            h: G1Projective::generator(),
            l: G1Projective::generator().double(),
            a: G1Projective::identity(),
            b_g1: G1Projective::generator(),
            b_g2: G2Projective::generator().double(),
        }
    }

    #[test]
    fn a_sum_is_shown_as_an_affine_point_and_taken_back() {
        let note = |flip| Note {
            flip,
            seen: Mutex::default(),
        };
        let plain = note(None);
        let mut shown = sums();
        show_sums(&plain, &mut shown);
        let seen = plain.seen.into_inner().expect("no panic");
        let lens: Vec<_> = seen
            .iter()
            .map(|(which, _, bytes)| (*which, bytes.len()))
            .collect();
        let sums_of: Vec<_> = Intermediate::ALL[4..].to_vec();
        assert_eq!(
            lens,
            std::iter::zip(sums_of.clone(), [96, 96, 96, 96, 192]).collect::<Vec<_>>()
        );
        assert_eq!(seen[2].2, [0; 96], "the point at infinity");
        assert_eq!(seen[0].2, seen[3].2, "one point, one form");
        assert_eq!((shown.h, shown.b_g2), (sums().h, sums().b_g2));
        for which in sums_of {
            let flipping = note(Some(which));
            let mut flipped = sums();
            show_sums(&flipping, &mut flipped);
            let changed = [
                flipped.h != sums().h,
                flipped.l != sums().l,
                flipped.a != sums().a,
                flipped.b_g1 != sums().b_g1,
                flipped.b_g2 != sums().b_g2,
            ];
            let at = Intermediate::ALL[4..].iter().position(|one| *one == which);
            let only: Vec<_> = (0..5).map(|sum| Some(sum) == at).collect();
            assert_eq!(changed.to_vec(), only, "{which}");
        }
    }

    #[test]
    fn scalars_are_shown_where_they_lie() {
        let note = Note {
            flip: Some(Intermediate::A),
            seen: Mutex::default(),
        };
        let mut column = [1u64, 2, 3].map(Scalar::from);
        show_scalars(&note, Intermediate::A, 0, &mut column[..0]);
        show_scalars(&note, Intermediate::A, 1, &mut column[1..]);
        let seen = note.seen.into_inner().expect("no panic");
        assert_eq!(seen.len(), 1, "nothing is not shown");
        assert_eq!((seen[0].1, seen[0].2.len()), (32, 64));
        assert_ne!(column[1], Scalar::from(2));
        assert_eq!(column[2], Scalar::from(3));
    }
}
