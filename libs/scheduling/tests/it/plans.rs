//! Plans for newcomers and drains: single rules.

use std::sync::Arc;

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, all_of, any_of, app, code, demand, feasible, group, id, infeasible, key, moves};

const ALL: [&str; 3] = ["onprem+a", "onprem+b", "aws+c"];

/// `onprem+a` has 1000m, all used by four apps; `onprem+b` and `aws+c` have room.
fn full() -> TestFleet {
    TestFleet::default()
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
fn plan_moves_allowed_apps_with_reasons() {
    let plan = feasible(full().plan(bound(500)));
    assert_eq!(plan.targets, [key("onprem+a")]);
    assert_eq!(moves(&plan), ["app1>onprem+b", "app2>aws+c"], "by provider priority, each on room that no other victim uses");
    assert_eq!((plan.freed.cpu, plan.needed.cpu), (600, 500));
    assert_eq!(code(&plan.candidates, "app3"), "not_needed");
    assert_eq!(code(&plan.candidates, "app4"), "no_other_member");
    let home = plan.newcomer[0].groups[0].placement.as_ref().unwrap();
    assert_eq!((home.member.clone(), home.pods.len()), (key("onprem+a"), 1));
    assert_eq!(plan.waves[0][0].alternatives, [key("aws+c")]);
    assert!(plan.newcomer[0].groups[0].considered[0].reason.contains("2 apps move away"));
}

#[test]
fn plan_drops_victims_that_are_not_needed() {
    let fleet = full().priority("app3", 1).priority("app1", 2);
    let plan = feasible(fleet.plan(bound(300)));
    assert_eq!(moves(&plan), ["app1>onprem+b"], "app3 comes first, but app1 alone is enough");
}

#[test]
fn stricter_of_two_consents_counts_whatever_their_order() {
    let consent = |app: &str, migration, priority| Movability { dig: id(app), app: app.into(), migration, priority };
    let mut fleet = full().priority("app2", 1).priority("app3", 5);
    fleet.movability.extend([consent("app1", false, 1), consent("app2", true, 9)]);
    for _ in 0..2 {
        let plan = feasible(fleet.plan(bound(500)));
        assert_eq!(moves(&plan), ["app3>onprem+b", "app2>onprem+b"]);
        assert_eq!(code(&plan.candidates, "app1"), "migration_false");
        fleet.movability.reverse();
    }
}

#[test]
fn plan_without_moves_if_there_is_room() {
    let plan = feasible(full().plan(vec![app("new", demand(1, 500), any_of(&ALL))]));
    assert!(plan.waves.is_empty() && plan.candidates.is_empty() && plan.targets.is_empty());
    assert_eq!(plan.newcomer[0].groups[0].placement.as_ref().unwrap().member, key("onprem+b"));
}

#[test]
fn plan_checks_room_by_node() {
    // 400 + 400 are free, but on different nodes.
    let fleet = TestFleet::default()
        .member("onprem+a", 1, &[1000, 1000])
        .member("aws+c", 5, &[4000])
        .running("one", "onprem+a@n1", 600, &["onprem+a", "aws+c"])
        .running("two", "onprem+a@n2", 600, &["onprem+a", "aws+c"]);
    let plan = feasible(fleet.plan(bound(800)));
    assert_eq!(moves(&plan), ["one>aws+c"]);
    let immovable = fleet.change_request("one", |r| r.demand.volumes = 1);
    assert_eq!(moves(&feasible(immovable.plan(bound(800)))), ["two>aws+c"]);
}

#[test]
fn when_full_preferred_moves_others_despite_room_elsewhere() {
    let fleet = full().running("filler", "onprem+b", 500, &["onprem+b"]);
    let mut new = vec![app("new", demand(1, 300), any_of(&ALL))];
    assert!(feasible(fleet.plan(new.clone())).waves.is_empty(), "overflow: aws+c has room");
    new[0].terms.when_full = WhenFull::Preferred;
    assert_eq!(moves(&feasible(fleet.plan(new.clone()))), ["app1>aws+c"]);
    new[0].demand = demand(1, 900);
    let why = infeasible(fleet.plan(new.clone()));
    assert!(why.members.iter().any(|m| m.member == key("aws+c") && m.reason.contains("overflow")), "{why:#?}");
    let nowhere = fleet.running("big", "aws+c", 3200, &["aws+c", "gone+x"]);
    infeasible(nowhere.plan(new));
}

#[test]
fn plan_prefers_better_member_then_fewer_victims() {
    let fleet = TestFleet::default()
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
    let plan = feasible(fleet.plan(new(600)));
    assert_eq!(moves(&plan), ["b1>y+c"], "one victim on x+b against two on x+a; z+d is less preferred");
    let stuck = fleet.change_request("b1", |r| r.demand.volumes = 1).change_request("a1", |r| r.demand.volumes = 1);
    let plan = feasible(stuck.plan(new(600)));
    assert_eq!(moves(&plan), ["d1>y+c"]);
    assert_eq!(plan.tried.len(), 2, "{:?}", plan.tried);
}

#[test]
fn infeasible_names_members_with_pods_of_apps_that_have_left() {
    let left =
        Observed { requests: std::collections::BTreeMap::from([("n1".to_owned(), Amounts::pod(300, 0))]).into(), ..Observed::default() };
    let with_left = |name: &str| {
        full().change_capacity(name, |capacity| {
            capacity.observed.insert(id("left"), left.clone());
        })
    };
    let app1_only = |fleet: TestFleet| fleet.running("x", "onprem+b", 500, &["onprem+b"]).running("y", "aws+c", 3600, &["aws+c"]);
    assert!(infeasible(full().plan(bound(900))).leftovers.is_empty());
    assert_eq!(infeasible(with_left("onprem+a").plan(bound(600))).leftovers, [key("onprem+a")], "where room is to be made");
    assert_eq!(infeasible(app1_only(with_left("aws+c")).plan(bound(300))).leftovers, [key("aws+c")], "where victims would go");
}

#[test]
fn infeasible_has_reason_per_member_and_candidate() {
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
fn exclusion_code_names_each_reason_against_a_move() {
    let only = |change: &dyn Fn(TestFleet) -> TestFleet| {
        let fleet = TestFleet::default().member("onprem+a", 1, &[1000]).member("aws+c", 5, &[4000]).running(
            "app1",
            "onprem+a",
            1000,
            &["onprem+a", "aws+c"],
        );
        let why = infeasible(change(fleet).plan(bound(500)));
        code(&why.candidates, "app1").to_owned()
    };
    let silent = |mut w: TestFleet| {
        w.movability.clear();
        w
    };
    assert_eq!(only(&silent), "no_intent", "an app without a migration intent stays");
    let refused = |mut w: TestFleet| {
        w.movability[0].migration = false;
        w
    };
    assert_eq!(only(&refused), "migration_false");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.demand.volumes = 1)), "volume");
    let pods =
        StatefulPods { namespace: "n".into(), set: "db".into(), start: 0, replicas: 1, templates: vec!["data".into()], overlaps: false };
    let with_volume = |w: TestFleet| {
        let w = w.change_request("app1", |r| (r.demand.volumes, r.demand.stateful) = (1, vec![pods.clone()]));
        let volume = BoundVolume { name: "pv".into(), source: "csi".into(), driver: Some("efs".into()), class: String::new() };
        let storage = Storage { volumes: [("n/data-db-0".to_owned(), volume)].into(), ..Storage::default() };
        w.change_capacity("onprem+a", |capacity| capacity.storage = Some(Arc::new(storage)))
    };
    assert_eq!(only(&|w| with_volume(w).change_capacity("onprem+a", |capacity| capacity.storage = None)), "volume");
    assert_eq!(only(&with_volume), "volume", "the destination lacks the driver");
    let driver = Storage { drivers: ["efs".to_owned()].into(), ..Storage::default() };
    let fleet = TestFleet::default().member("onprem+a", 1, &[1000]).member("aws+c", 5, &[4000]);
    let fleet = with_volume(fleet.running("app1", "onprem+a", 1000, &["onprem+a", "aws+c"]));
    let fleet = fleet.change_capacity("aws+c", |capacity| capacity.storage = Some(Arc::new(driver)));
    let says = |replicas: u32, overlaps: bool| {
        let changed = fleet.clone().change_request("app1", |r| {
            let pods = &mut r.demand.stateful[0];
            (pods.replicas, pods.overlaps) = (replicas, overlaps);
        });
        let several = changed.change_capacity("onprem+a", |capacity| {
            let storage = Arc::make_mut(capacity.storage.as_mut().unwrap());
            let volume = storage.volumes["n/data-db-0"].clone();
            storage.volumes.insert("n/data-db-1".to_owned(), volume);
        });
        let reason = feasible(several.plan(bound(500))).waves[0][0].reason.clone();
        reason.rsplit_once("; ").unwrap().1.to_owned()
    };
    assert_eq!(says(1, false), "its pod stops before it starts there with its volumes, and does not serve in between");
    assert_eq!(says(2, false), "its 2 pods move one after the other with their volumes, and each does not serve in between");
    let why = "because several pods may write its volumes";
    assert_eq!(says(1, true), format!("its pod starts there before it stops on onprem+a, {why}"));
    let why = "because several may write their volumes";
    assert_eq!(says(2, true), format!("its 2 pods move one after the other, and each starts there before it stops on onprem+a, {why}"));
    let tied = |reason: &'static str| only(&|w| w.change_request("app1", |r| r.demand.immovable = vec![reason.into()]));
    assert_eq!(tied("host_path: Deployment/x uses a directory of its node (volume logs)"), "host_path");
    assert_eq!(tied("node_bound: the pods of Deployment/volumes name their node"), "node_bound");
    assert_eq!(tied("daemon_set: DaemonSet/volumes belongs to every node of its member"), "daemon_set");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.demand.groups[0].per_node = true)), "daemon_set");
    let bound_to_node = |w: TestFleet| {
        w.change_request("app1", |r| drop(r.demand.groups[0].node_selector.insert("kubernetes.io/hostname".into(), "n1".into())))
    };
    assert_eq!(only(&bound_to_node), "node_bound");
    let affine = |operator: Operator| {
        move |w: TestFleet| {
            let hostname = NodeRequirement { key: "kubernetes.io/hostname".into(), operator, values: vec!["n1".into()] };
            w.change_request("app1", |r| r.demand.groups[0].node_affinity = vec![vec![hostname]])
        }
    };
    assert_eq!(only(&affine(Operator::In)), "node_bound");
    assert_ne!(
        moves(&feasible(affine(Operator::NotIn)(full()).plan(bound(300)))),
        [""; 0],
        "an excluded node does not bind an app to a node"
    );
    assert_eq!(only(&|w| w.change_claim("app1", |c| c.surging = true)), "busy");
    assert_eq!(only(&|w| w.change_claim("app1", |c| c.dig = crate::test_fleet::dig("newcomer").into())), "itself");
    let called = |w: TestFleet, allowed: Option<bool>| {
        w.change_request("app1", |r| {
            r.demand.services = vec!["default/app1".into()];
            r.terms.allow_dependants = allowed;
        })
    };
    assert_eq!(only(&|w| called(w, Some(false))), "dependants");
    assert_eq!(only(&|w| called(w, None)), "dependants");
    assert_eq!(only(&|w| in_network(called(w, None), "onprem+a", "flat")), "dependants", "its name does not follow");
    let routed = |w: TestFleet, way: &str, by: &[Reachability]| {
        let w = w.change_member("aws+c", |m| m.labels.push(format!("reachability={way}")));
        w.change_request("app1", |r| r.terms.reached_by = by.to_vec())
    };
    let closed = [Reachability::PodNetwork];
    assert_eq!(only(&|w| routed(w, "nodePort", &closed)), "out_of_reach", "its Service has no port of the nodes");
    assert_eq!(only(&|w| routed(w, "none", &[Reachability::PodNetwork, Reachability::NodePort])), "out_of_reach");
    let elsewhere = || full().change_member("onprem+b", |m| m.cordoned = Some(Cordon::default()));
    assert_eq!(moves(&feasible(routed(elsewhere(), "nodePort", &[]).plan(bound(300)))), ["app1>aws+c"], "it has no route");
    let open = [Reachability::PodNetwork, Reachability::NodePort];
    assert_eq!(moves(&feasible(routed(elsewhere(), "nodePort", &open).plan(bound(300)))), ["app1>aws+c"]);
    assert_eq!(only(&|w| w.change_member("aws+c", |m| m.state = MemberState::Unreachable)), "no_destination");
    assert_eq!(only(&|w| w.change_member("aws+c", |m| m.state = MemberState::Deregistering)), "no_other_member");
    assert_eq!(only(&|w| w.change_member("aws+c", |m| m.cordoned = Some(Cordon::default()))), "no_other_member");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.terms.logical_cloud = [key("onprem+a")].into())), "no_other_member");
    assert_eq!(only(&|w| w.change_request("app1", |r| r.terms = all_of(&["onprem+a", "aws+c"]))), "no_other_member");
}

#[test]
fn routes_need_another_way_to_a_linked_member_than_its_link() {
    let both = ["onprem+a", "aws+c"];
    let fleet = |labels: &[&str]| {
        let fleet =
            TestFleet::default().member("onprem+a", 1, &[1000]).member("aws+c", 5, &[4000]).running("app1", "onprem+a", 1000, &both);
        let fleet = fleet.change_request("app1", |r| r.terms.reached_by = vec![Reachability::PodNetwork]);
        fleet.change_member("aws+c", |m| {
            m.link = Some(MemberLink::default());
            m.labels.extend(labels.iter().map(|label| (*label).to_owned()));
        })
    };
    let why = "its link carries only Drover's requests to its API server";
    let stays = infeasible(fleet(&[]).plan(bound(500)));
    let refused = stays.candidates.iter().find(|c| c.app == "app1").and_then(|c| c.why_not.as_ref()).unwrap();
    assert_eq!(refused.code, "out_of_reach");
    assert!(refused.detail.contains("aws+c") && refused.detail.contains(why), "{}", refused.detail);
    let named = infeasible(fleet(&["reachability=none"]).plan(bound(500)));
    assert!(!format!("{named:?}").contains(why), "the label says it");
    assert_eq!(moves(&feasible(fleet(&["reachability=podNetwork"]).plan(bound(500)))), ["app1>aws+c"]);

    let mut newcomer = app("new", demand(1, 100), any_of(&["aws+c"]));
    newcomer.terms.reached_by = vec![Reachability::PodNetwork];
    let told = format!("{:?}", infeasible(fleet(&[]).plan(vec![newcomer.clone()])));
    assert!(told.contains(why), "{told}");
    assert!(feasible(fleet(&["reachability=podNetwork"]).plan(vec![newcomer])).waves.is_empty());
}

#[test]
fn leaving_claim_counts_as_gone_and_is_no_candidate() {
    let fleet = TestFleet::default().member("onprem+a", 1, &[1000]).running("old", "onprem+a", 1000, &["onprem+a"]);
    let leaving = fleet.change_claim("old", |c| c.state = ClaimState::Leaving);
    assert!(feasible(leaving.plan(bound(800))).waves.is_empty(), "its room will be free, so the newcomer only waits");
    let promised = leaving.running("other", "onprem+a", 700, &["onprem+a"]).change_claim("other", |c| c.state = ClaimState::Promised);
    assert_eq!(code(&infeasible(promised.plan(bound(800))).candidates, "other"), "busy");
}

#[test]
fn excluded_groups_are_no_victims() {
    let mut request = full().newcomer(bound(300));
    request.excluded.insert(id("app1"), "operation 7 works on it".into());
    let plan = feasible(plan(&full().ledger(), &request));
    assert_eq!(moves(&plan), ["app2>onprem+b"]);
    assert_eq!(code(&plan.candidates, "app1"), "busy");
}

#[test]
fn victims_may_be_of_any_project() {
    let fleet = full().change_claim("app1", |c| Arc::make_mut(&mut c.dig).project = "another".into());
    let plan = feasible(fleet.plan(bound(300)));
    assert_eq!(plan.waves[0][0].app, "app1");
    assert_eq!(plan.waves[0][0].dig.project, "another");
}

#[test]
fn plan_lists_services_of_victims() {
    let fleet = full().change_request("app1", |r| r.demand.services = vec!["default/app1".into()]);
    let plan = feasible(fleet.plan(bound(300)));
    assert_eq!(plan.dependants, [Dependant { claim: id("app1"), service: "default/app1".into() }]);
}

fn in_network(fleet: TestFleet, member: &str, network: &str) -> TestFleet {
    fleet.change_member(member, |member| member.labels.push(format!("pod-network={network}")))
}

#[test]
fn app_that_others_call_moves_within_its_pod_network() {
    let fleet = TestFleet::default().member("onprem+a", 1, &[1000]).member("onprem+b", 1, &[4000]).member("aws+c", 5, &[4000]);
    let called = fleet.running("app1", "onprem+a", 1000, &ALL).change_request("app1", |r| {
        r.demand.services = vec!["default/app1".into()];
        r.terms.allow_dependants = None;
    });
    assert_eq!(code(&infeasible(called.clone().plan(bound(300))).candidates, "app1"), "dependants");
    let flat = in_network(in_network(called, "onprem+a", "flat"), "aws+c", "flat");
    let plan = feasible(flat.plan(bound(300)));
    assert_eq!(moves(&plan), ["app1>aws+c"], "the name does not follow to the preferred cluster");
    assert!(plan.dependants.is_empty(), "nobody loses a name");
}

#[test]
fn promised_room_is_no_destination() {
    // aws+c runs nothing, but its room is promised.
    let fleet = full()
        .running("x", "onprem+b", 500, &["onprem+b"])
        .running("soon", "aws+c", 4000, &["aws+c"])
        .change_claim("soon", |c| c.state = ClaimState::Promised);
    assert_eq!(code(&infeasible(fleet.plan(bound(300))).candidates, "app1"), "no_destination");
}

#[test]
fn freed_and_needed_count_all_replicas() {
    let fleet = TestFleet::default()
        .member("onprem+a", 1, &[1000])
        .member("aws+c", 5, &[4000])
        .running_as(app("app1", demand(3, 300), any_of(&["onprem+a", "aws+c"])), "onprem+a");
    let plan = feasible(fleet.plan(vec![app("new", demand(2, 200), any_of(&["onprem+a"]))]));
    assert_eq!((plan.freed.cpu, plan.needed.cpu, plan.freed.pods), (900, 400, 3));
}

#[test]
fn search_continues_if_greedy_order_fails() {
    // In order, app1 uses the only room that app2 could use, although it has another destination.
    let fleet = TestFleet::default()
        .member("onprem+a", 1, &[600])
        .member("onprem+b", 1, &[300])
        .member("aws+c", 5, &[300])
        .running("app1", "onprem+a", 300, &ALL)
        .running("app2", "onprem+a", 300, &["onprem+a", "onprem+b"]);
    let plan = feasible(fleet.plan(bound(600)));
    assert_eq!(moves(&plan), ["app1>aws+c", "app2>onprem+b"]);
    assert!(plan.waves[0][0].reason.contains("needed for other apps"));
}

#[test]
fn newcomer_apps_are_placed_together() {
    let apps = vec![app("bound", demand(1, 300), any_of(&["onprem+a"])), app("free", demand(1, 500), any_of(&ALL))];
    let plan = feasible(full().plan(apps));
    let place = |i: usize| plan.newcomer[i].groups[0].placement.as_ref().unwrap().member.clone();
    assert_eq!((place(0), place(1)), (key("onprem+a"), key("onprem+b")));
    assert_eq!(moves(&plan), ["app1>aws+c"], "the newcomer's own app uses the room on onprem+b");
}

#[test]
fn newcomer_of_many_apps_is_placed_together() {
    let fleet = TestFleet::default().member("onprem+a", 1, &[400]).member("onprem+b", 1, &[300]).member("aws+c", 5, &[700]).running(
        "v",
        "onprem+a",
        300,
        &["onprem+a", "aws+c"],
    );
    let small = |i| app(&format!("small{i:02}"), demand(1, 50), any_of(&["onprem+b", "aws+c"]));
    let mut apps: Vec<AppRequest> = (0..10).map(small).collect();
    apps.push(app("big", demand(1, 300), any_of(&["onprem+a"])));
    let plan = feasible(fleet.plan(apps));
    assert_eq!(moves(&plan), ["v>aws+c"], "six of the small ones on onprem+b, four beside the victim on aws+c");
}

#[test]
fn app_of_several_workloads_moves_as_a_whole() {
    let mut two = app("two", demand(1, 500), any_of(&["onprem+a", "aws+c", "onprem+b"]));
    two.demand.groups.push(PodGroup { workload: "Deployment/second".into(), ..group(1, 500) });
    let fleet = TestFleet::default()
        .member("onprem+a", 1, &[1000])
        .member("onprem+b", 1, &[500])
        .member("aws+c", 5, &[500, 500])
        .running_as(two, "onprem+a");
    let plan = feasible(fleet.plan(bound(100)));
    assert_eq!(moves(&plan), ["two>aws+c"], "onprem+b has room for only one of the workloads");
    assert_eq!(plan.waves[0][0].pods.len(), 2);
}

#[test]
fn room_is_made_on_each_mandatory_cluster() {
    let fleet = TestFleet::default()
        .member("x+a", 1, &[500])
        .member("y+b", 1, &[500])
        .member("z+c", 5, &[2000])
        .running("on-a", "x+a", 500, &["x+a", "z+c"])
        .running("on-b", "y+b", 500, &["y+b", "z+c"]);
    let plan = feasible(fleet.plan(vec![app("new", demand(1, 500), all_of(&["x+a", "y+b"]))]));
    assert_eq!(plan.targets, [key("x+a"), key("y+b")]);
    assert_eq!(moves(&plan), ["on-a>z+c", "on-b>z+c"]);
    assert_eq!(plan.newcomer[0].groups.len(), 2);
}

#[test]
fn drain_moves_every_app_or_names_obstacles() {
    let fleet = full();
    let why = infeasible(fleet.drain("onprem+a"));
    assert_eq!(why.members[0].reason, "1 of its 4 apps may not move");
    assert_eq!(code(&why.candidates, "app4"), "no_other_member");
    let free = fleet.change_request("app4", |r| r.terms = any_of(&ALL));
    let plan = feasible(free.drain("onprem+a"));
    assert_eq!(plan.targets, [key("onprem+a")]);
    assert_eq!(moves(&plan), ["app1>onprem+b", "app2>aws+c", "app3>onprem+b", "app4>aws+c"]);
    assert!(plan.newcomer.is_empty());
    assert!(feasible(TestFleet::default().member("x+a", 1, &[1]).drain("x+a")).waves.is_empty());
    infeasible(TestFleet::default().drain("gone+x"));
}

#[test]
fn drain_leaves_copies_of_apps_that_run_on_every_cluster() {
    let wants = |provider: &str, cluster: Option<&str>, label: Option<&str>| {
        let text = |text: &str| Some(text.to_owned());
        let element = Element {
            cluster_provider: text(provider),
            cluster: cluster.and_then(text),
            cluster_label: label.and_then(text),
            any_of: vec![],
        };
        PlacementTerms { intent: Intent { all_of: vec![element], any_of: vec![] }, ..any_of(&ALL) }
    };
    let with = |terms: PlacementTerms| {
        let fleet = full().change_request("app4", |r| r.terms = any_of(&ALL));
        fleet
            .change_member("onprem+a", |member| member.labels.push("gpu".into()))
            .running_as(app("exporter", demand(1, 0), terms), "onprem+a")
    };
    for every in [wants("*", Some("*"), None), wants("onprem", Some("*"), None), wants("*", None, Some("gpu"))] {
        let plan = feasible(with(every.clone()).drain("onprem+a"));
        assert_eq!(moves(&plan), ["app1>onprem+b", "app2>aws+c", "app3>onprem+b", "app4>aws+c"]);
        assert_eq!(code(&plan.candidates, "exporter"), "every_cluster");
        // Neither consent nor what binds it to its nodes matters.
        let mut bound = with(every).change_request("exporter", |r| r.demand.immovable = vec!["host_path: of its node".into()]);
        bound.movability.retain(|word| word.app != "exporter");
        assert_eq!(code(&feasible(bound.drain("onprem+a")).candidates, "exporter"), "every_cluster");
    }
    // Who names the cluster wants this one.
    assert_eq!(code(&infeasible(with(wants("onprem", Some("a"), None)).drain("onprem+a")).candidates, "exporter"), "no_other_member");
    assert!(moves(&feasible(with(wants("aws", Some("*"), None)).drain("onprem+a"))).contains(&"exporter>aws+c".to_owned()));
}

#[test]
fn drain_backtracks_if_greedy_order_fails() {
    let fleet = TestFleet::default()
        .member("x+a", 1, &[1000])
        .member("y+b", 1, &[500])
        .member("z+c", 5, &[500])
        .running("app1", "x+a", 500, &["x+a", "y+b", "z+c"])
        .running("app2", "x+a", 500, &["x+a", "y+b"]);
    assert_eq!(moves(&feasible(fleet.drain("x+a"))), ["app1>z+c", "app2>y+b"]);
    let crowded = fleet.running("third", "x+a", 100, &["x+a", "y+b"]);
    let why = infeasible(crowded.drain("x+a"));
    assert_eq!(why.members[0].reason, "its apps do not all have room elsewhere at once");
}

#[test]
fn second_plan_for_same_room_is_refused() {
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
                dig: crate::test_fleet::dig(name),
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
    assert_ne!(again.waves[0][0].claim, step.claim, "the second plan has another victim");
}

#[test]
fn members_of_unknown_capacity_are_not_used() {
    let stale = full().change_capacity("onprem+a", |c| c.age_ms = Capacity::FRESH_MS + 1);
    let why = infeasible(stale.plan(bound(300)));
    assert_eq!((why.members[0].reason.as_str(), why.candidates.len()), ("its capacity is unknown: last observed 30 s ago", 0));
    let one_left = full().change_capacity("onprem+b", |c| c.age_ms = Capacity::FRESH_MS + 1);
    assert_eq!(moves(&feasible(one_left.plan(bound(300)))), ["app1>aws+c"]);
}

/// Twelve apps. The first six have two destinations, the others one of these.
fn many() -> TestFleet {
    let mut fleet = TestFleet::default().member("x+a", 1, &[1200]).member("y+b", 2, &[600]).member("z+c", 3, &[600]);
    for i in 0..12 {
        let allowed: &[&str] = if i < 6 { &["x+a", "y+b", "z+c"] } else { &["x+a", "y+b"] };
        fleet = fleet.running(&format!("app{i:02}"), "x+a", 100, allowed);
    }
    fleet
}

#[test]
fn large_search_places_apps_with_few_destinations_first() {
    let plan = feasible(many().plan(vec![app("new", demand(1, 1200), any_of(&["x+a"]))]));
    assert_eq!(plan.waves[0].len(), 12);
    assert!(plan.waves[0][..6].iter().all(|m| m.to == key("z+c")));
}

#[test]
fn plan_cost_is_sum_of_move_costs() {
    let observed = Observed { ready_s: Some(3.0), ..Observed::default() };
    let images = std::sync::Arc::new(Images::from([("app1".into(), 100_000_000)]));
    let fleet = full().observed("app1", observed).change_request("app1", |request| request.demand.images = vec!["app1".into()]);
    let plan = feasible(fleet.change_capacity("onprem+a", |capacity| capacity.images = images).plan(bound(300)));
    assert_eq!(plan.cost_s, 5.0);
    assert_eq!(feasible(full().plan(bound(500))).cost_s, 20.0, "ten seconds each if nothing was observed");
}

#[test]
fn plan_result_survives_json_round_trip() {
    for result in [full().plan(bound(500)), full().plan(bound(900))] {
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(result, serde_json::from_str(&json).unwrap());
    }
}

/// After a restart members are known before their capacity. A failure to find a plan is not final then.
#[test]
fn expected_members_are_awaited_and_unreachable_ones_are_not() {
    let unheard = |member: &str| {
        let mut fleet = full();
        fleet.fleet.capacity.remove(&key(member));
        fleet
    };
    let awaited = |fleet: &TestFleet, result: PlanResult| (infeasible(result).awaited, infeasible(fleet.drain("onprem+a")).awaited);
    // The newcomer's own cluster.
    let fleet = unheard("onprem+a");
    assert_eq!(infeasible(fleet.plan(bound(500))).awaited, [key("onprem+a")]);
    // The only destinations of a victim.
    let mut fleet = unheard("aws+c");
    fleet.fleet.capacity.remove(&key("onprem+b"));
    let both = vec![key("aws+c"), key("onprem+b")];
    assert_eq!(awaited(&fleet, fleet.plan(bound(500))), (both.clone(), both));
    // Outdated capacity counts as unknown; a plan that does not need it is found.
    let old = unheard("aws+c").change_capacity("onprem+b", |capacity| capacity.age_ms = Capacity::FRESH_MS + 1);
    assert_eq!(infeasible(old.plan(bound(500))).awaited.len(), 2);
    assert_eq!(moves(&feasible(unheard("onprem+b").plan(bound(500)))), ["app1>aws+c", "app2>aws+c"]);
    // A member that was not probed yet is awaited; an unreachable one or one without room is not.
    let gone = |member: &mut FleetMember| member.state = MemberState::Unreachable;
    let state = |state| unheard("aws+c").change_member("onprem+b", gone).change_member("aws+c", |member| member.state = state);
    assert_eq!(infeasible(state(MemberState::Unknown).plan(bound(500))).awaited, [key("aws+c")]);
    for said in [MemberState::Unreachable, MemberState::Unauthorized, MemberState::Deregistering] {
        assert!(infeasible(state(said).plan(bound(500))).awaited.is_empty(), "{said:?}");
    }
    assert!(infeasible(full().plan(bound(5000))).awaited.is_empty());
}

#[test]
fn reason_names_app_that_does_not_fit_on_each_member() {
    let apps = vec![app("small", demand(1, 300), any_of(&["onprem+a"])), app("big", demand(1, 9000), any_of(&["onprem+b"]))];
    let why = infeasible(full().plan(apps));
    let of = |member: &str| why.members.iter().find(|why| why.member == key(member)).map(|why| why.reason.as_str()).unwrap();
    assert!(of("onprem+b").starts_with("big:") && of("onprem+b").ends_with("no app on it may move"), "{why:#?}");
    assert!(of("onprem+a").contains("not for the newcomer's other apps"), "{why:#?}");
}

/// `web` must be on one of c0 and c2 and on one of c1 and c2; it runs on c0 and c1. `new` needs room on both.
fn two_copies(first: &[&str], second: &[&str]) -> (TestFleet, Vec<AppRequest>) {
    let alternatives = |members: &[&str]| Element { any_of: any_of(members).intent.any_of, ..Element::default() };
    let mut all: Vec<&str> = [first, second].concat();
    all.sort_unstable();
    all.dedup();
    let terms =
        PlacementTerms { intent: Intent { all_of: vec![alternatives(first), alternatives(second)], any_of: vec![] }, ..any_of(&all) };
    let web = app("web", demand(1, 500), terms);
    let mut fleet = TestFleet::default();
    for (member, cpu) in [("x+c0", 500), ("x+c1", 500), ("x+c2", 2000), ("x+c3", 2000)] {
        fleet = fleet.member(member, 1, &[cpu]);
    }
    let mut fleet = fleet.running_as(web.clone(), "x+c0");
    let mut second = Claim::clone(&fleet.fleet.claims[&id("web")]);
    (second.id, second.member) = (id("second copy"), key("x+c1"));
    fleet.fleet.claims.insert(second.id, Arc::new(second));
    (fleet, vec![app("new0", demand(1, 400), any_of(&["x+c0"])), app("new1", demand(1, 400), any_of(&["x+c1"]))])
}

#[test]
fn copies_of_an_app_never_move_to_the_same_member() {
    let (fleet, new) = two_copies(&["x+c0", "x+c2"], &["x+c1", "x+c2"]);
    let why = infeasible(fleet.plan(new));
    assert!(why.members.iter().all(|why| why.reason.contains("no set of them")), "{why:#?}");
    // With a fourth cluster, one copy goes to c2 and the other to c3.
    let (fleet, new) = two_copies(&["x+c0", "x+c2"], &["x+c1", "x+c2", "x+c3"]);
    let plan = feasible(fleet.plan(new));
    let mut found = moves(&plan);
    found.sort();
    assert_eq!(found, ["web>x+c2", "web>x+c3"]);
    assert!(
        plan.waves[0].iter().all(|step| step.alternatives.is_empty()),
        "an alternative would be the member of the other copy: {plan:#?}"
    );
}

#[test]
fn joint_moves_of_copies_keep_every_group_of_the_intent() {
    // The copy on c1 satisfies both groups, so the copy on c0 alone may go to c3; if the copy on c1 goes to c2, it may not.
    let (fleet, new) = two_copies(&["x+c0", "x+c1"], &["x+c1", "x+c2", "x+c3"]);
    let why = infeasible(fleet.plan(new.clone()));
    assert!(why.candidates.iter().all(|candidate| !candidate.taken), "{why:#?}");
    assert_eq!(moves(&feasible(fleet.plan(new[..1].to_vec()))).len(), 1, "one of them may move");
}
