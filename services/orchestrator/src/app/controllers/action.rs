//! Action controllers: what is added to, changed in and removed from the objects of apps, in all clusters or in some.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterName, Controller, ControllerAnswer, ControllerCalls, question, refusal, unusable};
use crate::app::actions::change;
use crate::app::actions::clusters::LabelledMembers;
use crate::app::actions::objects::{Clusters, Objects};
use crate::app::{Error, Group};
use crate::render::Rendered;

/// The answer of an action controller.
#[derive(Debug, Default, Deserialize)]
struct ActionAnswer {
    #[serde(default)]
    changes: Vec<AppChange>,
    /// Why the group must not be deployed.
    #[serde(default)]
    refused: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct AppChange {
    app: String,
    /// Absent: all clusters.
    #[serde(default)]
    clusters: Option<Vec<ClusterName>>,
    #[serde(default)]
    patch: Vec<ObjectPatch>,
    #[serde(default)]
    remove: Vec<ObjectName>,
    #[serde(default)]
    add: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectName {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct ObjectPatch {
    #[serde(flatten)]
    object: ObjectName,
    /// A JSON patch (RFC 6902).
    #[serde(default)]
    json: Option<json_patch::Patch>,
    /// Merged into the object, as `kubectl patch` does it.
    #[serde(default)]
    merge: Option<Value>,
}

/// An app with its objects.
pub struct AppObjects {
    pub app: String,
    pub namespace: String,
    pub rendered: Rendered,
}

impl ControllerCalls {
    /// Asks action controllers, one after the other, and changes the apps as they say. Returns their answers.
    ///
    /// # Errors
    /// A controller failed or refuses.
    pub async fn act(
        &self,
        named: &[Controller],
        group: &Group,
        members: &LabelledMembers,
        apps: &mut [AppObjects],
        dry: bool,
    ) -> Result<Vec<ControllerAnswer>, Error> {
        let mut answers = Vec::new();
        for controller in named {
            let mut question = question(controller, group, members, dry);
            question["apps"] = apps.iter().map(shown).collect();
            let asked = self.ask::<ActionAnswer>(controller, &question).await?;
            let mut record = asked.record;
            if let Some(answer) = asked.answer {
                refusal(controller, answer.refused)?;
                match changed(&answer.changes, members, apps) {
                    Ok((changed, said)) => {
                        changed.into_iter().zip(apps.iter_mut()).for_each(|(rendered, app)| app.rendered = rendered);
                        record.said = said;
                    }
                    Err(reason) => unusable(controller, &mut record, reason)?,
                }
            }
            answers.push(record);
        }
        Ok(answers)
    }
}

/// An app as controllers see it: the values of Secrets are left out.
fn shown(app: &AppObjects) -> Value {
    let without_secrets = |objects: &[Value]| -> Vec<Value> {
        let without = |object: &Value| {
            let mut object = object.clone();
            if object["kind"] == "Secret"
                && let Some(fields) = object.as_object_mut()
            {
                fields.remove("data");
                fields.remove("stringData");
            }
            object
        };
        objects.iter().map(without).collect()
    };
    let variants: Vec<Value> = app
        .rendered
        .variants
        .iter()
        .map(|(member, objects)| {
            json!({"clusterProvider": member.provider(), "cluster": member.cluster(), "objects": without_secrets(objects)})
        })
        .collect();
    json!({"app": app.app, "namespace": app.namespace, "objects": without_secrets(&app.rendered.objects), "variants": variants})
}

/// The apps after the changes, and what was done, for people.
fn changed(changes: &[AppChange], members: &LabelledMembers, apps: &[AppObjects]) -> Result<(Vec<Rendered>, Vec<String>), String> {
    let mut objects: Vec<Objects> = apps.iter().map(|app| Objects::of(app.rendered.clone())).collect();
    let mut said = Vec::new();
    for one in changes {
        let at =
            apps.iter().position(|app| app.app == one.app).ok_or_else(|| format!("it names the app {}, which does not exist", one.app))?;
        let (clusters, whereabouts) = match &one.clusters {
            None => (Clusters::Everywhere, String::new()),
            Some(names) => {
                let chosen = names.iter().map(|name| name.member(members)).collect::<Result<std::collections::BTreeSet<_>, _>>()?;
                let text = chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                (Clusters::These(chosen), format!(" on {text}"))
            }
        };
        let app = &mut objects[at];
        for patch in &one.patch {
            app.change(&clusters, |objects| patched(objects, patch))?;
            said.push(format!("{}: changed {}/{}{whereabouts}", one.app, patch.object.kind, patch.object.name));
        }
        for name in &one.remove {
            app.change(&clusters, |objects| {
                let at = found(objects, name)?;
                objects.remove(at);
                Ok(())
            })?;
            said.push(format!("{}: removed {}/{}{whereabouts}", one.app, name.kind, name.name));
        }
        for object in &one.add {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
            let (Some(_), Some(kind), Some(name)) = (text("/apiVersion"), text("/kind"), text("/metadata/name")) else {
                return Err(format!("an object that it adds to {} has no apiVersion, kind or name", one.app));
            };
            app.change(&clusters, |objects| {
                objects.push(object.clone());
                Ok(())
            })?;
            said.push(format!("{}: added {kind}/{name}{whereabouts}", one.app));
        }
    }
    let rendered =
        objects.into_iter().zip(apps).map(|(objects, app)| objects.rendered().map_err(|reason| format!("{}: {reason}", app.app)));
    Ok((rendered.collect::<Result<_, _>>()?, said))
}

fn found(objects: &[Value], wanted: &ObjectName) -> Result<usize, String> {
    let is = |object: &Value| {
        object["kind"] == wanted.kind.as_str()
            && object["metadata"]["name"] == wanted.name.as_str()
            && (wanted.api_version.is_empty() || object["apiVersion"] == wanted.api_version.as_str())
    };
    objects.iter().position(is).ok_or_else(|| format!("there is no {} {}", wanted.kind, wanted.name))
}

fn patched(objects: &mut [Value], patch: &ObjectPatch) -> Result<(), String> {
    let at = found(objects, &patch.object)?;
    if let Some(json) = &patch.json {
        json_patch::patch(&mut objects[at], json)
            .map_err(|error| format!("its patch does not fit {} {}: {error}", patch.object.kind, patch.object.name))?;
    }
    if let Some(merge) = &patch.merge {
        change::merge(&mut objects[at], merge);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::MemberKey;

    use super::*;

    fn apps() -> Vec<AppObjects> {
        let object =
            |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": {"key": "dmFsdWU="}});
        let rendered = Rendered::of(vec![object("ConfigMap", "a"), object("Secret", "s")]).unwrap();
        vec![AppObjects { app: "web".into(), namespace: "default".into(), rendered }]
    }

    fn members() -> LabelledMembers {
        LabelledMembers([(MemberKey::new("p", "a"), Default::default()), (MemberKey::new("p", "b"), Default::default())].into())
    }

    fn carried_out(changes: Value) -> Result<(Vec<Rendered>, Vec<String>), String> {
        changed(&serde_json::from_value::<Vec<AppChange>>(changes).unwrap(), &members(), &apps())
    }

    #[test]
    fn objects_are_added_changed_and_removed_in_all_or_some_clusters() {
        let (rendered, said) = carried_out(json!([
            {"app": "web", "patch": [{"kind": "ConfigMap", "name": "a", "merge": {"data": {"more": "1"}}}], "remove": [{"kind": "Secret", "name": "s"}]},
            {"app": "web", "clusters": [{"clusterProvider": "p", "cluster": "b"}],
             "add": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "only-b"}}]},
        ]))
        .unwrap();
        let names = |member: &str| {
            let objects = rendered[0].in_member(&MemberKey::new("p", member));
            objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((names("a"), names("b")), (vec!["a".to_owned()], vec!["a".to_owned(), "only-b".to_owned()]));
        assert_eq!(rendered[0].objects[0]["data"]["more"], "1");
        assert_eq!(said, ["web: changed ConfigMap/a", "web: removed Secret/s", "web: added ConfigMap/only-b on p+b"]);
    }

    #[test]
    fn changes_that_do_not_fit_are_refused() {
        for (changes, reason) in [
            (json!([{"app": "db"}]), "it names the app db, which does not exist"),
            (json!([{"app": "web", "remove": [{"kind": "Job", "name": "x"}]}]), "there is no Job x"),
            (json!([{"app": "web", "add": [{"kind": "Job"}]}]), "an object that it adds to web has no apiVersion, kind or name"),
            (
                json!([{"app": "web", "clusters": [{"clusterProvider": "q", "cluster": "a"}]}]),
                "it names q+a, which is not in the logical cloud",
            ),
        ] {
            assert_eq!(carried_out(changes).unwrap_err(), reason);
        }
    }

    #[test]
    fn controllers_do_not_see_values_of_secrets() {
        let seen = shown(&apps()[0]);
        assert!(!seen["objects"][1].to_string().contains("dmFsdWU="), "{seen}");
        assert_eq!(seen["objects"][0]["data"]["key"], "dmFsdWU=");
    }
}
