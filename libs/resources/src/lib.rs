//! The one mechanism for EMCO documents: declared as values, served by ordinary functions.
//!
//! Two dozen documents differ only in key, parent, spec and references; a [`Kind`] says which. A new document is one
//! short file (a spec struct and a `static` kind) and one line in the service's table of kinds. Documents are what users
//! wrote, kept in the tables of `migrations/resources`; what Drover itself records has tables of its own. Documents that
//! do not fit (a label without metadata) are handlers of their own service; [`Kind`] is not bent for them.
//!
//! Invariants: a document's parent and the targets of its references exist as long as it does; a document below another
//! service's keeps that parent's uuid and is not inherited by a parent of the same name made later; a version is never
//! given twice.

mod document;
mod envelope;
mod error;
mod hooks;
mod http;
mod kind;
mod openapi;
mod store;

pub use document::{Document, Metadata, Typed};
pub use envelope::output;
pub use error::ResourceError;
pub use hooks::{Change, Hooks, NoHooks, Verb};
pub use http::{Documents, PathParams, create, delete, get_one, list, mount, mount_all, replace};
pub use kind::{Echo, File, Foreign, Invalid, Keep, Kind, NoSpec, Parent, Place, Put, Reference, Spec, is_dns_label, is_name};
pub use store::{below_foreign, by_id, children, file, find, get, of_kind, purge_foreign};

/// The tables of documents; first in the list of a service's migration sets.
pub fn migrations() -> drover_store::MigrationSet {
    drover_store::MigrationSet::new("resources", sqlx::migrate!("../../migrations/resources"))
}
