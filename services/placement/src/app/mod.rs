//! Use cases: ask the ledger, try something out, read what was decided.

mod batch;
mod book;
mod capacity;
mod error;
mod explain;
mod fences;
mod told;
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
use told::Told;
use unseen::wait_until_unobserved;
use waiting::{Answer, Ask, Job};

use crate::store::{self, Content, News};

/// Requests that may wait for the writer; more wait in their connections.
const QUEUE: usize = 4096;

/// What handlers and tasks work with; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) store: Store,
    /// Feed `fleet`.
    pub(crate) fleet: FeedHub<FleetItem>,
    told: Arc<Mutex<Told>>,
    failpoints: Failpoints,
    book: Arc<RwLock<Book>>,
    /// Told whenever somebody's capacity came.
    seen: watch::Sender<()>,
    queue: mpsc::Sender<Job>,
}

impl App {
    /// Connects the log, loads the ledger, starts the writer.
    pub async fn connect(common: &Common, failpoints: Failpoints) -> anyhow::Result<Self> {
        let config = StoreConfig::new("placement", common.database_url.clone());
        let store = Store::connect(&config, &[MigrationSet::new("placement", sqlx::migrate!("../../migrations/placement"))]).await?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (told, book) = (Arc::default(), Arc::default());
        let app = Self { store, fleet: FeedHub::new(), told, failpoints, book, seen: watch::Sender::new(()), queue };
        let news = store::news(&app.store, None).await?;
        if let Some(news) = news {
            app.follow(news);
        }
        common.spawn(writer::run(app.clone(), jobs));
        Ok(app)
    }

    /// Decides and claims; the same id again is answered as before. The answer is a [`Decision`]'s JSON.
    pub async fn decide(&self, id: Uuid, request: DecisionRequest) -> Result<Arc<[u8]>, LedgerError> {
        let contents = request.apps.iter().map(Content::of).collect();
        match self.ask(id, Ask::Decide(request, contents)).await? {
            Answer::Decision(decision) => Ok(decision),
            Answer::Receipt(_) => unreachable!("a decision is answered by a decision"),
        }
    }

    /// Makes all changes or none; the same id again is answered as before.
    ///
    /// That room was given back is answered when its pods are no longer seen there: whoever is told that something has ended
    /// may want its place at once.
    pub async fn transact(&self, id: Uuid, transaction: LedgerTransaction) -> Result<LedgerReceipt, LedgerError> {
        let released = transaction.changes.iter().filter(|change| matches!(change, LedgerChange::Release { .. }));
        let released: BTreeSet<Uuid> = released.map(|change| *change.claim()).collect();
        match self.ask(id, Ask::Transact(transaction)).await? {
            Answer::Receipt(receipt) => {
                self.until_unseen(&released).await;
                Ok(receipt)
            }
            Answer::Decision(_) => unreachable!("a transaction is answered by a receipt"),
        }
    }

    /// Until no member that is heard of reports pods of these bindings. Not for ever: they may be there to stay.
    async fn until_unseen(&self, bindings: &BTreeSet<Uuid>) {
        if bindings.is_empty() {
            return;
        }
        if !wait_until_unobserved(self.seen.subscribe(), || self.read(|book| book.sees(bindings))).await {
            tracing::debug!(?bindings, "claims were released whose pods are still observed");
        }
    }

    /// A batch of the feed `members`.
    pub(crate) fn follow_members(&self, reset: bool, items: Vec<(String, Option<Member>)>) {
        self.write(|book| {
            let first = !book.knows_members();
            book.follow_members(reset, items);
            self.tell_members(book);
            // Later the writer alone does: what it is just committing is no news yet. So far it could decide nothing.
            if first {
                self.tell_head(book, book.ledger.seq);
            }
        });
    }

    /// A batch of the feed `capacity`.
    pub(crate) fn follow_capacity(&self, reset: bool, items: Vec<(MemberKey, Option<Arc<Capacity>>)>) {
        self.write(|book| {
            let told: Vec<MemberKey> = items.iter().map(|(key, _)| key.clone()).collect();
            let missing = if reset { book.capacity_besides(&told) } else { Vec::new() };
            for (key, mut capacity) in missing.into_iter().map(|key| (key, None)).chain(items) {
                if let Some(capacity) = capacity.as_mut().map(Arc::make_mut) {
                    book.share_images(&key, capacity);
                }
                book.follow_capacity(key.clone(), capacity.clone());
                self.fleet.publish(format!("capacity/{key}"), capacity.map(FleetItem::Capacity));
            }
            self.tell_members(book);
        });
        self.seen.send_replace(());
    }

    /// As time goes by: room that was last seen too long ago is taken back, for a reader that starts then would take it for new.
    pub(crate) fn grow_old(&self) {
        self.write(|book| {
            book.settle_members();
            self.tell_members(book);
            let stale = |key: &&MemberKey| book.age_ms(key).is_none_or(|age| age > Capacity::FRESH_MS);
            for key in book.ledger.rooms().map(|room| &room.key).filter(stale) {
                self.fleet.publish_if_changed(format!("capacity/{key}"), None);
            }
        });
    }

    /// Tells the fleet which members have changed. Whoever changes the book does so before he lets go of it: the fleet never hears
    /// later than those who are answered, and nothing newer than what it is told is taken back.
    fn tell_members(&self, book: &mut Book) {
        for key in std::mem::take(&mut book.changed) {
            let member = book.ledger.room(&key).and_then(|room| room.member.clone());
            self.fleet.publish_if_changed(format!("member/{key}"), member.map(|member| FleetItem::Member(Box::new(member))));
        }
    }

    /// Tells the fleet how far the ledger is, not before it has been told which members there are: whoever waits for that finds
    /// them.
    fn tell_head(&self, book: &Book, head: i64) {
        if book.knows_members() {
            self.fleet.publish_if_changed("head", Some(FleetItem::Head(LedgerHead { seq: head })));
        }
    }

    async fn ask(&self, id: Uuid, ask: Ask) -> Result<Answer, LedgerError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Job { id, ask, reply }).await.map_err(|_| LedgerError::Stopped)?;
        answer.await.map_err(|_| LedgerError::Stopped)?
    }

    /// What would be decided now.
    pub fn try_out(&self, request: &DecisionRequest) -> Result<Decision, LedgerError> {
        self.write(Book::refresh_ages);
        self.read(|book| match book.knows_members() {
            true => Ok(book.ledger.decide(Uuid::now_v7(), request)),
            false => Err(LedgerError::MembersUnknown),
        })
    }

    /// What a transaction would be answered now.
    pub fn try_transaction(&self, transaction: &LedgerTransaction) -> Result<LedgerReceipt, LedgerError> {
        self.write(|book| {
            if !book.knows_members() {
                return Err(LedgerError::MembersUnknown);
            }
            book.refresh_ages();
            let (receipt, undo) = book.ledger.transact(transaction).map_err(batch::refused)?;
            book.ledger.undo(undo);
            Ok(receipt)
        })
    }

    /// A decision with its inputs.
    pub async fn decision(&self, id: Uuid) -> Result<DecisionRecord, LedgerError> {
        let stored = store::decision(&self.store, id).await?.ok_or_else(|| LedgerError::NotFound(format!("There is no decision {id}")))?;
        Ok(DecisionRecord { decision: stored.answer, request: Some(stored.request), created_at: stored.created_at.to_string() })
    }

    /// Claims as they are committed.
    pub async fn claims(&self, dig: Option<Uuid>, member: Option<&MemberKey>, operation: Option<Uuid>) -> Result<Vec<Claim>, LedgerError> {
        Ok(store::find(&self.store, dig, member, operation).await?)
    }

    /// All claims without what their apps ask for, as they are committed.
    pub async fn claim_heads(&self) -> Result<Vec<ClaimHead>, LedgerError> {
        Ok(store::heads(&self.store).await?)
    }

    /// Changes the book. Never held over an await.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.book.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks into the book. What the writer is committing right now shows already.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Book) -> T) -> T {
        look(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy to play with, its ages current.
    fn copy(&self) -> Book {
        let mut book = self.read(Book::clone);
        book.refresh_ages();
        book
    }

    /// Follows what other processes wrote. Only the writer calls it, and never while something is decided but not committed.
    async fn follow_log(&self) -> Result<(), LedgerError> {
        let seq = self.read(|book| book.ledger.seq);
        if let Some(news) = store::news(&self.store, Some(seq)).await? {
            self.follow(news);
        }
        Ok(())
    }

    fn follow(&self, news: News) {
        let touched = self.write(|book| book.follow_log(news));
        let (claims, head) = self.read(|book| {
            let claims: Vec<_> = touched.into_iter().map(|id| (id, book.ledger.claim(&id).cloned())).collect();
            (claims, book.ledger.seq)
        });
        self.tell(claims, head);
    }

    /// Tells the feed what became of these claims, then how far the log is: what is decided beyond that is no news yet.
    fn tell(&self, claims: Vec<(Uuid, Option<Arc<Claim>>)>, head: i64) {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, claim) in claims {
                told.claim(id, claim.as_ref()).into_iter().for_each(|(key, item)| self.fleet.publish(key, item));
            }
        }
        self.read(|book| self.tell_head(book, head));
    }
}
