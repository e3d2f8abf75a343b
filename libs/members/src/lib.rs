//! Talking to Kubernetes members.
//!
//! What is here, and nothing else: credentials that may be used ([`kubeconfig`]), one client per member ([`Clients`]),
//! the objects of a rendered bundle ([`objects`]), the verbs Drover uses on them ([`Member`]), when an object is ready
//! ([`readiness`]), and the trimmed types that are watched ([`trimmed`]).
//!
//! Not here: what should run where (the synchronizer's tables), and how much room there is (the cluster-manager's sums).
//!
//! Invariant: nothing in this crate ever changes an object in a member that is not Drover's.

pub mod amounts;
pub mod clients;
pub mod kubeconfig;
pub mod labels;
pub mod member;
mod namespaces;
pub mod objects;
pub mod readiness;
mod transport;
pub mod trimmed;

pub use clients::Clients;
pub use kubeconfig::{KubeconfigError, VettedKubeconfig};
pub use labels::Owner;
pub use member::{Applied, Mapping, Member, MemberError};
pub use objects::{Object, ObjectId};
pub use readiness::Readiness;
