//! Hooks by which a service adds to its documents: checks, tables of its own, wake-ups, and the lookup of parents in other services.

use async_trait::async_trait;
use bytes::Bytes;
use drover_service::Problem;
use drover_store::Tx;
use uuid::Uuid;

use crate::{Document, DocumentKind, Foreign};

/// A change of a document that is about to happen, or has happened.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    pub kind: &'static DocumentKind,
    pub verb: Verb,
    pub path: &'a str,
    /// The document before a replace or delete.
    pub before: Option<&'a Document>,
    /// The document after a create or replace. In the guard of a create it has no version and no parents yet.
    pub after: Option<&'a Document>,
    /// The file in the request.
    pub file: Option<&'a Bytes>,
    /// With `?dryRun=All` nothing is committed, so a hook must not have effects outside the transaction.
    pub dry_run: bool,
}

/// What is done to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST, or PUT of a document that does not exist.
    Create,
    Replace,
    Delete,
}

impl Change<'_> {
    /// The id of the document.
    pub fn id(&self) -> Uuid {
        self.after.or(self.before).map_or_else(Uuid::nil, |document| document.id)
    }
}

/// The hooks of a service for all of its kinds, told apart by `change.kind.name`. By default they do nothing.
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// Called before the transaction of a change (`delete`: of a delete), to ask other services. A hook that asks while it holds a connection
    /// keeps the connection until the other service answers. If that service asks back, requests can wait for each other until none is left.
    ///
    /// # Errors
    /// The change is not allowed; the client gets the problem, unless the document is missing or has another version than it expects.
    async fn before(&self, kind: &'static DocumentKind, path: &str, delete: bool) -> Result<(), Problem> {
        let _ = (kind, path, delete);
        Ok(())
    }
    /// Called in the transaction before the change, with the document's row locked.
    ///
    /// # Errors
    /// The change is not allowed; the client gets the problem.
    async fn guard(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let _ = (tx, change);
        Ok(())
    }
    /// Called in the transaction after the change, to write tables of the service.
    ///
    /// # Errors
    /// The change is not committed; the client gets the problem.
    async fn written(&self, tx: &mut Tx, change: &Change<'_>) -> Result<(), Problem> {
        let _ = (tx, change);
        Ok(())
    }
    /// Called after the commit, for wake-ups and feeds. The process may die before the call, so a periodic task must do the same.
    async fn committed(&self, change: &Change<'_>) {
        let _ = change;
    }
    /// The uuid of a document of another service; `None` if it does not exist.
    ///
    /// # Errors
    /// The other service does not answer. The default implementation always fails, because it knows no other service.
    async fn foreign_parent(&self, foreign: &Foreign, path: &str) -> Result<Option<Uuid>, Problem> {
        let _ = path;
        Err(Problem::internal(format!("this service has no lookup for documents of the kind {}", foreign.title)))
    }
}

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
