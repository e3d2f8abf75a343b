//! `drover apply`: EMCO documents in the format of emcoctl (`resourceContext.anchor`), several per file, parents first.
//!
//! A document whose anchor is a collection is created there, or replaced if it exists. One without `metadata` is a verb
//! (`…/approve`, `…/instantiate`), which is called after all documents are written. Nothing is sent before all files are read and
//! parsed.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Session;
use super::deploy::operation_of;
use crate::client::{code, segment};
use crate::{output, watch};

/// `drover apply`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  drover apply -f emco-resources.yaml\n  drover apply -f 01-clusters.yaml -f 02-project.yaml --wait")]
pub struct ApplyArgs {
    /// File of EMCO documents, `-` for stdin; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Wait for the operation that each verb starts before the next one is called.
    #[arg(long)]
    pub wait: bool,
}

/// Collections in the order in which their documents can be created. Collections not named here come last.
const ORDER: [&str; 24] = [
    "cluster-providers",
    "clusters",
    "labels",
    "kv-pairs",
    "clm-controllers",
    "controllers",
    "projects",
    "migration-parameters",
    "migration-algorithms",
    "migration-policies",
    "logical-clouds",
    "cluster-references",
    "composite-apps",
    "apps",
    "dependency",
    "call-graphs",
    "composite-profiles",
    "profiles",
    "deployment-intent-groups",
    "generic-placement-intents",
    "migration-intents",
    "app-intents",
    "intents",
    "user-permissions",
];

/// One parsed document.
#[derive(Clone, Debug, PartialEq)]
struct Document {
    /// Path below `/v2`, without leading and trailing slashes.
    anchor: String,
    /// Body to send; a verb has none.
    body: Option<Value>,
    /// Name in the collection.
    name: Option<String>,
}

impl Document {
    fn last(&self) -> &str {
        self.anchor.rsplit('/').next().unwrap_or_default()
    }

    /// Path of the document below its collection. For a composite app that includes the version.
    fn key(&self, name: &str) -> String {
        let version = self.body.as_ref().and_then(|body| body["spec"]["compositeAppVersion"].as_str());
        match version.filter(|_| self.last() == "composite-apps") {
            Some(version) => format!("{}/{}", segment(name), segment(version)),
            None => segment(name),
        }
    }

    /// Sort key: documents in the order of [`ORDER`], parents before children; then verbs, those of logical clouds before those of groups.
    fn rank(&self) -> (usize, usize) {
        let group = self.anchor.contains("/deployment-intent-groups/");
        match &self.body {
            None => (1000 + usize::from(group), 0),
            Some(_) => (ORDER.iter().position(|known| *known == self.last()).unwrap_or(ORDER.len()), self.anchor.split('/').count()),
        }
    }
}

/// Runs it.
pub async fn run(session: &Session, args: ApplyArgs) -> Result<()> {
    let mut documents = Vec::new();
    for file in &args.files {
        let (text, folder) = read(file)?;
        documents.extend(parse(&text, &folder).with_context(|| file.display().to_string())?);
    }
    documents.sort_by_key(Document::rank);
    let mut done = Vec::new();
    for document in &documents {
        let outcome = send(session, document, args.wait).await.with_context(|| match &document.name {
            Some(name) => format!("{}/{name}", document.anchor),
            None => document.anchor.clone(),
        })?;
        done.push(json!({"anchor": document.anchor, "name": document.name, "outcome": outcome}));
    }
    output::print(session.format, &done, |_| {
        let cell = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = done.iter().map(|row| vec![cell(&row["anchor"]), cell(&row["name"]), cell(&row["outcome"])]);
        (vec!["ANCHOR", "NAME", "OUTCOME"], rows.collect())
    })
}

async fn send(session: &Session, document: &Document, wait: bool) -> Result<String> {
    let path = format!("/v2/{}", document.anchor);
    let (Some(body), Some(name)) = (&document.body, &document.name) else {
        let answer = match session.client.post(&path, None).await {
            // The group is in that state already, so that repeating `drover apply` is harmless.
            Err(error) if code(&error) == Some("wrong_state") && document.last() != "terminate" => {
                let why = error.to_string();
                return Ok(format!("unchanged: {}", why.lines().next().unwrap_or_default()));
            }
            answer => answer?,
        };
        if answer.location.is_none() {
            return Ok("done".into());
        }
        let id = operation_of(&answer)?;
        if wait {
            watch::to_success(&session.client, &id).await?;
            return Ok("done".into());
        }
        return Ok(format!("operation {id}"));
    };
    match session.client.post(&path, Some(body)).await {
        Ok(answer) => {
            for warning in answer.warnings {
                let text = warning.splitn(3, ' ').last().unwrap_or_default().trim_matches('"');
                eprintln!("warning: {}/{name}: {text}", document.anchor);
            }
            Ok("created".into())
        }
        Err(error) if code(&error) == Some("already_exists") => {
            let path = format!("{path}/{}", document.key(name));
            // Some kinds cannot be replaced, at least not any more, so a document that is as wanted is left alone. Files are not part
            // of what is read, so they are always sent.
            let there = session.client.find(&path).await?.unwrap_or_default();
            if body.get("file").is_none() && says(&there, body) {
                return Ok("unchanged".into());
            }
            session.client.put(&path, body).await.map(|_| "replaced".into())
        }
        Err(error) => Err(error),
    }
}

/// Whether a document has all fields that are wanted with the same values; it may have more. EMCO ignores the case of keys
/// (`loadbalancerIp`).
fn says(there: &Value, wanted: &Value) -> bool {
    let of =
        |there: &Map<String, Value>, key: &str| there.iter().find(|(known, _)| known.eq_ignore_ascii_case(key)).map(|(_, v)| v.clone());
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| of(there, key).is_some_and(|there| says(&there, wanted)))
        }
        _ => there == wanted,
    }
}

fn read(file: &Path) -> Result<(String, PathBuf)> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok((text, PathBuf::from(".")));
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((text, file.parent().unwrap_or(Path::new(".")).to_owned()))
}

/// The documents of a file. Paths in them are relative to the directory of that file.
fn parse(text: &str, folder: &Path) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (at, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let value = Value::deserialize(document).with_context(|| format!("document {} is not valid YAML", at + 1))?;
        if !value.is_null() {
            documents.push(understand(value, folder).with_context(|| format!("document {}", at + 1))?);
        }
    }
    ensure!(!documents.is_empty(), "there are no documents in this file");
    Ok(documents)
}

fn understand(mut value: Value, folder: &Path) -> Result<Document> {
    let Some(map) = value.as_object_mut() else { bail!("is no EMCO document, which is a map with resourceContext.anchor") };
    map.remove("version");
    let context = map.remove("resourceContext").unwrap_or_default();
    let Some(anchor) = context["anchor"].as_str() else { bail!("has no resourceContext.anchor, which names its collection") };
    let anchor = anchor.trim_matches('/');
    let anchor = anchor.strip_prefix("v2/").unwrap_or(anchor).to_owned();
    ensure!(!anchor.is_empty() && !anchor.contains(['?', '#']), "the anchor {anchor:?} is not a path");
    if map.contains_key("files") {
        bail!("`files` is not supported by this version; use `file`");
    }
    if let Some(file) = map.get("file") {
        let Some(name) = file.as_str() else { bail!("`file` must be a path") };
        let path = folder.join(name);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        map.insert("file".into(), base64::engine::general_purpose::STANDARD.encode(bytes).into());
    }
    let name = map.get("metadata").map(|metadata| &metadata["name"]).or_else(|| map.get("clusterLabel"));
    let name = name.and_then(Value::as_str).map(str::to_owned);
    if map.is_empty() {
        return Ok(Document { anchor, body: None, name: None });
    }
    ensure!(name.is_some(), "has no metadata.name");
    Ok(Document { anchor, body: Some(value), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHUFFLED: &str = "
resourceContext: {anchor: projects/p/composite-apps/shop/v1/deployment-intent-groups/g/instantiate}
---
version: emco/v2
resourceContext: {anchor: projects/p/composite-apps/shop/v1/deployment-intent-groups/g/approve}
---
version: emco/v2
resourceContext: {anchor: projects/p/composite-apps/shop/v1/deployment-intent-groups/g/generic-placement-intents/i/app-intents}
metadata: {name: cart}
spec: {app: cart, intent: {allOf: [{clusterProvider: onprem, cluster: a}]}}
---
resourceContext: {anchor: projects/p/composite-apps/shop/v1/deployment-intent-groups/g/generic-placement-intents}
metadata: {name: i}
---
resourceContext: {anchor: /v2/projects}
metadata: {name: p}
---
resourceContext: {anchor: cluster-providers/onprem/clusters/a/labels}
clusterLabel: edge
---
resourceContext: {anchor: cluster-providers}
metadata: {name: onprem}
";

    #[test]
    fn documents_are_sorted_parents_first_and_verbs_last() {
        let mut documents = parse(SHUFFLED, Path::new(".")).unwrap();
        documents.sort_by_key(Document::rank);
        let order: Vec<&str> = documents.iter().map(Document::last).collect();
        // Verbs keep the order of the file.
        assert_eq!(
            order,
            ["cluster-providers", "labels", "projects", "generic-placement-intents", "app-intents", "instantiate", "approve"]
        );
        assert_eq!((documents[1].name.as_deref(), documents[1].body.clone()), (Some("edge"), Some(json!({"clusterLabel": "edge"}))));
        assert_eq!(documents[0].body, Some(json!({"metadata": {"name": "onprem"}})), "fields for emcoctl alone are not sent");
    }

    #[test]
    fn says_ignores_additional_fields_and_the_case_of_keys() {
        let there = json!({"metadata": {"name": "p", "description": ""}, "spec": {"priority": 1}});
        assert!(says(&there, &json!({"metadata": {"name": "p"}})));
        assert!(says(&there, &json!({"metadata": {"name": "p"}, "spec": {"Priority": 1}})), "as EMCO's examples write it");
        assert!(!says(&there, &json!({"metadata": {"name": "p"}, "spec": {"priority": 2}})));
        assert!(!says(&there, &json!({"metadata": {"name": "p", "userData1": "x"}})));
    }

    #[test]
    fn file_paths_are_relative_to_the_document() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app.tgz"), b"bytes").unwrap();
        let text = "resourceContext: {anchor: projects/p/composite-apps/c/v1/apps}\nmetadata: {name: web}\nfile: app.tgz\n";
        let document = parse(text, folder.path()).unwrap().remove(0);
        assert_eq!(document.body.unwrap()["file"], base64::engine::general_purpose::STANDARD.encode(b"bytes"));
        let error = parse(text, Path::new("/nowhere")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot read /nowhere/app.tgz"), "{error:#}");
    }

    #[test]
    fn parse_errors_name_the_missing_field() {
        for (text, word) in [
            ("metadata: {name: a}", "resourceContext.anchor"),
            ("resourceContext: {anchor: projects}\nspec: {}", "metadata.name"),
            ("- 1", "no EMCO document"),
            ("a: [", "not valid YAML"),
            ("", "no documents"),
        ] {
            let error = parse(text, Path::new(".")).unwrap_err();
            assert!(format!("{error:#}").contains(word), "{text}: {error:#}");
        }
    }
}
