//! The best moves that a search has found so far.

use std::cmp::Reverse;

use super::outlook::Outlook;
use super::problem::{Moves, RoomProblem};
use crate::Holds;

/// Moves, and for which orders of pods they hold.
pub(crate) struct FoundMoves<'a> {
    pub moves: Moves<'a>,
    pub holds: Holds,
}

/// The best moves so far: the most certain ones, and of these the fewest.
#[derive(Default)]
pub(crate) struct Best<'a> {
    pub found: Option<FoundMoves<'a>>,
}

impl<'a> Best<'a> {
    /// Takes moves that fit if they are better. Returns whether they hold for any order.
    pub fn offer(&mut self, problem: &RoomProblem<'_, 'a>, moves: Moves<'a>) -> bool {
        let Some(trial) = problem.build(&moves) else { return false };
        let holds = Outlook::new(problem, &moves, &trial).holds();
        let worth = |holds: Holds, moves: &Moves<'_>| (holds, Reverse(moves.len()));
        if self.found.as_ref().is_none_or(|found| worth(holds, &moves) > worth(found.holds, &found.moves)) {
            self.found = Some(FoundMoves { moves, holds });
        }
        holds == Holds::Any
    }

    /// Whether a set of so many victims could be better.
    pub fn may_improve_with(&self, size: usize) -> bool {
        self.found.as_ref().is_none_or(|found| found.holds < Holds::Any || size < found.moves.len())
    }
}
