//! SQL of cluster-manager's own tables. Documents are stored by libs/resources.

pub mod authorities;
pub mod cordons;
pub mod credentials;
pub mod identities;
pub mod labels;
pub mod links;
pub mod registered;
pub mod users;
