//! Affine additions in batches that share one inversion.
//!
//! An affine addition takes five multiplications, one squaring and one inversion;
//! over a batch the inversion becomes three of those multiplications (Montgomery's
//! trick), which beats every projective formula.

use crate::cpu::msm::point::{Coordinate, Point};

/// Additions in a batch: an inversion is shared by enough of them to vanish, and
/// the batch stays in the second-level cache (150 kB for G1, 300 kB for G2).
const BATCH_LEN: usize = 512;

/// An addition that waits for its inversion.
struct Queued<P: Point> {
    target: u32,
    x: P::Coordinate,
    y: P::Coordinate,
    x_sum: P::Coordinate,
    numerator: P::Coordinate,
    denominator: P::Coordinate,
    /// Product of the denominators queued before this one.
    before: P::Coordinate,
}

/// Bytes of a [`BatchAdder`]: six coordinates an addition and its target.
pub(super) fn scratch_bytes(point_bytes: usize) -> usize {
    BATCH_LEN * (3 * point_bytes + 8)
}

/// Collects additions and carries them out together. A target is whatever the
/// caller needs to store a sum.
pub(super) struct BatchAdder<P: Point> {
    queued: Vec<Queued<P>>,
    product: P::Coordinate,
}

impl<P: Point> BatchAdder<P> {
    pub(super) fn new() -> Self {
        Self {
            queued: Vec::with_capacity(BATCH_LEN),
            product: P::Coordinate::default(),
        }
    }

    /// Adds two points: the sum if it needs no inversion; otherwise the addition
    /// is queued for `target`.
    #[inline]
    pub(super) fn add(&mut self, left: &P, right: &P, target: u32) -> Option<P> {
        if is_identity(left) {
            return Some(*right);
        }
        if is_identity(right) {
            return Some(*left);
        }
        let x_sum = left.x().add(right.x());
        let mut denominator = right.x().sub(left.x());
        let numerator;
        if denominator.is_zero() {
            if left.y() != right.y() || left.y().is_zero() {
                return Some(P::identity());
            }
            denominator = left.y().add(left.y());
            let square = left.x().square();
            numerator = square.add(&square).add(&square);
        } else {
            numerator = right.y().sub(left.y());
        }
        let before = self.product;
        self.product = if self.queued.is_empty() {
            denominator
        } else {
            before.mul(&denominator)
        };
        self.queued.push(Queued {
            target,
            x: *left.x(),
            y: *left.y(),
            x_sum,
            numerator,
            denominator,
            before,
        });
        None
    }

    /// Whether the batch should be carried out before the next addition.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.queued.len() >= BATCH_LEN
    }

    /// Carries out what is queued and hands each sum to `store`.
    pub(super) fn flush(&mut self, mut store: impl FnMut(u32, P)) {
        if self.queued.is_empty() {
            return;
        }
        let mut inverse = self.product.invert();
        for (at, queued) in self.queued.iter().enumerate().rev() {
            let inverted = if at == 0 {
                inverse
            } else {
                let inverted = inverse.mul(&queued.before);
                inverse = inverse.mul(&queued.denominator);
                inverted
            };
            let slope = queued.numerator.mul(&inverted);
            let x = slope.square().sub(&queued.x_sum);
            let y = slope.mul(&queued.x.sub(&x)).sub(&queued.y);
            store(queued.target, P::from_coordinates(x, y));
        }
        self.queued.clear();
    }
}

/// Whether the point is the identity.
#[inline]
pub(super) fn is_identity<P: Point>(point: &P) -> bool {
    point.x().is_zero() && point.y().is_zero()
}
