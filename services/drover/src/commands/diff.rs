//! `drover diff`: what a deployment would change in the objects of an application. Changes nothing.
//!
//! Compares the manifests that the application has with those that would be uploaded, object by object, with the program `diff`, as kubectl
//! does. Of a chart only the services know the objects: they are asked in a dry run.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::application::source::SourceArgs;
use crate::application::{Application, dry_run, names};
use crate::globals::Format;
use crate::hub::segment;
use crate::output;
use crate::session::Session;

/// `drover diff`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover diff shop -f ./manifests/
  drover diff shop -k ./overlays/test/
  drover diff shop -f ./chart/ --set image.tag=1.2.4
  drover diff podinfo --chart podinfo --repo https://stefanprodan.github.io/podinfo --version 6.7.1

Prints a unified diff of the objects that `drover deploy` got last and those that it would get now with the same options; of a chart the
objects and fields that would change, with the values that the application has if none are given. With -o json it lists the objects, of a
chart with the fields. What someone changed in a cluster is not shown: Drover sets it back by itself.

Exit codes, as of diff: 0 no differences, 1 differences, 2 an error.")]
pub struct DiffArgs {
    /// Name of the application.
    name: String,
    #[command(flatten)]
    source: SourceArgs,
}

/// Prints the differences, or why they cannot be told. Returns the exit code.
pub async fn run(session: Result<Session>, args: &DiffArgs) -> ExitCode {
    let differ = match session {
        Ok(session) => differences(&session, args).await,
        Err(error) => Err(error),
    };
    match differ {
        Ok(differ) => ExitCode::from(u8::from(differ)),
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Whether there are any.
async fn differences(session: &Session, args: &DiffArgs) -> Result<bool> {
    let application = Application::new(session, &args.name);
    let (wishes, uploads) = (args.source.wishes()?, args.source.read(session, &application).await?.deployable.uploads);
    let apps = format!("{}/apps", application.composite);
    let mut deployed = Vec::new();
    for app in names(session, &apps).await? {
        deployed.push(session.client.file(&format!("{apps}/{}", segment(&app))).await?);
    }
    let new: Vec<Vec<u8>> = uploads.iter().map(|upload| upload.file.clone()).collect();
    if deployed.iter().chain(&new).any(|file| is_archive(file)) {
        let preview = dry_run::preview(session, &application, &uploads, &wishes).await?;
        let objects = preview["objects"].as_array().cloned().unwrap_or_default();
        return shown(session, &objects, || (vec!["OBJECT", "CHANGE", "FIELD", "NEW VALUE"], rows(&objects)));
    }
    let folder = tempfile::tempdir()?;
    for (side, files) in [("deployed", deployed), ("new", new)] {
        let side = folder.path().join(side);
        std::fs::create_dir(&side)?;
        files.iter().try_for_each(|file| unfold(file, &side))?;
    }
    let listed = matches!(session.format, Format::Json | Format::Yaml);
    let mut diff = Command::new("diff");
    diff.args([if listed { "-rqN" } else { "-ruN" }, "deployed", "new"]).current_dir(folder.path());
    let output = diff.output().context("cannot run `diff`; install diffutils")?;
    ensure!(output.status.code().is_some_and(|code| code < 2), "`diff` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout);
    if listed || text.is_empty() {
        let changed: Vec<Value> = text.lines().filter_map(|line| change(line, folder.path())).collect();
        return shown(session, &changed, || (vec![], vec![]));
    }
    output::write_stdout(&text)?;
    Ok(true)
}

/// Prints the list of objects that differ. Returns whether there are any.
fn shown(session: &Session, objects: &[Value], table: impl FnOnce() -> (Vec<&'static str>, Vec<Vec<String>>)) -> Result<bool> {
    if objects.is_empty() && !matches!(session.format, Format::Json | Format::Yaml) {
        output::write_stdout("no differences")?;
    } else {
        output::print(session.format, &objects, |_| table())?;
    }
    Ok(!objects.is_empty())
}

/// A chart, or an archive of manifests: only the services know its objects.
fn is_archive(file: &[u8]) -> bool {
    file.starts_with(&[0x1f, 0x8b])
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

/// Writes each object of manifests to a file of its own.
fn unfold(file: &[u8], to: &Path) -> Result<()> {
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
