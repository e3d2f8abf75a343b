//! The commands, one file each. What several commands need is not here but beside this directory, so that commands import each other in no circle.

pub mod access;
pub mod agents;
pub mod apply;
pub mod autoscale;
pub mod backup;
pub mod cluster;
pub mod config;
pub mod delete;
pub mod deploy;
pub mod diff;
pub mod doctor;
pub mod documents;
pub mod explain;
pub mod get;
pub mod groups;
pub mod image;
pub mod keys;
pub mod look;
pub mod memguard;
mod newcomer;
pub mod operation;
pub mod page;
pub mod plan;
pub mod policy;
pub mod provider;
pub mod rollback;
pub mod up;
