//! The gate before the service: the length that a message announces is judged before
//! the message is read, so that what many clients send at once has a limit.
//!
//! A gRPC message is five bytes of head (compressed or not, and the length, big-endian)
//! and the bytes themselves. The methods are unary, so a call has one message. Those
//! that carry proofs are counted in the [`Intake`]; the others are short. A message
//! that is longer than any may be is left to the decoder, which refuses it at its head.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body as Chunks, BodyDataStream};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::server::NamedService;

use super::intake::{HeldByCall, Intake};

/// Bytes of a message's head.
const HEAD_BYTES: usize = 5;
/// The longest message of a method that carries no proof: an id and a number.
const SHORT_BYTES_MAX: usize = 64 << 10;
/// How long a message may take, and for each so many bytes of it a second more: whoever
/// sends slower holds bytes that others could use.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);
const ARRIVAL_BYTES_PER_SECOND: u64 = 256 << 10;
/// Methods whose messages carry proofs.
const CARRIERS: [&str; 2] = [
    "/cuzk.v1.ProvingEngine/SubmitProof",
    "/cuzk.v1.ProvingEngine/Prove",
];

/// A service behind the gate.
#[derive(Clone)]
pub(super) struct Gate<S> {
    inner: S,
    intake: Intake,
    message_bytes_max: usize,
}

impl<S> Gate<S> {
    pub(super) fn new(inner: S, intake: Intake, message_bytes_max: usize) -> Self {
        Self {
            inner,
            intake,
            message_bytes_max,
        }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let held = HeldByCall::default();
        request.extensions_mut().insert(held.clone());
        let rule = if CARRIERS.contains(&request.uri().path()) {
            Rule::Counted {
                intake: self.intake.clone(),
                held,
                bytes_max: self.message_bytes_max,
            }
        } else {
            Rule::Short
        };
        self.inner.call(request.map(|body| gated(body, rule)))
    }
}

/// What a message of a call may be.
enum Rule {
    /// Counted until its job has ended.
    Counted {
        intake: Intake,
        held: HeldByCall,
        bytes_max: usize,
    },
    /// Too short to be counted.
    Short,
}

impl Rule {
    /// Judges a message of `bytes`.
    fn admit(&self, bytes: usize) -> Result<(), Status> {
        match self {
            // The decoder says so, with its limit.
            Self::Counted { bytes_max, .. } if bytes > *bytes_max => Ok(()),
            Self::Counted { intake, held, .. } => {
                held.put(intake.take(bytes as u64)?);
                Ok(())
            }
            Self::Short if bytes <= SHORT_BYTES_MAX => Ok(()),
            Self::Short => Err(Status::out_of_range(format!(
                "a message of {bytes} bytes, this method takes at most {SHORT_BYTES_MAX}"
            ))),
        }
    }
}

fn gated(body: Body, rule: Rule) -> Body {
    let chunks = Chunks::new(body).into_data_stream();
    let gated = Gated::new(chunks, rule, Instant::now() + ARRIVAL_MAX);
    Body::new(Chunks::from_stream(gated))
}

/// The chunks of a call's message, as far as the gate lets them.
struct Gated<C> {
    chunks: C,
    message: Message,
    arrival: Pin<Box<Sleep>>,
    is_over: bool,
}

impl<C> Gated<C> {
    /// The message of a call, whose head must be there until `arrival`.
    fn new(chunks: C, rule: Rule, arrival: Instant) -> Self {
        Self {
            chunks,
            message: Message::new(rule),
            arrival: Box::pin(sleep_until(arrival)),
            is_over: false,
        }
    }
}

/// How far a message has come.
struct Message {
    rule: Rule,
    head: Vec<u8>,
    /// Bytes that follow, once the head is whole.
    left: usize,
}

impl Message {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            head: Vec::with_capacity(HEAD_BYTES),
            left: 0,
        }
    }

    /// Judges the next chunk; the message's length if the chunk completes its head.
    fn pass(&mut self, mut chunk: &[u8]) -> Result<Option<usize>, Status> {
        let mut announced = None;
        let lacking = HEAD_BYTES - self.head.len();
        if lacking > 0 {
            let (head, rest) = chunk.split_at(lacking.min(chunk.len()));
            self.head.extend_from_slice(head);
            chunk = rest;
            let Ok([_, length @ ..]) = <[u8; HEAD_BYTES]>::try_from(self.head.as_slice()) else {
                return Ok(None);
            };
            // 32 bits fit wherever this runs.
            let bytes = u32::from_be_bytes(length) as usize;
            self.rule.admit(bytes)?;
            self.left = bytes;
            announced = Some(bytes);
        }
        let Some(left) = self.left.checked_sub(chunk.len()) else {
            return Err(Status::invalid_argument("a call has one message"));
        };
        self.left = left;
        Ok(announced)
    }
}

impl Stream for Gated<BodyDataStream> {
    type Item = Result<Bytes, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let passed = match Pin::new(&mut this.chunks).poll_next(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Ok(chunk))) => this.message.pass(&chunk).map(|announced| {
                if let Some(bytes) = announced {
                    let seconds = bytes as u64 / ARRIVAL_BYTES_PER_SECOND;
                    let until = this.arrival.deadline() + Duration::from_secs(seconds);
                    this.arrival.as_mut().reset(until);
                }
                chunk
            }),
            Poll::Ready(Some(Err(error))) => Err(Status::from_error(Box::new(error))),
            Poll::Pending => {
                ready!(this.arrival.as_mut().poll(context));
                Err(Status::deadline_exceeded(
                    "the message did not arrive in time",
                ))
            }
        };
        this.is_over = passed.is_err();
        Poll::Ready(Some(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;
    use tonic::Code;

    /// A message of so many bytes with its head.
    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("small").to_be_bytes();
        [&[0][..], &length, &vec![7; bytes]].concat()
    }

    fn rule(intake: &Intake) -> Rule {
        Rule::Counted {
            intake: intake.clone(),
            held: HeldByCall::default(),
            bytes_max: 1000,
        }
    }

    fn counted(intake: &Intake) -> Message {
        Message::new(rule(intake))
    }

    #[test]
    fn a_message_is_counted_when_its_head_is_whole() {
        let intake = Intake::new(1500);
        let mut first = counted(&intake);
        for byte in &message(1000)[..4] {
            assert_eq!(first.pass(&[*byte]).expect("half a head"), None);
            assert_eq!(intake.held_bytes(), 0);
        }
        let rest = &message(1000)[4..];
        assert_eq!(first.pass(&rest[..1]).expect("a head"), Some(1000));
        assert_eq!(intake.held_bytes(), 1000);
        assert_eq!(first.pass(&rest[1..]).expect("the rest"), None);

        let full = counted(&intake).pass(&message(501)).expect_err("full");
        assert_eq!(full.code(), Code::ResourceExhausted);
        // Longer than any may be: the decoder's to refuse, and not counted.
        let passed = counted(&intake).pass(&message(1001));
        assert_eq!(passed.expect("not ours to refuse"), Some(1001));
        assert_eq!(intake.held_bytes(), 1000);
        drop(first);
        assert_eq!(intake.held_bytes(), 0);
    }

    #[test]
    fn a_call_has_one_message() {
        let intake = Intake::new(1500);
        let two = [message(3), message(3)].concat();
        let refused = counted(&intake).pass(&two).expect_err("two");
        assert_eq!(refused.code(), Code::InvalidArgument);
        let mut empty = counted(&intake);
        assert_eq!(empty.pass(&message(0)).expect("empty"), Some(0));
        empty.pass(&[0]).expect_err("a second one");
    }

    #[test]
    fn other_methods_take_short_messages() {
        let short = |bytes| Message::new(Rule::Short).pass(&message(bytes)[..HEAD_BYTES]);
        short(SHORT_BYTES_MAX).expect("short");
        let refused = short(SHORT_BYTES_MAX + 1).expect_err("long");
        assert_eq!(refused.code(), Code::OutOfRange);
    }

    #[test]
    fn what_does_not_arrive_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let intake = Intake::new(1500);
        let sent: &[u8] = &[0, 0, 0, 3];
        let begun = tokio_stream::once(Ok::<_, Infallible>(Bytes::from_static(sent)));
        let stalled = begun.chain(tokio_stream::pending());
        runtime.block_on(async {
            let chunks = Chunks::from_stream(stalled).into_data_stream();
            let mut gated = Gated::new(chunks, rule(&intake), Instant::now());
            let first = gated.next().await.expect("a chunk").expect("a chunk");
            assert_eq!(first, sent);
            let late = gated.next().await.expect("an end").expect_err("late");
            assert_eq!(late.code(), Code::DeadlineExceeded);
            assert!(gated.next().await.is_none());
        });
    }
}
