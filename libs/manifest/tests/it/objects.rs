use drover_manifest::objects::{address, read, settle};
use drover_manifest::{Address, Manifest};
use serde_json::json;

fn addresses(manifests: &[Manifest]) -> Vec<String> {
    manifests.iter().map(|manifest| address(&manifest.value, "default").to_string()).collect()
}

#[test]
fn objects_of_the_same_name_are_told_apart_by_group_kind_and_namespace() {
    let text = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: other}
---
apiVersion: example.io/v1
kind: Deployment
metadata: {name: web}
";
    let found = settle(read("a.yaml", text).unwrap(), "default").unwrap();
    let expected = ["Deployment default/web", "CronJob default/web", "Deployment other/web", "Deployment.example.io default/web"];
    assert_eq!(addresses(&found), expected);
}

#[test]
fn the_same_object_twice_is_one_object_and_refused_if_it_differs() {
    let object = |name: &str, spec: u8| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: a{name}}}\nspec: {{x: {spec}}}\n---\n");
    let equal = read("a.yaml", &(object("", 1) + &object("", 1))).unwrap();
    assert_eq!(settle(equal, "default").unwrap().len(), 1);
    let mut different = read("a.yaml", &object("", 1)).unwrap();
    different.extend(read("b.yaml", &(object("b", 1) + &object(", namespace: default", 2))).unwrap());
    assert_eq!(
        settle(different, "default").unwrap_err().to_string(),
        "Service default/a is there twice with different content: in a.yaml, document 1 (line 1), and in b.yaml, document 2 (line 5)"
    );
    // A namespace has no effect on kinds that are not in one.
    let roles = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a, namespace: x}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n";
    assert!(settle(read("r", roles).unwrap(), "default").is_err());
}

#[test]
fn lists_become_their_items_also_inside_each_other() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
        {"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}]},
    ]});
    let found = read("list.json", &list.to_string()).unwrap();
    assert_eq!(addresses(&found), ["ConfigMap default/a", "ConfigMap default/b", "ConfigMap default/c"]);
    assert_eq!(found[0].place.to_string(), "list.json, document 1 (line 1), item 1");
    assert_eq!(found[2].value["apiVersion"], "v1");
}

#[test]
fn generated_names_are_stable_and_unique() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: pi-}\nspec: {x: 1}\n---\n";
    let named = |text: &str| addresses(&settle(read("j", text).unwrap(), "default").unwrap());
    let two = named(&job.repeat(2));
    assert_eq!(two.len(), 2);
    assert_ne!(two[0], two[1]);
    assert_eq!(named(job), two[..1]);
    assert_eq!(two[0], "Job default/pi-ndclf", "the name must not change between versions of Drover: it would start the job again");
    assert_ne!(named(&job.replace("x: 1", "x: 2")), two[..1]);
}

#[test]
fn what_is_no_object_is_named_by_file_document_and_line() {
    let error = |text: &str| read("web.yaml", text).unwrap_err().to_string();
    assert_eq!(error("a: 1"), "web.yaml, document 1 (line 1): it has no kind");
    assert_eq!(error("---\nkind: Pod"), "web.yaml, document 1 (line 1): the Pod has no apiVersion");
    assert_eq!(
        error("{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {}"),
        "web.yaml, document 2 (line 2): the Pod has no metadata.name"
    );
    let named = |metadata: &str| error(&format!("{{apiVersion: v1, kind: Pod, metadata: {metadata}}}"));
    let boolean = "(to Kubernetes, which reads YAML 1.1, y, yes, on, n, no and off are booleans unless they are quoted)";
    let place = "web.yaml, document 1 (line 1): metadata.";
    assert_eq!(named("{name: y}"), format!("{place}name of the Pod is the boolean true {boolean}, not a text"));
    assert_eq!(named("{name: a, namespace: no}"), format!("{place}namespace of the Pod is the boolean false {boolean}, not a text"));
    assert_eq!(named("{name: 0123}"), format!("{place}name of the Pod is the number 83 (quote it), not a text"));
    assert!(read("web.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: 'y', namespace: \"no\"}}").is_ok());
    assert_eq!(error("just text"), "web.yaml, document 1 (line 1): it is not a mapping");
}

#[test]
fn address_shows_the_group_of_custom_kinds_only() {
    let address =
        |group: &str| Address { group: group.into(), kind: "Thing".into(), namespace: String::new(), name: "a".into() }.to_string();
    assert_eq!(address("apps"), "Thing a");
    assert_eq!(address("networking.k8s.io"), "Thing a");
    assert_eq!(address("example.io"), "Thing.example.io a");
}
