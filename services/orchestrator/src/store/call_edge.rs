//! Measured calls between the apps of a composite app: one row per calling app, called app and source.

use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

/// Where a measurement comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasurementSource {
    /// Spans that were sent to orchestrator.
    Traces,
    /// A Prometheus query over a service mesh's metrics.
    Prometheus,
}

impl MeasurementSource {
    fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Prometheus => "prometheus",
        }
    }
}

/// A measured pair of apps, as stored.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct CallEdge {
    pub caller: String,
    pub called: String,
    /// `traces` or `prometheus`.
    pub source: String,
    /// Calls per second.
    pub rate: f64,
    /// From 0 to 1, at `seen_at`.
    pub confidence: f64,
    pub seen_at: Timestamp,
}

/// A pair of apps as measured now.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub caller: String,
    pub called: String,
    /// Calls per second.
    pub rate: f64,
    /// From 0 to 1.
    pub confidence: f64,
    /// Seconds since the pair was last seen.
    pub age: f64,
}

/// Stores measurements. A stored one with higher confidence (of another process, or from before a restart) is kept.
///
/// # Errors
/// The query failed.
pub async fn put(tx: &mut PgConnection, composite_app: Uuid, source: MeasurementSource, seen: &[Measurement]) -> StoreResult<()> {
    let texts = |pick: fn(&Measurement) -> &String| seen.iter().map(|edge| pick(edge).clone()).collect::<Vec<_>>();
    let numbers = |pick: fn(&Measurement) -> f64| seen.iter().map(pick).collect::<Vec<_>>();
    sqlx::query(include_str!("sql/call_edges_put.sql"))
        .bind(composite_app)
        .bind(source.word())
        .bind(texts(|edge| &edge.caller))
        .bind(texts(|edge| &edge.called))
        .bind(numbers(|edge| edge.rate))
        .bind(numbers(|edge| edge.confidence))
        .bind(numbers(|edge| edge.age))
        .execute(tx)
        .await?;
    Ok(())
}

/// All measured pairs of a composite app, ordered by caller, called app and source.
///
/// # Errors
/// The query failed.
pub async fn of(tx: &mut PgConnection, composite_app: Uuid) -> StoreResult<Vec<CallEdge>> {
    let sql = "select caller, called, source, rate, confidence, seen_at from call_edge where composite_app = $1 order by 1, 2, 3";
    Ok(sqlx::query_as(sql).bind(composite_app).fetch_all(tx).await?)
}
