//! Bounds that count for all members of an app together, divided into a share per member.
//!
//! The hub owns these bounds; the agent of a member owns the number of replicas inside the member's share. A member that does not answer
//! keeps the share that it was told last, for as long as it takes: nobody takes it away, and nobody else gets it.
//!
//! Invariant: the upper bounds that the members may be acting upon do not exceed the bounds together, however late or lost messages are,
//! because a share only grows into room that others have confirmed to have given up. (Every member needs an upper bound of at least one
//! pod, so bounds of fewer pods than members are exceeded.)

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// Bounds over all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalBounds {
    /// Minimum pods in all members together; 0 lets every member scale to zero.
    pub min: u32,
    /// Maximum pods in all members together.
    pub max: u32,
}

/// The bounds of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub min: u32,
    /// At least 1.
    pub max: u32,
}

/// What is known of one member where the app runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The upper bound that it is to have in the end, as [`divide`] said last.
    pub aim: Option<u32>,
    /// The share that it was told last; none: it has not been told one yet, and does not add pods.
    pub share: Option<Share>,
    /// The largest upper bound that it may be acting upon, until it confirms a smaller one.
    pub held: u32,
    /// Pods that run there.
    pub running: u32,
    /// Pods that its load needs beyond its share. None: its autoscaler does not report that.
    pub unmet: Option<u32>,
}

impl Place {
    /// Whether it lacks pods: it says so, or if it cannot say, it has as many as it may have.
    fn is_pressed(&self) -> bool {
        let full = self.share.is_some_and(|share| self.running >= share.max);
        self.share.is_some() && self.unmet.map_or(full, |unmet| unmet > 0)
    }

    /// Pods that its load needs, as far as that is known. Where nobody reports it, one more than a full share.
    fn needs(&self) -> u32 {
        self.running.saturating_add(self.unmet.unwrap_or_else(|| u32::from(self.is_pressed())))
    }

    /// Pods that may be running there, for all that is known.
    fn takes(&self) -> u32 {
        self.held.max(self.running)
    }
}

/// Decides when shares follow demand: not at once, and not again soon.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Patience {
    pressed_since: Option<Seconds>,
    changed: Option<Seconds>,
}

impl Patience {
    /// Whether demand may change the shares now: some member has lacked pods for as long as `pressed`, and the last change is as long ago as
    /// `rest`.
    pub fn is_over(&mut self, now: Seconds, places: &[Place], pressed: Seconds, rest: Seconds) -> bool {
        if !places.iter().any(Place::is_pressed) {
            self.pressed_since = None;
            return false;
        }
        let since = *self.pressed_since.get_or_insert(now);
        now - since >= pressed && self.changed.is_none_or(|at| now - at >= rest)
    }

    /// Records that shares have changed.
    pub fn changed(&mut self, now: Seconds) {
        (self.pressed_since, self.changed) = (None, Some(now));
    }
}

/// What one place gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The upper bound that it is to have in the end.
    pub aim: u32,
    /// What it may have now. None: nothing yet, because others have not given up the room for it.
    pub share: Option<Share>,
}

/// What each place gets, in their order.
///
/// The aims stay as they are while they fit the bounds and the places; `follow` lets demand change them. `leaving`: pods that members may
/// still be running which are not among the places any more.
pub fn divide(total: TotalBounds, places: &[Place], leaving: u32, follow: bool) -> Vec<Granted> {
    let minima = minima(total, places.len());
    let least: Vec<u32> = minima.iter().map(|min| (*min).max(1)).collect();
    let pool = u64::from(total.max).max(sum(&least));
    let aims = aims(pool, &least, places, follow);
    let mut free = pool.saturating_sub(places.iter().map(|place| u64::from(place.takes())).sum::<u64>() + u64::from(leaving));
    let granted = places.iter().zip(minima.iter().zip(&least)).zip(aims).map(|((place, (min, least)), aim)| {
        let takes = place.takes();
        let more = u32::try_from(free).unwrap_or(u32::MAX).min(aim.saturating_sub(takes));
        free -= u64::from(more);
        let may = aim.min(takes.saturating_add(more));
        let share = Share { min: (*min).min(may.max(1)), max: may.max(1) };
        let share = (place.share.is_some() || may >= *least).then_some(share);
        Granted { aim, share }
    });
    granted.collect()
}

/// The lower bound of each of so many members: equal shares of the minimum, and one pod at least unless all may be at zero.
fn minima(total: TotalBounds, members: usize) -> Vec<u32> {
    let count = u32::try_from(members).unwrap_or(u32::MAX).max(1);
    let own = |index: usize| total.min / count + u32::from(index < (total.min % count) as usize);
    (0..members).map(|index| own(index).max(total.min.min(1))).collect()
}

/// The upper bound that each place is to have in the end.
fn aims(pool: u64, least: &[u32], places: &[Place], follow: bool) -> Vec<u32> {
    let known: Option<Vec<u32>> = places.iter().map(|place| place.aim).collect();
    let known = known.filter(|known| sum(known) == pool && known.iter().zip(least).all(|(aim, least)| aim >= least));
    if let Some(known) = known.as_ref().filter(|_| !follow) {
        return known.clone();
    }
    let needs: Vec<u32> = places.iter().zip(least).map(|(place, least)| place.needs().max(*least)).collect();
    let asked = sum(&needs);
    if asked <= pool {
        return spread(pool - asked, &needs);
    }
    let level = level(pool, least, &needs);
    // Where there is not enough for all, what one gets another loses: not for a pod or two.
    let worth_it = |known: &Vec<u32>| {
        let gains = known.iter().zip(&level).map(|(before, after)| u64::from(after.saturating_sub(*before)));
        let (told, guessed): (Vec<_>, Vec<_>) = gains.zip(places).partition(|(_, place)| place.unmet.is_some());
        // Of those that only look full, only one counts: several that need no more would take turns with others.
        let told: u64 = told.into_iter().map(|(gain, _)| gain).sum();
        let guessed = guessed.into_iter().map(|(gain, _)| gain).max().unwrap_or(0);
        told + guessed >= (pool / 10).max(2)
    };
    match known {
        Some(known) if !worth_it(&known) => known,
        _ => level,
    }
}

/// What each needs, and an equal part of the rest.
fn spread(rest: u64, needs: &[u32]) -> Vec<u32> {
    let count = needs.len().max(1) as u64;
    let part = |index: usize| rest / count + u64::from((index as u64) < rest % count);
    needs.iter().enumerate().map(|(index, need)| u32::try_from(u64::from(*need) + part(index)).unwrap_or(u32::MAX)).collect()
}

/// The fairest division of too little: nobody has less than the least, nobody more than it needs, and whoever lacks something has no
/// less than any other, but for one pod.
fn level(pool: u64, least: &[u32], needs: &[u32]) -> Vec<u32> {
    let at = |level: u32| -> Vec<u32> { least.iter().zip(needs).map(|(least, need)| level.clamp(*least, *need)).collect() };
    let (mut low, mut high) = (0, u32::MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if sum(&at(middle)) <= pool { low = middle } else { high = middle - 1 }
    }
    let mut maxima = at(low);
    let mut rest = pool - sum(&maxima);
    for (max, need) in maxima.iter_mut().zip(needs) {
        if rest > 0 && *max == low && *max < *need {
            (*max, rest) = (*max + 1, rest - 1);
        }
    }
    maxima
}

fn sum(numbers: &[u32]) -> u64 {
    numbers.iter().map(|number| u64::from(*number)).sum()
}
