//! `drover groups …`: group placement by hand. Its commands are those of `drover-lab`, which has all policies.

use clap::Subcommand;

use crate::lab::LabArgs;

/// `drover groups …`.
#[derive(Debug, Subcommand)]
pub enum GroupsCommand {
    /// Place an application's call graph by one policy or several on the clusters as they are, and compare. Nothing is moved.
    Place(LabArgs),
}

impl GroupsCommand {
    /// The command's name: `drover-lab` runs all of them.
    pub fn of_lab(&self) -> Option<&'static str> {
        match self {
            Self::Place(_) => Some("groups place"),
        }
    }
}
