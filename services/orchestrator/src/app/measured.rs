//! Measured call graphs: from spans that are sent to orchestrator, and from a service mesh's metrics.
//!
//! Spans are counted in memory and stored by the task `observe`. A process that dies loses the spans since the last time, which
//! only costs confidence. The confidence in a pair decreases with time, so nothing has to be deleted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use drover_api::scheduling::groups::observe::{Collector, Edge, Settings, Span};
use drover_store::{StoreError, now};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{App, Error};
use crate::resources::CALL_GRAPH;
use crate::resources::call_graph::{CallGraphSpec, CallSource, CallSpec};
use crate::store::call_edge::{self, CallEdge, Measurement, MeasurementSource};

/// Composite apps whose spans are counted at the same time. Spans of others are refused until one has sent none for
/// [`DROP_AFTER`] seconds.
const MAX_COMPOSITE_APPS: usize = 50;
/// Bounds of one collector: small, because there are many.
const COLLECTOR: Settings = Settings { half_life: HALF_LIFE, edges: 1_000, spans: 5_000 };
/// Seconds after which a call counts only half.
const HALF_LIFE: f64 = 600.0;
/// Seconds without spans after which a collector is dropped; what it counted is stored by then.
const DROP_AFTER: f64 = 3_600.0;

/// Collectors by composite app.
#[derive(Default)]
pub struct Measured(Mutex<HashMap<Uuid, AppSpans>>);

struct AppSpans {
    collector: Collector,
    last: f64,
    written: bool,
}

/// Spans of [`MAX_COMPOSITE_APPS`] other composite apps are being counted.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyApps;

impl Measured {
    /// Counts spans.
    ///
    /// # Errors
    /// Too many composite apps send spans; nothing was counted.
    pub fn add(&self, composite_app: Uuid, spans: &[Span], at: f64) -> Result<(), TooManyApps> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_COMPOSITE_APPS && !all.contains_key(&composite_app) {
            return Err(TooManyApps);
        }
        let counting =
            all.entry(composite_app).or_insert_with(|| AppSpans { collector: Collector::new(COLLECTOR), last: at, written: true });
        spans.iter().for_each(|span| counting.collector.add(span));
        (counting.last, counting.written) = (at, false);
        Ok(())
    }

    /// The edges of composite apps that received spans since the last call.
    fn take(&self, at: f64) -> Vec<(Uuid, Vec<Edge>)> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter_mut().filter(|(_, counting)| !counting.written);
        let edges = open
            .map(|(id, counting)| {
                counting.written = true;
                (*id, counting.collector.edges(at))
            })
            .collect();
        all.retain(|_, counting| at - counting.last < DROP_AFTER);
        edges
    }

    /// Makes the next [`Measured::take`] return this composite app again, because it could not be stored.
    fn unwritten(&self, composite_app: Uuid) {
        if let Some(counting) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&composite_app) {
            counting.written = false;
        }
    }
}

impl App {
    /// Counts the spans of a composite app's call graph, by the graph's path.
    ///
    /// # Errors
    /// The call graph does not exist, too many composite apps send spans, or a query failed.
    pub async fn measure(&self, path: &str, spans: &[Span]) -> Result<(), Error> {
        let mut connection = self.store.acquire().await?;
        let graph = drover_resources::get::<CallGraphSpec>(&mut connection, &CALL_GRAPH, path).await?;
        let id = graph.and_then(|graph| graph.parent_id).ok_or_else(|| Error::NotFound { what: path.to_owned() })?;
        drop(connection);
        self.measured.add(id, spans, seconds()).map_err(|TooManyApps| Error::TooManyMeasured)
    }

    /// The measured calls of the call graph at this path.
    ///
    /// # Errors
    /// The call graph does not exist, or a query failed.
    pub async fn measured_of(&self, path: &str) -> Result<Vec<MeasuredCall>, Error> {
        let mut connection = self.store.acquire().await?;
        let graph = drover_resources::get::<CallGraphSpec>(&mut connection, &CALL_GRAPH, path).await?;
        let id = graph.and_then(|graph| graph.parent_id).ok_or_else(|| Error::NotFound { what: path.to_owned() })?;
        known(&mut connection, id).await
    }

    /// Stores what was counted since the last call.
    ///
    /// # Errors
    /// A query failed; what was not stored is stored by the next call.
    pub async fn write_measured(&self) -> Result<(), StoreError> {
        for (id, edges) in self.measured.take(seconds()) {
            if let Err(error) = self.keep(id, MeasurementSource::Traces, &edges).await {
                self.measured.unwritten(id);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores edges that were measured just now.
    ///
    /// # Errors
    /// The query failed.
    pub async fn keep(&self, composite_app: Uuid, source: MeasurementSource, edges: &[Edge]) -> Result<(), StoreError> {
        let seen = edges.iter().map(|edge| Measurement {
            caller: edge.from.clone(),
            called: edge.to.clone(),
            rate: edge.rate,
            confidence: edge.confidence,
            age: edge.age,
        });
        let mut connection = self.store.acquire().await?;
        call_edge::put(&mut connection, composite_app, source, &seen.collect::<Vec<_>>()).await
    }
}

/// A measured pair of apps, as of now.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredCall {
    /// The pair as it was stored when it was last seen.
    pub edge: CallEdge,
    /// Seconds since the pair was last seen.
    pub age: f64,
    /// The stored confidence, reduced by age.
    pub confidence: f64,
}

/// The measured calls of a composite app. If both sources have a pair, the one with higher confidence counts.
///
/// # Errors
/// The query failed.
pub async fn known(tx: &mut PgConnection, composite_app: Uuid) -> Result<Vec<MeasuredCall>, Error> {
    let now = now();
    let known = call_edge::of(tx, composite_app).await?.into_iter().map(|edge| {
        let age = now.duration_since(*edge.seen_at).as_secs_f64().max(0.0);
        MeasuredCall { confidence: faded(edge.confidence, age), age, edge }
    });
    let mut pairs: Vec<MeasuredCall> = Vec::new();
    for new in known {
        match pairs.last_mut().filter(|last| (&last.edge.caller, &last.edge.called) == (&new.edge.caller, &new.edge.called)) {
            Some(last) if new.confidence > last.confidence => *last = new,
            Some(_) => {}
            None => pairs.push(new),
        }
    }
    Ok(pairs)
}

/// The confidence of n calls is 1 - 1/sqrt(1 + n); after each half-life n is halved.
fn faded(confidence: f64, age: f64) -> f64 {
    let calls = (1.0 - confidence.clamp(0.0, 0.999_999)).powi(-2) - 1.0;
    1.0 - 1.0 / (1.0 + calls * 0.5_f64.powf(age / HALF_LIFE)).sqrt()
}

/// The call graph with measured calls instead of or beside the declared ones, as its `source` says.
pub fn merged(mut spec: CallGraphSpec, known: &[MeasuredCall]) -> CallGraphSpec {
    let sure = known.iter().filter(|known| known.confidence >= spec.confidence());
    let measured: Vec<CallSpec> = sure
        .map(|known| CallSpec { from: known.edge.caller.clone(), to: known.edge.called.clone(), calls: known.edge.rate, bytes: 0.0 })
        .collect();
    match spec.source {
        CallSource::Declared => {}
        CallSource::Measured => spec.calls = measured,
        CallSource::Both => spec.calls = beside(&spec.calls, measured),
    }
    spec
}

/// Measured pairs and those declared pairs that were not measured. Declared calls are per request and measured ones per second;
/// the pairs that are both give the number of requests per second. Sizes are always the declared ones.
fn beside(declared: &[CallSpec], mut measured: Vec<CallSpec>) -> Vec<CallSpec> {
    let (mut per_second, mut per_request) = (0.0, 0.0);
    for call in &mut measured {
        if let Some(said) = declared.iter().find(|said| said.from == call.from && said.to == call.to) {
            per_second += call.calls;
            per_request += said.calls;
            call.bytes = said.bytes;
        }
    }
    let scale = if per_request > 0.0 && per_second > 0.0 { per_second / per_request } else { 1.0 };
    let unseen = declared.iter().filter(|said| !measured.iter().any(|call| said.from == call.from && said.to == call.to));
    let unseen: Vec<CallSpec> = unseen.map(|said| CallSpec { calls: said.calls * scale, ..said.clone() }).collect();
    measured.into_iter().chain(unseen).collect()
}

/// Seconds since the epoch.
pub fn seconds() -> f64 {
    now().as_millisecond() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(from: &str, to: &str, calls: f64) -> CallSpec {
        CallSpec { from: from.into(), to: to.into(), calls, bytes: 0.0 }
    }

    fn seen(caller: &str, called: &str, rate: f64, confidence: f64) -> MeasuredCall {
        let edge = CallEdge { caller: caller.into(), called: called.into(), source: "traces".into(), rate, confidence, seen_at: now() };
        MeasuredCall { edge, age: 0.0, confidence }
    }

    #[test]
    fn confidence_decreases_with_age() {
        let of = |calls: f64| 1.0 - 1.0 / (1.0 + calls).sqrt();
        assert!((faded(of(8.0), 0.0) - of(8.0)).abs() < 1e-9);
        assert!((faded(of(8.0), HALF_LIFE) - of(4.0)).abs() < 1e-9);
        assert!(faded(1.0, 100.0 * HALF_LIFE) < 0.01);
    }

    #[test]
    fn measured_calls_replace_or_complete_declared_ones() {
        let spec: CallGraphSpec = serde_json::from_value(serde_json::json!({
            "calls": [{"from": "web", "to": "cart", "calls": 2}, {"from": "cart", "to": "db", "calls": 6, "bytes": 9}, {"from": "web", "to": "mail", "calls": 1}],
        }))
        .unwrap();
        // Ten requests per second, and one pair with low confidence.
        let known = [seen("web", "cart", 20.0, 0.9), seen("cart", "db", 60.0, 0.8), seen("db", "web", 5.0, 0.1)];
        let with = |source| merged(CallGraphSpec { source, ..spec.clone() }, &known).calls;
        assert_eq!(with(CallSource::Declared), spec.calls);
        assert_eq!(with(CallSource::Measured), [call("web", "cart", 20.0), call("cart", "db", 60.0)]);
        let both = with(CallSource::Both);
        assert_eq!(both, [call("web", "cart", 20.0), CallSpec { bytes: 9.0, ..call("cart", "db", 60.0) }, call("web", "mail", 10.0)]);
        assert_eq!(merged(CallGraphSpec { source: CallSource::Both, ..spec.clone() }, &[]).calls, spec.calls);
    }

    #[test]
    fn take_returns_a_composite_app_once_per_change() {
        let measured = Measured::default();
        let id = Uuid::now_v7();
        let span = |at: f64| Span {
            trace: format!("t{at}"),
            id: "s".into(),
            parent: None,
            service: "web".into(),
            kind: drover_api::scheduling::groups::observe::SpanSide::Client,
            peer: Some("db".into()),
            at,
        };
        measured.add(id, &[span(1.0)], 1.0).unwrap();
        assert_eq!(measured.take(2.0).len(), 1);
        assert!(measured.take(3.0).is_empty());
        measured.unwritten(id);
        assert_eq!(measured.take(4.0)[0].1[0].to, "db");
        assert!(measured.take(2.0 * DROP_AFTER).is_empty());
        for _ in 0..MAX_COMPOSITE_APPS {
            measured.add(Uuid::now_v7(), &[span(1.0)], 1.0).unwrap();
        }
        assert_eq!(measured.add(id, &[span(1.0)], 1.0), Err(TooManyApps), "it was dropped after sending nothing");
    }
}
