//! `drover diff`: what a deployment would change in the objects of an application. Changes nothing.
//!
//! Compares the manifests that the application has with those that would be uploaded, object by object, with the program `diff`, as kubectl
//! does. Of a chart only the services know the objects: they are asked in a dry run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::application::{Application, dry_run, names};
use crate::globals::Format;
use crate::hub::segment;
use crate::input::Input;
use crate::output;
use crate::{manifests, session::Session};

/// `drover diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover diff shop -f ./manifests/
  drover diff shop -k ./overlays/test/

Prints a unified diff of the objects that `drover deploy` got last and those that it would get now; of a chart, with the values that the
application has, the objects and fields that would change. With -o json it lists the names. What someone changed in a cluster is not shown: Drover sets it back by itself.")]
pub struct DiffArgs {
    /// Name of the application.
    name: String,
    #[command(flatten)]
    input: crate::input::InputArgs,
}

/// Prints the differences.
///
/// # Errors
/// The files cannot be read, a request fails, or the program `diff` is missing.
pub async fn run(session: &Session, args: &DiffArgs) -> Result<()> {
    let application = Application::new(session, &args.name);
    let input = args.input.read().await?;
    let is_chart = matches!(input, Input::Archive(_));
    let uploads = manifests::together(input, &args.name, "default")?.uploads;
    if is_chart {
        let preview = dry_run::preview(session, &application, &uploads).await?;
        let objects = preview["objects"].as_array().cloned().unwrap_or_default();
        return output::print(session.format, &objects, |_| (vec!["OBJECT", "CHANGE", "FIELD", "NEW VALUE"], rows(&objects)));
    }
    let folder = tempfile::tempdir()?;
    for side in ["deployed", "new"] {
        std::fs::create_dir(folder.path().join(side))?;
    }
    let apps = format!("{}/apps", application.composite);
    for app in names(session, &apps).await? {
        let file = session.client.file(&format!("{apps}/{}", segment(&app))).await?;
        unfold(&file, &folder.path().join("deployed"))?;
    }
    for upload in uploads {
        unfold(&upload.file, &folder.path().join("new"))?;
    }
    let mut diff = Command::new("diff");
    let mode = if matches!(session.format, Format::Json | Format::Yaml) { "-rqN" } else { "-ruN" };
    let output =
        diff.args([mode, "deployed", "new"]).current_dir(folder.path()).output().context("cannot run `diff`; install diffutils")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if matches!(session.format, Format::Json | Format::Yaml) {
        let changed: Vec<Value> = text.lines().filter_map(|line| change(line, folder.path())).collect();
        return output::print(session.format, &changed, |_| (vec![], vec![]));
    }
    match text.is_empty() {
        true => output::write_stdout("no differences"),
        false => output::write_stdout(&text),
    }
}

/// A row per object, and per field of an object that changes.
fn rows(objects: &[Value]) -> Vec<Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |object: &Value| -> Vec<Vec<String>> {
        let (name, change) = (text(&object["object"]), text(&object["change"]));
        let patch = object["patch"].as_array().cloned().unwrap_or_default();
        let field = |one: &Value| {
            let new = one.get("value").map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            vec![name.clone(), text(&one["op"]), text(&one["path"]), new.unwrap_or_default()]
        };
        if patch.is_empty() { vec![vec![name.clone(), change, String::new(), String::new()]] } else { patch.iter().map(field).collect() }
    };
    objects.iter().flat_map(of).collect()
}

/// `Files deployed/X and new/X differ` as an object.
fn change(line: &str, folder: &Path) -> Option<Value> {
    let name = line.strip_prefix("Files deployed/")?.split(" and new/").next()?;
    let there = |side: &str| folder.join(side).join(name).exists();
    let what = match (there("deployed"), there("new")) {
        (true, true) => "changed",
        (true, false) => "removed",
        _ => "added",
    };
    Some(json!({"object": name.trim_end_matches(".json"), "change": what}))
}

/// Writes each object of manifests to a file of its own. A chart that was deployed before has no objects that are known here.
fn unfold(file: &[u8], to: &Path) -> Result<()> {
    if file.starts_with(&[0x1f, 0x8b]) {
        return Ok(());
    }
    for object in
        drover_manifest::objects::read("the application", &String::from_utf8_lossy(file))?.into_iter().map(|manifest| manifest.value)
    {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
        let place = [text(&metadata["namespace"]), text(&metadata["name"])].into_iter().filter(|part| !part.is_empty());
        let name = std::iter::once(kind).chain(place).collect::<Vec<_>>().join(".").replace('/', "_");
        std::fs::write(to.join(format!("{name}.json")), serde_json::to_string_pretty(&object)? + "\n")?;
    }
    Ok(())
}
