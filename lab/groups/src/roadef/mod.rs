//! ROADEF/EURO challenge 2012, Google's machine reassignment: a reader, a checker, and the search on its objective.
//!
//! An external score for the search: instances, lower bounds and the results of 27 teams are public. None is kept here.
//! Definitions: "Google ROADEF/EURO challenge 2011-2012: Machine Reassignment" (problem_definition_v1).

mod check;
mod read;
mod search;

pub use check::{Cost, Fault};
pub use read::{Balance, File, Machine, Misread, Process, ReadError, Reassignment, Resource, ServiceRules};
pub use search::{Found, improve};
