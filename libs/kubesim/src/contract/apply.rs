//! Server-side apply and the ownership of fields.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Fixture, Outcome, must, of, refused, table, typed, version};

table!(
    apply_creates_and_repeats_without_a_trace,
    what_is_dropped_goes,
    others_keep_what_they_own,
    conflicts_need_force,
    version_that_no_object_has_lets_apply_create_only,
    list_items_are_told_apart_by_name,
    updates_take_ownership,
    apply_needs_a_manager,
    apply_leaves_status_alone,
    items_of_one_key_are_refused_by_apply_alone,
);

async fn apply(f: &Fixture, manager: &str, object: &Value, force: bool) -> Result<DynamicObject, kube::Error> {
    let params = PatchParams { force, ..PatchParams::apply(manager) };
    let object = typed(object.clone());
    let name = object.metadata.name.clone().unwrap_or_default();
    let api = if object.types.as_ref().is_some_and(|t| t.kind == "Deployment") { f.deployments() } else { f.config_maps() };
    api.patch(&name, &params, &Patch::Apply(&object)).await
}

async fn apply_creates_and_repeats_without_a_trace(f: Fixture) -> Outcome {
    let object = f.deployment("web", 0, "10m");
    let made = apply(&f, "drover", &object, false).await?;
    let managers = made.metadata.managed_fields.clone().unwrap_or_default();
    must!(managers.iter().any(|m| m.manager.as_deref() == Some("drover") && m.operation.as_deref() == Some("Apply")), "{managers:?}");
    let settled =
        super::until(&f.deployments(), "web", |d| d.is_some_and(|d| !of(d, "/status/conditions/1").is_null()), "the controller has looked")
            .await?;
    let before = settled.map(|d| version(&d).to_string());
    let again = apply(&f, "drover", &object, false).await?;
    must!(before.as_deref() == Some(version(&again)), "the same apply again changed the version");
    must!(again.metadata.generation == Some(1), "the same apply again changed the generation");
    Ok(())
}

async fn what_is_dropped_goes(f: Fixture) -> Outcome {
    apply(&f, "drover", &f.config_map("a", json!({"keep": "1", "drop": "1"})), false).await?;
    let now = apply(&f, "drover", &f.config_map("a", json!({"keep": "1"})), false).await?;
    must!(of(&now, "/data") == &json!({"keep": "1"}), "{:?}", now.data);
    let mut first = f.deployment("web", 0, "10m");
    first["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]);
    first["spec"]["minReadySeconds"] = json!(5);
    apply(&f, "drover", &first, false).await?;
    let mut second = f.deployment("web", 0, "10m");
    second["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "B", "value": "1"}]);
    let now = apply(&f, "drover", &second, false).await?;
    must!(of(&now, "/spec/template/spec/containers/0/env") == &json!([{"name": "B", "value": "1"}]), "{:?}", now.data);
    must!(of(&now, "/spec/minReadySeconds").is_null() || of(&now, "/spec/minReadySeconds") == 0, "{:?}", now.data);
    Ok(())
}

async fn others_keep_what_they_own(f: Fixture) -> Outcome {
    apply(&f, "drover", &f.config_map("a", json!({"both": "1", "mine": "1"})), false).await?;
    apply(&f, "other", &f.config_map("a", json!({"both": "1", "theirs": "1"})), false).await?;
    let now = apply(&f, "drover", &f.config_map("a", json!({})), false).await?;
    must!(of(&now, "/data") == &json!({"both": "1", "theirs": "1"}), "{:?}", now.data);
    Ok(())
}

async fn conflicts_need_force(f: Fixture) -> Outcome {
    apply(&f, "other", &f.config_map("a", json!({"k": "1"})), false).await?;
    let mine = f.config_map("a", json!({"k": "2"}));
    refused(apply(&f, "drover", &mine, false).await, 409, "Conflict")?;
    must!(of(&f.config_maps().get("a").await?, "/data/k") == "1", "a refused apply wrote");
    let forced = apply(&f, "drover", &mine, true).await?;
    must!(of(&forced, "/data/k") == "2", "force");
    refused(apply(&f, "other", &f.config_map("a", json!({"k": "1"})), false).await, 409, "Conflict")
}

/// Drover creates objects in this way: unlike a GET before, it cannot miss what others make at the same time.
async fn version_that_no_object_has_lets_apply_create_only(f: Fixture) -> Outcome {
    for mut object in [f.config_map("a", json!({"k": "1"})), f.deployment("web", 0, "10m")] {
        object["metadata"]["resourceVersion"] = json!("1");
        let made = apply(&f, "drover", &object, true).await?;
        must!(!matches!(version(&made), "" | "1"), "what was made has the version that was sent");
        let managers = made.metadata.managed_fields.clone().unwrap_or_default();
        must!(managers.iter().all(|m| m.operation.as_deref() == Some("Apply")), "{managers:?}");
        // Neither the same manager nor force makes it an update, whether something would change or not.
        refused(apply(&f, "drover", &object, true).await, 409, "Conflict")?;
        object["metadata"]["labels"] = json!({"changed": "yes"});
        refused(apply(&f, "drover", &object, true).await, 409, "Conflict")?;
        let name = made.metadata.name.clone().unwrap_or_default();
        let api = if object["kind"] == "Deployment" { f.deployments() } else { f.config_maps() };
        must!(!api.get(&name).await?.metadata.labels.unwrap_or_default().contains_key("changed"), "a refused apply wrote");
    }
    Ok(())
}

async fn list_items_are_told_apart_by_name(f: Fixture) -> Outcome {
    apply(&f, "drover", &f.deployment("web", 0, "10m"), false).await?;
    let side = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}});
    let now = apply(&f, "other", &side, false).await?;
    must!(of(&now, "/spec/template/spec/containers").as_array().is_some_and(|c| c.len() == 2), "{:?}", now.data);
    let now = apply(&f, "other", &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}), false).await?;
    let containers = of(&now, "/spec/template/spec/containers");
    must!(containers.as_array().is_some_and(|c| c.len() == 1 && c[0]["name"] == "main"), "{containers}");
    Ok(())
}

async fn updates_take_ownership(f: Fixture) -> Outcome {
    apply(&f, "drover", &f.config_map("a", json!({"k": "1", "l": "1"})), false).await?;
    let edit = PatchParams { field_manager: Some("editor".into()), ..PatchParams::default() };
    f.config_maps().patch("a", &edit, &Patch::Merge(json!({"data": {"k": "edited"}}))).await?;
    refused(apply(&f, "drover", &f.config_map("a", json!({"k": "1", "l": "1"})), false).await, 409, "Conflict")?;
    let now = apply(&f, "drover", &f.config_map("a", json!({})), false).await?;
    must!(of(&now, "/data") == &json!({"k": "edited"}), "{:?}", now.data);
    // The fields of a created object belong to its creator.
    let made = PostParams { field_manager: Some("maker".into()), ..PostParams::default() };
    f.config_maps().create(&made, &typed(f.config_map("b", json!({"k": "1"})))).await?;
    refused(apply(&f, "drover", &f.config_map("b", json!({"k": "2"})), false).await, 409, "Conflict")
}

async fn apply_needs_a_manager(f: Fixture) -> Outcome {
    let request = http::Request::patch(format!("/api/v1/namespaces/{}/configmaps/a", f.namespace))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(f.config_map("a", json!({})).to_string().into_bytes());
    let answer = f.client.request::<Value>(request.expect("a fixed request")).await;
    must!(answer.as_ref().is_err_and(|e| matches!(super::code(e), 400 | 422)), "{answer:?}");
    Ok(())
}

async fn apply_leaves_status_alone(f: Fixture) -> Outcome {
    let mut object = f.deployment("web", 0, "10m");
    object["status"] = json!({"replicas": 7});
    let made = apply(&f, "drover", &object, false).await?;
    must!(of(&made, "/status/replicas") != 7, "{:?}", made.data);
    Ok(())
}

async fn items_of_one_key_are_refused_by_apply_alone(f: Fixture) -> Outcome {
    let mut object = f.deployment("web", 0, "10m");
    object["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let answer = apply(&f, "drover", &object, true).await;
    let said = |e: &kube::Error| e.to_string().contains("env: duplicate entries for key [name=\"A\"]");
    must!(answer.as_ref().is_err_and(|e| super::code(e) == 500 && said(e)), "{answer:?}");
    let made = f.deployments().create(&PostParams::default(), &typed(object.clone())).await?;
    let env = |object: &DynamicObject| of(object, "/spec/template/spec/containers/0/env").as_array().map_or(0, Vec::len);
    must!(env(&made) == 2, "{:?}", made.data);
    object["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] = json!("3");
    let now = f.deployments().patch("web", &PatchParams::default(), &Patch::Merge(&object)).await?;
    must!(env(&now) == 2 && of(&now, "/spec/template/spec/containers/0/env/1/value") == "3", "{:?}", now.data);
    Ok(())
}
