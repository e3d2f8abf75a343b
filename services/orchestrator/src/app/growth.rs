//! When room is made for an app that has grown beyond its claim: at once, and if that fails, after pauses that grow.
//!
//! Each attempt is an operation, which people see; an app that cannot get more room must not fill the list of operations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_api::scheduling::Demand;
use uuid::Uuid;

use super::{App, Error};
use crate::store::binding::Binding;
use crate::store::hold;
use crate::workflows::{Grow, grow};

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
}

impl GrowthAttempts {
    /// Whether to try it now. If so, that is counted.
    fn is_due(&self, binding: Uuid, claimed: &Demand, now: Instant) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = match all.get(&binding).filter(|last| last.claimed == *claimed) {
            Some(last) if now < last.next => return false,
            Some(last) => (last.pause * 2).min(LONGEST),
            None => FIRST,
        };
        all.insert(binding, Attempt { claimed: claimed.clone(), pause, next: now + pause });
        true
    }

    /// Forgets the attempts of all copies but those that still lack room.
    pub(super) fn retain(&self, lacks: impl Fn(Uuid) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|binding, _| lacks(*binding));
    }
}

impl App {
    /// Starts to make room for a copy that has grown to `demand`, if it is time for it and no operation changes the group.
    ///
    /// # Errors
    /// The database cannot be used.
    pub(super) async fn make_room_for_growth(&self, copy: &Binding, demand: &Demand) -> Result<(), Error> {
        if !self.growth.is_due(copy.id, &copy.request.demand, Instant::now()) {
            return Ok(());
        }
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
            if attempts.is_due(id, &claimed, start + Duration::from_secs(60 * minute)) {
                made.push(minute);
            }
        }
        assert_eq!(made, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert!(attempts.is_due(Uuid::from_u128(2), &claimed, start), "another copy has its own pauses");
        let more = Demand { groups: vec![PodGroup::default()], ..Demand::default() };
        assert!(attempts.is_due(id, &more, start + Duration::from_secs(60 * 120)), "what an attempt has helped is tried at once");
        attempts.retain(|_| false);
        assert!(attempts.is_due(id, &more, start + Duration::from_secs(60 * 120)), "what fitted in between begins anew");
    }
}
