//! EMCO documents: each kind is declared as a value, and all kinds are stored and served by the same functions.
//!
//! Two dozen kinds of documents differ only in key, parent, spec and references, which a [`DocumentKind`] describes. A new kind is one short
//! file (a spec struct and a `static` kind) and one line in the service's list of kinds. Documents are what users wrote; they are stored in
//! the tables of `migrations/resources`, while what Drover itself records has tables of its own. Documents of another shape (a label
//! without metadata) have handlers in their service; [`DocumentKind`] is not extended for them.
//!
//! Invariants: the parent of a document and the targets of its references exist as long as the document does. A document below one of
//! another service stores the uuid of that parent, so a parent created later under the same name does not get it. A version number is
//! never used twice.

mod below;
mod document;
mod envelope;
mod error;
mod hooks;
mod http;
mod kind;
mod openapi;
mod sealed;
mod store;

pub use below::Below;
pub use document::{Document, Metadata, TypedDocument};
pub use envelope::output;
pub use error::ResourceError;
pub use hooks::{Change, Hooks, NoHooks, Verb};
pub use http::{Documents, PathParams, check_body, create, delete, get_one, list, mount, mount_all, replace};
pub use kind::{
    AnySpec, DocumentKind, Echo, File, Foreign, Invalid, Keep, NoSpec, Parent, Place, Put, Reference, Spec, UploadedFile, is_dns_label,
    is_name,
};
pub use sealed::{opened, seal_all};
pub use store::{at_paths, below_foreign, by_id, children, file, find, get, of_kind, purge_foreign, set_spec, typed};

/// The migrations of the tables of documents. They come first in a service's list of migration sets.
pub fn migrations() -> drover_store::MigrationSet {
    drover_store::MigrationSet::new("resources", sqlx::migrate!("../../migrations/resources"))
}
