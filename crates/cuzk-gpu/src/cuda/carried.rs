//! One proof, from its place in the arena to its bytes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use blstrs::{G2Projective, Scalar};
use rayon::ThreadPool;

use super::backend::layout;
use super::holdings::{Held, PiecePlaces, Points, Wanted};
use super::host_key::HostKey;
use super::key_points::KeyPoints;
use super::owner::Owner;
use super::pass::{Origin, Pass, Streamed, Together, Waiting};
use super::plan::{Counts, Piece};
use super::points::PointBytes;
use super::prove::{Bench, Computed, Seat, sums, transform};
use super::resident::ResidentKey;
use super::upload::{Arrivals, Uploaded, arrivals, upload};
use crate::backend::{Completion, Proved};
use crate::column::Columns;
use crate::device::executor::both;
use crate::device::host::on_thread;
use crate::device::oneshot::oneshot;
use crate::device::relay::{First, Guest};
use crate::device::sorted::{SortedQueries, b_scalars};
use crate::error::BackendError;
use crate::groth16::{Statement, check};
use crate::key::Section;
use crate::phase::{Phase, PhaseLane};
use crate::shape::CircuitShape;
use crate::watch::Watch;

/// What the host takes out of a proof's columns.
struct Prepared {
    sorted: Option<Arc<SortedQueries>>,
    b_scalars: Option<Vec<Scalar>>,
}

/// What the host does of a proof.
struct ByHost {
    sorted: Option<Arc<SortedQueries>>,
    /// Whether it makes the sum over `b_g2`.
    is_b_g2: bool,
}

/// One proof.
pub(super) struct Carried<'a, 'o> {
    pub(super) owner: &'o Owner,
    /// Those whose keys come in pieces.
    pub(super) gathered: &'a Waiting<'o>,
    pub(super) statement: Statement<'a>,
    pub(super) shape: &'a Arc<CircuitShape>,
    pub(super) source: &'a Arc<dyn PointBytes>,
    pub(super) watch: Option<&'a Arc<dyn Watch>>,
}

impl<'a, 'o> Carried<'a, 'o> {
    /// Carries the proof out. What was queued may still be under way if this ends with
    /// an error.
    pub(super) async fn out(
        &self,
        columns: &mut Option<Arc<Columns>>,
        held: &mut Option<Held>,
        host_key: &mut Option<Rc<HostKey>>,
        seat: &mut Seat,
        completion: &Completion,
    ) -> Result<Proved, BackendError> {
        let owner = self.owner;
        let options = &owner.options;
        let device = &owner.device;
        let sizes = &self.shape.sizes;
        let read = columns.as_ref().expect("the columns of a new job");
        let layout = layout(options, sizes);
        let count = |section| self.source.count(section);
        check(read, &layout, &self.statement, count)?;
        let cutting = owner.cutting();
        let wanted = Wanted {
            source: self.source,
            shape: self.shape,
            cutting: &cutting,
            c_source: options.c_source,
            is_key_resident: options.is_key_resident,
            is_assignment_late: options.is_assignment_late,
            piece_log_max: options.key_piece_log_max,
            slots: options.slots,
        };
        let held = &*held.insert(owner.admit(&wanted).await?);
        let guest = match &held.points {
            Points::Resident(_) => None,
            Points::Pieces { places, way } => Some(self.gathered.enter(Together {
                source: Arc::as_ptr(self.source).cast(),
                places: Rc::as_ptr(places),
                way: *way,
            })),
        };
        let regions = held.regions();
        seat.prepare(device, regions.rows.bytes(), self.statement.inputs)?;
        let bench = Bench {
            device,
            regions: &regions,
            cutting,
            clock: &seat.clock,
            host: &seat.host,
            inputs_len: self.statement.inputs.len(),
            c_source: options.c_source,
            transforms: options.transforms,
            is_split: options.is_split,
            watch: self.watch.map(|watch| &**watch),
        };
        let prepared = owner
            .threads
            .as_ref()
            .map(|threads| self.prepare(threads, read, held));
        let is_late = held.points.way().is_late();
        let (arriving, arrivals) = arrivals(read.c.is_some(), is_late);
        let (told, host_has_read) = oneshot::<()>();
        let uploading = async {
            let read = columns.as_ref().expect("nobody took them");
            let uploaded = upload(&bench, &owner.uploads, read, sizes, arriving).await;
            // Either way of its end will do.
            let _ = host_has_read.await;
            // Whatever became of both, nobody reads the columns after this.
            if uploaded? == Uploaded::InPart {
                return Ok(());
            }
            let read = columns.take().and_then(Arc::into_inner);
            completion.columns_read(read.expect("nobody else has them"));
            Ok::<_, BackendError>(())
        };
        let computing = async {
            // Gone when this ends, however it does: an upload may wait for what it tells.
            let mut arrivals = arrivals;
            let prepared = match prepared {
                Some(prepared) => Some(prepared.await),
                None => None,
            };
            told.send(());
            let Prepared { sorted, b_scalars } = match prepared {
                Some(prepared) => prepared??,
                None => Prepared {
                    sorted: None,
                    b_scalars: None,
                },
            };
            let b_g2 = b_scalars.map(|scalars| self.sum_b_g2(scalars));
            let by_host = ByHost {
                sorted,
                is_b_g2: b_g2.is_some(),
            };
            let computed = self
                .compute(&bench, &mut arrivals, held, guest, host_key, by_host)
                .await;
            // Whatever became of the others, nobody reads the key after this.
            let b_g2 = match b_g2 {
                Some(b_g2) => Some(b_g2.await),
                None => None,
            };
            Ok::<_, BackendError>((computed?, b_g2))
        };
        let (uploaded, computed) = both(uploading, computing).await;
        // A computation that waits for an upload that failed only says that it did.
        uploaded?;
        let ((mut computed, loaded), b_g2) = computed?;
        let mut phases = std::mem::take(&mut computed.phases);
        if let Some(b_g2) = b_g2 {
            let (sum, phase) = b_g2??;
            computed.b_g2_on_host = Some(sum);
            phases.push(phase);
        }
        phases.extend(loaded);
        let tier = computed.tier;
        let (source, watch) = (Arc::clone(self.source), self.watch.cloned());
        let (r, s) = (self.statement.r, self.statement.s);
        let finish = move || {
            let begin = Instant::now();
            let proof = computed.finish(source.vk(), r, s, watch.as_deref());
            let phase = Phase::new("finish", PhaseLane::Host, begin, Instant::now());
            (proof, phase)
        };
        let (proof, finished) = on_thread("putting a proof together", finish).await?;
        phases.push(finished);
        phases.sort_by_key(|phase| phase.start);
        Ok(Proved {
            proof,
            phases,
            tier: Some(tier),
        })
    }

    /// Has the host take out of the columns what it is to work on.
    fn prepare(
        &self,
        threads: &Arc<ThreadPool>,
        columns: &Arc<Columns>,
        held: &Held,
    ) -> impl Future<Output = Result<Result<Prepared, BackendError>, BackendError>> + use<> {
        let options = &self.owner.options;
        // A key that comes in pieces would want its lists in pieces.
        let is_resident = matches!(held.points, Points::Resident(_));
        // The host's columns are not what a watcher makes of the device's.
        let is_as_uploaded = self.watch.is_none();
        let is_split = options.is_split_on_host && is_resident && is_as_uploaded;
        let is_b_g2 = options.is_b_g2_on_host && is_as_uploaded;
        let (threads, columns) = (Arc::clone(threads), Arc::clone(columns));
        let (inputs, shape) = (self.statement.inputs.to_vec(), Arc::clone(self.shape));
        on_thread("sorting scalars", move || {
            threads.install(|| {
                let aux = columns.aux.scalars();
                let sorted = is_split.then(|| SortedQueries::of(&inputs, aux, &shape));
                let lists = sorted
                    .iter()
                    .flat_map(|sorted| [&sorted.l, &sorted.a, &sorted.b]);
                if let Some(count) = lists.map(|list| list.wrong).find(|&wrong| wrong != 0) {
                    let what = "the assignment";
                    return Err(BackendError::Unreduced { what, count });
                }
                Ok(Prepared {
                    sorted: sorted.map(Arc::new),
                    b_scalars: is_b_g2.then(|| b_scalars(&inputs, aux, &shape)),
                })
            })
        })
    }

    /// Has the host make the sum over `b_g2`: that, and its phase.
    fn sum_b_g2(
        &self,
        scalars: Vec<Scalar>,
    ) -> impl Future<Output = Result<Result<(G2Projective, Phase), BackendError>, BackendError>> + use<>
    {
        let threads = self.owner.threads.clone().expect("made for this");
        let source = Arc::clone(self.source);
        on_thread("the sum over b_g2", move || {
            let begin = Instant::now();
            let sum = threads.install(|| source.b_g2_sum(&scalars))?;
            let phase = Phase::new("msm_b_g2", PhaseLane::Host, begin, Instant::now());
            Ok((sum, phase))
        })
    }

    /// Sees to the key, and computes when it is this proof's turn, from when its first
    /// column is there. Also returns the phase of a key that was loaded.
    async fn compute(
        &self,
        bench: &Bench<'_>,
        arrivals: &mut Arrivals,
        held: &Held,
        guest: Option<Guest<'a, Together, Streamed<'o>>>,
        host_key: &mut Option<Rc<HostKey>>,
        by_host: ByHost,
    ) -> Result<(Computed, Option<Phase>), BackendError> {
        let owner = self.owner;
        let ByHost { sorted, is_b_g2 } = by_host;
        // Turns are taken in the order of uploads, which have begun.
        arrivals.left().await?;
        if !owner.options.is_early {
            arrivals.before_transforms().await?;
        }
        let loaded = self.load(held).await?;
        let sizes = &self.shape.sizes;
        let queued = {
            let (mut points, sorted) = match (&held.points, guest) {
                (Points::Pieces { places, .. }, Some(guest)) => {
                    *host_key = owner
                        .host_keys
                        .take()
                        .await
                        .place_of(self.source, true)
                        .await?;
                    {
                        // Of its own, while others that are to go with it are on their way.
                        let _turn = owner.compute.take().await;
                        transform(bench, arrivals, sizes).await?;
                    }
                    let pieces = || self.pieces(held, is_b_g2);
                    let streamed = self.stream(guest, places, pieces, host_key.as_ref()).await;
                    // Another that leads may have found a place where this one found none.
                    // It stays until all that was queued has been waited for.
                    *host_key = streamed.host_key();
                    (KeyPoints::Streamed(streamed), None)
                }
                (Points::Resident(key), _) => {
                    // Before the turn to compute, which nobody keeps while another brings a
                    // key.
                    let sorted = match sorted {
                        Some(sorted) => Some((sorted, owner.staging.take().await)),
                        None => None,
                    };
                    let points = KeyPoints::Resident {
                        key: Rc::clone(key),
                        pieces: self.pieces(held, is_b_g2),
                        _turn: owner.compute.take().await,
                    };
                    transform(bench, arrivals, sizes).await?;
                    (points, sorted)
                }
                (Points::Pieces { .. }, None) => unreachable!("a guest since it was admitted"),
            };
            sums(bench, arrivals, &self.statement, &mut points, held, sorted).await?
        };
        Ok((queued.computed(bench).await?, loaded))
    }

    /// What the device is to sum.
    fn pieces(&self, held: &Held, is_b_g2_on_host: bool) -> Rc<[Piece]> {
        let mut pieces = Counts::of(self.shape).pieces(held.points.way());
        pieces.retain(|piece| !(is_b_g2_on_host && piece.section == Section::BG2));
        pieces.into()
    }

    /// Waits for a place in a pass of the key: one that another leads, or its own, which
    /// those of the same key that are ready then join.
    async fn stream(
        &self,
        mut guest: Guest<'a, Together, Streamed<'o>>,
        places: &Rc<PiecePlaces>,
        pieces: impl FnOnce() -> Rc<[Piece]>,
        host_key: Option<&Rc<HostKey>>,
    ) -> Streamed<'o> {
        let owner = self.owner;
        let batch = owner.options.key_batch;
        // The turn to compute comes last: nobody keeps it while another brings a key. One
        // pass at a time has it, so one at a time fetches a key to stay in host memory.
        let own = || async {
            let staging = match host_key.is_some_and(|key| key.is_loaded()) {
                true => None,
                false => Some(owner.staging.take().await),
            };
            (staging, owner.compute.take().await)
        };
        guest.ready();
        let (staging, turn) = match guest.enough(batch, own).await {
            First::Invited(streamed) => return streamed,
            First::Own(own) => own,
        };
        let origin = match host_key {
            Some(key) if key.is_loaded() => Origin::Host(Rc::clone(key)),
            keep => Origin::Source {
                source: Arc::clone(self.source),
                // A key that is loaded stays so.
                staging: RefCell::new(staging),
                keep: keep.cloned(),
            },
        };
        let others = guest.lead(batch - 1);
        let events = Rc::clone(&owner.pieces);
        let count = others.len() + 1;
        let places = Rc::clone(places);
        let mut each = Pass::start(origin, places, pieces(), events, turn, count);
        for (other, place) in others.into_iter().zip(&mut each) {
            other.send(place);
        }
        each.next().expect("at least its own")
    }

    /// Brings the lists of the circuit, and the key if it is to stay, unless they are
    /// there. Returns the phase of a key.
    async fn load(&self, held: &Held) -> Result<Option<Phase>, BackendError> {
        let device = &self.owner.device;
        let key = match &held.points {
            Points::Resident(key) if !key.is_loaded() => Some(&**key),
            _ => None,
        };
        if held.lists.is_loaded() && key.is_none() {
            return Ok(None);
        }
        let mut staging = self.owner.staging.take().await;
        // Another proof may have brought them meanwhile.
        if !held.lists.is_loaded() {
            held.lists.load(device, &mut staging, self.shape).await?;
        }
        let is_absent = |key: &&ResidentKey| !key.is_loaded();
        let Some(key) = key.filter(is_absent) else {
            return Ok(None);
        };
        let begin = Instant::now();
        key.load(device, &mut staging, self.source).await?;
        Ok(Some(Phase {
            bytes: Some(ResidentKey::bytes(&**self.source)),
            ..Phase::new("key_load", PhaseLane::Key, begin, Instant::now())
        }))
    }
}
