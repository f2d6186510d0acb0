//! How a job ended, as its waiters read it.

use std::time::Duration;

use cuzk_core::{ProofReply, ProveError, Timeline};

use super::jobs::Job;
use crate::wire::AwaitProofResponse;
use crate::wire::await_proof_response::Status;

/// The answer to all who wait for a job, now and later.
pub(super) fn answer(
    job: &Job,
    timeline: &Timeline,
    result: Result<ProofReply, ProveError>,
    total: Duration,
) -> AwaitProofResponse {
    let timed = AwaitProofResponse {
        job_id: job.id.clone(),
        total_ms: u64::try_from(total.as_millis()).unwrap_or(u64::MAX),
        ..times(timeline)
    };
    match result {
        Ok(reply) => completed(reply, timed),
        Err(error) => AwaitProofResponse {
            status: match error {
                ProveError::Cancelled => Status::Cancelled,
                _ => Status::Failed,
            }
            .into(),
            error_message: error.to_string(),
            ..timed
        },
    }
}

/// A proof and how it came to be.
fn completed(reply: ProofReply, timed: AwaitProofResponse) -> AwaitProofResponse {
    AwaitProofResponse {
        status: Status::Completed.into(),
        placement: reply.placement().to_owned(),
        is_pinned: reply.is_pinned(),
        retries: whole(reply.retries()),
        synthesis: reply.synthesis(),
        backend: reply.backend.to_owned(),
        tier: reply.tier,
        proof: reply.proof,
        ..timed
    }
}

/// A wait that ended before its job did.
pub(super) fn timed_out(job: &Job) -> AwaitProofResponse {
    AwaitProofResponse {
        job_id: job.id.clone(),
        status: Status::Timeout.into(),
        error_message: "the wait ended before the job did; the job goes on".to_owned(),
        ..Default::default()
    }
}

/// A count in the width of the wire.
pub(super) fn whole(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn times(timeline: &Timeline) -> AwaitProofResponse {
    let spans = timeline.spans();
    let load_ms = timeline.total_ms("key");
    // Until a part began; a job that ended before that waited all the time.
    let begun_ms = spans
        .iter()
        .filter(|span| span.name == "queue")
        .map(|span| span.end_ms)
        .reduce(f64::min)
        .unwrap_or_else(|| timeline.elapsed().as_secs_f64() * 1000.0);
    AwaitProofResponse {
        queue_wait_ms: milliseconds(begun_ms - load_ms),
        srs_load_ms: milliseconds(load_ms),
        synthesis_ms: milliseconds(timeline.total_ms("synthesis")),
        gpu_compute_ms: milliseconds(timeline.proving_ms()),
        ..Default::default()
    }
}

/// Rounded to whole milliseconds; what is negative by rounding is none.
fn milliseconds(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cuzk_core::timeline::{Lane, Unit, Work};
    use cuzk_core::{Filling, KeyTier, PartReport, Placed};

    use super::*;

    #[test]
    fn a_placement_is_what_every_part_had() {
        let part = |name, is_pinned, retries| PartReport {
            placed: Placed { name, is_pinned },
            synthesis: Filling::Whole,
            tier: KeyTier::File,
            device: None,
            retries,
        };
        let answer = |parts: &[PartReport]| {
            let reply = ProofReply {
                proof: vec![1],
                backend: "cpu",
                tier: "file".to_owned(),
                parts: parts.to_vec(),
                timeline: Timeline::start(),
            };
            let answer = completed(reply, AwaitProofResponse::default());
            assert_eq!(answer.status(), Status::Completed);
            (answer.placement, answer.is_pinned, answer.retries)
        };
        let (direct, heap) = (part("direct", true, 0), part("heap", false, 1));
        assert_eq!(answer(&[direct; 3]), ("direct".to_owned(), true, 0));
        assert_eq!(answer(&[heap; 2]), ("heap".to_owned(), false, 2));
        // One part that fell back, whichever it is, speaks for the whole.
        for parts in [[direct, heap], [heap, direct]] {
            assert_eq!(answer(&parts), ("mixed".to_owned(), false, 1));
        }
        let registered = part("register", true, 0);
        assert_eq!(answer(&[direct, registered]), ("mixed".to_owned(), true, 0));
    }

    #[test]
    fn times_come_from_the_timeline() {
        let timeline = Timeline::start();
        let epoch = Instant::now();
        let at = |ms| epoch + Duration::from_millis(ms);
        timeline.add("key", None, at(0), at(300));
        timeline.add("queue", Some(0), at(0), at(500));
        timeline.add("queue", Some(1), at(0), at(900));
        timeline.add("reserve", Some(0), at(500), at(501));
        timeline.add("synthesis", Some(0), at(501), at(601));
        timeline.add("survey", Some(0), at(510), at(560));
        timeline.add("synthesis", Some(1), at(900), at(950));
        let work = |work, name, from, until| {
            let lane = Lane::Unit(Unit::Cpu, work);
            timeline.add_in(lane, name, Some(0), None, at(from), at(until));
        };
        work(Work::Wait, "slot", 601, 650);
        work(Work::Compute, "ntt", 650, 670);
        work(Work::Compute, "msm_h", 670, 700);
        timeline.add("verify", Some(0), at(700), at(705));
        let times = times(&timeline);
        assert_eq!(times.srs_load_ms, 300);
        // The timeline began a little before the first moment here.
        assert!((200..=250).contains(&times.queue_wait_ms), "{times:?}");
        assert_eq!(times.synthesis_ms, 150);
        assert_eq!(times.gpu_compute_ms, 50);
    }
}
