//! Additions of many pairs of affine points at the price of one inversion.
//!
//! The sum of two affine points needs the inverse of the difference of their x
//! coordinates. Montgomery's trick inverts all differences at once: three
//! multiplications each and one inversion. An addition is then five
//! multiplications and a squaring in the base field, against eleven and five for
//! the complete addition to a projective sum, and the result needs no
//! normalisation.

use blst::{
    blst_fp, blst_fp_add, blst_fp_cneg, blst_fp_inverse, blst_fp_mul, blst_fp_sqr, blst_fp_sub,
    blst_fp2, blst_fp2_add, blst_fp2_cneg, blst_fp2_inverse, blst_fp2_mul, blst_fp2_sqr,
    blst_fp2_sub,
};
use blstrs::{G1Affine, G2Affine};
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};

/// An element of the field that a point's coordinates are in.
pub trait Coordinate: Copy + Default + Send + Sync {
    /// `self + other`.
    fn add(&self, other: &Self) -> Self;
    /// `self - other`.
    fn sub(&self, other: &Self) -> Self;
    /// `self * other`.
    fn mul(&self, other: &Self) -> Self;
    /// `self * self`.
    fn sqr(&self) -> Self;
    /// `-self` if asked for, without a branch.
    fn negated_if(&self, is_negated: bool) -> Self;
    /// `1 / self`, or zero for zero.
    fn inverse(&self) -> Self;
    /// Whether this is zero.
    fn is_zero(&self) -> bool;
}

macro_rules! coordinate {
    (
        $field:ty, $add:ident, $sub:ident, $mul:ident, $sqr:ident, $cneg:ident, $inverse:ident,
        |$element:ident| $limbs:expr
    ) => {
        impl Coordinate for $field {
            #[inline]
            fn add(&self, other: &Self) -> Self {
                let mut sum = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $add(&mut sum, self, other) };
                sum
            }

            #[inline]
            fn sub(&self, other: &Self) -> Self {
                let mut difference = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $sub(&mut difference, self, other) };
                difference
            }

            #[inline]
            fn mul(&self, other: &Self) -> Self {
                let mut product = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $mul(&mut product, self, other) };
                product
            }

            #[inline]
            fn sqr(&self) -> Self {
                let mut square = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $sqr(&mut square, self) };
                square
            }

            #[inline]
            fn negated_if(&self, is_negated: bool) -> Self {
                let mut result = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $cneg(&mut result, self, is_negated) };
                result
            }

            #[inline]
            fn inverse(&self) -> Self {
                let mut inverse = Self::default();
                // SAFETY: the pointers are to live field elements.
                unsafe { $inverse(&mut inverse, self) };
                inverse
            }

            #[inline]
            fn is_zero(&self) -> bool {
                // Zero is zero in Montgomery form too, and reduced.
                let $element = self;
                $limbs.fold(0, |any, limb| any | limb) == 0
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
    |element| element.l.iter()
);
coordinate!(
    blst_fp2,
    blst_fp2_add,
    blst_fp2_sub,
    blst_fp2_mul,
    blst_fp2_sqr,
    blst_fp2_cneg,
    blst_fp2_inverse,
    |element| element.fp.iter().flat_map(|part| &part.l)
);

/// An affine point with its coordinates in reach. The point at infinity is
/// `(0, 0)`, which is not on either curve.
pub trait AffinePoint:
    PrimeCurveAffine<Scalar = blstrs::Scalar, Curve: Curve<AffineRepr = Self>>
{
    /// The coordinates' field.
    type Coordinate: Coordinate;

    /// The coordinates, x first.
    fn coordinates(&self) -> (Self::Coordinate, Self::Coordinate);

    /// The point with these coordinates.
    fn from_coordinates(x: Self::Coordinate, y: Self::Coordinate) -> Self;

    /// Whether this is the point at infinity.
    #[inline]
    fn is_infinity(&self) -> bool {
        let (x, y) = self.coordinates();
        x.is_zero() && y.is_zero()
    }

    /// `-self` if asked for, without a branch.
    #[inline]
    fn negated_if(&self, is_negated: bool) -> Self {
        let (x, y) = self.coordinates();
        Self::from_coordinates(x, y.negated_if(is_negated))
    }
}

macro_rules! affine_point {
    ($point:ty, $field:ty) => {
        impl AffinePoint for $point {
            type Coordinate = $field;

            #[inline]
            fn coordinates(&self) -> ($field, $field) {
                let raw = self.as_ref();
                (raw.x, raw.y)
            }

            #[inline]
            fn from_coordinates(x: $field, y: $field) -> Self {
                let mut point = Self::identity();
                let raw = point.as_mut();
                raw.x = x;
                raw.y = y;
                point
            }
        }
    };
}

affine_point!(G1Affine, blst_fp);
affine_point!(G2Affine, blst_fp2);

/// Working memory of [`BatchAdder::add`], kept from batch to batch.
pub(crate) struct BatchAdder<P: AffinePoint> {
    pending: Vec<Addition<P::Coordinate>>,
}

/// An addition that waits for its inverse.
struct Addition<F> {
    index: usize,
    /// Difference of the x coordinates.
    dx: F,
    /// Product of the differences before this one.
    before: Option<F>,
}

impl<P: AffinePoint> BatchAdder<P> {
    pub(crate) fn new() -> Self {
        Self {
            pending: Vec::new(),
        }
    }

    /// Adds to each sum its addend. All cases are right, infinity and equal and
    /// opposite points too; those two must be rare, as each costs an inversion.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn add(&mut self, sums: &mut [P], addends: &[P]) {
        assert_eq!(sums.len(), addends.len(), "an addend for each sum");
        self.pending.clear();
        let mut product: Option<P::Coordinate> = None;
        for (index, (sum, addend)) in sums.iter_mut().zip(addends).enumerate() {
            if addend.is_infinity() {
                continue;
            }
            if sum.is_infinity() {
                *sum = *addend;
                continue;
            }
            let dx = addend.coordinates().0.sub(&sum.coordinates().0);
            if dx.is_zero() {
                *sum = (sum.to_curve() + addend).to_affine();
                continue;
            }
            let before = product;
            product = Some(before.map_or(dx, |before| before.mul(&dx)));
            self.pending.push(Addition { index, dx, before });
        }
        let Some(product) = product else { return };
        let mut inverse = product.inverse();
        for Addition { index, dx, before } in self.pending.iter().rev() {
            let dx_inverse = match before {
                Some(before) => {
                    let dx_inverse = inverse.mul(before);
                    inverse = inverse.mul(dx);
                    dx_inverse
                }
                None => inverse,
            };
            let (x1, y1) = sums[*index].coordinates();
            let (x2, y2) = addends[*index].coordinates();
            let slope = y2.sub(&y1).mul(&dx_inverse);
            let x = slope.sqr().sub(&x1).sub(&x2);
            let y = slope.mul(&x1.sub(&x)).sub(&y1);
            sums[*index] = P::from_coordinates(x, y);
        }
    }
}

/// The first `count` points of base, 2^`step` base, 2^(2 `step`) base, ….
pub(crate) fn shifted_bases<P: AffinePoint>(base: P, step: u32, count: usize) -> Vec<P> {
    let mut current = base.to_curve();
    let mut projective = Vec::with_capacity(count);
    for _ in 0..count {
        projective.push(current);
        for _ in 0..step {
            current = current.double();
        }
    }
    let mut bases = vec![P::identity(); count];
    P::Curve::batch_normalize(&projective, &mut bases);
    bases
}
