//! Errors as the codes of gRPC, all in one place.

use cuzk_core::{ByteCount, ProveError, WorkloadError};
use tonic::{Code, Status};

/// Characters of a message at most: it travels in a header.
const MESSAGE_CHARS_MAX: usize = 1024;

/// The request is wrong; the message begins with the field.
pub(super) fn invalid(error: &WorkloadError) -> Status {
    status(Code::InvalidArgument, error)
}

/// Why the engine did not take a job or did not load a key.
pub(super) fn refused(error: &ProveError) -> Status {
    let code = match error {
        ProveError::Request(_)
        | ProveError::TooManyParts { .. }
        | ProveError::Unsatisfied { .. }
        | ProveError::Synthesis { .. }
        | ProveError::InvalidWhole => Code::InvalidArgument,
        // The operator can help, the client cannot.
        ProveError::MissingKey { .. }
        | ProveError::TestKey { .. }
        | ProveError::Sidecar { .. }
        | ProveError::Key(_) => Code::FailedPrecondition,
        ProveError::Memory { .. }
        | ProveError::TooLarge { .. }
        | ProveError::Allocation { .. }
        | ProveError::PageLocked { .. }
        | ProveError::QueueFull { .. } => Code::ResourceExhausted,
        ProveError::Stopped | ProveError::OutOfService { .. } => Code::Unavailable,
        ProveError::Cancelled => Code::Cancelled,
        _ => Code::Internal,
    };
    status(code, error)
}

fn status(code: Code, error: impl std::fmt::Display) -> Status {
    let text = error.to_string();
    Status::new(
        code,
        text.chars().take(MESSAGE_CHARS_MAX).collect::<String>(),
    )
}

/// As many jobs wait or run as may.
pub(super) fn full(limit: usize) -> Status {
    refused(&ProveError::QueueFull { limit })
}

/// Requests hold so much already that this one has no room, now or ever.
pub(super) fn too_many_bytes(asked: u64, held: u64, limit: u64) -> Status {
    let never = asked > limit;
    let [asked, held, limit] = [asked, held, limit].map(ByteCount);
    if never {
        return Status::resource_exhausted(format!(
            "a request of {asked} is more than the {limit} that all requests may hold \
             together (serve.requests_bytes_max): it is never taken"
        ));
    }
    Status::resource_exhausted(format!(
        "a request of {asked}: others hold {held} of the {limit} that requests may hold \
         (serve.requests_bytes_max)"
    ))
}

/// The server is about to end.
pub(super) fn draining() -> Status {
    Status::unavailable("the server is ending and takes no new jobs")
}

/// The name belongs to another job.
pub(super) fn conflict(request_id: &str) -> Status {
    Status::already_exists(format!(
        "request_id: {request_id:?} names a job with other content that waits or runs"
    ))
}

/// No job has this id, or it ended so long ago that nothing is kept of it.
pub(super) fn unknown_job(id: &str) -> Status {
    let id: String = id.chars().take(MESSAGE_CHARS_MAX).collect();
    Status::not_found(format!("job_id: no job {id:?} is known"))
}

/// Something of ours broke.
pub(super) fn internal(what: &'static str) -> Status {
    Status::internal(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut() {
        let error = WorkloadError {
            field: "vanilla_proof".to_owned(),
            reason: "é".repeat(5000),
        };
        let status = invalid(&error);
        assert_eq!(status.message().chars().count(), MESSAGE_CHARS_MAX);
        assert!(status.message().starts_with("vanilla_proof: "));
    }
}
