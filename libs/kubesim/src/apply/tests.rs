use super::*;
use crate::kinds::BUILT_INS;

fn target() -> Target {
    let kind = BUILT_INS.iter().find(|k| k.kind == "Deployment").unwrap().clone();
    Target { kind, namespace: "default".into(), name: "web".into(), sub: String::new() }
}

fn by(manager: &str) -> Options {
    Options { manager: manager.into(), ..Options::default() }
}

fn deployment(containers: Value, extra: Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": containers}}}});
    json_patch::merge(&mut object, &extra);
    object
}

#[test]
fn what_a_manager_drops_goes_and_what_others_own_stays() {
    let now = "2026-01-01T00:00:00Z";
    let first = deployment(
        json!([{"name": "a", "image": "1", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "1"}]),
        json!({"metadata": {"labels": {"x": "1", "y": "1"}}}),
    );
    let live = apply(None, first, &target(), &by("drover"), now).unwrap();
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"y": "1"}}});
    let live = apply(Some(&live), other, &target(), &by("other"), now).unwrap();
    let second = deployment(json!([{"name": "a", "image": "2"}]), json!({}));
    let live = apply(Some(&live), second.clone(), &target(), &by("drover"), now).unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"], json!([{"name": "a", "image": "2"}]));
    assert_eq!(live["metadata"]["labels"], json!({"y": "1"}));
    let again = apply(Some(&live), second, &target(), &by("drover"), "2027-01-01T00:00:00Z").unwrap();
    assert_eq!(live, again, "an apply that changes nothing changes nothing");
}

#[test]
fn conflicts_name_the_manager_and_the_field_and_force_takes_it() {
    let now = "2026-01-01T00:00:00Z";
    let live = apply(None, deployment(json!([{"name": "a", "image": "1"}]), json!({})), &target(), &by("one"), now).unwrap();
    let theirs = deployment(json!([{"name": "a", "image": "2"}]), json!({}));
    let refusal = apply(Some(&live), theirs.clone(), &target(), &by("two"), now).unwrap_err();
    assert_eq!(refusal.code, 409);
    assert_eq!(refusal.details["causes"][0]["field"], ".spec.template.spec.containers[name=\"a\"].image");
    assert!(refusal.message.contains("conflict with \"one\""), "{}", refusal.message);
    let force = Options { force: true, ..by("two") };
    let live = apply(Some(&live), theirs, &target(), &force, now).unwrap();
    let gone = deployment(json!([{"name": "a", "image": "2"}]), json!({}));
    assert!(apply(Some(&live), gone, &target(), &by("one"), now).is_ok(), "same value is no conflict");
}

#[test]
fn an_update_takes_the_fields_it_changes() {
    let now = "2026-01-01T00:00:00Z";
    let live = apply(None, deployment(json!([{"name": "a", "image": "1"}]), json!({})), &target(), &by("one"), now).unwrap();
    let mut edited = live.clone();
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = json!("edited");
    record_update(&live, &mut edited, &target(), &by("kubectl-edit"), now);
    let again = deployment(json!([{"name": "a", "image": "1"}]), json!({}));
    let refusal = apply(Some(&edited), again, &target(), &by("one"), now).unwrap_err();
    assert!(refusal.message.contains("kubectl-edit"), "{}", refusal.message);
}

#[test]
fn sets_survive_their_wire_form() {
    let object = deployment(
        json!([{"name": "a", "env": [], "ports": [{"containerPort": 80, "protocol": "UDP"}], "args": ["x"]}]),
        json!({"metadata": {"finalizers": ["f/x"]}, "spec": {"selector": {"matchLabels": {"a": "b"}}}}),
    );
    let set = fields::of(&object, false);
    assert_eq!(fields::from_v1(&fields::to_v1(&set)), set);
    assert!(set.contains(&vec!["f:spec".to_string(), "f:selector".into()]), "selectors are atomic");
}
