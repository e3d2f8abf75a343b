//! Measured calls between the apps of a composite app, one row for each pair and source.

use drover_store::{StoreResult, Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

/// Where a measurement is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Spans that were sent here.
    Traces,
    /// A query over a mesh's metrics.
    Prometheus,
}

impl Source {
    fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Prometheus => "prometheus",
        }
    }
}

/// One pair.
#[derive(Clone, Debug, PartialEq, sqlx::FromRow)]
pub struct CallEdge {
    /// Who calls.
    pub caller: String,
    /// Who is called.
    pub called: String,
    /// `traces` or `prometheus`.
    pub source: String,
    /// Calls per second.
    pub rate: f64,
    /// 0 to 1, when it was seen last.
    pub confidence: f64,
    /// When it was seen last.
    pub seen_at: Timestamp,
}

/// A pair as it was just seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Who calls.
    pub caller: String,
    /// Who is called.
    pub called: String,
    /// Calls per second.
    pub rate: f64,
    /// 0 to 1.
    pub confidence: f64,
    /// Seconds since then.
    pub age: f64,
}

/// Writes what was seen. What is known from before (by another process, or before a restart) stays where it is surer.
pub async fn put(tx: &mut PgConnection, composite_app: Uuid, source: Source, seen: &[Seen]) -> StoreResult<()> {
    let texts = |pick: fn(&Seen) -> &String| seen.iter().map(|edge| pick(edge).clone()).collect::<Vec<_>>();
    let numbers = |pick: fn(&Seen) -> f64| seen.iter().map(pick).collect::<Vec<_>>();
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

/// All pairs of a composite app, by caller, then called.
pub async fn of(tx: &mut PgConnection, composite_app: Uuid) -> StoreResult<Vec<CallEdge>> {
    let sql = "select caller, called, source, rate, confidence, seen_at from call_edge where composite_app = $1 order by 1, 2, 3";
    Ok(sqlx::query_as(sql).bind(composite_app).fetch_all(tx).await?)
}
