//! Who moves for a newcomer, and who for a drain: the rules one by one.

use std::sync::Arc;

use drover_scheduling::*;

use crate::world::{World, all_of, any_of, app, code, demand, feasible, group, id, infeasible, key, moves};

const ALL: [&str; 3] = ["onprem+a", "onprem+b", "aws+c"];

/// `onprem+a` has 1000m, all taken by four apps; `onprem+b` and `aws+c` have room.
fn full() -> World {
    World::default()
        .member("onprem+a", 1, &[1000])
        .member("onprem+b", 1, &[500])
        .member("aws+c", 5, &[4000])
        .running("app1", "onprem+a", 300, &ALL)
        .running("app2", "onprem+a", 300, &ALL)
        .running("app3", "onprem+a", 200, &ALL)
        .running("app4", "onprem+a", 200, &["onprem+a"])
}

fn bound(cpu: i64) -> Vec<AppRequest> {
    vec![app("new", demand(1, cpu), any_of(&["onprem+a"]))]
}

#[test]
fn those_who_may_make_way_and_the_plan_says_why() {
    let plan = feasible(full().plan(bound(500)));
    assert_eq!(plan.targets, [key("onprem+a")]);
    assert_eq!(moves(&plan), ["app1>onprem+b", "app2>aws+c"], "by provider priority, with room no other victim takes");
    assert_eq!((plan.freed.cpu, plan.needed.cpu), (600, 500));
    assert_eq!(code(&plan.candidates, "app3"), "not_needed");
    assert_eq!(code(&plan.candidates, "app4"), "no_other_member");
    let home = plan.newcomer[0].groups[0].placement.as_ref().unwrap();
    assert_eq!((home.member.clone(), home.pods.len()), (key("onprem+a"), 1));
    assert_eq!(plan.waves[0][0].alternatives, [key("aws+c")]);
    assert!(plan.newcomer[0].groups[0].considered[0].reason.contains("2 apps move away"));
}

#[test]
fn a_greedy_prefix_takes_too_many_and_is_pruned() {
    let world = full().priority("app3", 1).priority("app1", 2);
    let plan = feasible(world.plan(bound(300)));
    assert_eq!(moves(&plan), ["app1>onprem+b"], "app3 came first but app1 alone is enough");
}

#[test]
fn where_there_is_room_nobody_moves() {
    let plan = feasible(full().plan(vec![app("new", demand(1, 500), any_of(&ALL))]));
    assert!(plan.waves.is_empty() && plan.candidates.is_empty() && plan.targets.is_empty());
    assert_eq!(plan.newcomer[0].groups[0].placement.as_ref().unwrap().member, key("onprem+b"));
}

#[test]
fn fitting_is_judged_node_by_node() {
    // 400 + 400 are free, but on two nodes.
    let world = World::default()
        .member("onprem+a", 1, &[1000, 1000])
        .member("aws+c", 5, &[4000])
        .running("one", "onprem+a@n1", 600, &["onprem+a", "aws+c"])
        .running("two", "onprem+a@n2", 600, &["onprem+a", "aws+c"]);
    let plan = feasible(world.plan(bound(800)));
    assert_eq!(moves(&plan), ["one>aws+c"]);
    let immovable = world.change_request("one", |r| r.demand.volumes = 1);
    assert_eq!(moves(&feasible(immovable.plan(bound(800)))), ["two>aws+c"]);
}

#[test]
fn preferred_moves_others_although_there_is_room_elsewhere() {
    let world = full().running("filler", "onprem+b", 500, &["onprem+b"]);
    let mut new = vec![app("new", demand(1, 300), any_of(&ALL))];
    assert!(feasible(world.plan(new.clone())).waves.is_empty(), "overflow: aws+c has room");
    new[0].terms.when_full = WhenFull::Preferred;
    assert_eq!(moves(&feasible(world.plan(new.clone()))), ["app1>aws+c"]);
    new[0].demand = demand(1, 900);
    let why = infeasible(world.plan(new.clone()));
    assert!(why.members.iter().any(|m| m.member == key("aws+c") && m.reason.contains("overflow")), "{why:#?}");
    let nowhere = world.running("big", "aws+c", 3200, &["aws+c", "gone+x"]);
    infeasible(nowhere.plan(new));
}

#[test]
fn the_first_member_in_order_of_preference_wins_and_among_equals_fewer_victims() {
    let world = World::default()
        .member("x+a", 1, &[600])
        .member("x+b", 1, &[600])
        .member("z+d", 2, &[600])
        .member("y+c", 5, &[2000])
        .running("a1", "x+a", 300, &["x+a", "y+c"])
        .running("a2", "x+a", 300, &["x+a", "y+c"])
        .running("b1", "x+b", 600, &["x+b", "y+c"])
        .running("d1", "z+d", 600, &["z+d", "y+c"])
        .running("full", "y+c", 700, &["y+c"]);
    let new = |cpu| vec![app("new", demand(1, cpu), any_of(&["z+d", "x+a", "x+b"]))];
    let plan = feasible(world.plan(new(600)));
    assert_eq!(moves(&plan), ["b1>y+c"], "one victim on x+b against two on x+a; z+d is less preferred");
    let stuck = world.change_request("b1", |r| r.demand.volumes = 1).change_request("a1", |r| r.demand.volumes = 1);
    let plan = feasible(stuck.plan(new(600)));
    assert_eq!(moves(&plan), ["d1>y+c"]);
    assert_eq!(plan.tried.len(), 2, "{:?}", plan.tried);
}

#[test]
fn no_plan_has_a_reason_per_member_and_per_candidate() {
    let why = infeasible(full().plan(bound(900)));
    assert_eq!(why.members.len(), 1);
    assert_eq!(
        why.members[0].reason,
        "new: cpu: needs 900m on one node, the emptiest matching has 800m free, even if all 3 apps that may move left"
    );
    assert_eq!(why.candidates.len(), 4);
    assert!(why.candidates.iter().all(|c| c.why_not.is_some() && !c.taken));
    let crowded = full().running("x", "onprem+b", 500, &["onprem+b"]).running("y", "aws+c", 4000, &["aws+c"]);
    let why = infeasible(crowded.plan(bound(300)));
    assert_eq!(code(&why.candidates, "app1"), "no_destination");
    assert!(!why.cut_short);
    assert_eq!(infeasible(full().plan(vec![app("new", demand(1, 1), any_of(&["gone+x"]))])).members[0].member, key("gone+x"));
}

#[test]
fn nothing_moves_that_may_not() {
    let only = |change: &dyn Fn(World) -> World| {
        let world = World::default().member("onprem+a", 1, &[1000]).member("aws+c", 5, &[4000]).running(
            "app1",
            "onprem+a",
            1000,
            &["onprem+a", "aws+c"],
        );
        let why = infeasible(change(world).plan(bound(500)));
        code(&why.candidates, "app1").to_owned()
    };
    let silent = |mut w: World| {
        w.movability.clear();
        w
    };
    assert_eq!(only(&silent), "no_intent", "an app without a migration intent stays, and breaks nothing");
    let refused = |mut w: World| {
        w.movability[0].migration = false;
        w
    };
    assert_eq!(only(&refused), "migration_false");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.demand.volumes = 1)), "volume");
    let tied = |reason: &'static str| only(&|w| w.change_request("app1", |r| r.demand.immovable = vec![reason.into()]));
    assert_eq!(tied("host_path: Deployment/x uses a directory of its node (volume logs)"), "host_path");
    assert_eq!(tied("node_bound: the pods of Deployment/volumes name their node"), "node_bound");
    assert_eq!(tied("daemon_set: DaemonSet/volumes belongs to every node of its member"), "daemon_set");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.demand.groups[0].per_node = true)), "daemon_set");
    let bound_to_node = |w: World| {
        w.change_request("app1", |r| drop(r.demand.groups[0].node_selector.insert("kubernetes.io/hostname".into(), "n1".into())))
    };
    assert_eq!(only(&bound_to_node), "node_bound");
    let affine = |operator: Operator| {
        move |w: World| {
            let hostname = NodeRequirement { key: "kubernetes.io/hostname".into(), operator, values: vec!["n1".into()] };
            w.change_request("app1", |r| r.demand.groups[0].node_affinity = vec![vec![hostname]])
        }
    };
    assert_eq!(only(&affine(Operator::In)), "node_bound");
    assert_ne!(moves(&feasible(affine(Operator::NotIn)(full()).plan(bound(300)))), [""; 0], "to keep off a node is not to be bound to one");
    assert_eq!(only(&|w| w.change_claim("app1", |c| c.surging = true)), "busy");
    assert_eq!(only(&|w| w.change_claim("app1", |c| c.dig = crate::world::dig("newcomer").into())), "itself");
    let called = |w: World| {
        w.change_request("app1", |r| {
            r.demand.services = vec!["default/app1".into()];
            r.terms.allow_dependants = false;
        })
    };
    assert_eq!(only(&called), "dependants");
    assert_eq!(only(&|w| w.change_member("aws+c", |m| m.state = MemberState::Unreachable)), "no_destination");
    assert_eq!(only(&|w| w.change_member("aws+c", |m| m.state = MemberState::Deregistering)), "no_other_member");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.terms.logical_cloud = [key("onprem+a")].into())), "no_other_member");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.terms = all_of(&["onprem+a", "aws+c"]))), "no_other_member");
}

#[test]
fn a_claim_that_leaves_already_counts_as_gone_and_is_no_candidate() {
    let world = World::default().member("onprem+a", 1, &[1000]).running("old", "onprem+a", 1000, &["onprem+a"]);
    let leaving = world.change_claim("old", |c| c.state = ClaimState::Leaving);
    assert!(feasible(leaving.plan(bound(800))).waves.is_empty(), "its room will be free: the newcomer only waits");
    let promised = leaving.running("other", "onprem+a", 700, &["onprem+a"]).change_claim("other", |c| c.state = ClaimState::Promised);
    assert_eq!(code(&infeasible(promised.plan(bound(800))).candidates, "other"), "busy");
}

#[test]
fn busy_groups_are_left_alone() {
    let mut request = full().newcomer(bound(300));
    request.excluded.insert(id("app1"), "operation 7 works on it".into());
    let plan = feasible(plan(&full().ledger(), &request));
    assert_eq!(moves(&plan), ["app2>onprem+b"]);
    assert_eq!(code(&plan.candidates, "app1"), "busy");
}

#[test]
fn victims_of_any_project_move_when_their_owner_agrees() {
    let world = full().change_claim("app1", |c| Arc::make_mut(&mut c.dig).project = "another".into());
    let plan = feasible(world.plan(bound(300)));
    assert_eq!(plan.waves[0][0].app, "app1");
    assert_eq!(plan.waves[0][0].dig.project, "another");
}

#[test]
fn services_that_others_may_call_are_listed() {
    let world = full().change_request("app1", |r| r.demand.services = vec!["default/app1".into()]);
    let plan = feasible(world.plan(bound(300)));
    assert_eq!(plan.dependants, [Dependant { claim: id("app1"), service: "default/app1".into() }]);
}

#[test]
fn what_is_reserved_but_not_running_counts() {
    // aws+c looks empty; its room is promised.
    let world = full()
        .running("x", "onprem+b", 500, &["onprem+b"])
        .running("soon", "aws+c", 4000, &["aws+c"])
        .change_claim("soon", |c| c.state = ClaimState::Promised);
    assert_eq!(code(&infeasible(world.plan(bound(300))).candidates, "app1"), "no_destination");
}

#[test]
fn freed_and_needed_are_both_requests_of_all_replicas() {
    let world = World::default()
        .member("onprem+a", 1, &[1000])
        .member("aws+c", 5, &[4000])
        .running_as(app("app1", demand(3, 300), any_of(&["onprem+a", "aws+c"])), "onprem+a");
    let plan = feasible(world.plan(vec![app("new", demand(2, 200), any_of(&["onprem+a"]))]));
    assert_eq!((plan.freed.cpu, plan.needed.cpu, plan.freed.pods), (900, 400, 3));
}

#[test]
fn the_search_goes_on_where_the_order_finds_nothing() {
    // Taken in order, app1 spends the only room that app2 could use, though it could go elsewhere.
    let world = World::default()
        .member("onprem+a", 1, &[600])
        .member("onprem+b", 1, &[300])
        .member("aws+c", 5, &[300])
        .running("app1", "onprem+a", 300, &ALL)
        .running("app2", "onprem+a", 300, &["onprem+a", "onprem+b"]);
    let plan = feasible(world.plan(bound(600)));
    assert_eq!(moves(&plan), ["app1>aws+c", "app2>onprem+b"]);
    assert!(plan.waves[0][0].reason.contains("needed by others"));
}

#[test]
fn apps_of_a_newcomer_find_their_places_together() {
    let apps = vec![app("bound", demand(1, 300), any_of(&["onprem+a"])), app("free", demand(1, 500), any_of(&ALL))];
    let plan = feasible(full().plan(apps));
    let place = |i: usize| plan.newcomer[i].groups[0].placement.as_ref().unwrap().member.clone();
    assert_eq!((place(0), place(1)), (key("onprem+a"), key("onprem+b")));
    assert_eq!(moves(&plan), ["app1>aws+c"], "the newcomer's own app has the room on onprem+b");
}

#[test]
fn many_apps_find_their_places_together_too() {
    let world = World::default().member("onprem+a", 1, &[400]).member("onprem+b", 1, &[300]).member("aws+c", 5, &[700]).running(
        "v",
        "onprem+a",
        300,
        &["onprem+a", "aws+c"],
    );
    let small = |i| app(&format!("small{i:02}"), demand(1, 50), any_of(&["onprem+b", "aws+c"]));
    let mut apps: Vec<AppRequest> = (0..10).map(small).collect();
    apps.push(app("big", demand(1, 300), any_of(&["onprem+a"])));
    let plan = feasible(world.plan(apps));
    assert_eq!(moves(&plan), ["v>aws+c"], "six of the small ones on onprem+b, four beside the victim on aws+c");
}

#[test]
fn an_app_of_several_workloads_moves_whole() {
    let mut two = app("two", demand(1, 500), any_of(&["onprem+a", "aws+c", "onprem+b"]));
    two.demand.groups.push(PodGroup { workload: "Deployment/second".into(), ..group(1, 500) });
    let world = World::default()
        .member("onprem+a", 1, &[1000])
        .member("onprem+b", 1, &[500])
        .member("aws+c", 5, &[500, 500])
        .running_as(two, "onprem+a");
    let plan = feasible(world.plan(bound(100)));
    assert_eq!(moves(&plan), ["two>aws+c"], "onprem+b would take only one half");
    assert_eq!(plan.waves[0][0].pods.len(), 2);
}

#[test]
fn a_cluster_that_is_a_must_for_each_is_freed_for_each() {
    let world = World::default()
        .member("x+a", 1, &[500])
        .member("y+b", 1, &[500])
        .member("z+c", 5, &[2000])
        .running("on-a", "x+a", 500, &["x+a", "z+c"])
        .running("on-b", "y+b", 500, &["y+b", "z+c"]);
    let plan = feasible(world.plan(vec![app("new", demand(1, 500), all_of(&["x+a", "y+b"]))]));
    assert_eq!(plan.targets, [key("x+a"), key("y+b")]);
    assert_eq!(moves(&plan), ["on-a>z+c", "on-b>z+c"]);
    assert_eq!(plan.newcomer[0].groups.len(), 2);
}

#[test]
fn a_drain_moves_everything_or_says_who_cannot() {
    let world = full();
    let why = infeasible(world.drain("onprem+a"));
    assert_eq!(why.members[0].reason, "1 of its 4 apps may not move");
    assert_eq!(code(&why.candidates, "app4"), "no_other_member");
    let free = world.change_request("app4", |r| r.terms = any_of(&ALL));
    let plan = feasible(free.drain("onprem+a"));
    assert_eq!(plan.targets, [key("onprem+a")]);
    assert_eq!(moves(&plan), ["app1>onprem+b", "app2>aws+c", "app3>onprem+b", "app4>aws+c"]);
    assert!(plan.newcomer.is_empty());
    assert!(feasible(World::default().member("x+a", 1, &[1]).drain("x+a")).waves.is_empty());
    infeasible(World::default().drain("gone+x"));
}

#[test]
fn a_drain_finds_homes_for_all_where_the_best_for_each_does_not() {
    let world = World::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 1, &[500])
        .member("z+c", 5, &[500])
        .running("app1", "x+a", 500, &["x+a", "y+b", "z+c"])
        .running("app2", "x+a", 500, &["x+a", "y+b"]);
    assert_eq!(moves(&feasible(world.drain("x+a"))), ["app1>z+c", "app2>y+b"]);
    let crowded = world.running("third", "x+a", 100, &["x+a", "y+b"]);
    let why = infeasible(crowded.drain("x+a"));
    assert_eq!(why.members[0].reason, "its apps have no room elsewhere all at once");
}

#[test]
fn two_newcomers_never_get_the_same_room() {
    let mut ledger = full().ledger();
    let first = feasible(plan(&ledger, &full().newcomer(bound(300))));
    let step = &first.waves[0][0];
    let tx = |name: &str| LedgerTransaction {
        operation: id(name),
        fence: 9,
        changes: vec![
            LedgerChange::Leave { claim: step.claim, member: step.from.clone() },
            LedgerChange::Take {
                claim: id(&format!("{name} copy")),
                dig: step.dig.clone(),
                request: ledger.claim(&step.claim).unwrap().request.clone(),
                member: step.to.clone(),
                state: Some(ClaimState::Held),
            },
            LedgerChange::Take {
                claim: id(name),
                dig: crate::world::dig(name),
                request: bound(300).remove(0).into(),
                member: key("onprem+a"),
                state: None,
            },
        ],
    };
    let (one, two) = (tx("one"), tx("two"));
    let (_, undo) = ledger.transact(&one).unwrap();
    undo.keep();
    let differences = ledger.transact(&two).unwrap_err();
    assert_eq!(differences[0].code, "not_held", "{differences:?}");
    let again = feasible(plan(&ledger, &full().newcomer(bound(300))));
    assert_ne!(again.waves[0][0].claim, step.claim, "a second plan takes somebody else");
}

#[test]
fn nothing_is_planned_where_nothing_is_known() {
    let stale = full().change_capacity("onprem+a", |c| c.age_ms = Capacity::FRESH_MS + 1);
    let why = infeasible(stale.plan(bound(300)));
    assert_eq!((why.members[0].reason.as_str(), why.candidates.len()), ("nothing is known of it: last seen 30 s ago", 0));
    let one_left = full().change_capacity("onprem+b", |c| c.age_ms = Capacity::FRESH_MS + 1);
    assert_eq!(moves(&feasible(one_left.plan(bound(300)))), ["app1>aws+c"]);
}

/// Twelve apps; the first six can go to either of two members, the others to one of them only.
fn many() -> World {
    let mut world = World::default().member("x+a", 1, &[1200]).member("y+b", 2, &[600]).member("z+c", 3, &[600]);
    for i in 0..12 {
        let allowed: &[&str] = if i < 6 { &["x+a", "y+b", "z+c"] } else { &["x+a", "y+b"] };
        world = world.running(&format!("app{i:02}"), "x+a", 100, allowed);
    }
    world
}

#[test]
fn with_too_many_for_every_set_those_with_few_choices_choose_first() {
    let plan = feasible(many().plan(vec![app("new", demand(1, 1200), any_of(&["x+a"]))]));
    assert_eq!(plan.waves[0].len(), 12);
    assert!(plan.waves[0][..6].iter().all(|m| m.to == key("z+c")));
}

#[test]
fn a_search_that_was_cut_short_says_so() {
    let crowded = many().running("filler", "z+c", 300, &["z+c"]);
    let why = infeasible(crowded.plan(vec![app("new", demand(1, 1200), any_of(&["x+a"]))]));
    assert!(why.cut_short && why.examined <= 10_000, "{}", why.examined);
}

#[test]
fn every_move_says_what_it_costs_in_seconds() {
    let observed = Observed { ready_s: Some(3.0), ..Observed::default() };
    let images = std::sync::Arc::new(Images::from([("app1".into(), 100_000_000)]));
    let world = full().observed("app1", observed).change_request("app1", |request| request.demand.images = vec!["app1".into()]);
    let plan = feasible(world.change_capacity("onprem+a", |capacity| capacity.images = images).plan(bound(300)));
    assert_eq!(plan.cost_s, 5.0);
    assert_eq!(feasible(full().plan(bound(500))).cost_s, 20.0, "ten seconds each where nothing was observed");
}

#[test]
fn a_plan_survives_the_wire() {
    for result in [full().plan(bound(500)), full().plan(bound(900))] {
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(result, serde_json::from_str(&json).unwrap());
    }
}

/// Right after a restart members are known before their room is: that nothing fits then is no final word.
#[test]
fn who_may_soon_be_heard_of_is_awaited_and_who_is_silent_is_not() {
    let unheard = |member: &str| {
        let mut world = full();
        world.fleet.capacity.remove(&key(member));
        world
    };
    let awaited = |world: &World, result: PlanResult| (infeasible(result).awaited, infeasible(world.drain("onprem+a")).awaited);
    // The newcomer's own cluster; a drain of it waits for nobody: it could not say who would fit.
    let world = unheard("onprem+a");
    assert_eq!(infeasible(world.plan(bound(500))).awaited, [key("onprem+a")]);
    // A victim's only other destinations.
    let mut world = unheard("aws+c");
    world.fleet.capacity.remove(&key("onprem+b"));
    let both = vec![key("aws+c"), key("onprem+b")];
    assert_eq!(awaited(&world, world.plan(bound(500))), (both.clone(), both));
    // Too old is as little; a plan without it is a plan.
    let old = unheard("aws+c").change_capacity("onprem+b", |capacity| capacity.age_ms = Capacity::FRESH_MS + 1);
    assert_eq!(infeasible(old.plan(bound(500))).awaited.len(), 2);
    assert_eq!(moves(&feasible(unheard("onprem+b").plan(bound(500)))), ["app1>aws+c", "app2>aws+c"]);
    // Not probed yet is awaited, silent or refused is known, and so is who has no room.
    let gone = |member: &mut FleetMember| member.state = MemberState::Unreachable;
    let state = |state| unheard("aws+c").change_member("onprem+b", gone).change_member("aws+c", |member| member.state = state);
    assert_eq!(infeasible(state(MemberState::Unknown).plan(bound(500))).awaited, [key("aws+c")]);
    for said in [MemberState::Unreachable, MemberState::Unauthorized, MemberState::Deregistering] {
        assert!(infeasible(state(said).plan(bound(500))).awaited.is_empty(), "{said:?}");
    }
    assert!(infeasible(full().plan(bound(5000))).awaited.is_empty());
}

#[test]
fn each_cluster_is_blamed_for_what_does_not_fit_there() {
    let apps = vec![app("small", demand(1, 300), any_of(&["onprem+a"])), app("big", demand(1, 9000), any_of(&["onprem+b"]))];
    let why = infeasible(full().plan(apps));
    let of = |member: &str| why.members.iter().find(|why| why.member == key(member)).map(|why| why.reason.as_str()).unwrap();
    assert!(of("onprem+b").starts_with("big:") && of("onprem+b").ends_with("no app there may move"), "{why:#?}");
    assert!(of("onprem+a").contains("not for its other apps"), "{why:#?}");
}
