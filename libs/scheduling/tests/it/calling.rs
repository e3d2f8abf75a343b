//! Decisions for apps that call each other: they are placed group by group, with the same constraints as without calls.

use std::sync::Arc;

use drover_scheduling::*;
use proptest::prelude::*;

use crate::test_fleet::{TestFleet, all_of, any_of, app, cases, demand, dig, id, key, places, request};

/// Declares the calls of an app, as (called app, rate).
pub fn calling(mut from: AppRequest, to: &[(&str, u64)]) -> AppRequest {
    let to = to.iter().map(|(app, calls)| CallTo { app: (*app).into(), micro_calls: calls * 1_000_000 }).collect();
    from.terms.calls = Some(CallTerms { to, rho: 4, ..CallTerms::default() });
    from
}

pub fn terms(mut request: AppRequest, change: impl Fn(&mut CallTerms)) -> AppRequest {
    change(request.terms.calls.as_mut().unwrap());
    request
}

const TWO: [&str; 2] = ["x+a", "x+b"];

fn two() -> TestFleet {
    TestFleet::default().member("x+a", 1, &[2000]).member("x+b", 1, &[2000])
}

/// Two pairs without calls between them: shop calls cart with rate 10, find calls index with rate 10.
fn pairs(on: &[&str], cpu: i64) -> Vec<AppRequest> {
    let of = |name: &str| app(name, demand(1, cpu), any_of(on));
    vec![calling(of("shop"), &[("cart", 10)]), calling(of("find"), &[("index", 10)]), calling(of("index"), &[]), calling(of("cart"), &[])]
}

fn crossing(decision: &Decision) -> f64 {
    decision.calls.as_ref().unwrap().crossing.unwrap()
}

#[test]
fn decide_groups_callers_and_balances_groups() {
    let apart: Vec<AppRequest> =
        pairs(&TWO, 900).into_iter().map(|a| AppRequest { terms: PlacementTerms { calls: None, ..a.terms }, ..a }).collect();
    let without = two().decide(apart);
    assert_eq!(places(&without), ["shop>x+a", "find>x+b", "index>x+a", "cart>x+b"]);
    assert_eq!(without.calls, None);

    let with = two().decide(pairs(&TWO, 900));
    assert_eq!(places(&with), ["shop>x+a", "find>x+b", "index>x+b", "cart>x+a"]);
    assert_eq!(crossing(&with), 0.0);
    let groups: Vec<(String, String)> =
        with.calls.unwrap().groups.iter().map(|g| (g.apps.join(" "), g.members.iter().map(|m| m.0.clone()).collect())).collect();
    assert_eq!(groups, [("shop cart".into(), "x+a".into()), ("find index".into(), "x+b".into())]);
    let chosen = with.apps[0].groups[0].considered.iter().find(|c| c.verdict == Verdict::Chosen).unwrap();
    assert!(chosen.reason.contains("100 % of its calls stay in the cluster"), "{}", chosen.reason);
    let other = with.apps[0].groups[0].considered.iter().find(|c| c.verdict == Verdict::Fits).unwrap();
    assert!(other.reason.contains("0 %"), "{}", other.reason);
}

#[test]
fn group_is_split_before_worse_provider_unless_keep_together() {
    // Room for one of two on the private cloud.
    let fleet = TestFleet::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[8000]);
    let on = ["own+a", "aws+c"];
    let pair = |keep: bool| -> Vec<AppRequest> {
        let pair =
            [calling(app("shop", demand(1, 700), any_of(&on)), &[("cart", 10)]), calling(app("cart", demand(1, 700), any_of(&on)), &[])];
        pair.into_iter().map(|a| terms(a, |calls| calls.keep_together = keep)).collect()
    };
    assert_eq!(places(&fleet.decide(pair(false))), ["shop>own+a", "cart>aws+c"]);
    assert_eq!(places(&fleet.decide(pair(true))), ["shop>aws+c", "cart>aws+c"]);
    // If both fit, they stay together.
    let roomy = TestFleet::default().member("own+a", 1, &[1400]).member("aws+c", 5, &[8000]);
    for keep in [false, true] {
        assert_eq!(places(&roomy.decide(pair(keep))), ["shop>own+a", "cart>own+a"]);
    }
}

#[test]
fn decide_prefers_cluster_with_lower_latency() {
    // No cluster holds two; b is near a, c is far.
    let on = ["x+a", "x+b", "x+c"];
    let fleet = || TestFleet::default().member("x+a", 1, &[1000]).member("x+b", 1, &[1000]).member("x+c", 1, &[1000]);
    let apps = |us: [u32; 2]| -> Vec<AppRequest> {
        let latencies = vec![
            Latency { from: key("x+b"), to: key("x+a"), us: us[0] },
            Latency { from: key("x+a"), to: key("x+c"), us: us[1] },
            Latency { from: key("x+b"), to: key("x+c"), us: 90_000 },
        ];
        let shop = calling(app("shop", demand(1, 700), any_of(&["x+a"])), &[("cart", 10)]);
        let cart = calling(app("cart", demand(1, 700), any_of(&on)), &[]);
        [shop, cart].into_iter().map(|a| terms(a, |calls| calls.latencies = latencies.clone())).collect()
    };
    let near_b = fleet().decide(apps([1_000, 90_000]));
    assert_eq!(places(&near_b), ["shop>x+a", "cart>x+b"]);
    assert_eq!(near_b.calls.as_ref().unwrap().waiting_us, Some(1_000.0));
    assert_eq!(places(&fleet().decide(apps([90_000, 1_000]))), ["shop>x+a", "cart>x+c"]);
}

#[test]
fn later_app_goes_to_member_of_apps_it_calls() {
    let shop = calling(app("shop", demand(1, 500), any_of(&TWO)), &[("cart", 10)]);
    let fleet = two().running_as(shop, "x+b").change_claim("shop", |claim| claim.dig = dig("newcomer").into());
    let cart = calling(app("cart", demand(1, 500), any_of(&TWO)), &[]);
    let decision = fleet.decide(vec![cart.clone()]);
    assert_eq!(places(&decision), ["cart>x+b"]);
    assert_eq!(crossing(&decision), 0.0);
    // The running group alone has no calls to others.
    assert_eq!(fleet.ledger().call_story(&dig("newcomer")), None);
    let mut ledger = fleet.ledger();
    ledger.apply_decision(&request(vec![cart.clone()]), &decision).keep();
    let story = ledger.call_story(&dig("newcomer")).unwrap();
    assert_eq!((story.crossing, story.groups.len(), story.groups[0].members.clone()), (Some(0.0), 1, vec![key("x+b")]));
    // An app with the same name in another group is another app.
    let stranger = fleet.change_claim("shop", |claim| claim.dig = dig("other").into());
    assert_eq!(places(&stranger.decide(vec![cart])), ["cart>x+a"]);
}

#[test]
fn mandatory_clusters_are_kept_and_calls_place_other_apps() {
    let everywhere = calling(app("agent", demand(1, 100), all_of(&TWO)), &[]);
    let pinned = calling(app("store", demand(1, 100), any_of(&["x+b"])), &[]);
    let web = calling(app("web", demand(1, 100), any_of(&TWO)), &[("store", 10), ("agent", 1)]);
    assert_eq!(places(&two().decide(vec![web, everywhere, pinned])), ["web>x+b", "agent>x+a", "agent>x+b", "store>x+b"]);
}

#[test]
fn rho_limits_group_size() {
    let rho = |rho: u32| two().decide(pairs(&TWO, 900).into_iter().map(|a| terms(a, |calls| calls.rho = rho)).collect());
    let groups = |decision: &Decision| decision.calls.as_ref().unwrap().groups.len();
    assert_eq!((groups(&rho(1)), groups(&rho(2))), (4, 2));
    assert_eq!(rho(1).calls.unwrap().between_groups, 1.0);
}

#[test]
fn no_room_is_reported_as_without_calls() {
    let decision = two().decide(pairs(&TWO, 1500));
    assert_eq!(decision.outcome, Outcome::NoRoom);
    assert_eq!(decision.calls.unwrap().crossing, None);
    assert!(decision.apps.iter().flat_map(|a| &a.groups).all(|g| g.placement.is_none()));
}

proptest! {
    #![proptest_config(cases(300))]

    /// Calls never make a request fail, the claims fit, and the same input gives the same decision.
    #[test]
    fn calls_change_members_but_never_feasibility(
        rooms in prop::collection::vec((1u8..3, prop::collection::vec(500i64..3000, 1..3)), 1..5),
        apps in prop::collection::vec((100i64..1500, 1u32..3, prop::collection::vec((0usize..6, 1u64..20), 0..3)), 1..6),
        rho in 1u32..6,
        keep in any::<bool>(),
        policy in prop::sample::select(vec![GroupPolicy::CgsGreedy, GroupPolicy::Learned]),
    ) {
        let names: Vec<String> = (0..rooms.len()).map(|i| format!("x+{i}")).collect();
        let mut fleet = TestFleet::default();
        for (name, (priority, nodes)) in names.iter().zip(&rooms) {
            fleet = fleet.member(name, *priority, nodes);
        }
        let on: Vec<&str> = names.iter().map(String::as_str).collect();
        let with: Vec<AppRequest> = apps.iter().enumerate().map(|(i, (cpu, replicas, to))| {
            let to: Vec<(String, u64)> = to.iter().map(|(to, calls)| (format!("app{to}"), *calls)).collect();
            let to: Vec<(&str, u64)> = to.iter().map(|(to, calls)| (to.as_str(), *calls)).collect();
            let request = calling(app(&format!("app{i}"), demand(*replicas, *cpu), any_of(&on)), &to);
            terms(request, |calls| { calls.rho = rho; calls.keep_together = keep; calls.policy = policy; })
        }).collect();
        let without: Vec<AppRequest> = with.iter().cloned().map(|mut a| { a.terms.calls = None; a }).collect();
        let (a, b) = (fleet.decide(with.clone()), fleet.decide(without));
        // The search without calls is limited. With calls there is one more way to find room, never one less.
        prop_assert!(a.outcome == b.outcome || a.outcome == Outcome::Placed, "{:?} instead of {:?}", a.outcome, b.outcome);
        prop_assert_eq!(&a, &fleet.decide(with.clone()));
        if a.outcome == Outcome::Placed {
            // The claims fit: the ledger counts them again.
            let mut ledger = fleet.ledger();
            let asked = request(with);
            ledger.apply_decision(&asked, &a).keep();
            for room in ledger.rooms() {
                prop_assert!(room.free().now.iter().all(|free| free.cpu >= 0), "{} is over its room", room.key);
            }
            if let Some(story) = &a.calls {
                prop_assert!(story.groups.iter().all(|g| g.apps.len() <= rho as usize));
                prop_assert!((0.0..=1.0).contains(&story.crossing.unwrap()));
            }
        }
    }
}

#[test]
fn call_story_follows_claims_through_changes() {
    let shop = calling(app("shop", demand(1, 500), any_of(&TWO)), &[("cart", 10)]);
    let fleet = two().running_as(shop, "x+b").change_claim("shop", |claim| claim.dig = dig("newcomer").into());
    let cart = calling(app("cart", demand(1, 500), any_of(&TWO)), &[]);
    let mut ledger = fleet.ledger();
    let asked = request(vec![cart]);
    let at = |ledger: &Ledger| places(&ledger.decide(id("decision"), &asked));
    assert_eq!(at(&ledger), ["cart>x+b"]);
    let claim = ledger.claim(&id("shop")).cloned().unwrap();
    ledger.put_claim(claim.id, Some(Arc::new(Claim { member: key("x+a"), ..Claim::clone(&claim) })));
    assert_eq!(at(&ledger), ["cart>x+a"]);
    ledger.put_claim(claim.id, Some(Arc::new(Claim { member: key("x+b"), ..Claim::clone(&claim) })));
    let undo = ledger.apply_decision(&asked, &ledger.decide(id("decision"), &asked));
    ledger.undo(undo);
    assert_eq!(at(&ledger), ["cart>x+b"]);
    ledger.put_claim(claim.id, None);
    assert_eq!(at(&ledger), ["cart>x+a"]);
}

/// Apps in applications of six, on clusters of different sizes, by one policy. The seed draws requests and calls.
fn drawn(seed: u64, policy: GroupPolicy, apps: usize, members: usize) -> Decision {
    let mut rng = fastrand::Rng::with_seed(seed);
    let names: Vec<String> = (0..members).map(|i| format!("x+{i}")).collect();
    let mut fleet = TestFleet::default();
    for name in &names {
        let nodes: Vec<i64> = (0..rng.usize(1..4)).map(|_| rng.i64(1_500..4_000)).collect();
        fleet = fleet.member(name, 1, &nodes);
    }
    let on: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut one = |i: usize| {
        let to: Vec<(String, u64)> =
            (0..rng.usize(1..3)).map(|_| (format!("app{}", i / 6 * 6 + rng.usize(0..6)), rng.u64(1..20))).collect();
        let to: Vec<(&str, u64)> = to.iter().filter(|(to, _)| *to != format!("app{i}")).map(|(to, calls)| (to.as_str(), *calls)).collect();
        let request = calling(app(&format!("app{i}"), demand(1, rng.i64(200..900)), any_of(&on)), &to);
        terms(request, |calls| calls.policy = policy)
    };
    let apps = (0..apps).map(&mut one).collect();
    fleet.decide(apps)
}

fn chosen_by(decision: Decision) -> PolicyStory {
    decision.calls.unwrap().chosen_by.unwrap()
}

/// Prints how often and by how much `learned` is better, and what a decision costs (`--nocapture`).
#[test]
fn guard_takes_the_better_of_learned_and_greedy() {
    for (apps, members, count) in [(12, 6, 60), (60, 24, 20)] {
        let mut taken = std::collections::BTreeMap::new();
        let (mut ratios, mut times) = (Vec::new(), [0.0; 2]);
        for seed in 0..count {
            let mut timed = |policy: GroupPolicy| {
                let began = std::time::Instant::now();
                let story = chosen_by(drawn(seed, policy, apps, members));
                times[usize::from(policy == GroupPolicy::Learned)] += began.elapsed().as_secs_f64() * 1e3 / count as f64;
                story
            };
            let (greedy, learned) = (timed(GroupPolicy::CgsGreedy), timed(GroupPolicy::Learned));
            assert_eq!((greedy.policy, greedy.taken, greedy.learned), (GroupPolicy::CgsGreedy, GroupPolicy::CgsGreedy, None));
            let [by_greedy, by_learned] = [learned.greedy, learned.learned].map(Option::unwrap);
            assert!((by_greedy - greedy.objective).abs() < 1e-12, "the guard is what cgs-greedy places, the search included");
            assert!((learned.objective - by_greedy.min(by_learned)).abs() < 2e-9, "{seed}: {learned:?}");
            *taken.entry(learned.taken).or_insert(0) += 1;
            ratios.push(by_learned / by_greedy);
        }
        ratios.sort_by(f64::total_cmp);
        let better = ratios.iter().filter(|ratio| **ratio < 1.0 - 1e-9).count();
        let worse = ratios.iter().filter(|ratio| **ratio > 1.0 + 1e-9).count();
        let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        println!(
            "{apps} apps on {members} members: learned better in {better}, worse in {worse} of {count}, \
             f {median:.3} ({least:.3} to {most:.3}) of greedy's; ms {times:.2?}"
        );
        // A network that is not mostly better is not worth its time.
        assert!(better > worse, "{better} better, {worse} worse");
        assert_eq!(taken.get(&GroupPolicy::CgsGreedy).copied().unwrap_or(0), worse);
        assert!(apps > 12 || worse > 0, "the guard must have something to do, or it is not tested");
    }
}

#[test]
fn story_of_learned_says_what_it_saw_and_what_the_search_moved() {
    let mut moves = 0;
    for seed in 0..20 {
        let decision = drawn(seed, GroupPolicy::Learned, 12, 6);
        let mut at: std::collections::BTreeMap<String, MemberKey> = std::collections::BTreeMap::new();
        let story = chosen_by(decision.clone());
        for step in &story.steps {
            assert!(step.options > 0 && step.score.is_finite(), "{step:?}");
            if let (Some(member), Some(load)) = (&step.member, step.load) {
                assert!(load.before < load.after && load.after <= 1.0, "{step:?}");
                at.extend(step.apps.iter().map(|app| (app.clone(), member.clone())));
            }
        }
        for step in &story.search {
            assert!(step.apps.iter().all(|app| at.insert(app.clone(), step.to.clone()) == Some(step.from.clone())), "{step:?}");
        }
        let told: Vec<String> = decision.apps.iter().map(|app| format!("{}>{}", app.app, at[&app.app].0)).collect();
        assert_eq!(told, places(&decision), "steps and moves together are the placement");
        assert_eq!(story.search.is_empty(), story.before_search <= story.objective + 1e-9, "{story:?}");
        moves += story.search.len();
    }
    assert!(moves > 0);
}

#[test]
fn learned_keeps_to_provider_priority_and_keeps_groups_together() {
    // Room for one of two on the private cloud.
    let fleet = TestFleet::default().member("own+a", 1, &[1000]).member("aws+c", 5, &[8000]);
    let on = ["own+a", "aws+c"];
    let pair = |keep: bool| -> Vec<AppRequest> {
        let pair =
            [calling(app("shop", demand(1, 700), any_of(&on)), &[("cart", 10)]), calling(app("cart", demand(1, 700), any_of(&on)), &[])];
        let learned = |calls: &mut CallTerms| (calls.keep_together, calls.policy) = (keep, GroupPolicy::Learned);
        pair.into_iter().map(|a| terms(a, learned)).collect()
    };
    let members = |keep: bool| {
        let mut placed =
            places(&fleet.decide(pair(keep))).iter().map(|place| place.split('>').next_back().unwrap().to_owned()).collect::<Vec<_>>();
        placed.sort();
        placed
    };
    assert_eq!(members(false), ["aws+c", "own+a"]);
    assert_eq!(members(true), ["aws+c", "aws+c"]);
}
