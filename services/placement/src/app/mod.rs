//! Use cases: change the ledger, try changes without writing, read decisions and claims.

mod batch;
mod book;
mod capacity;
mod error;
mod explain;
mod fences;
mod metrics;
mod published;
mod unseen;
mod waiting;
mod writer;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use drover_api::ledger::{ClaimHead, DecisionRecord, FleetItem, LedgerHead};
use drover_api::members::Member;
use drover_scheduling::{Capacity, Claim, Decision, DecisionRequest, LedgerChange, LedgerReceipt, LedgerTransaction, MemberKey};
use drover_service::{Common, FeedHub};
use drover_store::failpoint::Failpoints;
use drover_store::{MigrationSet, Store, StoreConfig};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

pub use book::Book;
pub use error::LedgerError;
pub use fences::{Fences, KEPT};
use metrics::GroupMetrics;
use published::PublishedClaims;
use unseen::wait_until_unobserved;
use waiting::{Job, LedgerAnswer, LedgerRequest};

use crate::store::{self, Content, LedgerNews};

/// Capacity of the writer's queue; further requests wait in their handlers.
const QUEUE: usize = 4096;

/// What handlers and tasks work with; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) store: Store,
    /// Feed `fleet`.
    pub(crate) fleet: FeedHub<FleetItem>,
    published: Arc<Mutex<PublishedClaims>>,
    failpoints: Failpoints,
    book: Arc<RwLock<Book>>,
    /// Notified after each update of a member's capacity.
    capacity_changed: watch::Sender<()>,
    queue: mpsc::Sender<Job>,
    groups: GroupMetrics,
}

impl App {
    /// Connects the store, loads the ledger, starts the writer.
    ///
    /// # Errors
    /// The database is unavailable, a migration fails, or the log cannot be read.
    pub async fn connect(common: &Common, failpoints: Failpoints) -> anyhow::Result<Self> {
        let config = StoreConfig::new("placement", common.database_url.clone());
        let store = Store::connect(&config, &[MigrationSet::new("placement", sqlx::migrate!("../../migrations/placement"))]).await?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (published, book) = (Arc::default(), Arc::default());
        let groups = GroupMetrics::register(&common.metrics);
        let app =
            Self { store, fleet: FeedHub::new(), published, failpoints, book, capacity_changed: watch::Sender::new(()), queue, groups };
        let news = store::news(&app.store, None).await?;
        if let Some(news) = news {
            app.follow(news);
        }
        // Not restarted: after a panic the book may hold decisions that were never committed.
        let of = app.clone();
        common.spawn_once("ledger-writer", move |task| writer::run(of, jobs, task));
        Ok(app)
    }

    /// Decides and claims room. A repeated id gets the stored answer. Returns a [`Decision`] as JSON.
    ///
    /// # Errors
    /// `MembersUnknown` right after the start; `Busy`, `Stopped` or `Store` if the decision could not be committed, or its fate is unknown:
    /// repeating the same id is safe.
    pub async fn decide(&self, id: Uuid, request: DecisionRequest) -> Result<Arc<[u8]>, LedgerError> {
        let contents = request.apps.iter().map(Content::of).collect();
        match self.ask(id, LedgerRequest::Decide(request, contents)).await? {
            LedgerAnswer::Decision(decision) => Ok(decision),
            LedgerAnswer::Receipt(_) => unreachable!("a decision is answered by a decision"),
        }
    }

    /// Makes all changes or none. A repeated id gets the stored answer.
    ///
    /// A release is answered only when the pods of the claim are no longer observed, because the caller may use the freed room at once;
    /// the wait is limited (see [`unseen`]).
    ///
    /// # Errors
    /// `Conflict` with every difference between the ledger and what the transaction assumes; `RoomUnknown` while capacity is awaited;
    /// else as [`App::decide`].
    pub async fn transact(&self, id: Uuid, transaction: LedgerTransaction) -> Result<LedgerReceipt, LedgerError> {
        let released = transaction.changes.iter().filter(|change| matches!(change, LedgerChange::Release { .. }));
        let released: BTreeSet<Uuid> = released.map(|change| *change.claim()).collect();
        match self.ask(id, LedgerRequest::Transact(transaction)).await? {
            LedgerAnswer::Receipt(receipt) => {
                self.wait_until_unseen(&released).await;
                Ok(receipt)
            }
            LedgerAnswer::Decision(_) => unreachable!("a transaction is answered by a receipt"),
        }
    }

    /// Waits, for a limited time, until no member with known capacity reports pods of these bindings.
    async fn wait_until_unseen(&self, bindings: &BTreeSet<Uuid>) {
        if bindings.is_empty() {
            return;
        }
        if !wait_until_unobserved(self.capacity_changed.subscribe(), || self.read(|book| book.observes(bindings))).await {
            tracing::debug!(?bindings, "claims were released whose pods are still observed");
        }
    }

    /// Applies a batch of the feed `members`.
    pub(crate) fn follow_members(&self, reset: bool, items: Vec<(String, Option<Member>)>) {
        self.write(|book| {
            let first = !book.knows_members();
            book.follow_members(reset, items);
            self.publish_members(book);
            // From here on only the writer publishes the head, because the book may be ahead of the log. Before the first list of
            // members nothing could be decided, so the two are equal here.
            if first {
                self.publish_head(book, book.ledger.seq);
            }
        });
    }

    /// Applies a batch of the feed `capacity`.
    pub(crate) fn follow_capacity(&self, reset: bool, items: Vec<(MemberKey, Option<Arc<Capacity>>)>) {
        self.write(|book| {
            let listed: Vec<MemberKey> = items.iter().map(|(key, _)| key.clone()).collect();
            let missing = if reset { book.capacity_besides(&listed) } else { Vec::new() };
            for (key, mut capacity) in missing.into_iter().map(|key| (key, None)).chain(items) {
                if let Some(capacity) = capacity.as_mut().map(Arc::make_mut) {
                    book.share_images(&key, capacity);
                }
                book.follow_capacity(key.clone(), capacity.clone());
                self.fleet.publish(format!("capacity/{key}"), capacity.map(FleetItem::Capacity));
            }
            self.publish_members(book);
        });
        self.capacity_changed.send_replace(());
    }

    /// Withdraws outdated capacity from the feed, since a reader that starts later would take it for current.
    pub(crate) fn expire_capacity(&self) {
        self.write(|book| {
            book.settle_members();
            self.publish_members(book);
            let stale = |key: &&MemberKey| book.age_ms(key).is_none_or(|age| age > Capacity::FRESH_MS);
            for key in book.ledger.rooms().map(|room| &room.key).filter(stale) {
                self.fleet.publish_if_changed(format!("capacity/{key}"), None);
            }
        });
    }

    /// Publishes the members that changed. Called under the lock of the book that the change was made under: the feed is never
    /// behind an answer, and two changes are published in their order.
    fn publish_members(&self, book: &mut Book) {
        for key in std::mem::take(&mut book.changed) {
            let member = book.ledger.room(&key).and_then(|room| room.member.clone());
            self.fleet.publish_if_changed(format!("member/{key}"), member.map(|member| FleetItem::Member(Box::new(member))));
        }
    }

    /// Publishes the head of the ledger, but not before the members: a reader that waits for the head finds them.
    fn publish_head(&self, book: &Book, head: i64) {
        if book.knows_members() {
            self.fleet.publish_if_changed("head", Some(FleetItem::Head(LedgerHead { seq: head })));
        }
    }

    async fn ask(&self, id: Uuid, request: LedgerRequest) -> Result<LedgerAnswer, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Job { id, request, reply }).await.map_err(|_| LedgerError::Stopped)?;
        answer.await.map_err(|_| LedgerError::Stopped)?
    }

    /// What would be decided now; nothing is written.
    ///
    /// # Errors
    /// `MembersUnknown` right after the start.
    pub fn try_out(&self, request: &DecisionRequest) -> Result<Decision, LedgerError> {
        self.write(Book::refresh_ages);
        self.read(|book| match book.knows_members() {
            true => Ok(book.ledger.decide(Uuid::now_v7(), request)),
            false => Err(LedgerError::MembersUnknown),
        })
    }

    /// The receipt that a transaction would get now; nothing is written.
    ///
    /// # Errors
    /// As [`App::transact`], but for failures of the store.
    pub fn try_transaction(&self, transaction: &LedgerTransaction) -> Result<LedgerReceipt, LedgerError> {
        self.write(|book| {
            if !book.knows_members() {
                return Err(LedgerError::MembersUnknown);
            }
            book.refresh_ages();
            let (receipt, undo) = book.ledger.transact(transaction).map_err(batch::refusal)?;
            book.ledger.undo(undo);
            Ok(receipt)
        })
    }

    /// A stored decision with its request.
    ///
    /// # Errors
    /// `NotFound`, or `Store`.
    pub async fn decision(&self, id: Uuid) -> Result<DecisionRecord, LedgerError> {
        let stored = store::decision(&self.store, id).await?.ok_or_else(|| LedgerError::NotFound(format!("There is no decision {id}")))?;
        Ok(DecisionRecord { decision: stored.answer, request: Some(stored.request), created_at: stored.created_at.to_string() })
    }

    /// Committed claims, filtered by deployment intent group, member and operation.
    ///
    /// # Errors
    /// `Store`.
    pub async fn claims(&self, dig: Option<Uuid>, member: Option<&MemberKey>, operation: Option<Uuid>) -> Result<Vec<Claim>, LedgerError> {
        Ok(store::find(&self.store, dig, member, operation).await?)
    }

    /// All committed claims without the requests of their apps.
    ///
    /// # Errors
    /// `Store`.
    pub async fn claim_heads(&self) -> Result<Vec<ClaimHead>, LedgerError> {
        Ok(store::heads(&self.store).await?)
    }

    /// Changes the book under its lock, which is never held across an await.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.book.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the book. It already shows what the writer is committing.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Book) -> T) -> T {
        look(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of the book with current ages, for tentative decisions.
    fn copy(&self) -> Book {
        let mut book = self.read(Book::clone);
        book.refresh_ages();
        book
    }

    /// Applies what other processes wrote to the log. Called only by the writer, and never while a decided batch is uncommitted.
    async fn follow_log(&self) -> Result<(), LedgerError> {
        let seq = self.read(|book| book.ledger.seq);
        if let Some(news) = store::news(&self.store, Some(seq)).await? {
            self.follow(news);
        }
        Ok(())
    }

    fn follow(&self, news: LedgerNews) {
        let touched = self.write(|book| book.follow_log(news));
        let (claims, head) = self.read(|book| {
            let claims: Vec<_> = touched.into_iter().map(|id| (id, book.ledger.claim(&id).cloned())).collect();
            (claims, book.ledger.seq)
        });
        self.publish_claims(claims, head);
    }

    /// Publishes these claims and then the head, which is that of the log and not that of the book: uncommitted batches are not published.
    fn publish_claims(&self, claims: Vec<(Uuid, Option<Arc<Claim>>)>, head: i64) {
        {
            let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, claim) in claims {
                published.update(id, claim.as_ref()).into_iter().for_each(|(key, item)| self.fleet.publish(key, item));
            }
        }
        self.read(|book| self.publish_head(book, head));
    }
}
