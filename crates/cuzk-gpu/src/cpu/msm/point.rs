//! Affine points by their coordinates, as bucket sums need them.

use blst::{
    blst_fp, blst_fp_add, blst_fp_cneg, blst_fp_inverse, blst_fp_mul, blst_fp_sqr, blst_fp_sub,
    blst_fp2, blst_fp2_add, blst_fp2_cneg, blst_fp2_inverse, blst_fp2_mul, blst_fp2_sqr,
    blst_fp2_sub, blst_p1_affine, blst_p1s_add, blst_p2_affine, blst_p2s_add,
};
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::{Group, prime::PrimeCurveAffine};

/// A coordinate: an element of the curve's base field, always fully reduced, so
/// that equal elements have equal limbs.
pub trait Coordinate: Copy + Default + Eq + Send + Sync {
    /// The sum.
    fn add(&self, other: &Self) -> Self;
    /// The difference.
    fn sub(&self, other: &Self) -> Self;
    /// The product.
    fn mul(&self, other: &Self) -> Self;
    /// The square.
    fn square(&self) -> Self;
    /// The negation.
    fn neg(&self) -> Self;
    /// The inverse, zero for zero.
    fn invert(&self) -> Self;
    /// Whether this is zero.
    fn is_zero(&self) -> bool;
}

/// An affine point of G1 or G2; the identity has both coordinates zero.
pub trait Point: PrimeCurveAffine<Scalar = Scalar> {
    /// The coordinates' field.
    type Coordinate: Coordinate;

    /// The x coordinate.
    fn x(&self) -> &Self::Coordinate;
    /// The y coordinate.
    fn y(&self) -> &Self::Coordinate;
    /// The point of two coordinates, which must be on the curve or both zero.
    fn from_coordinates(x: Self::Coordinate, y: Self::Coordinate) -> Self;
    /// The sum of many points.
    fn sum(points: &[&Self]) -> Self::Curve;
}

#[inline]
fn is_zero_fp(element: &blst_fp) -> bool {
    element.l.iter().fold(0, |all, limb| all | limb) == 0
}

macro_rules! coordinate {
    ($field:ty, $add:ident, $sub:ident, $mul:ident, $square:ident, $neg:ident, $invert:ident, $is_zero:expr) => {
        impl Coordinate for $field {
            #[inline]
            fn add(&self, other: &Self) -> Self {
                let mut result = Self::default();
                // SAFETY: all three are live field elements; so below.
                unsafe { $add(&mut result, self, other) };
                result
            }
            #[inline]
            fn sub(&self, other: &Self) -> Self {
                let mut result = Self::default();
                // SAFETY: as in `add`.
                unsafe { $sub(&mut result, self, other) };
                result
            }
            #[inline]
            fn mul(&self, other: &Self) -> Self {
                let mut result = Self::default();
                // SAFETY: as in `add`.
                unsafe { $mul(&mut result, self, other) };
                result
            }
            #[inline]
            fn square(&self) -> Self {
                let mut result = Self::default();
                // SAFETY: as in `add`.
                unsafe { $square(&mut result, self) };
                result
            }
            #[inline]
            fn neg(&self) -> Self {
                let mut result = Self::default();
                // SAFETY: as in `add`.
                unsafe { $neg(&mut result, self, true) };
                result
            }
            #[inline]
            fn invert(&self) -> Self {
                let mut result = Self::default();
                // SAFETY: as in `add`.
                unsafe { $invert(&mut result, self) };
                result
            }
            #[inline]
            fn is_zero(&self) -> bool {
                $is_zero(self)
            }
        }
    };
}

coordinate!(
    blst_fp,
    blst_fp_add,
    blst_fp_sub,
    blst_fp_mul,
    blst_fp_sqr,
    blst_fp_cneg,
    blst_fp_inverse,
    is_zero_fp
);
coordinate!(
    blst_fp2,
    blst_fp2_add,
    blst_fp2_sub,
    blst_fp2_mul,
    blst_fp2_sqr,
    blst_fp2_cneg,
    blst_fp2_inverse,
    |x: &blst_fp2| is_zero_fp(&x.fp[0]) && is_zero_fp(&x.fp[1])
);

macro_rules! point {
    ($point:ty, $curve:ty, $raw:ty, $coordinate:ty, $sum:ident) => {
        impl Point for $point {
            type Coordinate = $coordinate;

            #[inline]
            fn x(&self) -> &Self::Coordinate {
                &self.as_ref().x
            }
            #[inline]
            fn y(&self) -> &Self::Coordinate {
                &self.as_ref().y
            }
            #[inline]
            fn from_coordinates(x: Self::Coordinate, y: Self::Coordinate) -> Self {
                let mut point = Self::default();
                point.as_mut().x = x;
                point.as_mut().y = y;
                point
            }
            fn sum(points: &[&Self]) -> Self::Curve {
                let mut sum = <$curve>::identity();
                if !points.is_empty() {
                    // SAFETY: the references are live, the point is a transparent
                    // wrapper of the raw one, and the length is that of the slice,
                    // which is not empty.
                    unsafe {
                        $sum(
                            sum.as_mut(),
                            points.as_ptr().cast::<*const $raw>(),
                            points.len(),
                        );
                    }
                }
                sum
            }
        }
    };
}

point!(
    G1Affine,
    G1Projective,
    blst_p1_affine,
    blst_fp,
    blst_p1s_add
);
point!(
    G2Affine,
    G2Projective,
    blst_p2_affine,
    blst_fp2,
    blst_p2s_add
);
