//! Values of a chart: `--values` becomes the profile of the app, `--set` the override values of the group.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use clap::Args;
use drover_manifest::{Limits, yaml};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::{Application, NAME};
use crate::hub::segment;
use crate::session::Session;

/// The values that the user gives. An application keeps the values that it has if none are given.
#[derive(Debug, Args)]
pub struct ValuesArgs {
    /// File with values for a chart; may be repeated, later files count more. As for `--set`, what was given before is replaced.
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// A value for a chart, as for helm: `image.tag=1.2,replicas=3`; counts more than files. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Deploy a chart with its own values, without those that were given before.
    #[arg(long)]
    pub reset_values: bool,
}

/// The values of a chart.
pub struct Values {
    /// The files, merged.
    files: Option<Value>,
    set: BTreeMap<String, String>,
}

impl Values {
    /// `None` if nothing was given.
    ///
    /// # Errors
    /// A file cannot be read or is not a mapping, or a value of `--set` has no key.
    pub fn of(args: &ValuesArgs) -> Result<Option<Self>> {
        if args.values.is_empty() && args.set.is_empty() && !args.reset_values {
            return Ok(None);
        }
        let mut files = None;
        for path in &args.values {
            let more = read(path).with_context(|| format!("--values {}", path.display()))?;
            match &mut files {
                None => files = Some(more),
                Some(files) => merge(files, more),
            }
        }
        let pairs = args.set.iter().flat_map(|text| pairs(text));
        let set: Result<BTreeMap<String, String>> = pairs
            .map(|pair| {
                let (key, value) = pair
                    .split_once('=')
                    .filter(|(key, _)| !key.is_empty())
                    .with_context(|| format!("--set {pair}: write KEY=VALUE; a comma in a value is written as `\\,`"))?;
                Ok((key.to_owned(), value.to_owned()))
            })
            .collect();
        Ok(Some(Self { files, set: set? }))
    }

    /// Override values of the deployment intent group.
    pub fn overrides(&self, app: &str) -> Value {
        if self.set.is_empty() { json!([]) } else { json!([{"app": app, "values": self.set}]) }
    }

    /// Writes the profile of the app, or deletes it.
    ///
    /// # Errors
    /// A request fails.
    pub async fn write_profile(&self, session: &Session, application: &Application, app: &str) -> Result<()> {
        let profiles = application.profiles();
        let Some(files) = &self.files else {
            return session.client.delete(&format!("{profiles}/{}", segment(app))).await;
        };
        put_profile(session, &profiles, app, &archive(files)?).await
    }
}

/// Creates or replaces the profile of an app.
///
/// # Errors
/// The request fails.
pub async fn put_profile(session: &Session, profiles: &str, app: &str, archive: &[u8]) -> Result<()> {
    let file = base64::engine::general_purpose::STANDARD.encode(archive);
    let body = json!({"metadata": {"name": app}, "spec": {"app": app}, "file": file});
    session.client.upsert(profiles, &segment(app), &body).await.map(drop)
}

impl Application {
    /// The collection of the profiles of its apps.
    pub fn profiles(&self) -> String {
        format!("{}/composite-profiles/{NAME}/profiles", self.composite)
    }
}

/// The archive of a profile with these values.
fn archive(values: &Value) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let manifest = json!({"version": "v1", "type": {"values": "values.yaml"}});
    for (name, content) in [("manifest.yaml", &manifest), ("values.yaml", values)] {
        let content = content.to_string();
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path)?;
    let value = yaml::one(&text, Limits::MANIFESTS)?;
    ensure!(value.is_object() || value.is_null(), "it is not a mapping of values");
    Ok(if value.is_null() { Value::Object(Map::new()) } else { value })
}

/// As helm: mappings are merged, everything else is replaced.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// The parts of `a=1,b={2\,3}`: commas that are escaped or in braces do not separate.
fn pairs(text: &str) -> Vec<String> {
    let (mut pairs, mut escaped, mut depth) = (vec![String::new()], false, 0_u32);
    for c in text.chars() {
        let separates = c == ',' && !escaped && depth == 0;
        match c {
            '{' if !escaped => depth += 1,
            '}' if !escaped => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if separates {
            pairs.push(String::new());
        } else if let Some(last) = pairs.last_mut() {
            last.push(c);
        }
    }
    pairs.retain(|pair| !pair.is_empty());
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_is_split_at_commas_that_are_neither_escaped_nor_in_braces() {
        assert_eq!(pairs(r"a.b=1,c={x,y},d=p\,q"), ["a.b=1", "c={x,y}", r"d=p\,q"]);
        assert_eq!(pairs("a=b=c"), ["a=b=c"]);
    }

    #[test]
    fn later_files_replace_scalars_and_lists_and_merge_mappings() {
        let mut values = json!({"image": {"tag": "1", "name": "web"}, "hosts": [1, 2]});
        merge(&mut values, json!({"image": {"tag": "2"}, "hosts": [3], "new": {"x": 1}}));
        assert_eq!(values, json!({"image": {"tag": "2", "name": "web"}, "hosts": [3], "new": {"x": 1}}));
    }

    #[test]
    fn value_without_a_key_is_refused() {
        let args = |set: &str| ValuesArgs { values: vec![], set: vec![set.to_owned()], reset_values: false };
        assert!(Values::of(&args("=1")).is_err() && Values::of(&args("replicas")).is_err());
        assert!(Values::of(&args("replicas=")).is_ok());
    }
}
