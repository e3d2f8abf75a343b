//! SQL of cluster-manager's own tables. Documents are stored by libs/resources.

pub mod credentials;
pub mod labels;
pub mod registered;
