//! An hour without the hub: each agent goes on inside the share of the bounds that it was told last. Time is that of the observations, so an
//! hour takes milliseconds.

use drover_autoscaling::kpa::{KpaObservation, KpaSpec};
use drover_autoscaling::shares::{Patience, Place, Share, TotalBounds, divide};
use drover_autoscaling::{Limits, Observation, Policy, Reading, ScalingState, decide};
use proptest::prelude::*;

/// Seconds between two decisions, and between two passes of the hub.
const PERIOD: u32 = 15;
/// Seconds for which a load stays the same: long enough for an agent to follow it.
const LEVEL: u32 = 600;
const HOUR: u32 = 3_600;
/// Concurrent requests that a pod takes.
const PER_POD: f64 = 10.0;
/// Before a cut: long enough for shares to come to rest.
const BEFORE: u32 = 1_800;

/// A member with its agent.
struct Member {
    /// What the hub knows of it, and has told it.
    known: Place,
    /// What its agent acts on: the bounds in its ScalingPolicy.
    acts_on: Option<Share>,
    state: Option<ScalingState>,
    pods: u32,
    /// Pods that its load needs.
    needs: u32,
}

fn policy() -> Policy {
    Policy::Kpa(KpaSpec { target: Some(PER_POD), target_utilization: Some(1.0), ..KpaSpec::default() })
}

impl Member {
    fn new(needs: u32) -> Self {
        Self { known: Place { running: 1, ..Place::default() }, acts_on: None, state: None, pods: 1, needs }
    }

    /// One decision of the agent, which reads the bounds from its own cluster.
    fn decides(&mut self, at: u32) {
        let Some(Share { min, max }) = self.acts_on else { return };
        let bound = |pods: u32| i32::try_from(pods).unwrap();
        let (policy, at, replicas) = (policy(), f64::from(at), bound(self.pods));
        let limits = Limits { min_replicas: bound(min), max_replicas: bound(max), ..Limits::default() };
        let load = Reading::Value(f64::from(self.needs) * PER_POD);
        let seen = KpaObservation { at, replicas, ready: Reading::Value(replicas), stable: load.clone(), panic: load };
        let state = self.state.take().unwrap_or_else(|| ScalingState::new(&policy, &limits, at, replicas));
        let (record, next) = decide(&policy, &limits, state, &Observation::Kpa(seen));
        self.state = Some(next);
        if let Some(want) = record.want {
            self.pods = u32::try_from(want).unwrap();
        }
    }

    /// It is in touch with the hub: what was told arrives, and so does what it says.
    fn hears(&mut self) {
        if let Some(share) = self.known.share {
            (self.acts_on, self.known.held) = (Some(share), share.max);
        }
        let unmet = self.acts_on.map(|share| self.needs.saturating_sub(share.max));
        (self.known.running, self.known.unmet) = (self.pods, unmet);
    }
}

/// The hub divides the bounds, as far as it knows; what it tells reaches those that are not cut off.
fn divides(total: TotalBounds, members: &mut [Member], patience: &mut Patience, at: u32, in_touch: impl Fn(usize) -> bool) {
    let places: Vec<Place> = members.iter().map(|member| member.known).collect();
    let follow = patience.is_over(f64::from(at), &places, 30.0, 120.0);
    let granted = divide(total, &places, 0, follow);
    if follow {
        patience.changed(f64::from(at));
    }
    for (index, (member, granted)) in members.iter_mut().zip(granted).enumerate() {
        member.known.aim = Some(granted.aim);
        if let Some(share) = granted.share {
            member.known.share = Some(share);
            member.known.held = member.known.held.max(share.max);
        }
        if in_touch(index) {
            member.hears();
        }
    }
}

fn acting(members: &[Member]) -> u32 {
    members.iter().filter_map(|member| member.acts_on).map(|share| share.max).sum()
}

fn pods(members: &[Member]) -> u32 {
    members.iter().map(|member| member.pods).sum()
}

/// Pods that the load of a member needs and its share allows.
fn served(member: &Member) -> Option<u32> {
    member.acts_on.map(|share| member.needs.clamp(share.min, share.max))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Some members, or all, are cut off while shares may be on their way; loads change, and agents start anew and remember nothing. No agent
    /// leaves its last share, together they never exceed the bounds, and each serves its load as far as its share allows.
    #[test]
    fn hour_without_the_hub_makes_nothing_worse(
        min in 0..4_u32, more in 0..30_u32, cut in 1..16_usize,
        loads in prop::collection::vec(prop::collection::vec(0..25_u32, 7), 1..5),
        restarts in prop::collection::vec((0..4_usize, 0..HOUR / PERIOD), 0..6),
    ) {
        let total = TotalBounds { min, max: (min + more).max(u32::try_from(loads.len()).unwrap()) };
        let mut members: Vec<Member> = loads.iter().map(|levels| Member::new(levels[0])).collect();
        let mut patience = Patience::default();
        let is_cut = |index: usize| cut & (1 << index) != 0;
        for at in (0..BEFORE).step_by(PERIOD as usize) {
            divides(total, &mut members, &mut patience, at, |_| true);
            members.iter_mut().for_each(|member| member.decides(at));
        }
        prop_assert!(pods(&members) <= total.max);
        let told: Vec<Option<Share>> = members.iter().map(|member| member.acts_on).collect();

        for step in 0..HOUR / PERIOD {
            let at = BEFORE + step * PERIOD;
            for (member, levels) in members.iter_mut().zip(&loads) {
                member.needs = levels[1 + (step * PERIOD / LEVEL) as usize];
            }
            for (who, _) in restarts.iter().filter(|(_, when)| *when == step) {
                if let Some(member) = members.get_mut(*who) {
                    member.state = None;
                }
            }
            divides(total, &mut members, &mut patience, at, |index| !is_cut(index));
            members.iter_mut().for_each(|member| member.decides(at));
            prop_assert!(acting(&members) <= total.max, "{} of {}", acting(&members), total.max);
            prop_assert!(pods(&members) <= total.max, "{} of {}", pods(&members), total.max);
            for (index, member) in members.iter().enumerate().filter(|(index, _)| is_cut(*index)) {
                prop_assert_eq!(member.acts_on, told[index], "nothing ends because time passes");
                let last_of_level = ((step + 1) * PERIOD).is_multiple_of(LEVEL);
                prop_assert!(!last_of_level || Some(member.pods) == served(member).or(Some(member.pods)), "{} pods at {step}", member.pods);
            }
        }

        // The hub is back, and everybody is heard: the bounds are kept while shares follow what has changed, and they are used as before.
        for step in 0..BEFORE / PERIOD {
            let at = BEFORE + HOUR + step * PERIOD;
            divides(total, &mut members, &mut patience, at, |_| true);
            members.iter_mut().for_each(|member| member.decides(at));
            prop_assert!(acting(&members) <= total.max && pods(&members) <= total.max);
        }
        let whole: u32 = members.iter().filter_map(|member| member.known.share).map(|share| share.max).sum();
        prop_assert_eq!(whole, total.max, "what was held back for those that were silent is used again");
    }
}
