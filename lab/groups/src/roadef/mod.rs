//! The ROADEF/EURO challenge 2012, Google's machine reassignment: a reader, a checker, and the search on its objective.
//!
//! It gives an external score for the search: instances, lower bounds and the results of 27 teams are public. None of them is part of
//! this repository. Definitions: "Google ROADEF/EURO challenge 2011-2012: Machine Reassignment" (problem_definition_v1).

mod check;
mod read;
mod search;

pub use check::{Cost, Violation};
pub use read::{Balance, InputFile, Machine, Misread, Process, ReadError, Reassignment, Resource, ServiceRules};
pub use search::{SearchResult, improve};
