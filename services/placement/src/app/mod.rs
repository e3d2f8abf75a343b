//! Use cases: ask the ledger, try something out, read what was decided.

mod book;
mod capacity;
mod error;
mod explain;
mod fences;
mod writer;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use drover_api::ledger::{DecisionRecord, FleetItem, LedgerHead};
use drover_scheduling::{Claim, Decision, DecisionRequest, LedgerReceipt, LedgerTransaction, MemberKey};
use drover_service::{Common, FeedHub};
use drover_store::failpoint::Failpoints;
use drover_store::{MigrationSet, Store, StoreConfig};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

pub use book::Book;
pub use error::LedgerError;
pub use fences::{Fences, KEPT};
use writer::{Answer, Ask, Job};

use crate::store::{self, Content, Known};

/// Requests that may wait for the writer; more wait in their connections.
const QUEUE: usize = 4096;

/// What handlers and tasks work with; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub(crate) store: Store,
    /// Feed `fleet`.
    pub(crate) fleet: FeedHub<FleetItem>,
    failpoints: Failpoints,
    known: Arc<Mutex<Known>>,
    book: Arc<RwLock<Book>>,
    queue: mpsc::Sender<Job>,
}

impl App {
    /// Connects the log, loads the ledger, starts the writer.
    pub async fn connect(common: &Common, failpoints: Failpoints) -> anyhow::Result<Self> {
        let config = StoreConfig::new("placement", common.database_url.clone());
        let store = Store::connect(&config, &[MigrationSet::new("placement", sqlx::migrate!("../../migrations/placement"))]).await?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let app = Self { store, fleet: FeedHub::new(), failpoints, known: Arc::default(), book: Arc::default(), queue };
        let news = store::news(&app.store, None).await?;
        if let Some(news) = news {
            let touched = app.write(|book| book.follow_log(news));
            app.tell(touched);
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
    pub async fn transact(&self, id: Uuid, transaction: LedgerTransaction) -> Result<LedgerReceipt, LedgerError> {
        match self.ask(id, Ask::Transact(transaction)).await? {
            Answer::Receipt(receipt) => Ok(receipt),
            Answer::Decision(_) => unreachable!("a transaction is answered by a receipt"),
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

    /// A decision with its inputs.
    pub async fn decision(&self, id: Uuid) -> Result<DecisionRecord, LedgerError> {
        let stored = store::decision(&self.store, id).await?.ok_or_else(|| LedgerError::NotFound(format!("There is no decision {id}")))?;
        Ok(DecisionRecord { decision: stored.answer, request: Some(stored.request), created_at: stored.created_at.to_string() })
    }

    /// Claims as they are committed.
    pub async fn claims(&self, dig: Option<Uuid>, member: Option<&MemberKey>, operation: Option<Uuid>) -> Result<Vec<Claim>, LedgerError> {
        Ok(store::find(&self.store, dig, member, operation).await?)
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

    /// Follows what other processes wrote. Only the writer calls it, between batches.
    async fn follow_log(&self) -> Result<(), LedgerError> {
        let seq = self.read(|book| book.ledger.seq);
        if let Some(news) = store::news(&self.store, Some(seq)).await? {
            let touched = self.write(|book| book.follow_log(news));
            self.tell(touched);
        }
        Ok(())
    }

    /// Tells the feed what became of these claims, then how far the ledger is.
    fn tell(&self, claims: impl IntoIterator<Item = Uuid>) {
        let (claims, seq) = self.read(|book| {
            let claims: Vec<_> = claims.into_iter().map(|id| (id, book.ledger.claim(&id).cloned())).collect();
            (claims, book.ledger.seq)
        });
        for (id, claim) in claims {
            self.fleet.publish(format!("claim/{id}"), claim.map(FleetItem::Claim));
        }
        self.fleet.publish_if_changed("head", Some(FleetItem::Head(LedgerHead { seq })));
    }
}
