//! Label and field selectors, from query strings and from `LabelSelector` objects.

use serde_json::Value;

use crate::error::ApiError;
use crate::object::{self, list, map, text};

#[derive(Debug, Clone, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// A label selector. The default one selects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Labels(Vec<Requirement>);

impl Labels {
    /// Reads `a=b,c!=d,e in (f,g),h,!i`.
    ///
    /// # Errors
    /// 400 when the text is no selector.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let mut all = Vec::new();
        for part in split_outside_parentheses(query) {
            let bad = || ApiError::bad_request(format!("unable to parse requirement: {part}"));
            all.push(if let Some((key, values)) = part.split_once(" notin ") {
                Requirement::NotIn(key.trim().into(), set(values).ok_or_else(bad)?)
            } else if let Some((key, values)) = part.split_once(" in ") {
                Requirement::In(key.trim().into(), set(values).ok_or_else(bad)?)
            } else if let Some((key, value)) = part.split_once("!=") {
                Requirement::NotIn(key.trim().into(), vec![value.trim().into()])
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                Requirement::In(key.trim().into(), vec![value.trim().into()])
            } else if let Some(key) = part.strip_prefix('!') {
                Requirement::Absent(key.trim().into())
            } else if part.contains(' ') {
                return Err(bad());
            } else {
                Requirement::Exists(part.into())
            });
        }
        Ok(Self(all))
    }

    /// A `LabelSelector` object.
    pub fn of(selector: &Value) -> Self {
        let mut all: Vec<Requirement> = map(selector, "/matchLabels")
            .into_iter()
            .flatten()
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.as_str().unwrap_or("").into()]))
            .collect();
        all.extend(list(selector, "/matchExpressions").iter().map(requirement));
        Self(all)
    }

    /// The expressions of a node selector term; `Gt` and `Lt` are left to the scheduler.
    pub fn of_expressions(expressions: &[Value]) -> Self {
        Self(expressions.iter().map(requirement).collect())
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| {
            let value = |key: &str| object::label(object, key);
            match requirement {
                Requirement::In(key, values) => value(key).is_some_and(|v| values.iter().any(|w| w == v)),
                Requirement::NotIn(key, values) => value(key).is_none_or(|v| values.iter().all(|w| w != v)),
                Requirement::Exists(key) => value(key).is_some(),
                Requirement::Absent(key) => value(key).is_none(),
            }
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn requirement(expression: &Value) -> Requirement {
    let key = text(expression, "/key").to_string();
    let values = list(expression, "/values").iter().filter_map(|v| Some(v.as_str()?.to_string())).collect();
    match text(expression, "/operator") {
        "In" => Requirement::In(key, values),
        "NotIn" => Requirement::NotIn(key, values),
        "DoesNotExist" => Requirement::Absent(key),
        _ => Requirement::Exists(key),
    }
}

fn set(values: &str) -> Option<Vec<String>> {
    let inner = values.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some(inner.split(',').map(|v| v.trim().to_string()).collect())
}

fn split_outside_parentheses(query: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in query.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&query[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&query[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A field selector: `metadata.name=x,status.phase!=Running`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(String, bool, String)>);

impl Fields {
    /// Reads a field selector. Any dotted path to a string is accepted; a real server accepts a few per kind.
    ///
    /// # Errors
    /// 400 when the text is no selector.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        query
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (field, equal, value) = match (part.split_once("!="), part.split_once("==").or(part.split_once('='))) {
                    (Some((field, value)), _) => (field, false, value),
                    (None, Some((field, value))) => (field, true, value),
                    (None, None) => return Err(ApiError::bad_request(format!("invalid field selector: {part}"))),
                };
                Ok((format!("/{}", field.trim().replace('.', "/")), equal, value.trim().to_string()))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(pointer, equal, value)| (text(object, pointer) == value) == *equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (query, want) in [
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app in (web, api),tier", true),
            ("app notin (web)", false),
            ("!gone", true),
            ("gone", false),
            ("", true),
        ] {
            assert_eq!(Labels::parse(query).unwrap().matches(&pod), want, "{query}");
        }
        assert!(Labels::parse("a b c").is_err());
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
        assert!(Labels::of(&selector).matches(&pod));
    }

    #[test]
    fn fields() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}});
        assert!(Fields::parse("metadata.name=a,spec.nodeName!=n2").unwrap().matches(&pod));
        assert!(Fields::parse("status.phase=").unwrap().matches(&pod));
        assert!(!Fields::parse("spec.nodeName=n2").unwrap().matches(&pod));
    }
}
