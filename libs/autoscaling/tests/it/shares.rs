//! Bounds over all members: sums are kept whatever is late or lost, nobody is below its part of the minimum, and shares follow demand
//! with patience.

use drover_autoscaling::shares::{Granted, Patience, Place, Share, TotalBounds, divide};
use proptest::prelude::*;

/// A member in a model: what it was told and what has reached it.
#[derive(Clone, Debug, Default)]
struct Member {
    place: Place,
    /// What its agent acts on; none: it does not add pods.
    acts_on: Option<Share>,
    load: u32,
}

impl Member {
    /// The message of the hub arrives, and so does the confirmation.
    fn hears(&mut self) {
        self.acts_on = self.place.share;
        self.place.held = self.place.share.map_or(self.place.held, |share| share.max);
    }

    /// The agent sets as many pods as the load needs, within its bounds.
    fn scales(&mut self) {
        if let Some(Share { min, max }) = self.acts_on {
            self.place.running = self.load.clamp(min, max);
            self.place.unmet = Some(self.load.saturating_sub(max));
        }
    }
}

/// The hub tells the members their shares; only those in `reached` hear it.
fn pass(total: TotalBounds, members: &mut [Member], follow: bool, reached: impl Fn(usize) -> bool) {
    let places: Vec<Place> = members.iter().map(|member| member.place).collect();
    for (index, Granted { aim, share }) in divide(total, &places, 0, follow).into_iter().enumerate() {
        let place = &mut members[index].place;
        place.aim = Some(aim);
        if let Some(share) = share {
            place.share = Some(share);
            place.held = place.held.max(share.max);
        }
        if reached(index) {
            members[index].hears();
        }
        members[index].scales();
    }
}

fn settled(total: TotalBounds, loads: &[u32]) -> Vec<Member> {
    let mut members: Vec<Member> = loads.iter().map(|load| Member { load: *load, ..Member::default() }).collect();
    for _ in 0..10 {
        pass(total, &mut members, true, |_| true);
    }
    members
}

fn maxima(members: &[Member]) -> Vec<u32> {
    members.iter().map(|member| member.place.share.unwrap().max).collect()
}

proptest! {
    /// Loads change, messages are lost, for as long as anybody likes: what the members may act upon is never more than the total.
    #[test]
    fn bounds_that_members_act_upon_never_sum_to_more_than_the_total(
        min in 0..12_u32, more in 0..30_u32, loads in prop::collection::vec(0..40_u32, 1..6),
        steps in prop::collection::vec((0..6_usize, 0..40_u32, 0..64_u32, prop::bool::ANY), 0..40),
    ) {
        let members = u32::try_from(loads.len()).unwrap();
        let total = TotalBounds { min, max: (min + more).max(members) };
        let mut members: Vec<Member> = loads.iter().map(|load| Member { load: *load, ..Member::default() }).collect();
        for (who, load, reached, follow) in steps {
            if let Some(member) = members.get_mut(who) {
                member.load = load;
            }
            pass(total, &mut members, follow, |index| reached & (1 << index) != 0);
            let acting: u32 = members.iter().filter_map(|member| member.acts_on).map(|share| share.max).sum();
            prop_assert!(acting <= total.max, "{acting} of {}: {members:#?}", total.max);
            let held: u32 = members.iter().map(|member| member.place.held).sum();
            prop_assert!(held <= total.max, "{held} of {}: {members:#?}", total.max);
            for share in members.iter().filter_map(|member| member.place.share) {
                prop_assert!(share.min <= share.max && share.max >= 1, "{share:?}");
            }
        }
    }

    /// When all have been heard, the whole of the bounds is divided, and nobody is below its part.
    #[test]
    fn everything_is_divided_and_nobody_is_below_a_fair_minimum(min in 0..40_u32, more in 0..60_u32, loads in prop::collection::vec(0..100_u32, 1..7)) {
        let count = u32::try_from(loads.len()).unwrap();
        let total = TotalBounds { min, max: (min + more).max(count) };
        let members = settled(total, &loads);
        let shares: Vec<Share> = members.iter().map(|member| member.place.share.unwrap()).collect();
        prop_assert_eq!(shares.iter().map(|share| share.max).sum::<u32>(), total.max);
        let wanted = if min == 0 { 0 } else { min.max(count) };
        prop_assert_eq!(shares.iter().map(|share| share.min).sum::<u32>(), wanted);
        for share in &shares {
            prop_assert!(share.min >= min / count && share.max >= share.min);
        }
        // Nobody lacks pods while another may have pods that it does not need, but for what is not worth a change.
        let lacks = members.iter().map(|member| member.place.unmet.unwrap()).max().unwrap();
        let spare = members.iter().map(|member| member.place.share.unwrap().max.saturating_sub(member.place.running.max(1))).max().unwrap();
        prop_assert!(lacks == 0 || spare <= (total.max / 10).max(2), "{members:#?}");
    }

    /// Under constant loads, shares come to rest.
    #[test]
    fn shares_rest_under_constant_load(max in 1..60_u32, loads in prop::collection::vec(0..100_u32, 1..7)) {
        let total = TotalBounds { min: 1, max: max.max(u32::try_from(loads.len()).unwrap()) };
        let mut members = settled(total, &loads);
        let before = maxima(&members);
        pass(total, &mut members, true, |_| true);
        prop_assert_eq!(before, maxima(&members));
    }
}

#[test]
fn member_without_answer_keeps_its_share_and_nobody_else_gets_it() {
    let total = TotalBounds { min: 2, max: 10 };
    let mut members = settled(total, &[8, 1]);
    let before = maxima(&members);
    assert_eq!(before.iter().sum::<u32>(), 10);
    assert!(before[0] >= 8, "{before:?}");
    // The first member is cut off while the load goes over to the second one.
    members[1].load = 9;
    for _ in 0..100 {
        pass(total, &mut members, true, |index| index == 1);
    }
    assert_eq!(members[0].acts_on.unwrap().max, before[0], "it goes on with what it was told last");
    assert_eq!(maxima(&members)[1], before[1], "the room is not given away twice");
    // It answers again, without load.
    members[0].load = 0;
    for _ in 0..5 {
        pass(total, &mut members, true, |_| true);
    }
    assert_eq!(members[1].place.running, 9);
}

#[test]
fn place_that_is_new_waits_until_others_have_given_up_room() {
    let total = TotalBounds { min: 1, max: 6 };
    let mut members = settled(total, &[6]);
    assert_eq!(maxima(&members), [6]);
    members.push(Member { load: 3, place: Place { running: 0, ..Place::default() }, ..Member::default() });
    pass(total, &mut members, false, |_| false);
    assert_eq!(members[1].place.share, None);
    assert!(members[0].place.share.unwrap().max < 6, "it is told to give some up");
    for _ in 0..3 {
        pass(total, &mut members, false, |_| true);
    }
    assert_eq!(maxima(&members).iter().sum::<u32>(), 6);
}

#[test]
fn what_leaves_is_not_given_away_before_it_is_gone() {
    let place = |held| Place { share: Some(Share { min: 1, max: held }), aim: Some(held), held, running: held, unmet: Some(4) };
    let total = TotalBounds { min: 1, max: 10 };
    assert_eq!(divide(total, &[place(5)], 5, true)[0].share.unwrap().max, 5);
    assert_eq!(divide(total, &[place(5)], 0, true)[0].share.unwrap().max, 10);
}

#[test]
fn shares_follow_demand_after_half_a_minute_and_then_rest_for_two() {
    let at = |running| [Place { share: Some(Share { min: 1, max: 5 }), running, ..Place::default() }];
    let mut patience = Patience::default();
    let mut is_over = |now, running| patience.is_over(now, &at(running), 30.0, 120.0);
    assert!(!is_over(0.0, 5));
    assert!(!is_over(20.0, 4), "it does not lack pods any more");
    assert!(!is_over(25.0, 5) && !is_over(54.0, 5));
    assert!(is_over(55.0, 5));
    patience.changed(55.0);
    let mut is_over = |now| patience.is_over(now, &at(5), 30.0, 120.0);
    assert!(!is_over(60.0) && !is_over(170.0));
    assert!(is_over(175.0));
}
