//! Parses YAML text with any number of documents into objects. Lists are flattened.

use serde::Deserialize;
use serde_json::Value;

/// All objects of `text`. `from` is the name of the text in messages.
///
/// # Errors
/// A document is not a Kubernetes object; the message says which.
pub fn parse(from: &str, text: &str) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let place = || format!("{from}, document {}", index + 1);
        let value = Value::deserialize(document).map_err(|error| format!("{}: {error}", place()))?;
        flatten(value, &mut objects).map_err(|reason| format!("{}: {reason}", place()))?;
    }
    Ok(objects)
}

fn flatten(value: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("/kind").ok_or("it has no kind")?;
    text("/apiVersion").ok_or_else(|| format!("the {kind} has no apiVersion"))?;
    if kind.ends_with("List") && value.get("items").is_some_and(Value::is_array) {
        let Some(Value::Array(items)) = value.get("items").cloned() else { return Ok(()) };
        return items.into_iter().try_for_each(|item| flatten(item, objects));
    }
    text("/metadata/name").ok_or_else(|| format!("the {kind} has no metadata.name"))?;
    objects.push(value);
    Ok(())
}
