//! Turns what the user names into apps to upload: one app, or with `--split` one per workload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use drover_manifest::{Address, Manifest, callers, objects, to_text};

use crate::input::{self, Input};
use crate::split;

/// An app ready to be uploaded.
pub struct Upload {
    pub name: String,
    /// A Helm chart as .tar.gz, or manifests.
    pub file: Vec<u8>,
    /// Other apps of the same deployment that seem to call its Services by name.
    pub callers: Vec<String>,
}

/// What is to be deployed.
pub struct Deployable {
    /// Its apps.
    pub uploads: Vec<Upload>,
    /// Number of objects, if they are known before Drover's services have rendered them.
    pub objects: Option<usize>,
    /// Number of workloads; `None` as for `objects`.
    pub workloads: Option<usize>,
    /// What the user should know: namespaces that are created, names that parts need of each other.
    pub notes: Vec<String>,
}

/// The manifests or the chart at `path` (`-`: stdin) as one app called `name`.
///
/// # Errors
/// The path cannot be read, or does not hold Kubernetes objects or a chart.
pub async fn read(path: &Path, name: &str) -> Result<Vec<Upload>> {
    Ok(together(input::read(&[PathBuf::from(path)], false).await?, name, "default")?.uploads)
}

/// The manifests of a text as one app per workload.
///
/// # Errors
/// The text does not hold Kubernetes objects, or no workload.
pub fn split_text(text: &str) -> Result<Vec<Upload>> {
    Ok(apart(Input::Manifests(objects::read("the text", text)?), "default")?.uploads)
}

/// Everything as one app: it is placed in one cluster, and moved, as a whole.
///
/// # Errors
/// Two manifests describe one object differently.
pub fn together(input: Input, name: &str, namespace: &str) -> Result<Deployable> {
    match input {
        Input::Archive(file) => Ok(Deployable {
            uploads: vec![Upload { name: name.to_owned(), file, callers: Vec::new() }],
            objects: None,
            workloads: None,
            notes: Vec::new(),
        }),
        Input::Manifests(manifests) => {
            let manifests = objects::settle(manifests, namespace)?;
            let uploads = vec![Upload { name: name.to_owned(), file: to_text(&manifests).into_bytes(), callers: Vec::new() }];
            Ok(described(&manifests, uploads, namespace))
        }
    }
}

/// One app per workload, each with the objects that belong to it.
///
/// # Errors
/// Two manifests describe one object differently, there is no workload, or the input is a chart.
pub fn apart(input: Input, namespace: &str) -> Result<Deployable> {
    let Input::Manifests(manifests) = input else {
        bail!(
            "--split takes manifests apart; a chart or an archive is one app. `helm template CHART | drover deploy NAME --split -f -` deploys its parts"
        )
    };
    let manifests = objects::settle(manifests, namespace)?;
    let apps = split::split(manifests.clone(), namespace)?;
    let needs = split::needs(&apps, namespace);
    let callers = |of: &str| needs.iter().filter(|(_, needs)| needs.iter().any(|(_, has)| has == of)).map(|(app, _)| app.clone()).collect();
    let upload =
        |app: &split::App| Upload { name: app.name.clone(), file: to_text(&app.manifests).into_bytes(), callers: callers(&app.name) };
    let uploads = apps.iter().map(upload).collect();
    let mut deployable = described(&manifests, uploads, namespace);
    for (app, needs) in needs {
        let needs: Vec<String> = needs.into_iter().map(|(service, of)| format!("{service} (app {of})")).collect();
        deployable.notes.push(format!(
            "{app} calls by name what is in other apps: {}; a cluster that runs only one of the two does not know the name",
            needs.join(", ")
        ));
    }
    Ok(deployable)
}

fn described(manifests: &[Manifest], uploads: Vec<Upload>, namespace: &str) -> Deployable {
    let addresses: Vec<Address> = manifests.iter().map(|manifest| objects::address(&manifest.value, namespace)).collect();
    let brought: BTreeSet<&str> = addresses
        .iter()
        .filter(|address| address.kind == "Namespace" && address.group.is_empty())
        .map(|address| address.name.as_str())
        .collect();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for address in &addresses {
        let own = address.namespace.as_str();
        if !own.is_empty() && own != "default" && !brought.contains(own) {
            *named.entry(own).or_default() += 1;
        }
    }
    let notes = named.into_iter().map(|(namespace, count)| match count {
        1 => format!("1 object is in the namespace {namespace}, which is created where it does not exist"),
        count => format!("{count} objects are in the namespace {namespace}, which is created where it does not exist"),
    });
    let workloads = manifests.iter().filter(|manifest| callers::is_workload(&manifest.value)).count();
    Deployable { uploads, objects: Some(manifests.len()), workloads: Some(workloads), notes: notes.collect() }
}
