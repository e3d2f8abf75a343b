//! Fills values into the tree of a template.

use std::cmp::Ordering;

use serde_json::Value;

use super::TemplateError;
use super::parse::{Expression, Node};

/// Fills in the values.
pub(super) fn run(nodes: &[Node], values: &Value) -> Result<String, TemplateError> {
    let mut output = String::new();
    let mut scope = Scope { values, variables: Vec::new() };
    scope.nodes(nodes, values, &mut output)?;
    Ok(output)
}

struct Scope<'a> {
    values: &'a Value,
    /// Inner ones last.
    variables: Vec<(String, Value)>,
}

impl Scope<'_> {
    /// Variables that are set in a body end with it.
    fn body(&mut self, nodes: &[Node], dot: &Value, output: &mut String) -> Result<(), TemplateError> {
        let outside = self.variables.len();
        self.nodes(nodes, dot, output)?;
        self.variables.truncate(outside);
        Ok(())
    }

    fn nodes(&mut self, nodes: &[Node], dot: &Value, output: &mut String) -> Result<(), TemplateError> {
        for node in nodes {
            match node {
                Node::Text(text) => output.push_str(text),
                Node::Print { line, value } => {
                    let found = self.value_at(*line, value, dot)?;
                    if found.is_null() {
                        return Err(TemplateError { line: *line, reason: format!("the values have no {}", name_of(value)) });
                    }
                    output.push_str(&text(&found));
                }
                Node::Set { line, makes, name, value } => {
                    let value = self.value_at(*line, value, dot)?;
                    match self.variables.iter_mut().rev().find(|(known, _)| known == name) {
                        Some((_, known)) if !makes => *known = value,
                        None if !makes => return Err(TemplateError { line: *line, reason: format!("there is no variable ${name}") }),
                        _ => self.variables.push((name.clone(), value)),
                    }
                }
                Node::If { line, branches, otherwise } => {
                    let mut chosen = otherwise;
                    for (condition, body) in branches {
                        if truth(&self.value_at(*line, condition, dot)?) {
                            chosen = body;
                            break;
                        }
                    }
                    self.body(chosen, dot, output)?;
                }
                Node::With { line, variables, value, body, otherwise } => {
                    let value = self.value_at(*line, value, dot)?;
                    if truth(&value) {
                        let outside = self.variables.len();
                        self.variables.extend(variables.iter().map(|name| (name.clone(), value.clone())));
                        self.body(body, &value, output)?;
                        self.variables.truncate(outside);
                    } else {
                        self.body(otherwise, dot, output)?;
                    }
                }
                Node::Range { line, variables, over, body, otherwise } => {
                    let found = self.value_at(*line, over, dot)?;
                    let items = items(found).map_err(|other| TemplateError {
                        line: *line,
                        reason: format!("range needs a list or a map, but {} is {other}", name_of(over)),
                    })?;
                    if items.is_empty() {
                        self.body(otherwise, dot, output)?;
                    }
                    for (key, item) in items {
                        let outside = self.variables.len();
                        match variables.as_slice() {
                            [one] => self.variables.push((one.clone(), item.clone())),
                            [index, one] => self.variables.extend([(index.clone(), key), (one.clone(), item.clone())]),
                            _ => {}
                        }
                        self.body(body, &item, output)?;
                        self.variables.truncate(outside);
                    }
                }
            }
        }
        Ok(())
    }

    fn value_at(&self, line: usize, expression: &Expression, dot: &Value) -> Result<Value, TemplateError> {
        self.value(expression, dot).map_err(|reason| TemplateError { line, reason })
    }

    /// What does not exist is null.
    fn value(&self, expression: &Expression, dot: &Value) -> Result<Value, String> {
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Field(fields) => Ok(inside(dot, fields)),
            Expression::Variable(name, fields) if name.is_empty() => Ok(inside(self.values, fields)),
            Expression::Variable(name, fields) => {
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                known.map(|(_, value)| inside(value, fields)).ok_or_else(|| format!("there is no variable ${name}"))
            }
            Expression::Call(name, arguments) => {
                // `and` and `or` do not look at more arguments than they need.
                if let (true, Some((last, others))) = (name == "and" || name == "or", arguments.split_last()) {
                    for argument in others {
                        let value = self.value(argument, dot)?;
                        if truth(&value) == (name == "or") {
                            return Ok(value);
                        }
                    }
                    return self.value(last, dot);
                }
                let arguments: Result<Vec<Value>, String> = arguments.iter().map(|argument| self.value(argument, dot)).collect();
                call(name, &arguments?)
            }
        }
    }
}

/// What `range` goes through: the items of a list with their positions, or of a map with their keys, in the order of these. `Err`: the value
/// is neither.
fn items(value: Value) -> Result<Vec<(Value, Value)>, Value> {
    match value {
        Value::Array(items) => Ok(items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            Ok(fields.into_iter().map(|(key, item)| (key.into(), item)).collect())
        }
        Value::Null => Ok(Vec::new()),
        other => Err(other),
    }
}

fn inside(value: &Value, fields: &[String]) -> Value {
    fields.iter().try_fold(value, |value, field| value.get(field)).cloned().unwrap_or_default()
}

fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let wrong = || Err(format!("{name} does not take these {} arguments", arguments.len()));
    let compared = |fits: fn(Ordering) -> bool| match arguments {
        [a, b] => order(a, b).map(|order| fits(order).into()).ok_or_else(|| format!("{name} cannot compare {a} and {b}")),
        _ => Err(format!("{name} compares two values")),
    };
    match (name, arguments) {
        ("eq", [first, others @ ..]) if !others.is_empty() => Ok(others.iter().any(|other| equal(first, other)).into()),
        ("ne", [a, b]) => Ok((!equal(a, b)).into()),
        ("lt", _) => compared(Ordering::is_lt),
        ("le", _) => compared(Ordering::is_le),
        ("gt", _) => compared(Ordering::is_gt),
        ("ge", _) => compared(Ordering::is_ge),
        ("not", [value]) => Ok((!truth(value)).into()),
        ("len", [value]) => match value {
            Value::Array(items) => Ok(items.len().into()),
            Value::Object(fields) => Ok(fields.len().into()),
            Value::String(text) => Ok(text.len().into()),
            _ => Err(format!("{value} has no length")),
        },
        ("index", [value, keys @ ..]) => keys.iter().try_fold(value.clone(), |value, key| {
            let found = match (key.as_u64(), key.as_str()) {
                (Some(at), _) => value.get(usize::try_from(at).unwrap_or(usize::MAX)),
                (_, Some(key)) => value.get(key),
                _ => None,
            };
            found.cloned().ok_or_else(|| format!("there is nothing at index {key}"))
        }),
        ("print", _) => Ok(arguments.iter().map(text).collect::<String>().into()),
        ("printf", [Value::String(format), arguments @ ..]) => printf(format, arguments).map(Value::from),
        ("and" | "or" | "eq" | "ne" | "not" | "len" | "index" | "printf", _) => wrong(),
        _ => {
            Err(format!("the function {name} is not supported; known are and, or, not, eq, ne, lt, le, gt, ge, len, index, print, printf"))
        }
    }
}

/// `%s`, `%v`, `%d` and `%q`.
fn printf(format: &str, arguments: &[Value]) -> Result<String, String> {
    let (mut output, mut letters, mut arguments) = (String::new(), format.chars(), arguments.iter());
    while let Some(letter) = letters.next() {
        if letter != '%' {
            output.push(letter);
            continue;
        }
        match letters.next() {
            Some('%') => output.push('%'),
            Some(verb @ ('s' | 'v' | 'd' | 'q')) => {
                let value = arguments.next().ok_or_else(|| format!("printf {format:?} has too few arguments"))?;
                output.push_str(&if verb == 'q' { Value::from(text(value)).to_string() } else { text(value) });
            }
            other => return Err(format!("printf {format:?}: %{} is not supported", other.unwrap_or_default())),
        }
    }
    if arguments.next().is_some() {
        return Err(format!("printf {format:?} has too many arguments"));
    }
    Ok(output)
}

/// Whether `if` takes its branch: not for false, 0, and what is empty or does not exist.
fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    a == b || order(a, b).is_some_and(Ordering::is_eq)
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What an expression is called in messages.
fn name_of(expression: &Expression) -> String {
    match expression {
        Expression::Field(fields) => format!(".{}", fields.join(".")),
        Expression::Variable(name, fields) => {
            std::iter::once(format!("${name}")).chain(fields.iter().cloned()).collect::<Vec<_>>().join(".")
        }
        Expression::Call(name, _) => format!("result of {name}"),
        Expression::Literal(value) => value.to_string(),
    }
}
