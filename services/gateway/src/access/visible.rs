//! What somebody who has roles in some projects only sees of an answer: what belongs to their projects, and of others no more than is needed
//! to understand what happens to their own. Pure.
//!
//! Whole documents of others are left out. Where a document of their own mentions apps of others (victims of a plan, neighbours on a
//! cluster), names, ids and reasons are replaced by [`OTHER`]; priorities and amounts stay, because they explain the plan. Texts are
//! written by many parts of Drover, so names of others' apps are replaced wherever such a text has them.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::rules::Shown;

/// Stands for what belongs to others.
pub const OTHER: &str = "another project's app";

/// Fields with texts for people.
const TEXTS: [&str; 13] = [
    "message",
    "reason",
    "reasons",
    "detail",
    "error",
    "why",
    "subject",
    "changedSinceDryRun",
    "leftovers",
    "kept",
    "caller",
    "title",
    "owners",
];

/// What one sender sees.
#[derive(Clone, Debug)]
pub struct View {
    /// Their projects; none: all.
    projects: Option<BTreeSet<String>>,
    /// How texts name apps and groups of other projects.
    others: HashSet<String>,
}

impl View {
    /// Of these projects; none: of all.
    pub fn new(projects: Option<BTreeSet<String>>) -> Self {
        Self { projects, others: HashSet::new() }
    }

    /// Whether it sees everything.
    pub fn is_whole(&self) -> bool {
        self.projects.is_none()
    }

    /// Whether it sees this project.
    pub fn sees(&self, project: &str) -> bool {
        self.projects.as_ref().is_none_or(|projects| projects.contains(project))
    }

    /// Learns from the list of all apps how texts name those of other projects.
    pub fn learn(&mut self, apps: &Value) {
        let mut own = HashSet::new();
        for app in apps["items"].as_array().into_iter().flatten() {
            let text = |field: &str| app[field].as_str().unwrap_or_default();
            let (project, composite, version, dig, name) =
                (text("project"), text("compositeApp"), text("version"), text("dig"), text("app"));
            let names = [
                format!("{composite}/{name}"),
                format!("{dig}/{name}"),
                format!("{project}/{dig}"),
                format!("{project}/{composite}"),
                format!("{project}/{dig}/{name}"),
                format!("{project}/{composite}/{version}/{dig}"),
            ];
            if self.sees(project) { own.extend(names) } else { self.others.extend(names) }
        }
        self.others.retain(|name| !own.contains(name));
    }

    /// What it sees of an answer; none if that is nothing.
    pub fn of(&self, shown: Shown, mut answer: Value) -> Option<Value> {
        if self.is_whole() {
            return Some(answer);
        }
        let keep = |answer: &mut Value, sees: &dyn Fn(&Value) -> bool| match answer.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => {
                items.retain(sees);
                true
            }
            None => false,
        };
        let is_own =
            |document: &Value, pointer: &str| document.pointer(pointer).and_then(Value::as_str).is_some_and(|project| self.sees(project));
        let operation = |document: &Value| {
            document["subject"].as_str().and_then(|subject| subject.split_once('/')).is_some_and(|(project, _)| self.sees(project))
        };
        let plan = |document: &Value| is_own(document, "/kind/newcomer/project");
        let seen = match shown {
            Shown::Same | Shown::Clusters => true,
            Shown::Projects => {
                if let Some(items) = answer.as_array_mut() {
                    items.retain(|document| is_own(document, "/metadata/name"));
                }
                answer.is_array()
            }
            Shown::Apps => keep(&mut answer, &|app| is_own(app, "/project")),
            Shown::Plans => keep(&mut answer, &plan),
            Shown::Operations => keep(&mut answer, &operation),
            Shown::Plan => plan(&answer),
            Shown::Operation => operation(&answer),
            Shown::Explanation => is_own(&answer, "/project"),
            Shown::Decision => is_own(&answer, "/request/dig/project"),
        };
        seen.then(|| self.without_others(answer))
    }

    /// An answer without the names of others.
    pub fn without_others(&self, mut answer: Value) -> Value {
        if !self.is_whole() {
            self.redact(&mut answer);
        }
        answer
    }

    /// As [`View::of`], for a document of a type.
    pub fn of_document<T: Serialize + DeserializeOwned>(&self, shown: Shown, document: T) -> Option<T> {
        if self.is_whole() {
            return Some(document);
        }
        let value = serde_json::to_value(document).ok()?;
        serde_json::from_value(self.of(shown, value)?).ok()
    }

    fn redact(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact(item)),
            Value::Object(object) => {
                self.hide_if_other(object);
                for (key, value) in object {
                    if TEXTS.contains(&key.as_str()) {
                        self.scrub_all(value);
                    }
                    self.redact(value);
                }
            }
            _ => {}
        }
    }

    /// Replaces what names an app of another project.
    fn hide_if_other(&self, object: &mut Map<String, Value>) {
        let project = |value: &Value| value["project"].as_str().map(str::to_owned);
        let of_dig = object.get("dig").and_then(project);
        // A move in an operation names the project itself.
        let of_move = object.get("project").and_then(Value::as_str).filter(|_| object.contains_key("from") && object.contains_key("to"));
        let Some(project) = of_dig.clone().or_else(|| of_move.map(str::to_owned)) else { return };
        if self.sees(&project) {
            return;
        }
        if of_dig.is_some() {
            object.insert("dig".into(), json!({"id": NIL, "project": "", "compositeApp": "", "version": "", "name": OTHER}));
        } else {
            object.insert("project".into(), "".into());
        }
        for (field, value) in [("app", json!(OTHER)), ("claim", json!(NIL)), ("pods", json!([])), ("scores", json!([]))] {
            if let Some(there) = object.get_mut(field) {
                *there = value;
            }
        }
        if object.get("reason").is_some_and(Value::is_string) {
            object.insert("reason".into(), "it belongs to another project".into());
        }
        if let Some(detail) = object.get_mut("whyNot").and_then(|why| why.get_mut("detail")) {
            *detail = "it belongs to another project".into();
        }
    }

    fn scrub_all(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.scrub(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_all(item)),
            _ => {}
        }
    }

    /// The text with [`OTHER`] instead of each name of another project's app.
    fn scrub(&self, text: &str) -> String {
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '/' | '~');
        let mut scrubbed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(begin) = rest.find(of_name) {
            let end = rest[begin..].find(|c| !of_name(c)).map_or(rest.len(), |length| begin + length);
            let word = &rest[begin..end];
            let name = word.trim_end_matches(['.', '/']);
            scrubbed.push_str(&rest[..begin]);
            if self.others.contains(name) {
                scrubbed.push_str(OTHER);
                scrubbed.push_str(&word[name.len()..]);
            } else {
                scrubbed.push_str(word);
            }
            rest = &rest[end..];
        }
        scrubbed + rest
    }
}

const NIL: &str = "00000000-0000-0000-0000-000000000000";

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> View {
        let mut view = View::new(Some(["shop".to_owned()].into()));
        let app = |project: &str, composite: &str, app: &str| json!({"project": project, "compositeApp": composite, "version": "v1", "dig": composite, "app": app});
        view.learn(&json!({"items": [app("shop", "shop", "cart"), app("blog", "weblog", "comments"), app("blog", "shop", "cart")]}));
        view
    }

    #[test]
    fn lists_have_own_documents_only() {
        let operations =
            json!({"items": [{"subject": "shop/shop/v1/shop"}, {"subject": "blog/weblog/v1/weblog"}, {"subject": "drain a+b"}]});
        assert_eq!(shop().of(Shown::Operations, operations), Some(json!({"items": [{"subject": "shop/shop/v1/shop"}]})));
        let plans = json!({"items": [{"kind": {"newcomer": {"project": "shop"}}}, {"kind": {"newcomer": {"project": "blog"}}}, {"kind": {"drain": "a+b"}}]});
        assert_eq!(shop().of(Shown::Plans, plans).unwrap()["items"].as_array().unwrap().len(), 1);
        let apps = json!({"items": [{"project": "shop"}, {"project": "blog"}]});
        assert_eq!(shop().of(Shown::Apps, apps), Some(json!({"items": [{"project": "shop"}]})));
        let projects = json!([{"metadata": {"name": "shop"}}, {"metadata": {"name": "blog"}}]);
        assert_eq!(shop().of(Shown::Projects, projects), Some(json!([{"metadata": {"name": "shop"}}])));
    }

    #[test]
    fn document_of_another_project_is_not_there() {
        for (shown, other) in [
            (Shown::Operation, json!({"subject": "blog/weblog/v1/weblog"})),
            (Shown::Operation, json!({"subject": "drain shop+b"})),
            (Shown::Plan, json!({"kind": {"newcomer": {"project": "blog"}}})),
            (Shown::Plan, json!({"kind": {"drain": "a+b"}})),
            (Shown::Explanation, json!({"project": "blog"})),
            (Shown::Decision, json!({"request": {"dig": {"project": "blog"}}})),
            (Shown::Decision, json!({"outcome": "placed"})),
            (Shown::Apps, json!([])),
        ] {
            let seen = shop().of(shown, other.clone());
            assert!(seen.is_none() || seen == Some(json!([])), "{other}");
        }
        assert!(View::new(None).of(Shown::Plan, json!({"kind": {"drain": "a+b"}})).is_some());
    }

    #[test]
    fn victims_of_other_projects_keep_their_priority_and_nothing_that_names_them() {
        let victim = |project: &str, app: &str| {
            json!({"claim": "0198-7", "dig": {"id": "1", "project": project, "compositeApp": "weblog", "version": "v1", "name": "weblog"}, "app": app,
                "priority": 3, "scores": [{"algorithm": "secret-sauce"}], "whyNot": {"code": "volume", "detail": "comments has a volume"}, "reason": "comments is small"})
        };
        let plan =
            json!({"kind": {"newcomer": {"project": "shop"}}, "plan": {"waves": [[victim("blog", "comments"), victim("shop", "cart")]]}});
        let seen = shop().of(Shown::Plan, plan).unwrap();
        let other = &seen["plan"]["waves"][0][0];
        assert_eq!((&other["priority"], &other["app"], &other["dig"]["name"]), (&json!(3), &json!(OTHER), &json!(OTHER)));
        let own = &seen["plan"]["waves"][0][1];
        assert_eq!((&own["app"], &own["claim"], &own["reason"]), (&json!("cart"), &json!("0198-7"), &json!("comments is small")));
        let text = other.to_string();
        assert!(!text.contains("comments") && !text.contains("weblog") && !text.contains("0198") && !text.contains("secret"), "{text}");
        let seen = shop().of(
            Shown::Operation,
            json!({"subject": "shop/shop/v1/shop", "moves": [{"app": "weblog/comments", "project": "blog", "from": "a", "to": "b"}]}),
        );
        assert!(!seen.unwrap().to_string().contains("comments"));
    }

    #[test]
    fn texts_do_not_name_other_projects_apps() {
        let problem = json!({"detail": "weblog/comments: held; see blog/weblog/v1/weblog.", "reasons": ["shop/cart is small", "blog/weblog/comments has room on a+b"],
            "instance": "/v2/operations/1"});
        let seen = shop().without_others(problem);
        assert_eq!(seen["detail"], format!("{OTHER}: held; see {OTHER}."));
        assert_eq!(seen["reasons"], json!(["shop/cart is small", format!("{OTHER} has room on a+b")]), "an own app of the same name stays");
        assert_eq!(seen["instance"], "/v2/operations/1");
    }
}
