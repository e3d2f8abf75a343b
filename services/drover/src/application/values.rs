//! Values of a chart: `--values` and `--set-string` become the profile of the app, `--set` the override values of the group.

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

/// The most items that `--set-string` gives a list.
const LONGEST: usize = 1000;

/// The values that the user gives. An application keeps the values that it has if none are given.
#[derive(Debug, Args)]
pub struct ValuesArgs {
    /// File with values for a chart; may be repeated, later files count more. As for `--set`, what was given before is replaced.
    #[arg(long, value_name = "FILE")]
    pub values: Vec<PathBuf>,
    /// A value for a chart, as for helm: `image.tag=1.2,replicas=3`; counts more than files. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// As `--set`, for a value that is text whatever it looks like: `port=8080`, `enabled=true`. Counts more than files and less than
    /// `--set`. May be repeated.
    #[arg(long, value_name = "KEY=TEXT")]
    pub set_string: Vec<String>,
    /// Deploy a chart with its own values, without those that were given before.
    #[arg(long)]
    pub reset_values: bool,
}

impl ValuesArgs {
    /// Whether there is a value.
    pub fn are_given(&self) -> bool {
        !self.values.is_empty() || !self.set.is_empty() || !self.set_string.is_empty()
    }
}

/// The values of a chart.
pub struct Values {
    /// The files, merged, and the texts.
    files: Option<Value>,
    set: BTreeMap<String, String>,
}

impl Values {
    /// `None` if nothing was given.
    ///
    /// # Errors
    /// A file cannot be read or is not a mapping, or a value of `--set` or `--set-string` has no key.
    pub fn of(args: &ValuesArgs) -> Result<Option<Self>> {
        if !args.are_given() && !args.reset_values {
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
        for text in &args.set_string {
            for (key, value) in assignments("--set-string", text)? {
                let place = place(files.get_or_insert_with(|| json!({})), &key).with_context(|| format!("--set-string {text}"))?;
                *place = texts(&value);
            }
        }
        let set: Result<Vec<_>> = args.set.iter().map(|text| assignments("--set", text)).collect();
        Ok(Some(Self { files, set: set?.into_iter().flatten().collect() }))
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

/// The keys and values of `a=1,b=2`.
fn assignments(option: &str, text: &str) -> Result<Vec<(String, String)>> {
    let pair = |pair: String| {
        let (key, value) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .with_context(|| format!("{option} {pair}: write KEY=VALUE; a comma in a value is written as `\\,`"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    pairs(text).into_iter().map(pair).collect()
}

/// The place that a key of helm names, which is made if it does not exist: `a.b`, `annotations.example\.com/a`, `hosts[0].name`.
fn place<'a>(values: &'a mut Value, key: &str) -> Result<&'a mut Value> {
    let mut place = values;
    for part in split(key, '.') {
        let (name, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        ensure!(!name.is_empty(), "{key} is not the name of a value");
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[plain(name)];
        while !rest.is_empty() {
            let inside = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let number = inside.and_then(|(number, _)| number.parse::<usize>().ok()).filter(|number| *number < LONGEST);
            let (number, (_, after)) =
                number.zip(inside).with_context(|| format!("{key}: write the number of an item, 0 to {}, in brackets", LONGEST - 1))?;
            if !place.is_array() {
                *place = json!([]);
            }
            let items = place.as_array_mut().context("it is a list")?;
            items.resize(items.len().max(number + 1), Value::Null);
            place = &mut items[number];
            rest = after;
        }
    }
    Ok(place)
}

/// A text, or the list of texts `{a,b}`.
fn texts(value: &str) -> Value {
    match value.strip_prefix('{').and_then(|value| value.strip_suffix('}')) {
        Some("") => json!([]),
        Some(items) => split(items, ',').iter().map(|item| Value::String(plain(item))).collect(),
        None => Value::String(plain(value)),
    }
}

/// The parts of a text between separators without a backslash before them.
fn split(text: &str, separator: char) -> Vec<String> {
    let (mut parts, mut escaped) = (vec![String::new()], false);
    for c in text.chars() {
        let separates = c == separator && !escaped;
        escaped = c == '\\' && !escaped;
        match parts.last_mut().filter(|_| !separates) {
            Some(last) => last.push(c),
            None => parts.push(String::new()),
        }
    }
    parts
}

/// A text without the backslashes before other characters.
fn plain(text: &str) -> String {
    let (mut plain, mut escaped) = (String::new(), false);
    for c in text.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            plain.push(c);
        }
    }
    plain
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
        let args = |set: &str| ValuesArgs { values: vec![], set: vec![set.to_owned()], set_string: vec![], reset_values: false };
        assert!(Values::of(&args("=1")).is_err() && Values::of(&args("replicas")).is_err());
        assert!(Values::of(&args("replicas=")).is_ok());
    }

    /// The values that helm 3 makes of the same options.
    #[test]
    fn texts_are_put_where_their_keys_say_and_stay_texts() {
        let made = |set_string: &[&str]| {
            let set_string = set_string.iter().map(|text| (*text).to_owned()).collect();
            Values::of(&ValuesArgs { values: vec![], set: vec![], set_string, reset_values: false }).map(|values| values.unwrap().files)
        };
        assert_eq!(made(&["port=8080,on=true"]).unwrap(), Some(json!({"port": "8080", "on": "true"})));
        assert_eq!(made(&[r"a.b=1", r"a.example\.com/c=x\,y"]).unwrap(), Some(json!({"a": {"b": "1", "example.com/c": "x,y"}})));
        assert_eq!(
            made(&["hosts[1].name=w", "tags={1,b}", "none={}"]).unwrap(),
            Some(json!({"hosts": [null, {"name": "w"}], "tags": ["1", "b"], "none": []}))
        );
        assert_eq!(made(&["a=1", "a.b=2"]).unwrap(), Some(json!({"a": {"b": "2"}})), "later ones replace earlier ones");
        for wrong in ["a", "=1", "a..b=1", "a[x]=1", "a[1=1", "a[100000000]=1"] {
            assert!(made(&[wrong]).is_err(), "{wrong}");
        }
    }
}
