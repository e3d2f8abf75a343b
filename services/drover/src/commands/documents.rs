//! Files of EMCO documents in the format of emcoctl (`resourceContext.anchor`): several documents per file, which may be Go templates.
//!
//! The last part of an anchor is a collection, in which the document is created, or a verb (`…/approve`). Nothing is sent before all
//! files are read and parsed.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::hub::segment;
use crate::template;

/// Where documents come from.
#[derive(Clone, Debug, Default, Args)]
pub struct DocumentFiles {
    /// File of EMCO documents, `-` for stdin; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// File of values for documents that are Go templates, as for emcoctl; may be repeated, later files override earlier ones.
    #[arg(short = 'v', long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
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

fn place(collection: &str) -> usize {
    ORDER.iter().position(|known| *known == collection).unwrap_or(ORDER.len())
}

/// Verbs of groups, logical clouds and clusters.
const VERBS: [&str; 8] = ["approve", "instantiate", "apply", "update", "rollback", "migrate", "stop", "terminate"];

/// One parsed document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Path below `/v2`, without leading and trailing slashes.
    pub anchor: String,
    /// Body to send; a verb may have none.
    pub body: Option<Value>,
    /// Name in the collection; a verb has none.
    pub name: Option<String>,
}

impl Document {
    /// The collection or the verb.
    pub fn last(&self) -> &str {
        self.anchor.rsplit('/').next().unwrap_or_default()
    }

    /// The verb and the path of what it is for, if this is a verb.
    pub fn verb(&self) -> Option<(&str, String)> {
        let (owner, verb) = self.anchor.rsplit_once('/')?;
        self.name.is_none().then(|| (verb, format!("/v2/{owner}")))
    }

    /// Path of the collection or the verb.
    pub fn path(&self) -> String {
        format!("/v2/{}", self.anchor)
    }

    /// Path of the document itself. For a composite app it includes the version.
    pub fn address(&self) -> Option<String> {
        let name = segment(self.name.as_ref()?);
        let version = self.body.as_ref().and_then(|body| body["spec"]["compositeAppVersion"].as_str());
        Some(match version.filter(|_| self.last() == "composite-apps") {
            Some(version) => format!("{}/{name}/{}", self.path(), segment(version)),
            None => format!("{}/{name}", self.path()),
        })
    }

    /// How the document is named to people.
    pub fn title(&self) -> String {
        self.name.as_ref().map_or_else(|| self.anchor.clone(), |name| format!("{}/{name}", self.anchor))
    }

    /// Sort key: documents in the order of [`ORDER`], parents before children; then verbs, those of logical clouds before those of groups.
    fn rank(&self) -> (usize, usize) {
        let group = self.anchor.contains("/deployment-intent-groups/");
        match &self.name {
            None => (1000 + usize::from(group), 0),
            Some(_) => (self.collections().map(place).max().unwrap_or_default(), self.anchor.split('/').count()),
        }
    }

    /// The collections of the anchor, outermost first: what is below a document comes after it, whatever it is called.
    fn collections(&self) -> impl Iterator<Item = &str> {
        let mut parts = self.anchor.split('/');
        std::iter::from_fn(move || {
            let collection = parts.next()?;
            let names = if collection == "composite-apps" { 2 } else { 1 };
            for _ in 0..names {
                parts.next();
            }
            Some(collection)
        })
    }
}

/// Reads all documents, in the order in which they can be created.
///
/// # Errors
/// A file cannot be read, is not valid, or is a template whose values are missing.
pub fn read_all(source: &DocumentFiles) -> Result<Vec<Document>> {
    ensure!(!source.files.is_empty(), "no file is given; name one with -f FILE, or -f - for stdin");
    let values = values(&source.values)?;
    let mut documents = Vec::new();
    for file in &source.files {
        let (text, folder) = read(file)?;
        documents.extend(parse(&text, &folder, values.as_ref()).with_context(|| file.display().to_string())?);
    }
    documents.sort_by_key(Document::rank);
    Ok(documents)
}

/// The values of all files, merged; none if no file is given.
fn values(files: &[PathBuf]) -> Result<Option<Value>> {
    let mut merged = None;
    for file in files {
        let (text, _) = read(file)?;
        let value: Value = serde_yaml::from_str(&text).with_context(|| format!("{} is not valid YAML", file.display()))?;
        ensure!(value.is_object() || value.is_null(), "{} is not a map of values", file.display());
        merge(merged.get_or_insert_with(|| json!({})), value);
    }
    Ok(merged)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Whether a document has all fields that are wanted with the same values; it may have more. EMCO ignores the case of keys
/// (`loadbalancerIp`).
pub fn says(there: &Value, wanted: &Value) -> bool {
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
fn parse(text: &str, folder: &Path, values: Option<&Value>) -> Result<Vec<Document>> {
    let filled = match values {
        Some(values) => template::render(text, values).context("cannot fill in the values")?,
        None => text.to_owned(),
    };
    let mut documents = Vec::new();
    let without_values = values.is_none() && template::is_template(text);
    let hint = || if without_values { "; it looks like a template: give its values with --values FILE" } else { "" };
    for (at, document) in serde_yaml::Deserializer::from_str(&filled).enumerate() {
        let value = Value::deserialize(document).with_context(|| format!("document {} is not valid YAML{}", at + 1, hint()))?;
        if !value.is_null() {
            documents.push(understand(value, folder).with_context(|| format!("document {}{}", at + 1, hint()))?);
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
    if let Some(file) = map.get("file").filter(|file| !file.is_null()) {
        let content = encoded(file, folder)?.1;
        map.insert("file".into(), content.into());
    }
    if let Some(files) = map.get("files").filter(|files| !files.is_null()) {
        let files = files.as_array().context("`files` must be a list of paths")?;
        let files: Result<Vec<Value>> =
            files.iter().map(|file| encoded(file, folder).map(|(name, content)| json!({"name": name, "content": content}))).collect();
        map.insert("files".into(), files?.into());
    }
    let name = map.get("metadata").map(|metadata| &metadata["name"]).or_else(|| map.get("clusterLabel"));
    let name = name.and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    let is_verb = anchor.rsplit_once('/').is_some_and(|(_, last)| VERBS.contains(&last));
    match name {
        Some(name) if !is_verb => Ok(Document { anchor, body: Some(value), name: Some(name) }),
        _ if is_verb => {
            Ok(Document { anchor, body: Some(value).filter(|body| body.as_object().is_some_and(|map| !map.is_empty())), name: None })
        }
        _ => bail!("has no metadata.name, and its anchor does not end with a verb ({})", VERBS.join(", ")),
    }
}

/// The name of a file, and its content in base64.
fn encoded(file: &Value, folder: &Path) -> Result<(String, String)> {
    let path = folder.join(file.as_str().context("a file must be given as a path")?);
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((name, base64::engine::general_purpose::STANDARD.encode(bytes)))
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
resourceContext: {anchor: projects/p/logical-clouds/lc/kv-pairs}
metadata: {name: kv}
---
resourceContext: {anchor: projects/p/logical-clouds}
metadata: {name: lc}
---
resourceContext: {anchor: cluster-providers}
metadata: {name: onprem}
";

    #[test]
    fn documents_are_sorted_parents_first_and_verbs_last() {
        let mut documents = parse(SHUFFLED, Path::new("."), None).unwrap();
        documents.sort_by_key(Document::rank);
        let order: Vec<&str> = documents.iter().map(Document::last).collect();
        // Verbs keep the order of the file.
        assert_eq!(
            order,
            [
                "cluster-providers",
                "labels",
                "projects",
                "logical-clouds",
                "kv-pairs",
                "generic-placement-intents",
                "app-intents",
                "instantiate",
                "approve"
            ]
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
        let document = parse(text, folder.path(), None).unwrap().remove(0);
        assert_eq!(document.body.unwrap()["file"], base64::engine::general_purpose::STANDARD.encode(b"bytes"));
        let error = parse(text, Path::new("/nowhere"), None).unwrap_err();
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
            let error = parse(text, Path::new("."), None).unwrap_err();
            assert!(format!("{error:#}").contains(word), "{text}: {error:#}");
        }
    }

    #[test]
    fn verbs_may_have_a_body_and_need_no_name() {
        let text = "resourceContext: {anchor: projects/p/composite-apps/c/v1/deployment-intent-groups/g/rollback}
metadata: {description: back to the first}
spec: {revision: '1'}
---
resourceContext: {anchor: cluster-providers/p/clusters/c/apply}
metadata: {name: ''}
";
        let documents = parse(text, Path::new("."), None).unwrap();
        let (verb, owner) = documents[0].verb().unwrap();
        assert_eq!((verb, owner.as_str()), ("rollback", "/v2/projects/p/composite-apps/c/v1/deployment-intent-groups/g"));
        assert_eq!(documents[0].body, Some(json!({"metadata": {"description": "back to the first"}, "spec": {"revision": "1"}})));
        assert_eq!(documents[1].verb().unwrap().0, "apply");
    }

    #[test]
    fn values_fill_templates_and_later_files_override_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = vec![write(
            "all.yaml",
            "{{- range $at, $one := .Clusters }}\n---\nresourceContext: {anchor: cluster-providers/{{ $.Provider }}/clusters}\n\
             metadata: {name: {{ $one.Name }}}\nfiles: [all.yaml, {{ $one.File }}]\n{{- end }}\n",
        )];
        let values = vec![
            write("values.yaml", "Provider: onprem\nClusters: [{Name: a, File: values.yaml}, {Name: b, File: more.yaml}]\n"),
            write("more.yaml", "Provider: aws\n"),
        ];
        let documents = read_all(&DocumentFiles { files: files.clone(), values }).unwrap();
        let addresses: Vec<_> = documents.iter().filter_map(Document::address).collect();
        assert_eq!(addresses, ["/v2/cluster-providers/aws/clusters/a", "/v2/cluster-providers/aws/clusters/b"]);
        assert_eq!(documents[1].body.as_ref().unwrap()["files"][1]["name"], "more.yaml");
        let error = read_all(&DocumentFiles { files, values: vec![] }).unwrap_err();
        assert!(format!("{error:#}").contains("--values FILE"), "{error:#}");
    }
}
