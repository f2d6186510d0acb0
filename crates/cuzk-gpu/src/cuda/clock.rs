//! When the phases of a proof were, from events on the streams that they ran on.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::device::{Anchor, Device, Lane};
use super::event::Event;
use crate::device::timebase;
use crate::error::BackendError;
use crate::key::Section;
use crate::phase::{Phase, PhaseLane};

/// Marks kept of a proof. Those of a key in many small pieces beyond them are made longer
/// instead.
const MARKS_MAX: usize = 1024;

/// The clock of a slot.
pub(super) struct Clock {
    anchor: Rc<Anchor>,
    marks: RefCell<Vec<Mark>>,
}

/// A phase, or a stretch of one.
struct Mark {
    name: &'static str,
    lane: Lane,
    start: Arc<Event>,
    end: Arc<Event>,
    bytes: u64,
}

/// A mark that has no end yet.
pub(super) struct Begun {
    lane: Lane,
    start: Arc<Event>,
}

impl Clock {
    pub(super) fn new(device: &Device) -> Result<Self, BackendError> {
        Ok(Self {
            anchor: device.anchor()?,
            marks: RefCell::default(),
        })
    }

    /// Begins anew, for another proof.
    pub(super) fn restart(&mut self, device: &Device) -> Result<(), BackendError> {
        self.marks.get_mut().clear();
        self.anchor = device.anchor()?;
        Ok(())
    }

    /// What a lane is given from now on belongs to a phase.
    pub(super) fn begin(&self, device: &Device, lane: Lane) -> Result<Begun, BackendError> {
        let start = device.fence_event()?;
        device.record(lane, &start)?;
        Ok(Begun { lane, start })
    }

    /// What the lane was given since belongs to `name`, and moved so many bytes.
    pub(super) fn end(
        &self,
        device: &Device,
        begun: Begun,
        name: &'static str,
        bytes: u64,
    ) -> Result<(), BackendError> {
        let Begun { lane, start } = begun;
        let end = device.fence_event()?;
        device.record(lane, &end)?;
        let mut marks = self.marks.borrow_mut();
        let mark = Mark {
            name,
            lane,
            start,
            end,
            bytes,
        };
        if marks.len() < MARKS_MAX {
            marks.push(mark);
        } else if let Some(last) = marks.iter_mut().rfind(|last| last.lane == lane) {
            last.end = mark.end;
            last.bytes += mark.bytes;
        }
        Ok(())
    }

    /// The phases, when all that was marked has been waited for.
    pub(super) fn phases(&self) -> Result<Vec<Phase>, BackendError> {
        let marks = self.marks.borrow();
        let phases = marks.iter().map(|mark| {
            let lane = match mark.lane {
                Lane::Upload => PhaseLane::Upload,
                Lane::Compute => PhaseLane::Compute,
                Lane::Keys => PhaseLane::Key,
            };
            let (start, end) = (self.moment(&mark.start)?, self.moment(&mark.end)?);
            Ok(Phase {
                bytes: (mark.bytes != 0).then_some(mark.bytes),
                ..Phase::new(mark.name, lane, start, end)
            })
        });
        phases.collect()
    }

    fn moment(&self, event: &Event) -> Result<Instant, BackendError> {
        let Anchor { event: anchor, at } = &*self.anchor;
        Ok(timebase::after(*at, event.since_ms(anchor)?))
    }
}

/// What the sum over a section is called.
pub(super) fn sum_of(section: Section) -> &'static str {
    match section {
        Section::H => "msm_h",
        Section::L => "msm_l",
        Section::A => "msm_a",
        Section::BG1 => "msm_b_g1",
        Section::BG2 => "msm_b_g2",
        Section::VerifyingKey | Section::Ic => "msm",
    }
}

/// What bringing points of a section is called.
pub(super) fn points_of(section: Section) -> &'static str {
    match section {
        Section::H => "key_h",
        Section::L => "key_l",
        Section::A => "key_a",
        Section::BG1 => "key_b_g1",
        Section::BG2 => "key_b_g2",
        Section::VerifyingKey | Section::Ic => "key",
    }
}
