//! Access to the Kubernetes clusters that are members of Drover.
//!
//! This crate checks credentials ([`kubeconfig`]), keeps one client per member ([`Clients`]), prepares the objects of a
//! rendered bundle ([`objects`]), applies and deletes them ([`Member`]), judges whether an object is ready ([`readiness`]), and
//! has the trimmed types that are watched ([`trimmed`]).
//!
//! It does not know what should run where (the synchronizer's tables) or how much room there is (cluster-manager).
//!
//! Invariant: this crate never changes an object in a member that does not belong to Drover or, as its pods and volumes do, to an app of it.

mod acting;
pub mod amounts;
pub mod bounds;
pub mod clients;
mod error;
mod exact;
pub mod keeping;
pub mod kubeconfig;
pub mod labels;
pub mod links;
pub mod member;
mod namespaces;
mod object_id;
pub mod objects;
mod plain;
pub mod reach;
pub mod readiness;
mod removed;
pub mod serving;
pub mod shared;
mod transport;
pub mod trimmed;
mod untyped;
mod volumes;

pub use clients::Clients;
pub use error::{DEADLINE, MemberError};
pub use keeping::{Contents, TakenAlong};
pub use kubeconfig::{KubeconfigError, VettedKubeconfig};
pub use labels::Owner;
pub use links::Links;
pub use member::{Applied, Mapping, Member, Scaled};
pub use object_id::ObjectId;
pub use objects::Object;
pub use reach::Reach;
pub use readiness::Readiness;
pub use shared::Sharers;
pub use volumes::{may_overlap, volume_source};
