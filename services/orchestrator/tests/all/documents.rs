//! EMCO's documents, approve, and the lookups of other services.

use serde_json::{Value, json};

use crate::support::{Stack, deployment, doc, no_peers};

#[tokio::test]
async fn documents_are_created_read_and_approved() {
    let stack = Stack::start(no_peers()).await;
    let dig = stack
        .group("shop", &[("web", &deployment("web", "500m", 2)), ("db", &deployment("db", "1", 1))], &[("onprem", "a"), ("aws", "c")])
        .await;

    // Optional spec of a project: echoed only if sent.
    assert!(stack.get("/v2/projects/p").await.get("spec").is_none());

    // Placement intents with Drover's fields, and EMCO's lists.
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let intent = json!({"app": "web", "intent": {"anyOf": [{"clusterProvider": "onprem", "cluster": "a"}]}, "whenFull": "preferred"});
    stack.post(&format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("web", Some(intent.clone())), 201).await;
    let read = stack.get(&format!("{dig}/generic-placement-intents/gpi/app-intents?app=web")).await;
    assert_eq!((&read["app"], &read["whenFull"]), (&intent["app"], &intent["whenFull"]));
    stack.post(&format!("{dig}/intents"), doc("i", Some(json!({"intent": {"genericPlacementIntent": "gpi"}}))), 201).await;
    assert_eq!(stack.get(&format!("{dig}/intents")).await, json!({"intent": [{"genericPlacementIntent": "gpi"}]}));
    assert_eq!(stack.get(&format!("{dig}/intents?intent=i")).await, json!({"intent": [{"genericPlacementIntent": "gpi"}]}));

    // A group that is not approved has no terms.
    let lookup = "/internal/digs/lookup?project=p&compositeApp=shop&version=v1&dig=shop";
    assert_eq!(stack.call("GET", lookup, None).await.body["code"], "wrong_state");

    let dry = stack.call("POST", &format!("{dig}/approve?dryRun=All"), None).await;
    assert_eq!((dry.status, dry.body["apps"].as_array().unwrap().len()), (200, 2));
    assert_eq!(stack.call("GET", lookup, None).await.body["code"], "wrong_state", "a dry run writes nothing");

    assert_eq!(stack.call("POST", &format!("{dig}/approve"), None).await.status, 202);
    let terms = stack.get(lookup).await;
    assert_eq!(terms["state"], "Approved");
    let apps = terms["apps"].as_array().unwrap();
    let web = apps.iter().find(|app| app["app"] == "web").unwrap();
    assert_eq!(web["demand"]["groups"][0]["requests"]["cpu"], 500);
    assert_eq!(web["demand"]["groups"][0]["replicas"], 2);
    assert_eq!(web["terms"]["whenFull"], "preferred");
    let db = apps.iter().find(|app| app["app"] == "db").unwrap();
    assert_eq!(db["terms"]["intent"]["anyOf"].as_array().unwrap().len(), 2, "without an intent: anywhere in the logical cloud");

    let found = stack.get(&format!("/internal/documents/lookup?path={dig}")).await;
    assert_eq!((&found["kind"], &found["path"]), (&json!("deployment-intent-group"), &json!(dig)));

    // Of an approved group only the override values can be changed.
    let mut spec = stack.get(&dig).await["spec"].clone();
    spec["overrideValues"] = json!([{"app": "web", "values": {"a": "1"}}]);
    let changed = stack.call("PUT", &dig, Some(doc("shop", Some(spec.clone())))).await;
    assert_eq!((changed.status, &stack.get(&dig).await["spec"]), (200, &spec), "{}", changed.body);
    spec["version"] = json!("r2");
    let changed = stack.call("PUT", &dig, Some(doc("shop", Some(spec)))).await;
    assert_eq!((changed.status, &changed.body["code"]), (409, &json!("wrong_state")));
}

#[tokio::test]
async fn invalid_documents_are_refused_and_nothing_is_written() {
    let stack = Stack::start(no_peers()).await;
    let dig = stack.group("shop", &[("web", &deployment("web", "500m", 2))], &[("onprem", "a")]).await;
    let ca = "/v2/projects/p/composite-apps/shop/v1";
    let refused = async |method: &str, path: String, body: serde_json::Value, status: u16, code: &str| {
        let answer = stack.call(method, &path, Some(body)).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{method} {path}: {}", answer.body);
        answer.body
    };
    refused("POST", format!("{ca}/apps"), doc("nofile", None), 422, "malformed_upload").await;
    refused("POST", format!("{ca}/apps"), json!({"metadata": {"name": "x"}, "file": "bm90IGEgbWFuaWZlc3Q="}), 422, "malformed_upload")
        .await;
    refused(
        "POST",
        format!("{ca}/apps"),
        json!({"metadata": {"name": "x".repeat(64)}, "file": "YXBpVmVyc2lvbjogdjEKa2luZDogQ29uZmlnTWFwCm1ldGFkYXRhOiB7bmFtZTogYX0K"}),
        400,
        "invalid",
    )
    .await;
    let spec = json!({"compositeProfile": "cp", "version": "Not A Label", "logicalCloud": "lc"});
    refused("POST", format!("{ca}/deployment-intent-groups"), doc("d2", Some(spec)), 400, "name_not_dns").await;
    let spec = json!({"compositeProfile": "nope", "version": "r1", "logicalCloud": "lc"});
    refused("POST", format!("{ca}/deployment-intent-groups"), doc("d2", Some(spec)), 409, "reference_not_found").await;
    refused(
        "POST",
        "/v2/projects/p/logical-clouds".into(),
        doc("l2", Some(json!({"namespace": "Shop!", "level": "0"}))),
        400,
        "name_not_dns",
    )
    .await;
    let long = json!({"compositeProfile": "cp", "version": "d3", "logicalCloud": "lc", "overrideValues": [{"app": "web", "values": {"a": "x".repeat(129)}}]});
    refused("POST", format!("{ca}/deployment-intent-groups"), doc("d3", Some(long)), 400, "invalid").await;
    refused("POST", "/v2/projects/p/logical-clouds".into(), doc("l2", Some(json!({"level": "1"}))), 400, "invalid").await;
    refused("POST", "/v2/projects/p/logical-clouds/lc/user-permissions".into(), doc("u", Some(json!({"verbs": ["get"]}))), 400, "invalid")
        .await;
    stack.post(&format!("{dig}/generic-placement-intents"), doc("gpi", None), 201).await;
    let both = json!({"app": "web", "intent": {"allOf": [{"clusterProvider": "p", "cluster": "a", "clusterLabel": "l"}]}});
    refused("POST", format!("{dig}/generic-placement-intents/gpi/app-intents"), doc("i", Some(both)), 400, "invalid").await;
    refused("POST", format!("{dig}/rollback"), json!({}), 400, "invalid").await;
    refused("POST", format!("{dig}/rollback"), json!({"spec": {"revision": "first"}}), 400, "invalid").await;
    refused("POST", format!("{dig}/rollback"), json!({"spec": {"revision": "1"}}), 404, "not_found").await;
    let target = |dig: &str| json!({"spec": {"targetCompositeAppVersion": "v1", "targetDeploymentIntentGroup": dig}});
    refused("POST", format!("{dig}/migrate"), target("none"), 404, "not_found").await;
    refused("POST", format!("{dig}/migrate"), target("shop"), 400, "invalid").await;
    // Postgres holds no NUL.
    refused("POST", format!("{dig}/migrate"), target("no\0ne"), 400, "invalid").await;
    refused("POST", format!("{dig}/stop"), json!({}), 409, "wrong_state").await;
    let illegal = refused("POST", format!("{dig}/terminate"), json!({}), 409, "wrong_state").await;
    assert!(illegal["detail"].as_str().unwrap().contains("state Created; it is in Instantiated"), "{illegal}");
    let missing = stack.call("POST", &format!("{ca}/deployment-intent-groups/none/approve"), None).await;
    assert_eq!((missing.status, &missing.body["code"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn approve_with_a_failing_chart_changes_nothing() {
    let stack = Stack::start(no_peers()).await;
    let dig = stack.group("shop", &[("web", &deployment("web", "500m", 2))], &[("onprem", "a")]).await;
    let ca = "/v2/projects/p/composite-apps/shop/v1";
    // An invalid quantity renders but cannot be counted.
    use base64::Engine as _;
    let file = base64::engine::general_purpose::STANDARD.encode(deployment("bad", "lots", 1));
    stack.post(&format!("{ca}/apps"), json!({"metadata": {"name": "bad"}, "file": file}), 201).await;
    let refused = stack.call("POST", &format!("{dig}/approve"), None).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (422, Some("render_failed")), "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("Deployment/bad"), "{}", refused.body);
    let lookup = "/internal/digs/lookup?project=p&compositeApp=shop&version=v1&dig=shop";
    assert_eq!(stack.call("GET", lookup, None).await.body["code"], "wrong_state");
}

#[tokio::test]
async fn logical_clouds_of_level_0_change_state_immediately_and_only_once() {
    let stack = Stack::start(no_peers()).await;
    stack.post("/v2/projects", doc("p", None), 201).await;
    let made = stack.post("/v2/projects/p/logical-clouds", doc("lc", Some(json!({"level": "0"}))), 201).await;
    let spec = |namespace: &str| json!({"namespace": namespace, "labels": null, "level": "0", "user": {"userName": "", "type": ""}});
    assert_eq!(made["spec"], spec(""));
    let cloud = "/v2/projects/p/logical-clouds/lc";
    let verb = async |verb: &str| stack.call("POST", &format!("{cloud}/{verb}"), None).await;
    let refused = async |word: &str| {
        let answer = verb(word).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (409, Some("wrong_state")), "{word}: {}", answer.body);
    };
    for word in ["terminate", "update", "stop"] {
        refused(word).await;
    }
    assert_eq!(stack.get(&format!("{cloud}/status")).await["deployedStatus"], "Created");
    assert_eq!(verb("instantiate").await.status, 202);
    assert_eq!(stack.get(cloud).await["spec"], spec("default"), "EMCO writes the namespace into the document");
    refused("instantiate").await;
    refused("stop").await;
    let updated = verb("update").await;
    assert_eq!((updated.status, &updated.body["metadata"]["name"]), (202, &json!("lc")));
    let status = stack.get(&format!("{cloud}/status")).await;
    assert_eq!((&status["readyStatus"], &status["logicalCloud"]), (&json!("Ready"), &json!("lc")));
    assert_eq!(verb("terminate").await.status, 202);
    refused("terminate").await;
    assert_eq!(stack.get(&format!("{cloud}/status")).await["deployedStatus"], "Terminated");
    assert_eq!(verb("instantiate").await.status, 202, "a terminated logical cloud can be instantiated again");
}

#[tokio::test]
async fn documents_of_logical_clouds_and_traffic_controllers_are_stored_as_sent() {
    let stack = Stack::start(no_peers()).await;
    stack.post("/v2/projects", doc("p", None), 201).await;
    let cloud = json!({"namespace": "ns1", "level": "1", "user": {"userName": "user-1", "type": "certificate"}});
    stack.post("/v2/projects/p/logical-clouds", doc("lc", Some(cloud)), 201).await;
    let lc = "/v2/projects/p/logical-clouds/lc";
    let permission = json!({"namespace": "ns1", "apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]});
    let controller = json!({"host": "127.0.0.1", "port": 30485, "type": "action", "priority": 1});
    for (collection, spec) in [
        (format!("{lc}/user-permissions"), permission),
        (format!("{lc}/cluster-quotas"), json!({"limits.cpu": "400", "count/jobs.batch": "7"})),
        (format!("{lc}/kv-pairs"), json!({"kv": [{"owner": "bob"}, {"hw": "custom"}]})),
        ("/v2/dtc-controllers".to_owned(), controller),
    ] {
        let made = stack.post(&collection, doc("one", Some(spec.clone())), 201).await;
        assert_eq!(made["spec"], spec, "{collection}");
        assert_eq!(stack.get(&format!("{collection}/one")).await["spec"], spec, "{collection}");
        let put = stack.call("PUT", &format!("{collection}/one"), Some(doc("one", Some(spec)))).await.status;
        assert_eq!(put, if collection.ends_with("controllers") { 201 } else { 405 }, "{collection}");
        assert_eq!(stack.call("DELETE", &format!("{collection}/one"), None).await.status, 204, "{collection}");
    }
}

#[tokio::test]
async fn group_with_objects_outside_its_cloud_is_refused_with_each_object() {
    let stack = Stack::start(no_peers()).await;
    let yaml = "
apiVersion: v1
kind: ConfigMap
metadata: {name: ours}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: evil}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
";
    let group = stack.group("shop", &[("web", yaml)], &[("onprem", "a")]).await;
    let refused = stack.call("POST", &format!("{group}/approve"), None).await;
    assert_eq!((refused.status, refused.body["code"].as_str()), (403, Some("not_granted")), "{}", refused.body);
    let reasons: Vec<&str> = refused.body["reasons"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].starts_with("web: ConfigMap kube-system/coredns is outside of the namespace \"shop\""), "{reasons:?}");
    assert!(reasons[1].starts_with("web: ClusterRoleBinding evil is cluster-scoped"), "{reasons:?}");

    let grants = json!({"namespaces": ["kube-system"], "clusterScoped": ["ClusterRoleBinding.rbac.authorization.k8s.io"]});
    let cloud = |grants: Value| doc("lc", Some(json!({"namespace": "shop", "level": "0", "grants": grants})));
    let path = "/v2/projects/p/logical-clouds/lc";
    let put = stack.call("PUT", path, Some(cloud(grants.clone()))).await;
    assert!(put.status < 300, "{}", put.body);
    assert_eq!(stack.get(path).await["spec"]["grants"], grants);
    let approved = stack.call("POST", &format!("{group}/approve"), None).await;
    assert_eq!(approved.status, 202, "{}", approved.body);
    let broken = stack.call("PUT", path, Some(cloud(json!({"namespaces": ["Kube_System"]})))).await;
    assert_eq!(broken.body["code"], "name_not_dns", "{}", broken.body);
    let acting = |account: &str| doc("lc", Some(json!({"namespace": "shop", "level": "0", "actAs": {"serviceAccount": account}})));
    let broken = stack.call("PUT", path, Some(acting("kube-system:admin"))).await;
    assert_eq!(broken.body["code"], "name_not_dns", "{}", broken.body);
    assert!(stack.call("PUT", path, Some(acting("deployer"))).await.status < 300);
    assert_eq!(stack.get(path).await["spec"]["actAs"]["serviceAccount"], "deployer");
}

#[tokio::test]
async fn openapi_document_describes_every_route() {
    let document = serde_json::to_value(drover_orchestrator::openapi()).unwrap();
    for path in ["/v2/projects/{project}", "/internal/digs/lookup", "/v2/controllers"] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
}
