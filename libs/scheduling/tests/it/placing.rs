//! Decisions: the member of each app.

use std::sync::Arc;

use drover_scheduling::*;

use crate::test_fleet::{TestFleet, all_of, any_of, app, demand, group, key, places, request};

fn three() -> TestFleet {
    TestFleet::default().member("onprem+a", 1, &[1000]).member("onprem+b", 1, &[2000]).member("aws+c", 5, &[8000])
}

const ALL: [&str; 3] = ["onprem+a", "onprem+b", "aws+c"];

#[test]
fn decide_orders_by_provider_priority_then_room_then_name() {
    let web = app("web", demand(1, 500), any_of(&ALL));
    assert_eq!(places(&three().decide(vec![web.clone()])), ["web>onprem+b"]);
    let equal = TestFleet::default().member("x+b", 1, &[1000]).member("x+a", 1, &[1000]);
    assert_eq!(places(&equal.decide(vec![app("web", demand(1, 500), any_of(&["x+b", "x+a"]))])), ["web>x+a"]);
    let full = three().running("one", "onprem+a", 900, &ALL).running("two", "onprem+b", 1800, &ALL);
    assert_eq!(places(&full.decide(vec![web])), ["web>aws+c"]);
}

#[test]
fn decide_compares_dominant_shares_not_absolute_room() {
    // 2500 + 500 of 4000 is a larger share than 500 of 2000, although more is left.
    let fleet = TestFleet::default().member("x+a", 1, &[4000]).member("x+b", 1, &[2000]).running("old", "x+a", 2500, &["x+a"]);
    assert_eq!(places(&fleet.decide(vec![app("web", demand(1, 500), any_of(&["x+a", "x+b"]))])), ["web>x+b"]);
}

#[test]
fn tight_packing_takes_fullest_member_with_room() {
    let mut web = app("web", demand(1, 500), any_of(&ALL));
    web.terms.packing = Packing::Tight;
    assert_eq!(places(&three().decide(vec![web.clone()])), ["web>onprem+a"]);
    web.demand = demand(1, 1500);
    assert_eq!(places(&three().decide(vec![web])), ["web>onprem+b"]);
}

#[test]
fn advice_of_controllers_excludes_members_and_orders_equals() {
    let mut web = app("web", demand(1, 500), any_of(&ALL));
    let advice = |excluded: &[(&str, &str)], scores: &[(&str, i64)]| Advice {
        controller: "licences".into(),
        excluded: excluded.iter().map(|(member, why)| (key(member), (*why).to_owned())).collect(),
        scores: scores.iter().map(|(member, score)| (key(member), *score)).collect(),
    };
    web.terms.advice = vec![advice(&[("onprem+b", "no licence there")], &[])];
    let decision = three().decide(vec![web.clone()]);
    assert_eq!(places(&decision), ["web>onprem+a"]);
    let considered = &decision.apps[0].groups[0].considered;
    let reason = |member: &str| considered.iter().find(|one| one.member == key(member)).map(|one| one.reason.as_str());
    assert_eq!(reason("onprem+b"), Some("excluded by the controller licences: no licence there"));

    // The score of the less preferred provider counts for nothing.
    web.terms.advice = vec![advice(&[], &[("onprem+a", 2), ("aws+c", 100)]), advice(&[], &[("onprem+a", 1), ("onprem+b", 2)])];
    let decision = three().decide(vec![web.clone()]);
    assert_eq!(places(&decision), ["web>onprem+a"]);
    let considered = &decision.apps[0].groups[0].considered;
    let reason = |member: &str| considered.iter().find(|one| one.member == key(member)).map(|one| one.reason.as_str());
    assert_eq!(reason("onprem+a"), Some("provider priority 1, score 3 of the controllers"));
    assert_eq!(reason("onprem+b"), Some("fits, but controllers give onprem+a the better score (3 against 2)"));

    web.terms.advice = vec![advice(&ALL.map(|member| (member, "closed")), &[])];
    assert_eq!(three().decide(vec![web]).outcome, Outcome::Impossible, "no move would help");
}

#[test]
fn decide_counts_room_of_earlier_apps_of_request() {
    let apps = (0..3).map(|i| app(&format!("app{i}"), demand(1, 900), any_of(&ALL))).collect();
    assert_eq!(places(&three().decide(apps)), ["app0>onprem+b", "app1>onprem+a", "app2>onprem+b"]);
}

#[test]
fn decide_prefers_member_where_pods_find_nodes_in_any_order() {
    // x+a has more room left, but if the pod of 700m is put on the large node there, that of 900m finds none.
    let fleet = |second: u8| TestFleet::default().member("x+a", 1, &[1000, 800]).member("y+b", second, &[1650]);
    let mut web = app("web", demand(1, 700), any_of(&["x+a", "y+b"]));
    web.demand.groups.push(group(1, 900));
    let decision = fleet(1).decide(vec![web.clone()]);
    assert_eq!(places(&decision), ["web>y+b"]);
    let considered = &decision.apps[0].groups[0].considered;
    let reason = |member: &str| considered.iter().find(|one| one.member == key(member)).map(|one| one.reason.as_str());
    assert_eq!(reason("x+a"), Some("fits, but whether its pods find nodes depends on their order; on y+b it does not"));
    assert_eq!(reason("y+b"), Some("provider priority 1, its pods find nodes in any order: 3 % free after placing"));
    assert_eq!(places(&fleet(2).decide(vec![web.clone()])), ["web>x+a"], "a less preferred provider is no substitute");
    web.terms = any_of(&["x+a"]);
    assert_eq!(places(&fleet(1).decide(vec![web])), ["web>x+a"], "better one order than none");

    let apps = [700, 900].map(|cpu| app(&format!("app{cpu}"), demand(1, cpu), any_of(&["x+a", "y+b"]))).to_vec();
    let places = places(&fleet(1).decide(apps));
    assert_ne!(places, ["app700>x+a", "app900>x+a"], "apps of one request");
}

#[test]
fn decide_places_all_apps_or_none() {
    let apps = vec![app("small", demand(1, 100), any_of(&ALL)), app("huge", demand(1, 9000), any_of(&ALL))];
    let decision = three().decide(apps);
    assert_eq!(decision.outcome, Outcome::NoRoom);
    assert_eq!(places(&decision), ["small>-", "huge>-"]);
    let reasons: Vec<&str> = decision.apps[1].groups[0].considered.iter().map(|c| c.reason.as_str()).collect();
    assert_eq!(reasons[2], "cpu: needs 9000m on one node, the emptiest matching has 8000m free");
    let mut ledger = three().ledger();
    let none = ledger.apply_decision(&request(vec![]), &decision);
    assert!(none.touched().is_empty());
}

#[test]
fn decide_searches_combination_if_greedy_choice_fails() {
    let fleet = TestFleet::default().member("x+a", 1, &[1000]).member("y+b", 2, &[1000]);
    let apps = vec![app("free", demand(1, 800), any_of(&["x+a", "y+b"])), app("bound", demand(1, 800), any_of(&["x+a"]))];
    assert_eq!(places(&fleet.decide(apps)), ["free>y+b", "bound>x+a"]);
}

#[test]
fn decide_resolves_labels_within_logical_cloud() {
    let label = |provider: &str, label: &str| Element {
        cluster_provider: Some(provider.into()),
        cluster_label: Some(label.into()),
        ..Element::default()
    };
    let labelled = three()
        .change_member("onprem+a", |m| m.labels.push("edge".into()))
        .change_member("onprem+b", |m| m.labels.push("edge".into()))
        .change_member("aws+c", |m| m.labels.push("edge".into()));
    let mut web = app("web", demand(1, 100), any_of(&ALL));
    web.terms.intent = Intent { all_of: vec![label("onprem", "edge")], any_of: vec![] };
    assert_eq!(places(&labelled.decide(vec![web.clone()])), ["web>onprem+a", "web>onprem+b"], "every cluster with the label");
    web.terms.intent = Intent { all_of: vec![], any_of: vec![label("onprem", "edge")] };
    assert_eq!(places(&labelled.decide(vec![web.clone()])), ["web>onprem+b"], "one cluster with the label");
    web.terms.logical_cloud = [key("onprem+a")].into();
    let decision = labelled.decide(vec![web.clone()]);
    assert_eq!(places(&decision), ["web>onprem+a"], "only members of the logical cloud");
    assert_eq!(decision.apps[0].groups[0].considered[1].verdict, Verdict::NotAllowed);
    web.terms.intent = Intent { all_of: vec![], any_of: vec![label("onprem", "gpu")] };
    assert_eq!(labelled.decide(vec![web]).outcome, Outcome::Impossible);
}

#[test]
fn star_stands_for_every_cluster_also_those_that_come_later() {
    let every = |provider: &str| Element { cluster_provider: Some(provider.into()), cluster: Some("*".into()), ..Element::default() };
    let with = |all_of: Vec<Element>, any_of: Vec<Element>, cloud: &str| {
        let mut web = app("web", demand(1, 100), PlacementTerms::default());
        web.terms = PlacementTerms { intent: Intent { all_of, any_of }, logical_cloud: [key(cloud)].into(), ..PlacementTerms::default() };
        web
    };
    let everywhere = with(vec![every("*")], vec![], "*+*");
    assert_eq!(places(&three().decide(vec![everywhere.clone()])), ["web>onprem+a", "web>onprem+b", "web>aws+c"]);
    let four = three().member("gcp+d", 9, &[4000]);
    assert_eq!(places(&four.decide(vec![everywhere])), ["web>onprem+a", "web>onprem+b", "web>aws+c", "web>gcp+d"]);
    assert_eq!(places(&three().decide(vec![with(vec![every("onprem")], vec![], "*+*")])), ["web>onprem+a", "web>onprem+b"]);
    assert_eq!(places(&four.decide(vec![with(vec![], vec![every("gcp")], "*+*")])), ["web>gcp+d"]);
    let outside = four.decide(vec![with(vec![], vec![every("*")], "aws+*")]);
    assert_eq!(places(&outside), ["web>aws+c"], "only members of the logical cloud");
    assert_eq!(three().decide(vec![with(vec![], vec![every("gcp")], "*+*")]).outcome, Outcome::Impossible);
}

#[test]
fn group_with_chosen_cluster_is_satisfied() {
    let mut web = app("web", demand(1, 100), all_of(&["aws+c"]));
    web.terms.logical_cloud = ALL.iter().map(|m| key(m)).collect();
    web.terms.intent.all_of.push(Element { any_of: any_of(&["onprem+a", "aws+c"]).intent.any_of, ..Element::default() });
    assert_eq!(places(&three().decide(vec![web.clone()])), ["web>aws+c"]);
    web.terms.intent.any_of = any_of(&["onprem+a", "onprem+b"]).intent.any_of;
    assert_eq!(places(&three().decide(vec![web])), ["web>aws+c", "web>onprem+b"]);
}

#[test]
fn when_full_preferred_insists_on_best_provider_unless_overflow() {
    let fleet = three().running("one", "onprem+a", 900, &ALL).running("two", "onprem+b", 1900, &ALL);
    let mut web = app("web", demand(1, 500), any_of(&ALL));
    web.terms.when_full = WhenFull::Preferred;
    let decision = fleet.decide(vec![web.clone()]);
    assert_eq!(decision.outcome, Outcome::NoRoom);
    let verdicts: Vec<Verdict> = decision.apps[0].groups[0].considered.iter().map(|c| c.verdict).collect();
    assert_eq!(verdicts, [Verdict::NoRoom, Verdict::NoRoom, Verdict::LessPreferred]);
    let overflow = DecisionRequest { overflow: true, ..request(vec![web]) };
    assert_eq!(places(&fleet.ledger().decide(crate::test_fleet::id("d"), &overflow)), ["web>aws+c"]);
}

#[test]
fn unknown_capacity_is_not_reported_as_no_room() {
    let web = app("web", demand(1, 500), any_of(&["onprem+a", "onprem+b"]));
    let stale = three().change_capacity("onprem+b", |c| c.age_ms = Capacity::FRESH_MS + 1);
    assert_eq!(places(&stale.decide(vec![web.clone()])), ["web>onprem+a"], "nothing is claimed on a member with outdated capacity");
    let full = stale.running("one", "onprem+a", 900, &ALL);
    let decision = full.decide(vec![web.clone()]);
    assert_eq!(decision.outcome, Outcome::Unknown);
    assert_eq!(decision.apps[0].groups[0].considered[1].verdict, Verdict::Unknown);
    let unreachable = three().running("one", "onprem+a", 900, &ALL).change_member("onprem+b", |m| m.state = MemberState::Unreachable);
    assert_eq!(unreachable.decide(vec![web.clone()]).outcome, Outcome::Unknown);
    let huge = app("huge", demand(1, 3000), any_of(&["onprem+a"]));
    assert_eq!(unreachable.decide(vec![web.clone(), huge]).outcome, Outcome::NoRoom, "waiting would not help");
    let going = three().running("one", "onprem+a", 900, &ALL).change_member("onprem+b", |m| m.state = MemberState::Deregistering);
    assert_eq!(going.decide(vec![web]).outcome, Outcome::NoRoom);
    assert_eq!(going.decide(vec![app("web", demand(1, 1), any_of(&["onprem+b"]))]).outcome, Outcome::Impossible);
}

#[test]
fn reasons_give_the_free_share_and_enough_decimals_to_differ() {
    let reasons = |fleet: TestFleet, tight: bool| {
        let mut web = app("web", demand(1, 100), any_of(&["onprem+a", "onprem+b"]));
        if tight {
            web.terms.packing = Packing::Tight;
        }
        let considered = fleet.decide(vec![web]).apps[0].groups[0].considered.clone();
        considered.into_iter().map(|c| c.reason).collect::<Vec<_>>()
    };
    let fleet = |second: i64| TestFleet::default().member("onprem+a", 1, &[1000]).member("onprem+b", 1, &[second]);
    assert_eq!(
        reasons(fleet(800), false),
        ["provider priority 1, most room left: 90 % free after placing", "fits, but onprem+a has more room left (90 % against 88 % free)"]
    );
    assert_eq!(reasons(fleet(999), false)[1], "fits, but onprem+a has more room left (90.00 % against 89.99 % free)");
    let tight = reasons(fleet(800), true);
    assert!(tight.contains(&"provider priority 1, the fullest cluster with room: 12 % requested after placing".to_owned()), "{tight:?}");
}

#[test]
fn cordoned_member_gets_nothing_new_and_keeps_what_it_has() {
    let cordon = Cordon { since: "2026-11-23T10:00:00Z".into(), reason: "new racks".into() };
    let fleet = three().running("one", "onprem+a", 500, &ALL).change_member("onprem+a", |m| m.cordoned = Some(cordon.clone()));
    let decision = fleet.decide(vec![app("web", demand(1, 100), any_of(&ALL))]);
    assert_eq!(places(&decision), ["web>onprem+b"]);
    let refused = decision.apps[0].groups[0].considered.iter().find(|c| c.member.0 == "onprem+a").unwrap();
    assert_eq!((refused.verdict, refused.reason.as_str()), (Verdict::NotAllowed, "is cordoned since 2026-11-23T10:00:00Z: new racks"));
    assert_eq!(fleet.decide(vec![app("web", demand(1, 1), any_of(&["onprem+a"]))]).outcome, Outcome::Impossible);

    let mut ledger = fleet.ledger();
    let claim = ledger.claims().next().unwrap().clone();
    let change = |changes| LedgerTransaction { operation: claim.operation, fence: 2, changes };
    let take = LedgerChange::Take {
        claim: uuid::Uuid::new_v4(),
        dig: claim.dig.as_ref().clone(),
        request: claim.request.clone(),
        member: key("onprem+a"),
        state: None,
    };
    assert_eq!(ledger.transact(&change(vec![take])).unwrap_err()[0].code, "not_allowed");
    let grown = AppRequest { demand: demand(1, 600), ..AppRequest::clone(&claim.request) };
    let _ = ledger.transact(&change(vec![LedgerChange::Resize { claim: claim.id, request: grown.into(), surge: false }])).unwrap();
}

#[test]
fn decision_lists_at_most_sixteen_members_with_the_chosen_one() {
    let names: Vec<String> = (0..40).map(|i| format!("x+m{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fleet = TestFleet::default();
    for name in &names {
        fleet = fleet.member(name, 1, &[1000]);
    }
    // All members but the last have no room on the node that the app may use, but a lower share because of a second, larger node.
    for name in &names[..39] {
        fleet = fleet.change_capacity(name, |c| {
            let mut big = crate::test_fleet::node("n2", 100_000);
            big.taints = vec![Taint { key: "t".into(), value: String::new(), effect: "NoSchedule".into() }];
            let nodes = Arc::make_mut(&mut c.nodes);
            nodes.push(big);
            nodes[0].foreign = Amounts::pod(900, 0);
        });
    }
    let decision = fleet.decide(vec![app("web", demand(1, 500), any_of(&names))]);
    assert_eq!(places(&decision), ["web>x+m39"]);
    let group = &decision.apps[0].groups[0];
    assert_eq!((group.considered.len(), group.more), (16, 24));
    assert_eq!(group.considered.iter().filter(|c| c.verdict == Verdict::Chosen).count(), 1);
}

#[test]
fn decision_does_not_depend_on_order_of_input() {
    let fleet = three().running("one", "onprem+a", 300, &ALL);
    let apps = vec![app("web", demand(2, 400), any_of(&ALL)), app("db", demand(1, 700), any_of(&ALL))];
    let first = fleet.decide(apps.clone());
    let mut ledger = Ledger::default();
    for (key, capacity) in fleet.fleet.capacity.iter().rev() {
        ledger.set_capacity(key, Some(capacity.clone()));
    }
    for member in fleet.fleet.members.values().rev() {
        ledger.set_member(member.clone());
    }
    for (id, claim) in &fleet.fleet.claims {
        ledger.put_claim(*id, Some(claim.clone()));
    }
    assert_eq!(first, ledger.decide(crate::test_fleet::id("decision"), &request(apps)));
}

#[test]
fn decision_names_the_order_in_which_the_apps_of_a_member_find_nodes() {
    // The default scheduler puts 700m on the larger node, and 900m has no node then.
    let fleet = TestFleet::default().member("x+a", 1, &[1000, 800]);
    let two = |first: i64, second: i64| {
        fleet.decide(vec![app("one", demand(1, first), any_of(&["x+a"])), app("two", demand(1, second), any_of(&["x+a"]))])
    };
    assert_eq!((two(700, 900).outcome, two(700, 900).order), (Outcome::Placed, vec!["two".to_owned(), "one".to_owned()]));
    assert_eq!(two(900, 700).order, ["one", "two"], "applied at the same time, two might come first");
    assert!(two(300, 300).order.is_empty(), "any order does");
}

#[test]
fn member_on_which_the_pods_found_no_nodes_counts_as_full() {
    let refused = |app: &str, member: &str| RefusedDestination {
        dig: request(vec![]).dig.id,
        app: app.into(),
        member: key(member),
        reason: "0/1 nodes".into(),
        refuses: member == "onprem+b",
    };
    let decide = |web: AppRequest, refused: Vec<RefusedDestination>| {
        three().ledger().decide(crate::test_fleet::id("decision"), &DecisionRequest { refused, ..request(vec![web]) })
    };
    let web = app("web", demand(1, 500), any_of(&ALL));
    assert_eq!(places(&decide(web.clone(), vec![refused("web", "onprem+b")])), ["web>onprem+a"]);
    assert_eq!(places(&decide(web.clone(), vec![refused("other", "onprem+b")])), ["web>onprem+b"]);
    let all = decide(web.clone(), ALL.iter().map(|member| refused("web", member)).collect());
    assert_eq!(all.outcome, Outcome::NoRoom, "not impossible: it may run there");
    let told = |member: &str| all.apps[0].groups[0].considered.iter().find(|one| one.member == key(member)).unwrap().clone();
    assert_eq!((told("onprem+a").verdict, told("onprem+b").verdict), (Verdict::NoRoom, Verdict::NotAllowed));
    assert_eq!(told("onprem+b").reason, "0/1 nodes");
    // The better provider is full for the app, so an app that insists on it has no room.
    let mut insisting = web;
    insisting.terms.when_full = WhenFull::Preferred;
    assert_eq!(decide(insisting, vec![refused("web", "onprem+a"), refused("web", "onprem+b")]).outcome, Outcome::NoRoom);
}

#[test]
fn element_means_the_members_that_a_decision_considers() {
    let labels = |fleet: TestFleet, member: &str| fleet.change_member(member, |member| member.labels = [LABEL.to_owned()].into());
    const LABEL: &str = "edge";
    let fleet = ALL[1..].iter().fold(three(), |fleet, member| labels(fleet, member));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for provider in ["onprem", "aws", "other", "*"] {
        for cluster in ["", "a", "c", "*"] {
            for label in ["", LABEL, "unknown"] {
                let element =
                    Element { cluster_provider: text(provider), cluster: text(cluster), cluster_label: text(label), any_of: Vec::new() };
                let mut web = app("web", demand(1, 100), all_of(&[]));
                web.terms.logical_cloud = [key("*+*")].into();
                web.terms.intent.all_of = vec![element.clone()];
                let decision = fleet.decide(vec![web]);
                let groups = decision.apps.iter().flat_map(|app| &app.groups);
                let mut considered: Vec<_> = groups.flat_map(|group| group.considered.iter().map(|one| one.member.clone())).collect();
                considered.retain(|member| ALL.contains(&&*member.0));
                considered.sort();
                let has = |member: &str, label: &String| label == LABEL && member != ALL[0];
                let mut meant: Vec<_> =
                    ALL.iter().filter(|member| element.means(&key(member), |label| has(member, label))).map(|member| key(member)).collect();
                meant.sort();
                assert_eq!(meant, considered, "{element:?}");
            }
        }
    }
}
