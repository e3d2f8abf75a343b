//! Bodies of requests and answers: a request's body can wait in the queue and be offered to several pods; an answer's body keeps what the request
//! holds (a slot of a pod, a count of requests under way) until it ends.
//!
//! Invariant: no byte of a request is sent to two pods. A request is offered to another pod only while nobody has read from its body.

use std::any::Any;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Maximum number of bytes of a waiting request that are read to notice that its client went away.
const READ_AHEAD: usize = 64 << 10;

/// A request's body. Clones refer to the same body.
#[derive(Clone, Debug)]
pub struct RequestBody(Arc<Mutex<BodyReader>>);

#[derive(Debug)]
struct BodyReader {
    source: Incoming,
    ahead: VecDeque<Frame<Bytes>>,
    bytes_ahead: usize,
    ended: bool,
    touched: bool,
}

impl RequestBody {
    /// Wraps the body that the client sends.
    pub fn new(source: Incoming) -> Self {
        Self(Arc::new(Mutex::new(BodyReader { source, ahead: VecDeque::new(), bytes_ahead: 0, ended: false, touched: false })))
    }

    /// Whether a pod has begun to read it, so that it cannot be offered to another one.
    pub fn touched(&self) -> bool {
        self.reader().touched
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.is_end_stream()
    }

    /// Completes when the client goes away while its request waits. After the whole request was received, the connection itself watches the client.
    pub async fn client_gone(&self) {
        std::future::poll_fn(|context| self.reader().read_ahead(context)).await;
    }

    fn reader(&self) -> MutexGuard<'_, BodyReader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyReader {
    fn read_ahead(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.ended && self.bytes_ahead < READ_AHEAD && !self.source.is_end_stream() {
            match ready!(Pin::new(&mut self.source).poll_frame(context)) {
                Some(Ok(frame)) => {
                    self.bytes_ahead += frame.data_ref().map_or(0, Bytes::len);
                    self.ahead.push_back(frame);
                }
                Some(Err(_)) => return Poll::Ready(()),
                None => self.ended = true,
            }
        }
        Poll::Pending
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut reader = self.reader();
        reader.touched = true;
        if let Some(frame) = reader.ahead.pop_front() {
            reader.bytes_ahead -= frame.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(Ok(frame)));
        }
        if reader.ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut reader.source).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        let reader = self.reader();
        reader.ahead.is_empty() && (reader.ended || reader.source.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let reader = self.reader();
        let (ahead, rest) = (reader.bytes_ahead as u64, reader.source.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(ahead + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(ahead + upper);
        }
        hint
    }
}

/// What a request holds until its answer has ended; it is only dropped then.
pub type Held = Box<dyn Any + Send>;

/// The body of an answer.
#[derive(Debug)]
pub struct AnswerBody {
    source: AnswerSource,
    held: Option<Held>,
}

#[derive(Debug)]
enum AnswerSource {
    App(Incoming),
    Own(Full<Bytes>),
}

impl AnswerBody {
    /// The app's body, with what is released at its end.
    pub fn of_app(body: Incoming, held: Option<Held>) -> Self {
        Self { source: AnswerSource::App(body), held }
    }
}

impl From<Full<Bytes>> for AnswerBody {
    fn from(body: Full<Bytes>) -> Self {
        Self { source: AnswerSource::Own(body), held: None }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = match &mut self.source {
            AnswerSource::App(body) => ready!(Pin::new(body).poll_frame(context)),
            AnswerSource::Own(body) => ready!(Pin::new(body).poll_frame(context)).map(|frame| frame.map_err(|never| match never {})),
        };
        if !matches!(frame, Some(Ok(_))) {
            self.held = None; // the next request in the queue need not wait until the connection drops this body
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            AnswerSource::App(body) => body.is_end_stream(),
            AnswerSource::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            AnswerSource::App(body) => body.size_hint(),
            AnswerSource::Own(body) => body.size_hint(),
        }
    }
}
