//! The measured call graph: rates of calls between services, each with an age and a confidence, from traces or from the metrics of a
//! service mesh.
//!
//! Pure: spans, query results and the time are inputs; callers receive OTLP and query Prometheus. Memory is limited by the number of
//! edges and of remembered spans.

mod otlp;
mod prometheus;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use super::graph::{CallGraph, GraphError, Service};

pub use otlp::{Span, SpanSide, spans};
pub use prometheus::{EdgeLabels, RateWindow, rates};

/// A document that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// It is not JSON.
    #[error("the document is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is JSON of another form.
    #[error("the document is not an {0}")]
    Shape(&'static str),
    /// Prometheus answered with an error.
    #[error("Prometheus answered with an error: {0}")]
    Refused(String),
}

/// A measured edge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Edge {
    /// Calling service.
    pub from: String,
    /// Called service.
    pub to: String,
    /// Calls per second.
    pub rate: f64,
    /// Seconds since the last observed call.
    pub age: f64,
    /// 1 - 1/sqrt(1 + n) for about n recent calls, which is 1 minus their relative standard error if they are independent.
    pub confidence: f64,
}

/// Settings of a [`Collector`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seconds after which a call counts one half.
    pub half_life: f64,
    /// Limit on edges; further edges are not recorded.
    pub edges: usize,
    /// Limit on spans remembered for their children; the oldest are dropped.
    pub spans: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { half_life: 600.0, edges: 10_000, spans: 100_000 }
    }
}

/// Bytes of an id in hexadecimal digits: of a trace it has 32, of a span 16.
const LONGEST_ID: usize = 64;
/// Bytes of the name of a service.
const LONGEST_NAME: usize = 253;

/// A count with exponential decay.
#[derive(Clone, Copy, Debug)]
struct Tally {
    count: f64,
    first: f64,
    last: f64,
}

impl Tally {
    fn add(&mut self, calls: f64, at: f64, half_life: f64) {
        if at >= self.last {
            self.count = self.count * 0.5_f64.powf((at - self.last) / half_life) + calls;
            self.last = at;
        } else {
            self.count += calls * 0.5_f64.powf((self.last - at) / half_life);
            self.first = self.first.min(at);
        }
    }
}

type Pair = (String, String);

/// Counts calls between services from their spans.
///
/// A call is a span whose parent is a span of another service. Services that send no spans (databases, queues) are known only from
/// `peer.service` of their callers; such calls count as long as the called service sends no spans.
#[derive(Debug)]
pub struct Collector {
    settings: Settings,
    began: Option<f64>,
    /// The service of each remembered span, by (trace, span).
    owner: BTreeMap<(String, String), String>,
    order: VecDeque<(String, String)>,
    /// Spans whose parent has not arrived yet, by (trace, parent).
    waiting: BTreeMap<(String, String), Vec<(String, f64)>>,
    /// The number of spans in `waiting`.
    waiting_spans: usize,
    heard: BTreeSet<String>,
    by_parent: BTreeMap<Pair, Tally>,
    by_peer: BTreeMap<Pair, Tally>,
    /// Number of calls that were not counted because of the limit on edges.
    pub dropped: u64,
}

impl Collector {
    /// An empty collector.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            began: None,
            owner: BTreeMap::new(),
            order: VecDeque::new(),
            waiting: BTreeMap::new(),
            waiting_spans: 0,
            heard: BTreeSet::new(),
            by_parent: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// Adds a span. Parents may arrive after their children. One with a longer name or id than any exporter sends is left out.
    pub fn add(&mut self, span: &Span) {
        let ids = [Some(&span.trace), Some(&span.id), span.parent.as_ref()];
        let names = [Some(&span.service), span.peer.as_ref()];
        let longer = |texts: &[Option<&String>], limit: usize| texts.iter().flatten().any(|text| text.len() > limit);
        if longer(&ids, LONGEST_ID) || longer(&names, LONGEST_NAME) {
            return;
        }
        self.began = Some(self.began.map_or(span.at, |b| b.min(span.at)));
        if self.heard.len() < self.settings.edges {
            self.heard.insert(span.service.clone());
        }
        let key = (span.trace.clone(), span.id.clone());
        if self.owner.contains_key(&key) {
            return; // exporters repeat spans that were not acknowledged
        }
        if let Some(parent) = &span.parent {
            let parent = (span.trace.clone(), parent.clone());
            match self.owner.get(&parent).cloned() {
                Some(from) => self.count(from, span.service.clone(), span.at, false),
                None => {
                    self.waiting.entry(parent).or_default().push((span.service.clone(), span.at));
                    self.waiting_spans += 1;
                }
            }
        }
        let children = self.waiting.remove(&key).unwrap_or_default();
        self.waiting_spans -= children.len();
        for (to, at) in children {
            self.count(span.service.clone(), to, at, false);
        }
        if let (SpanSide::Client, Some(peer)) = (span.kind, &span.peer) {
            self.count(span.service.clone(), peer.clone(), span.at, true);
        }
        self.owner.insert(key.clone(), span.service.clone());
        self.order.push_back(key);
        while self.order.len() > self.settings.spans {
            if let Some(oldest) = self.order.pop_front() {
                self.owner.remove(&oldest);
            }
        }
        while self.waiting_spans > self.settings.spans {
            self.waiting_spans -= self.waiting.pop_first().map_or(self.waiting_spans, |(_, children)| children.len());
        }
    }

    fn count(&mut self, from: String, to: String, at: f64, by_peer: bool) {
        if from == to {
            return;
        }
        let edges = self.by_parent.len() + self.by_peer.len();
        let tallies = if by_peer { &mut self.by_peer } else { &mut self.by_parent };
        let key = (from, to);
        if let Some(tally) = tallies.get_mut(&key) {
            tally.add(1.0, at, self.settings.half_life);
        } else if edges < self.settings.edges {
            tallies.insert(key, Tally { count: 1.0, first: at, last: at });
        } else {
            self.dropped += 1;
        }
    }

    /// All edges at the time `now` (seconds since the epoch), sorted by calling, then by called service.
    pub fn edges(&self, now: f64) -> Vec<Edge> {
        let half_life = self.settings.half_life;
        let watched = (now - self.began.unwrap_or(now)).max(1.0);
        // The count of a steady rate r converges to r * half_life / ln 2; `full` is the part of it reached so far.
        let full = half_life / std::f64::consts::LN_2 * (1.0 - 0.5_f64.powf(watched / half_life));
        let silent = self.by_peer.iter().filter(|((_, to), _)| !self.heard.contains(to));
        let mut edges: Vec<Edge> = silent
            .chain(&self.by_parent)
            .map(|((from, to), tally)| {
                let age = (now - tally.last).max(0.0);
                let count = tally.count * 0.5_f64.powf(age / half_life);
                Edge { from: from.clone(), to: to.clone(), rate: count / full, age, confidence: 1.0 - 1.0 / (1.0 + count).sqrt() }
            })
            .collect();
        edges.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
        edges
    }
}

/// Makes the graph of the given services from measured edges of at least `confidence`. Edges of other services are ignored.
///
/// # Errors
/// The services are invalid; see [`CallGraph::new`].
pub fn graph(services: Vec<Service>, edges: &[Edge], confidence: f64) -> Result<CallGraph, GraphError> {
    let known: BTreeSet<String> = services.iter().map(|s| s.name.clone()).collect();
    let sure = edges.iter().filter(|e| e.confidence >= confidence && known.contains(&e.from) && known.contains(&e.to));
    CallGraph::named(services, sure.map(|e| (e.from.as_str(), e.to.as_str(), e.rate)))
}
