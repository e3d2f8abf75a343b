use drover_api::bindings::BindingStatus;
use drover_api::status::DigAction;

use super::*;
use crate::statuses::in_phase;

fn object(kind: &str, name: &str, applied: bool, ready: bool) -> ObjectStatus {
    ObjectStatus {
        group: if kind == "Deployment" { "apps" } else { "" }.into(),
        version: "v1".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        applied,
        ready,
        reason: None,
    }
}

fn copy(app: &str, member: &str, role: Role, phase: Option<Phase>, objects: Vec<ObjectStatus>) -> AppCopy {
    let status = phase.map(|phase| {
        let member = MemberKey(member.into());
        Arc::new(BindingStatus { member, ..in_phase(Uuid::nil(), phase) })
    });
    AppCopy { binding: Uuid::nil(), app: app.into(), member: MemberKey(member.into()), role, status, objects }
}

fn wanted(query: &[(&str, &str)]) -> StatusQuery {
    StatusQuery::parse(&query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>()).unwrap()
}

fn deployed_group() -> DigStatus {
    DigStatus { deployed_status: Some("Instantiated".into()), ..DigStatus::default() }
}

fn shop() -> (Vec<String>, Vec<AppCopy>) {
    let copies = vec![
        copy(
            "cart",
            "onprem+a",
            Role::Current,
            Some(Phase::Ready),
            vec![object("Deployment", "cart", true, true), object("Service", "cart", true, true)],
        ),
        copy(
            "db",
            "aws+b",
            Role::Target,
            Some(Phase::Applying),
            vec![object("Deployment", "db", false, false), object("Secret", "key", false, false)],
        ),
    ];
    (vec!["cart".into(), "db".into()], copies)
}

#[test]
fn counts_and_resources_have_emcos_format() {
    let (apps, copies) = shop();
    let status = serde_json::to_value(wanted(&[]).show(deployed_group(), &apps, &copies)).unwrap();
    assert_eq!(status["deployedCounts"], serde_json::json!({"Applied": 2, "Pending": 2}));
    // A Secret that is absent is not counted as such.
    assert_eq!(status["readyCounts"], serde_json::json!({"NotPresent": 1, "NotReady": 1, "Ready": 2}));
    assert_eq!(
        status["apps"][0],
        serde_json::json!({"name": "cart", "clusters": [{"clusterProvider": "onprem", "cluster": "a", "connectivity": "Available", "resources": [
            {"GVK": {"Group": "apps", "Version": "v1", "Kind": "Deployment"}, "name": "cart", "deployedStatus": "Applied", "readyStatus": "Ready"},
            {"GVK": {"Group": "", "Version": "v1", "Kind": "Service"}, "name": "cart", "deployedStatus": "Applied", "readyStatus": "Ready"},
        ]}]})
    );
}

#[test]
fn ready_status_is_that_of_serving_copies() {
    let old = copy("cart", "onprem+a", Role::Current, Some(Phase::Ready), vec![]);
    let new = copy("cart", "aws+b", Role::Target, Some(Phase::Applying), vec![]);
    let going = copy("cart", "aws+c", Role::Retiring, Some(Phase::Deleting), vec![]);
    assert!(ready(&[&old, &new, &going]), "a move does not make an app unready");
    assert!(!ready(&[&new]), "nothing serves yet");
    assert!(!ready(&[]));
    let broken = copy("cart", "onprem+a", Role::Current, Some(Phase::Unreachable), vec![]);
    assert!(!ready(&[&old, &broken]));
}

#[test]
fn retiring_copy_is_pending_until_deleted() {
    let thing = object("Service", "cart", true, true);
    let shown = |phase| deployed(&copy("cart", "a+b", Role::Retiring, Some(phase), vec![]), &thing);
    assert_eq!(shown(Phase::Ready), "Pending");
    assert_eq!(shown(Phase::Gone), "Deleted");
    let failed = copy("cart", "a+b", Role::Target, Some(Phase::Failed), vec![]);
    assert_eq!(deployed(&failed, &object("Service", "cart", false, false)), "Failed");
}

#[test]
fn filters_select_and_unknown_names_are_not_found() {
    let (apps, copies) = shop();
    let one = wanted(&[("cluster", "aws b")]);
    one.check(&apps, &copies).unwrap();
    let status = serde_json::to_value(one.show(deployed_group(), &apps, &copies)).unwrap();
    assert_eq!(status["apps"].as_array().unwrap().len(), 1, "{status}");
    assert_eq!(status["apps"][0]["name"], "db");
    let one = serde_json::to_value(wanted(&[("resource", "key")]).show(deployed_group(), &apps, &copies)).unwrap();
    assert_eq!(one["apps"][0]["clusters"][0]["resources"].as_array().unwrap().len(), 1, "{one}");
    for absent in [("app", "nobody"), ("cluster", "onprem+b"), ("resource", "nothing")] {
        assert!(matches!(wanted(&[absent]).check(&apps, &copies), Err(Error::NotFound { .. })), "{absent:?}");
    }
}

#[test]
fn switches_list_names_in_emcos_precedence() {
    let (apps, copies) = shop();
    let show = |query| serde_json::to_value(wanted(query).show(deployed_group(), &apps, &copies)).unwrap();
    assert_eq!(show(&[("resources", ""), ("apps", "")])["apps"], serde_json::json!(["cart", "db"]));
    assert_eq!(
        show(&[("clusters", "")])["clustersByApp"][1],
        serde_json::json!({"app": "db", "clusters": [{"clusterProvider": "aws", "cluster": "b"}]})
    );
    assert_eq!(
        show(&[("resources", ""), ("app", "db")])["resourcesByApp"][0]["resources"][1],
        serde_json::json!({"name": "key", "GVK": {"Group": "", "Version": "v1", "Kind": "Secret"}})
    );
    let summary = show(&[("output", "summary")]);
    assert!(summary.get("apps").is_none() && summary["readyStatus"] == "Ready", "{summary}");
    assert_eq!(show(&[("output", "detail")])["apps"][1]["clusters"][0]["resources"][0]["detail"]["phase"], "Applying");
    let before = wanted(&[]).show(DigStatus::default(), &apps, &copies);
    assert_eq!(before, DigStatus::default(), "before the first instantiation there are only names and states");
}

#[test]
fn parse_refuses_invalid_values() {
    for (key, value) in [("output", "everything"), ("status", "fine"), ("type", "monitor")] {
        assert!(matches!(StatusQuery::parse(&[(key.into(), value.into())]), Err(Error::Inconsistent(_))), "{key}={value}");
    }
}

#[test]
fn older_form_is_shown_beside_the_present_one() {
    let (apps, copies) = shop();
    let rsync = wanted(&[("type", "rsync"), ("output", "detail"), ("status", "deployed")]).show(deployed_group(), &apps, &copies);
    assert_eq!(rsync.status.as_deref(), Some("Instantiated"));
    assert_eq!((&rsync.rsync_status, &rsync.cluster_status), (&rsync.deployed_counts, &None));
    let cluster = wanted(&[("type", "cluster")]).show(deployed_group(), &apps, &copies);
    assert_eq!((&cluster.rsync_status, &cluster.cluster_status), (&None, &cluster.ready_counts));
    let Some([AppEntry::Full(cart), ..]) = cluster.apps.as_deref() else { panic!("{:?}", cluster.apps) };
    assert_eq!(cart.clusters[0].ready_status.as_deref(), Some("Available"));
    assert_eq!(cart.clusters[0].resources[0].cluster_status.as_deref(), Some("Ready"));
    let present = wanted(&[]).show(deployed_group(), &apps, &copies);
    assert_eq!((present.status, present.rsync_status, present.cluster_status), (None, None, None));
}

#[test]
fn earlier_instances_of_the_history_have_a_state() {
    let action =
        |state: &str, instance: &str| DigAction { state: state.into(), instance: instance.into(), time: String::new(), revision: 1 };
    let actions = vec![action("Created", ""), action("Instantiated", "7"), action("Terminated", "8")];
    let states = DigStates { statusctxid: "8".into(), actions };
    let earlier = |instance: &str| wanted(&[("instance", instance)]).earlier(&states);
    assert_eq!(earlier("7").unwrap().as_deref(), Some("Instantiated"));
    assert_eq!(earlier("8").unwrap(), None, "the latest is shown in full");
    assert!(matches!(earlier("9"), Err(Error::NotFound { .. })));
}
