//! Bodies on their way: a request's, which can wait in line and be offered to several pods; an answer's, which keeps what the request holds.
//!
//! Invariant: no byte of a request goes to two pods: it is offered again only while nobody has read of it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::meter::UnderWay;
use super::room::Lease;

/// So much of a waiting request is read, to see whether its client is still there.
const READ_AHEAD: usize = 64 << 10;

/// A request's body. Clones are the same body.
#[derive(Clone, Debug)]
pub struct RequestBody(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    source: Incoming,
    ahead: VecDeque<Frame<Bytes>>,
    bytes_ahead: usize,
    ended: bool,
    touched: bool,
}

impl RequestBody {
    /// Takes the client's.
    pub fn new(source: Incoming) -> Self {
        Self(Arc::new(Mutex::new(Reading { source, ahead: VecDeque::new(), bytes_ahead: 0, ended: false, touched: false })))
    }

    /// Whether somebody has begun to read it: then it cannot be offered to another.
    pub fn touched(&self) -> bool {
        self.reading().touched
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.is_end_stream()
    }

    /// Ends when the client goes away while its request waits. A client that has said all is watched by the connection itself.
    pub async fn client_gone(&self) {
        std::future::poll_fn(|context| self.reading().read_ahead(context)).await;
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
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
        let mut reading = self.reading();
        reading.touched = true;
        if let Some(frame) = reading.ahead.pop_front() {
            reading.bytes_ahead -= frame.data_ref().map_or(0, Bytes::len);
            return Poll::Ready(Some(Ok(frame)));
        }
        if reading.ended {
            return Poll::Ready(None);
        }
        Pin::new(&mut reading.source).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        let reading = self.reading();
        reading.ahead.is_empty() && (reading.ended || reading.source.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let reading = self.reading();
        let (ahead, rest) = (reading.bytes_ahead as u64, reading.source.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(ahead + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(ahead + upper);
        }
        hint
    }
}

/// What a request holds until its answer is over.
#[derive(Debug, Default)]
pub struct Held {
    /// Its share in the measured concurrency.
    pub under_way: Option<UnderWay>,
    /// Its place.
    pub lease: Option<Lease>,
}

/// An answer's body.
#[derive(Debug)]
pub struct AnswerBody {
    source: Source,
    held: Option<Held>,
}

#[derive(Debug)]
enum Source {
    App(Incoming),
    Own(Full<Bytes>),
}

impl AnswerBody {
    /// The app's, with what is let go at its end.
    pub fn of_app(body: Incoming, held: Held) -> Self {
        Self { source: Source::App(body), held: Some(held) }
    }
}

impl From<Full<Bytes>> for AnswerBody {
    fn from(body: Full<Bytes>) -> Self {
        Self { source: Source::Own(body), held: None }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = match &mut self.source {
            Source::App(body) => ready!(Pin::new(body).poll_frame(context)),
            Source::Own(body) => ready!(Pin::new(body).poll_frame(context)).map(|frame| frame.map_err(|never| match never {})),
        };
        if !matches!(frame, Some(Ok(_))) {
            self.held = None; // the next in line need not wait until the connection gets round to dropping this
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::App(body) => body.is_end_stream(),
            Source::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::App(body) => body.size_hint(),
            Source::Own(body) => body.size_hint(),
        }
    }
}
