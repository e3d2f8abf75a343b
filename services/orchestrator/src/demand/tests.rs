use serde_json::{Value, json};

use super::*;

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn template(spec: Value) -> Value {
    json!({"metadata": {}, "spec": spec})
}

fn container(requests: Value) -> Value {
    json!({"name": "c", "image": "registry/web:1", "resources": {"requests": requests}})
}

#[test]
fn surge_of_very_many_replicas_does_not_overflow() {
    let pod = template(json!({"containers": [container(json!({"cpu": "1m"}))]}));
    let surge = |replicas: u32, max_surge: Value| {
        let spec = json!({"replicas": replicas, "template": pod, "strategy": {"rollingUpdate": {"maxSurge": max_surge}}});
        of(&[deployment(spec)], "default").unwrap().groups[0].surge
    };
    assert_eq!(surge(400_000_000, Value::Null), 100_000_000);
    assert_eq!(surge(2_000_000_000, json!("100%")), 2_000_000_000);
    assert_eq!(surge(2_000_000_000, json!("300%")), u32::MAX - 2_000_000_000);
}

#[test]
fn deployment_counts_replicas_and_surge() {
    let pod = template(json!({"containers": [container(json!({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1}))]}));
    let demand = of(&[deployment(json!({"replicas": 5, "template": pod}))], "default").unwrap();
    let group = &demand.groups[0];
    assert_eq!((group.workload.as_str(), group.replicas, group.surge), ("Deployment/web", 5, 2));
    assert_eq!((group.requests.cpu, group.requests.memory, group.requests.pods), (500, 1 << 30, 1));
    assert_eq!(group.requests.extra["nvidia.com/gpu"], 1);
    assert_eq!(demand.images, ["docker.io/registry/web:1"]);
    assert!(demand.immovable.is_empty());
}

#[test]
fn surge_follows_the_strategy() {
    let pod = template(json!({"containers": [container(json!({}))]}));
    let cases = [
        (json!({"type": "Recreate"}), 0),
        (json!({"rollingUpdate": {"maxSurge": 3}}), 3),
        (json!({"rollingUpdate": {"maxSurge": "50%"}}), 5),
        (json!({"rollingUpdate": {"maxSurge": 0}}), 0),
    ];
    for (strategy, expected) in cases {
        let demand = of(&[deployment(json!({"replicas": 9, "strategy": strategy, "template": pod}))], "default").unwrap();
        assert_eq!(demand.groups[0].surge, expected, "{strategy}");
    }
}

#[test]
fn init_containers_sidecars_limits_and_overhead_count_as_the_scheduler_counts_them() {
    let pod = template(json!({
        "initContainers": [
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "memory": "50Mi"}}},
            {"name": "migrate", "resources": {"requests": {"cpu": "1", "memory": "10Mi"}}},
        ],
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "300m"}, "limits": {"cpu": "2", "memory": "100Mi"}}}],
        "overhead": {"memory": "8Mi"},
    }));
    let demand = of(&[deployment(json!({"template": pod}))], "default").unwrap();
    let requests = &demand.groups[0].requests;
    assert_eq!(requests.cpu, 1100, "the init container beside the sidecar needs most");
    assert_eq!(requests.memory, 158 << 20, "a limit without a request is one; sidecar and overhead on top");
}

#[test]
fn pod_level_requests_replace_the_sum() {
    let pod = template(json!({"resources": {"requests": {"cpu": "2"}}, "containers": [container(json!({"cpu": "1", "memory": "1Mi"}))]}));
    let demand = of(&[deployment(json!({"template": pod}))], "default").unwrap();
    assert_eq!((demand.groups[0].requests.cpu, demand.groups[0].requests.memory), (2000, 1 << 20));
}

#[test]
fn apps_with_data_or_bound_to_a_node_are_immovable() {
    let pod = |extra: Value| {
        let mut spec = json!({"containers": [container(json!({}))]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        template(spec)
    };
    let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}}});
    let cases = [
        ("volume", deployment(json!({"template": pod(json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]}))}))),
        ("volume", deployment(json!({"template": pod(json!({"volumes": [{"name": "d", "nfs": {"server": "s", "path": "/"}}]}))}))),
        ("volume", json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": {}})),
        ("host_path", deployment(json!({"template": pod(json!({"volumes": [{"name": "d", "hostPath": {"path": "/var"}}]}))}))),
        ("node_bound", deployment(json!({"template": pod(json!({"nodeName": "n1"}))}))),
        ("node_bound", deployment(json!({"template": pod(json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}}))}))),
        ("node_bound", deployment(json!({"template": pod(json!({"affinity": affinity}))}))),
        (
            "daemon_set",
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log"}, "spec": {"template": pod(json!({}))}}),
        ),
    ];
    for (code, object) in cases {
        let demand = of(std::slice::from_ref(&object), "default").unwrap();
        assert!(demand.immovable.iter().any(|reason| reason.starts_with(&format!("{code}: "))), "{code}: {:?}", demand.immovable);
    }
    let scratch = json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}, {"name": "c"}]});
    let demand = of(&[deployment(json!({"template": pod(scratch)}))], "default").unwrap();
    assert!(demand.immovable.is_empty(), "{:?}", demand.immovable);
}

#[test]
fn volumes_of_a_stateful_set_are_taken_along_unless_somebody_else_scales_it() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 2,
        "ordinals": {"start": 3}, "volumeClaimTemplates": [claim], "template": template(json!({"containers": [container(json!({}))]}))}});
    let demand = of(std::slice::from_ref(&set), "shop").unwrap();
    assert!(demand.immovable.is_empty() && demand.volumes == 2, "{demand:?}");
    assert_eq!(demand.stateful[0].claims().collect::<Vec<_>>(), ["shop/data-db-3", "shop/data-db-4"]);
    assert!(!demand.stateful[0].overlaps);
    let mut shared = set.clone();
    shared["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = json!({"drover.io/may-overlap": "true"});
    assert!(!of(std::slice::from_ref(&shared), "shop").unwrap().stateful[0].overlaps, "only one node may write it");
    shared["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert!(of(&[shared], "shop").unwrap().stateful[0].overlaps);
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "db"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}});
    let scaled = of(&[set, scaler], "shop").unwrap();
    assert_eq!(scaled.immovable, ["volume: StatefulSet/db has volumes and is scaled by a HorizontalPodAutoscaler"]);
}

#[test]
fn annotation_of_a_workload_says_that_the_app_must_not_run_twice() {
    let annotated = |value: &str| {
        let mut object = deployment(json!({"template": {"metadata": {}, "spec": {"containers": []}}}));
        object["metadata"]["annotations"] = json!({"drover.io/at-most-once": value});
        of(&[deployment(json!({"template": {"metadata": {}, "spec": {"containers": []}}})), object], "default").unwrap().at_most_once
    };
    assert!(annotated("true"));
    assert!(!annotated("false"));
}

#[test]
fn volumes_are_counted_once() {
    let claim = json!({"metadata": {"name": "data"}, "spec": {}});
    let objects = [
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": {}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": 3, "volumeClaimTemplates": [claim],
            "template": template(json!({"containers": [container(json!({}))],
                "volumes": [{"name": "s", "persistentVolumeClaim": {"claimName": "shared"}}]}))}}),
    ];
    assert_eq!(of(&objects, "default").unwrap().volumes, 4);
}

#[test]
fn jobs_and_services_count_and_other_kinds_do_not() {
    let pod = template(json!({"containers": [container(json!({"cpu": 1}))], "restartPolicy": "Never"}));
    let objects = [
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 5, "completions": 2, "template": pod}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "other"}, "spec": {"type": "LoadBalancer"}}),
        json!({"apiVersion": "example.io/v1", "kind": "Deployment", "metadata": {"name": "not-ours"}, "spec": {}}),
    ];
    let demand = of(&objects, "shop").unwrap();
    let replicas: Vec<_> = demand.groups.iter().map(|group| (group.workload.as_str(), group.replicas)).collect();
    assert_eq!(replicas, [("Job/j", 2), ("CronJob/c", 1)]);
    assert_eq!(demand.services, ["other/api", "shop/web"]);
    assert_eq!(demand.open_services, [("other/api".to_owned(), vec![Reachability::NodePort, Reachability::LoadBalancer])].into());
}

#[test]
fn selectors_and_tolerations_are_copied() {
    let spec = json!({
        "containers": [container(json!({}))],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"}]}, {},
        ]}}},
    });
    let group = of(&[deployment(json!({"template": template(spec)}))], "default").unwrap().groups.remove(0);
    assert_eq!(group.node_selector["disk"], "ssd");
    assert!(group.tolerations[0].exists && group.tolerations[0].key == "gpu");
    assert_eq!((group.node_affinity.len(), group.node_affinity[0].len()), (1, 2));
}

#[test]
fn invalid_templates_are_errors_that_name_the_workload() {
    let bad_quantity = deployment(json!({"template": template(json!({"containers": [container(json!({"cpu": "lots"}))]}))}));
    let no_template = deployment(json!({"replicas": 1}));
    for object in [bad_quantity, no_template] {
        let error = of(std::slice::from_ref(&object), "default").unwrap_err().to_string();
        assert!(error.contains("Deployment/web"), "{error}");
    }
}

#[test]
fn hooks_count_unless_they_fit_into_the_room_of_another() {
    let job = |name: &str, cpu: &str, memory: &str, hook: Option<&str>| {
        let annotations = hook.map(|events| json!({"drover.io/hook": events})).unwrap_or_default();
        let pod = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": annotations}, "spec": {"template": pod}})
    };
    let (small, large) = (job("a", "1", "64Mi", Some("pre-install")), job("b", "2", "64Mi", Some("post-upgrade")));
    let (more_memory, own) = (job("d", "1", "8Gi", Some("pre-upgrade")), job("c", "3", "64Mi", None));
    let objects = [small, large, more_memory, own];

    let groups = of(&objects, "default").expect("manifests that can be read").groups;

    assert_eq!(
        groups.iter().map(|group| (&*group.workload, group.requests.cpu)).collect::<Vec<_>>(),
        [("Job/c", 3000), ("Job/b", 2000), ("Job/d", 1000)]
    );
}
