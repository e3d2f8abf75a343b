//! What a service adds to its documents: guards, side tables, wake-ups, and where foreign parents are.

use async_trait::async_trait;
use bytes::Bytes;
use drover_service::Problem;
use drover_store::Tx;
use uuid::Uuid;

use crate::{Document, Foreign, Kind};

/// What is about to happen to a document, or has.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Its kind.
    pub kind: &'static Kind,
    /// What is done.
    pub verb: Verb,
    /// Its path.
    pub path: &'a str,
    /// As it was (replace, delete).
    pub before: Option<&'a Document>,
    /// As it will be (create, replace); in a guard of a create without version and parents.
    pub after: Option<&'a Document>,
    /// The file that came with it.
    pub file: Option<&'a Bytes>,
    /// Nothing will be committed (`?dryRun=All`): leave no trace elsewhere.
    pub dry_run: bool,
}

/// What is done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST, or PUT of one that was not there.
    Create,
    /// PUT.
    Replace,
    /// DELETE.
    Delete,
}

impl Change<'_> {
    /// Id of the document.
    pub fn id(&self) -> Uuid {
        self.after.or(self.before).map_or_else(Uuid::nil, |document| document.id)
    }
}

/// One implementation per service, told apart by `change.kind.name`. Everything defaults to "nothing to add".
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// In the transaction, before the change: may it happen? (The document's row is locked.)
    async fn guard(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let _ = (tx, change);
        Ok(())
    }
    /// In the transaction, after the change: side tables.
    async fn written(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let _ = (tx, change);
        Ok(())
    }
    /// After the commit: wake-ups, feeds. It cannot fail; what it starts must also be found by a task's period.
    async fn committed(&self, change: &Change<'_>) {
        let _ = change;
    }
    /// The uuid of another service's document, by a leaf read; none: there is no such document.
    async fn foreign_parent(&self, foreign: &Foreign, path: &str) -> Result<Option<Uuid>, Problem> {
        let _ = path;
        Err(Problem::internal(format!("nobody said where to look for a {}", foreign.title)))
    }
}

/// Nothing to add.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
