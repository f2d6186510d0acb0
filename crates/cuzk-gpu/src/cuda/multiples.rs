//! Multiples of the generators on the device, for key generation.

use std::marker::PhantomData;
use std::sync::mpsc::{SyncSender, sync_channel};

use blstrs::{G1Affine, G2Affine, Scalar};

use super::backend::CudaBackend;
use super::border::{self, call};
use super::device::{Device, Lane, Plain};
use super::holdings::{Fixed, Holdings};
use super::plan::{SCALAR_BYTES, align};
use crate::error::BackendError;
use crate::fixed_base::{AffinePoint, Block, Multiples, Multiplier, unsigned_table};

/// Bits of a window: a table of 8.6 MB in G1, which stays in a device's second-level
/// cache, and 22 additions a product.
const WINDOW_BITS: u32 = 12;
/// Scalars multiplied at a time.
const BLOCK_LEN: usize = 1 << 20;

/// `cuzk_multiples_g1` or `cuzk_multiples_g2`.
type MultiplesFunction = unsafe extern "C" fn(
    *mut border::RawDevice,
    border::Address,
    usize,
    u32,
    border::Address,
    usize,
    border::Address,
    usize,
    border::Address,
    usize,
    border::Message,
) -> i32;

/// A group that the device multiplies in.
pub(super) trait DevicePoint: AffinePoint + Send + Sync + Plain + 'static {
    /// Bytes of a point; a row takes twice, a coordinate half as many.
    const BYTES: u64;

    /// The function beyond the border.
    const FUNCTION: MultiplesFunction;
}

// SAFETY: coordinates are limbs, of which any bytes are a value in memory; whether
// it is a point is up to whoever wrote them, here the device.
unsafe impl Plain for G1Affine {}
// SAFETY: as above.
unsafe impl Plain for G2Affine {}

impl DevicePoint for G1Affine {
    const BYTES: u64 = 96;
    const FUNCTION: MultiplesFunction = border::cuzk_multiples_g1;
}

impl DevicePoint for G2Affine {
    const BYTES: u64 = 192;
    const FUNCTION: MultiplesFunction = border::cuzk_multiples_g2;
}

/// A table on the device with room for a block's work.
pub(super) struct DeviceTable<P> {
    table: Fixed,
    block: Fixed,
    points: PhantomData<P>,
}

impl<P: DevicePoint> DeviceTable<P> {
    fn new(device: &Device, holdings: &mut Holdings, base: P) -> Result<Self, BackendError> {
        let entries = unsigned_table(base, WINDOW_BITS);
        let table = holdings.fixed("a table of multiples", size_of_val(&entries[..]) as u64)?;
        // SAFETY: waited for below, before the entries are dropped.
        let copied = unsafe { device.copy_in(Lane::Compute, table.region(), &entries) };
        device.wait(Lane::Compute)?;
        copied?;
        let block = holdings.fixed("a block of multiples", Self::parts(BLOCK_LEN).iter().sum())?;
        Ok(Self {
            table,
            block,
            points: PhantomData,
        })
    }

    /// Bytes of scalars, work (a row and a coordinate each) and points.
    fn parts(len: usize) -> [u64; 3] {
        [SCALAR_BYTES, P::BYTES * 5 / 2, P::BYTES].map(|bytes| align(len as u64 * bytes))
    }

    /// Multiples of the scalars, in place of what `block` has of points.
    fn multiply(&self, device: &Device, mut block: Block<P>) -> Result<Block<P>, BackendError> {
        block.points.resize(block.scalars.len(), P::identity());
        let scalars = block.scalars.chunks(BLOCK_LEN);
        for (scalars, points) in scalars.zip(block.points.chunks_mut(BLOCK_LEN)) {
            let mut at = 0;
            let [to_scalars, work, out] = Self::parts(scalars.len()).map(|bytes| {
                let region = self.block.region().part(at, bytes);
                at += bytes;
                region
            });
            // SAFETY: `copy_out` below waits for it, whatever fails.
            let copied = unsafe { device.copy_in(Lane::Compute, to_scalars, scalars) };
            let queued = copied.and_then(|()| {
                call("multiples of a point", |message| {
                    // SAFETY: the scalars' region has room for the block; the function
                    // compares the other lengths with what it needs.
                    unsafe {
                        P::FUNCTION(
                            device.raw(),
                            self.table.region().address(),
                            (self.table.region().bytes() / P::BYTES) as usize,
                            WINDOW_BITS,
                            to_scalars.address(),
                            scalars.len(),
                            work.address(),
                            work.bytes() as usize,
                            out.address(),
                            (out.bytes() / P::BYTES) as usize,
                            message,
                        )
                    }
                })
            });
            let fetched = device.copy_out(Lane::Compute, points, out);
            queued.and(fetched)?;
        }
        Ok(block)
    }
}

/// Where a block of points goes.
pub(super) type Answer<P> = SyncSender<Result<Block<P>, BackendError>>;

/// What the device's thread is asked for.
pub(super) enum Request {
    Open(
        Box<(G1Affine, G2Affine)>,
        SyncSender<Result<(), BackendError>>,
    ),
    G1(Block<G1Affine>, Answer<G1Affine>),
    G2(Block<G2Affine>, Answer<G2Affine>),
    Close,
}

/// The tables, on the device's thread.
#[derive(Default)]
pub(super) struct Tables {
    open: Option<(DeviceTable<G1Affine>, DeviceTable<G2Affine>)>,
}

impl Tables {
    /// Carries out a request; whoever asked may have gone.
    pub(super) fn serve(&mut self, device: &Device, holdings: &mut Holdings, request: Request) {
        match request {
            Request::Open(bases, reply) => {
                let _ = reply.send(self.open(device, holdings, *bases));
            }
            Request::G1(block, reply) => {
                let _ = reply.send(self.opened().and_then(|(g1, _)| g1.multiply(device, block)));
            }
            Request::G2(block, reply) => {
                let _ = reply.send(self.opened().and_then(|(_, g2)| g2.multiply(device, block)));
            }
            Request::Close => self.open = None,
        }
    }

    /// One set at a time: requests do not say of which they are.
    fn open(
        &mut self,
        device: &Device,
        holdings: &mut Holdings,
        (g1, g2): (G1Affine, G2Affine),
    ) -> Result<(), BackendError> {
        if self.open.is_some() {
            return Err(BackendError::Start {
                what: "the making of a key on the device",
                reason: "another one is being made there".to_owned(),
            });
        }
        let g1 = DeviceTable::new(device, holdings, g1)?;
        let g2 = DeviceTable::new(device, holdings, g2)?;
        self.open = Some((g1, g2));
        Ok(())
    }

    fn opened(&self) -> Result<&(DeviceTable<G1Affine>, DeviceTable<G2Affine>), BackendError> {
        self.open.as_ref().ok_or(BackendError::Lost)
    }
}

/// The tables of a backend, closed when dropped.
struct OpenTables<'a> {
    backend: &'a CudaBackend,
}

/// Asks the device's thread and waits for its answer.
fn ask<T>(
    backend: &CudaBackend,
    request: impl FnOnce(SyncSender<Result<T, BackendError>>) -> Request,
) -> Result<T, BackendError> {
    let (reply, answer) = sync_channel(1);
    backend.send(request(reply))?;
    answer.recv().unwrap_or(Err(BackendError::Lost))
}

impl Multiples for OpenTables<'_> {
    fn block_len(&self) -> usize {
        BLOCK_LEN
    }

    fn g1_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G1Affine>,
    ) -> Result<Block<G1Affine>, BackendError> {
        let block = Block { scalars, points };
        ask(self.backend, |reply| Request::G1(block, reply))
    }

    fn g2_into(
        &self,
        scalars: Vec<Scalar>,
        points: Vec<G2Affine>,
    ) -> Result<Block<G2Affine>, BackendError> {
        let block = Block { scalars, points };
        ask(self.backend, |reply| Request::G2(block, reply))
    }
}

impl Drop for OpenTables<'_> {
    fn drop(&mut self) {
        let _ = self.backend.send(Request::Close);
    }
}

impl Multiplier for CudaBackend {
    fn tables(
        &self,
        (g1, _): (G1Affine, usize),
        (g2, _): (G2Affine, usize),
    ) -> Result<Box<dyn Multiples + '_>, BackendError> {
        ask(self, |reply| Request::Open(Box::new((g1, g2)), reply))?;
        Ok(Box::new(OpenTables { backend: self }))
    }
}
