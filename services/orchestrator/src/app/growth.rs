//! When room is made for an app that has grown beyond its claim: at once, and if that fails, after pauses that grow. After each attempt that
//! has failed it is tried to move the app itself to where all of it fits, if it may move.
//!
//! Each attempt is an operation, which people see; an app that cannot get more room must not fill the list of operations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_api::plans::PlanState;
use drover_api::scheduling::Demand;
use drover_service::Problem;
use uuid::Uuid;

use super::reliefs::WantedMove;
use super::{App, Error};
use crate::store::binding::Binding;
use crate::store::hold;
use crate::workflows::{Grow, grow, subject};

/// Pause after the first attempt; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(60);
/// Limit on that.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// When growth was tried, by binding. In memory only: after a restart each is tried once more.
#[derive(Default)]
pub struct GrowthAttempts(Mutex<HashMap<Uuid, Attempt>>);

struct Attempt {
    /// What the copy had claimed then. If it has another claim now, the attempt has helped, and the next one is made at once.
    claimed: Demand,
    pause: Duration,
    next: Instant,
    /// Whether it was tried to move the app itself, too.
    tried_to_move: bool,
}

/// What is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Others make room where it is.
    MakeRoom,
    /// It moves to where it fits.
    MoveItself,
}

impl GrowthAttempts {
    /// What to try now, if anything. That is counted. No operation works on the group any more: the last attempt has ended.
    fn due(&self, binding: Uuid, claimed: &Demand, now: Instant) -> Option<Due> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = match all.get_mut(&binding).filter(|last| last.claimed == *claimed) {
            Some(last) if !last.tried_to_move => {
                last.tried_to_move = true;
                return Some(Due::MoveItself);
            }
            Some(last) if now < last.next => return None,
            Some(last) => (last.pause * 2).min(LONGEST),
            None => FIRST,
        };
        all.insert(binding, Attempt { claimed: claimed.clone(), pause, next: now + pause, tried_to_move: false });
        Some(Due::MakeRoom)
    }

    /// Forgets the attempts of all copies but those that still lack room.
    pub(super) fn retain(&self, lacks: impl Fn(Uuid) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|binding, _| lacks(*binding));
    }
}

impl App {
    /// Starts to make room for a copy that has grown to `demand`, or to move it, if it is time for that and no operation changes the group.
    ///
    /// # Errors
    /// The database cannot be used, or migration does not answer.
    pub(super) async fn make_room_for_growth(&self, copy: &Binding, demand: &Demand) -> Result<(), Problem> {
        match self.growth.due(copy.id, &copy.request.demand, Instant::now()) {
            None => Ok(()),
            Some(Due::MakeRoom) => Ok(self.grow(copy, demand).await?),
            Some(Due::MoveItself) => self.move_grown(copy, demand).await,
        }
    }

    async fn grow(&self, copy: &Binding, demand: &Demand) -> Result<(), Error> {
        let operation = Uuid::now_v7();
        let mut tx = self.store.begin().await?;
        if hold::take(&mut tx, operation, &[copy.dig.id]).await?.is_err() {
            return Ok(());
        }
        let order = grow::Order::new(copy.clone(), demand.clone());
        self.engine.start_in_tx::<Grow>(&mut tx, operation, &order).await?;
        tx.commit().await?;
        self.engine.nudge();
        Ok(())
    }

    /// Moves a copy to where all of it fits, if it may move and there is such a place. Only a plan that can be carried out is stored.
    async fn move_grown(&self, copy: &Binding, demand: &Demand) -> Result<(), Problem> {
        let operation = Uuid::now_v7();
        let (member, project) = (copy.member.clone(), copy.dig.project.clone());
        let reason = "it has grown beyond the room there, and no plan makes more".to_owned();
        let wanted = WantedMove { member, project, claims: vec![copy.id], demand: Some(demand.clone()), reason };
        let mut order = self.relief_order(wanted, &[], operation).await?;
        order.dry_run = true;
        if self.services.migration.plan(Uuid::now_v7(), &order).await?.state != PlanState::Proposed {
            return Ok(());
        }
        order.dry_run = false;
        let plan = self.services.migration.plan(Uuid::now_v7(), &order).await?;
        if plan.state == PlanState::Proposed {
            self.start_moves(&plan, operation, subject(&copy.dig)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::PodGroup;

    use super::*;

    #[test]
    fn attempts_are_made_at_once_and_then_less_and_less_often() {
        let (attempts, start, id) = (GrowthAttempts::default(), Instant::now(), Uuid::from_u128(1));
        let claimed = Demand::default();
        let mut made = Vec::new();
        for minute in 0..=120 {
            let at = start + Duration::from_secs(60 * minute);
            if attempts.due(id, &claimed, at) == Some(Due::MakeRoom) {
                made.push(minute);
                assert_eq!(attempts.due(id, &claimed, at), Some(Due::MoveItself), "as soon as that has ended");
                assert_eq!(attempts.due(id, &claimed, at), None);
            }
        }
        assert_eq!(made, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert_eq!(attempts.due(Uuid::from_u128(2), &claimed, start), Some(Due::MakeRoom), "another copy has its own pauses");
        let more = Demand { groups: vec![PodGroup::default()], ..Demand::default() };
        let late = start + Duration::from_secs(60 * 120);
        assert_eq!(attempts.due(id, &more, late), Some(Due::MakeRoom), "what an attempt has helped is tried at once");
        attempts.retain(|_| false);
        assert_eq!(attempts.due(id, &more, late), Some(Due::MakeRoom), "what fitted in between begins anew");
    }
}
