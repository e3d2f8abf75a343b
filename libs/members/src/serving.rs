//! When an app serves, beyond what the kinds of its objects say: annotations that its owner sets on them.
//!
//! [`labels::SERVING_WHEN`] is a CEL expression over `object`, the whole object with its status: until it is true the object is not
//! ready. [`labels::SERVING_AFTER`] is a time for which everything must have been ready, and [`labels::SERVING_HTTP`] on a Service a request
//! that must be answered then.
//!
//! Pure. Invariant: the cost of a rule is bounded by the size of the object: length and nesting are limited, and a loop never contains
//! another loop.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cel::common::ast::{EntryExpr, Expr};
use cel::{Context, Env, ExecutionError, IdedExpr, Value as CelValue};
use drover_scheduling::parse_expression;
use serde_json::Value;

use crate::labels;
use crate::readiness::Readiness;

/// Longest time that may be asked for.
const MAX_AFTER: Duration = Duration::from_secs(3600);
/// Limits on the number of nodes and the depth of the syntax tree, after `exists`, `all` and the like have been expanded.
const MAX_NODES: usize = 512;
const MAX_DEPTH: usize = 48;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Whether the annotations of an object say when it serves.
pub fn has_rule(object: &Value) -> bool {
    !annotation(object, labels::SERVING_WHEN).is_null()
}

/// Checks what the annotations of a manifest say, before it is applied anywhere.
///
/// # Errors
/// A sentence for people that names the annotation.
pub fn check(object: &Value) -> Result<(), String> {
    if has_rule(object) {
        let wrong = |reason: String| format!("{}: {reason}", labels::SERVING_WHEN);
        let rule = Rule::of(object).map_err(wrong)?;
        match rule.run(object) {
            Ok(CelValue::Bool(_)) => {}
            Ok(other) => return Err(wrong(format!("is {}, not true or false", other.type_of()))),
            Err(error @ ExecutionError::UndeclaredReference(_)) => return Err(wrong(error.to_string())),
            // A manifest has no status yet, so that a rule may find nothing in it.
            Err(_) => {}
        }
    }
    expectation(object).map(drop).map_err(|reason| format!("{}: {reason}", labels::SERVING_HTTP))?;
    after(object).map(drop).map_err(|reason| format!("{}: {reason}", labels::SERVING_AFTER))
}

/// A request that a Service must answer with a status below 400 before the app serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Namespace of the Service; empty where the object names none.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name or number of its port.
    pub port: String,
    /// Path of the request, with a slash at the beginning.
    pub path: String,
}

/// The request that a Service must answer before the app serves; none without the annotation.
///
/// # Errors
/// The annotation is not on a Service with a port, or it is no path.
pub fn expectation(object: &Value) -> Result<Option<Expectation>, String> {
    let text = match annotation(object, labels::SERVING_HTTP) {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim(),
        _ => return Err("is to be a text".into()),
    };
    if object["kind"] != "Service" {
        return Err("belongs on a Service".into());
    }
    let wrong = || "is to be a path such as \"/ready\", or one behind a port of the Service such as \"8080/ready\"".to_owned();
    let (port, path) = text.split_once('/').ok_or_else(wrong)?;
    let plain = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    // Both become part of a path of the API server.
    if !plain(port, "-") || !plain(path, "-._~/?=&,;:@+%") || path.split(['/', '?']).any(|part| matches!(part, "." | "..")) {
        return Err(wrong());
    }
    let first = || match &object["spec"]["ports"][0]["port"] {
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("needs a Service with a port".to_owned()),
    };
    let port = if port.is_empty() { first()? } else { port.to_owned() };
    let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(Some(Expectation { namespace: name("namespace"), service: name("name"), port, path: format!("/{path}") }))
}

/// Judges a whole object, as the API server returned it, by its rule. Without a rule it is ready.
pub fn judge(object: &Value) -> Readiness {
    if !has_rule(object) {
        return Readiness::Ready;
    }
    let waits = |why: String| Readiness::NotReady(format!("does not serve yet ({}: {why})", labels::SERVING_WHEN));
    match Rule::of(object).map(|rule| (rule.run(object), rule)) {
        Ok((Ok(CelValue::Bool(true)), _)) => Readiness::Ready,
        Ok((Ok(CelValue::Bool(false)), rule)) => waits(format!("{} is false", rule.source)),
        Ok((Ok(other), _)) => waits(format!("is {}, not true or false", other.type_of())),
        Ok((Err(error), _)) => waits(error.to_string()),
        Err(reason) => waits(reason),
    }
}

/// For how long everything must have been ready; zero without the annotation.
///
/// # Errors
/// The annotation is no time, or it is longer than an hour.
pub fn after(object: &Value) -> Result<Duration, String> {
    let wrong = || format!("is to be a time of at most {} s, such as \"90s\" or \"5m\"", MAX_AFTER.as_secs());
    let text = match annotation(object, labels::SERVING_AFTER) {
        Value::Null => return Ok(Duration::ZERO),
        Value::String(text) => text.trim(),
        _ => return Err(wrong()),
    };
    let (number, unit) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(seconds), _) => (seconds, 1),
        (None, Some(minutes)) => (minutes, 60),
        (None, None) => return Err(wrong()),
    };
    let seconds = number.parse::<u32>().map_err(|_| wrong())?;
    Some(Duration::from_secs(u64::from(seconds) * unit)).filter(|after| *after <= MAX_AFTER).ok_or_else(wrong)
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a Value {
    &object["metadata"]["annotations"][name]
}

struct Rule<'a> {
    source: &'a str,
    tree: IdedExpr,
}

impl<'a> Rule<'a> {
    fn of(object: &'a Value) -> Result<Self, String> {
        let source = annotation(object, labels::SERVING_WHEN).as_str().ok_or("is to be a text")?;
        let (tree, _) = parse_expression(source).map_err(|error| error.to_string())?;
        Bounds { nodes: 0, known: vec!["object".into()] }.check(&tree, MAX_DEPTH, false)?;
        Ok(Self { source, tree })
    }

    fn run(&self, object: &Value) -> Result<CelValue, ExecutionError> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        context.add_variable_from_value("object", value(object));
        CelValue::resolve(&self.tree, &context)
    }
}

/// Every whole number is an int, so that it can be added to and compared with a number that is written in a rule.
fn value(json: &Value) -> CelValue {
    match json {
        Value::Null => CelValue::Null,
        Value::Bool(truth) => CelValue::Bool(*truth),
        Value::Number(number) => number.as_i64().map_or_else(|| CelValue::Float(number.as_f64().unwrap_or(f64::NAN)), CelValue::Int),
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(value).collect::<Vec<_>>().into(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), value(field))).collect::<HashMap<_, _>>().into(),
    }
}

struct Bounds {
    nodes: usize,
    /// Variables that are known where the walk is.
    known: Vec<String>,
}

impl Bounds {
    fn check(&mut self, node: &IdedExpr, depth: usize, in_loop: bool) -> Result<(), String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth == 0 {
            return Err("is too complex".into());
        }
        match &node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) if self.known.contains(name) => Ok(()),
            Expr::Ident(name) => Err(format!("there is no {name}, only object")),
            Expr::Select(select) => self.check(&select.operand, depth - 1, in_loop),
            Expr::Call(call) => self.check_all(call.target.as_deref().into_iter().chain(&call.args).collect(), depth, in_loop),
            Expr::List(list) => self.check_all(list.elements.iter().collect(), depth, in_loop),
            Expr::Map(map) => self.check_all(map.entries.iter().flat_map(|entry| parts(&entry.expr)).collect(), depth, in_loop),
            Expr::Comprehension(_) if in_loop => Err("a loop (exists, all, map, filter) inside another one is refused".into()),
            Expr::Comprehension(made) => {
                self.check(&made.iter_range, depth - 1, in_loop)?;
                let outer = self.known.len();
                self.known.extend([made.iter_var.clone(), made.accu_var.clone()]);
                self.known.extend(made.iter_var2.clone());
                for part in [&made.accu_init, &made.loop_cond, &made.loop_step, &made.result] {
                    self.check(part, depth - 1, true)?;
                }
                self.known.truncate(outer);
                Ok(())
            }
            Expr::Struct(_) => Err("messages are refused".into()),
            Expr::Unspecified => Err("is empty".into()),
        }
    }

    fn check_all(&mut self, nodes: Vec<&IdedExpr>, depth: usize, in_loop: bool) -> Result<(), String> {
        nodes.into_iter().try_for_each(|node| self.check(node, depth - 1, in_loop))
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(rule: Value, status: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x", "annotations": {labels::SERVING_WHEN: rule}}, "status": status})
    }
    fn judged(rule: &str, status: Value) -> Readiness {
        judge(&object(json!(rule), status))
    }
    fn refusal(rule: &str) -> String {
        check(&object(json!(rule), Value::Null)).expect_err(rule)
    }

    #[test]
    fn expectation_is_a_path_behind_a_port_of_a_service() {
        let service = |text: &str| {
            json!({"kind": "Service", "metadata": {"name": "web", "namespace": "shop", "annotations": {labels::SERVING_HTTP: text}},
                "spec": {"ports": [{"port": 80}]}})
        };
        let made = |text: &str| expectation(&service(text)).map(|found| found.map(|found| (found.port, found.path)));
        assert_eq!(made("/ready?deep=1").unwrap(), Some(("80".into(), "/ready?deep=1".into())));
        assert_eq!(made("http/ready").unwrap(), Some(("http".into(), "/ready".into())));
        for wrong in ["ready", "80/../../secrets", "a b/ready", "/ready#x", "/./x"] {
            assert!(made(wrong).is_err(), "{wrong}");
        }
        let mut elsewhere = service("/ready");
        elsewhere["kind"] = json!("Deployment");
        assert_eq!(check(&elsewhere).unwrap_err(), "drover.io/serving-http: belongs on a Service");
    }

    #[test]
    fn object_serves_when_its_rule_is_true() {
        let enough = "object.status.readyReplicas >= 2";
        assert!(judged(enough, json!({"readyReplicas": 2})).is_ready());
        let waiting = judged(enough, json!({"readyReplicas": 1}));
        assert_eq!(waiting.reason(), Some("does not serve yet (drover.io/serving-when: object.status.readyReplicas >= 2 is false)"));
        // What is not there yet is a reason to wait, not a failure.
        let nothing = judged(enough, json!({}));
        assert!(matches!(&nothing, Readiness::NotReady(why) if why.contains("readyReplicas")), "{nothing:?}");
        let conditions = "object.status.conditions.exists(c, c.type == 'Warm' && c.status == 'True')";
        assert!(judged(conditions, json!({"conditions": [{"type": "Warm", "status": "True"}]})).is_ready());
        assert!(!judged(conditions, json!({"conditions": [{"type": "Warm", "status": "False"}]})).is_ready());
        assert!(
            judged("has(object.status.at) && object.status.at + 1 == 5 && object.status.share < 0.5", json!({"at": 4, "share": 0.25}))
                .is_ready()
        );
        assert!(judge(&json!({"kind": "Thing"})).is_ready());
    }

    #[test]
    fn check_names_what_is_wrong_with_a_rule() {
        assert_eq!(check(&object(json!("object.status.phase == 'Ready'"), Value::Null)), Ok(()));
        assert!(refusal("object.status.phase = 'Ready'").starts_with("drover.io/serving-when: column"));
        assert!(refusal("status.phase == 'Ready'").contains("there is no status, only object"));
        assert!(refusal("object.kind").contains("not true or false"));
        assert!(refusal("object.status.a.all(x, object.status.b.exists(y, x == y))").contains("inside another one"));
        assert!(refusal(&format!("object.kind == 'x'{}", " || object.kind == 'x'".repeat(60))).contains("longer"));
        assert!(refusal(&format!("object.a{}", " && object.a".repeat(40))).contains("too complex"));
        assert!(refusal("").contains("is empty"));
        assert!(check(&object(json!(true), Value::Null)).unwrap_err().contains("is to be a text"));
        // One loop after another is bounded by the size of the object.
        assert_eq!(check(&object(json!("object.status.a.filter(x, x > 1).exists(x, x == 2)"), Value::Null)), Ok(()));
    }

    #[test]
    fn time_is_given_in_seconds_or_minutes() {
        let after = |text: Value| after(&json!({"metadata": {"annotations": {labels::SERVING_AFTER: text}}}));
        assert_eq!(after(json!("90s")), Ok(Duration::from_secs(90)));
        assert_eq!(after(json!("5m")), Ok(Duration::from_secs(300)));
        assert_eq!(after(Value::Null), Ok(Duration::ZERO));
        for wrong in [json!("90"), json!(90), json!("-1s"), json!("61m"), json!("soon"), json!("")] {
            assert!(after(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
