//! Writing a batch of ledger entries: one statement, one commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use drover_api::ledger::{LedgerReceipt, LedgerTransaction};
use drover_scheduling::{AppRequest, Claim, Decision, DecisionRequest, Outcome};
use drover_store::{Store, StoreError, StoreResult, works_after};
use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::claims::state_column;
use super::packed;
use super::requests::{Content, Digest, Known};

/// The statement for a batch without releases, the common and fast case.
const COMMIT: &str = concat!(include_str!("sql/commit.sql"), "select seq from h");
/// The statement for a batch with releases. It searches for claims, so it is planned each time: a plan that was cached when the table
/// was small would scan all of it.
const COMMIT_AND_RELEASE: &str = concat!(include_str!("sql/commit.sql"), include_str!("sql/release.sql"), "select seq from h");

/// Result of committing a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Committed {
    /// The batch is committed.
    Done,
    /// Another process moved the head: nothing is written, the batch must be decided again.
    Moved,
    /// An id of the batch is in the log already: nothing is written, the stored answer must be looked up.
    Repeated,
}

/// The rows of a batch, column by column as `unnest` takes them.
#[derive(Default)]
pub struct Entries {
    contents: HashMap<Digest, Vec<u8>>,
    /// Digests of requests by address. The stored pointer keeps each request alive, so that its address is not reused.
    digests: HashMap<usize, (Arc<AppRequest>, Digest)>,
    decision: DecisionColumns,
    receipt: ReceiptColumns,
    claim: ClaimColumns,
    released: ReleasedColumns,
}

#[derive(Default)]
struct DecisionColumns {
    id: Vec<Uuid>,
    seq: Vec<i64>,
    project: Vec<String>,
    composite_app: Vec<String>,
    dig: Vec<String>,
    dig_id: Vec<Uuid>,
    operation: Vec<Uuid>,
    fence: Vec<i64>,
    overflow: Vec<bool>,
    outcome: Vec<&'static str>,
    requests: Vec<Vec<u8>>,
    answer: Vec<Vec<u8>>,
}

#[derive(Default)]
struct ReceiptColumns {
    id: Vec<Uuid>,
    seq: Vec<i64>,
    operation: Vec<Uuid>,
    answer: Vec<String>,
}

#[derive(Default)]
struct ClaimColumns {
    id: Vec<Uuid>,
    seq: Vec<i64>,
    dig_id: Vec<Uuid>,
    project: Vec<String>,
    composite_app: Vec<String>,
    version: Vec<String>,
    dig: Vec<String>,
    app: Vec<String>,
    member: Vec<String>,
    state: Vec<&'static str>,
    surging: Vec<bool>,
    fence: Vec<i64>,
    operation: Vec<Uuid>,
    request: Vec<Digest>,
    pods: Vec<String>,
}

#[derive(Default)]
struct ReleasedColumns {
    id: Vec<Uuid>,
    seq: Vec<i64>,
    fence: Vec<i64>,
}

impl Entries {
    /// Adds a decision. `contents` are the packed requests of its apps, in their order; `json` is the serialised answer.
    pub fn add_decision(&mut self, request: &DecisionRequest, contents: &[Content], answer: &Decision, json: &[u8]) {
        for content in contents {
            self.contents.entry(content.digest).or_insert_with(|| content.body.clone());
        }
        let rows = &mut self.decision;
        rows.id.push(answer.id);
        rows.seq.push(answer.seq);
        rows.project.push(answer.dig.project.clone());
        rows.composite_app.push(answer.dig.composite_app.clone());
        rows.dig.push(answer.dig.name.clone());
        rows.dig_id.push(answer.dig.id);
        rows.operation.push(request.operation);
        rows.outcome.push(match answer.outcome {
            Outcome::Placed => "placed",
            Outcome::NoRoom => "no_room",
            Outcome::Unknown => "unknown",
            Outcome::Impossible => "impossible",
        });
        rows.fence.push(request.fence);
        rows.overflow.push(request.overflow);
        rows.requests.push(contents.iter().flat_map(|content| content.digest).collect());
        rows.answer.push(packed::pack_json(json));
    }

    /// Records the content of a request that claims of this batch share, so that it is not packed again.
    pub fn set_content(&mut self, request: &Arc<AppRequest>, content: &Content) {
        self.digests.insert(Arc::as_ptr(request).addr(), (Arc::clone(request), content.digest));
    }

    fn digest(&mut self, request: &Arc<AppRequest>) -> Digest {
        if let Some((_, digest)) = self.digests.get(&Arc::as_ptr(request).addr()) {
            return *digest;
        }
        let content = Content::of(request);
        self.set_content(request, &content);
        self.contents.insert(content.digest, content.body);
        content.digest
    }

    /// Adds the receipt of a transaction.
    pub fn add_receipt(&mut self, id: Uuid, transaction: &LedgerTransaction, receipt: &LedgerReceipt) {
        let rows = &mut self.receipt;
        rows.id.push(id);
        rows.seq.push(receipt.seq);
        rows.operation.push(transaction.operation);
        rows.answer.push(json(receipt));
    }

    /// Adds a claim as it is after the batch; at most once per claim. `seq` is the last entry that changed it.
    pub fn add_claim(&mut self, seq: i64, claim: &Claim) {
        let request = self.digest(&claim.request);
        let rows = &mut self.claim;
        rows.id.push(claim.id);
        rows.seq.push(seq);
        rows.dig_id.push(claim.dig.id);
        rows.project.push(claim.dig.project.clone());
        rows.composite_app.push(claim.dig.composite_app.clone());
        rows.version.push(claim.dig.version.clone());
        rows.dig.push(claim.dig.name.clone());
        rows.app.push(claim.request.app.clone());
        rows.member.push(claim.member.0.clone());
        rows.state.push(state_column(claim.state));
        rows.surging.push(claim.surging);
        rows.fence.push(claim.fence);
        rows.operation.push(claim.operation);
        rows.request.push(request);
        rows.pods.push(json(&claim.pods));
    }

    /// Adds a claim that is released after the batch; at most once per claim.
    pub fn add_release(&mut self, seq: i64, id: Uuid, fence: i64) {
        self.released.id.push(id);
        self.released.seq.push(seq);
        self.released.fence.push(fence);
    }

    /// Number of ledger entries, each with a sequence number.
    pub fn len(&self) -> usize {
        self.decision.id.len() + self.receipt.id.len()
    }

    /// Writes all entries in one statement, as [`LogConnection::commit`] describes; `known` are the contents that are stored already.
    async fn write(self, connection: &mut PgConnection, known: &mut Known, expected: i64) -> StoreResult<Committed> {
        let count = self.len() as i64;
        let Self { contents, digests: _, decision: d, receipt: t, claim: c, released: r } = self;
        if count == 0 {
            let head: i64 = sqlx::query_scalar("select seq from head").fetch_one(connection).await?;
            return Ok(if head == expected { Committed::Done } else { Committed::Moved });
        }
        let (digests, bodies): (Vec<Digest>, Vec<Vec<u8>>) = contents.into_iter().filter(|(digest, _)| !known.has(digest)).unzip();
        let releases = !r.id.is_empty();
        let statement = sqlx::query_scalar(if releases { COMMIT_AND_RELEASE } else { COMMIT })
            .persistent(!releases)
            .bind(count)
            .bind(expected)
            .bind(digests.as_slice())
            .bind(bodies)
            .bind(d.id)
            .bind(d.seq)
            .bind(d.project)
            .bind(d.composite_app)
            .bind(d.dig)
            .bind(d.dig_id)
            .bind(d.operation)
            .bind(d.fence)
            .bind(d.overflow)
            .bind(d.outcome)
            .bind(d.requests)
            .bind(d.answer)
            .bind(t.id)
            .bind(t.seq)
            .bind(t.operation)
            .bind(t.answer)
            .bind(c.id)
            .bind(c.seq)
            .bind(c.dig_id)
            .bind(c.project)
            .bind(c.composite_app)
            .bind(c.version)
            .bind(c.dig)
            .bind(c.app)
            .bind(c.member)
            .bind(c.state)
            .bind(c.surging)
            .bind(c.fence)
            .bind(c.operation)
            .bind(c.request)
            .bind(c.pods);
        let statement = if releases { statement.bind(r.id).bind(r.seq).bind(r.fence) } else { statement };
        let written: Result<Option<i64>, sqlx::Error> = statement.fetch_optional(connection).await;
        match written.map_err(StoreError::from) {
            Ok(Some(_)) => {
                known.add(digests);
                Ok(Committed::Done)
            }
            Ok(None) => Ok(Committed::Moved),
            Err(error) if matches!(error.constraint(), Some("decision_pkey" | "receipt_pkey")) => Ok(Committed::Repeated),
            Err(error) => Err(error),
        }
    }
}

/// The writer's own connection to the log, and the contents that it knows to be stored.
///
/// It uses generic plans: the statement only inserts, and planning it for each batch cost as much as executing it. Reads, whose plans
/// depend on their parameters, go through the pool.
pub struct LogConnection {
    store: Store,
    connection: Option<(PgConnection, Instant)>,
    known: Known,
}

impl LogConnection {
    /// Connects on first use.
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), connection: None, known: Known::default() }
    }

    /// Writes all entries if the head is still `expected`. Without entries it only checks the head.
    ///
    /// # Errors
    /// The store fails; if the connection broke, the batch may be committed or not.
    pub async fn commit(&mut self, entries: Entries, expected: i64) -> StoreResult<Committed> {
        // Taken out during use, so that a connection that broke, or whose use was cancelled, is not used again.
        let kept = match self.connection.take() {
            Some((mut connection, used)) => works_after(used.elapsed(), &mut connection).await.then_some(connection),
            None => None,
        };
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.store.connection([("plan_cache_mode", "force_generic_plan")]).await?,
        };
        let written = entries.write(&mut connection, &mut self.known, expected).await;
        if !matches!(written, Err(StoreError::Unavailable(_))) {
            self.connection = Some((connection, Instant::now()));
        }
        written
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps with string keys always serialise")
}
