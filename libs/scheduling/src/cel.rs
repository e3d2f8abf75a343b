//! Algorithm expressions: CEL restricted to arithmetic over parameters, checked when an algorithm is stored.
//!
//! Every number is a double, so that `cpu_used * 100 / cpu_requested` works although CEL does not multiply int and double.
//! Strings, maps, messages and comprehensions are refused, and length and nesting are limited, so that the cost of an evaluation is
//! bounded.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{Expr, LiteralValue, SourceInfo};
use cel::common::types::CelDouble;
use cel::{Context, Env, ExecutionError, IdedExpr, Value, extensions};

/// Longest expression, in bytes.
pub const MAX_LENGTH: usize = 1024;
/// Limits on the number of nodes and the depth of the syntax tree.
const MAX_NODES: usize = 256;
const MAX_DEPTH: usize = 32;
/// Limits on nested brackets and on operators in all: the generated parser needs up to 200 KiB of stack for each.
const MAX_NESTING: usize = 16;
const MAX_OPERATORS: usize = 64;
/// Stack of the parser's thread, in bytes: several times what an expression within these limits needs.
const PARSER_STACK: usize = 64 << 20;

/// The standard library and `math.*`.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(extensions::math).expect("the math extension goes with a fresh standard library");
    Arc::new(env)
});

/// An expression that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ExpressionError {
    /// Column, counted from 1.
    pub column: usize,
    pub message: String,
}

/// A checked expression.
#[derive(Debug)]
pub struct Expression {
    tree: IdedExpr,
    parameters: Vec<String>,
}

/// Checks an algorithm's expression against the names of the known parameters.
///
/// # Errors
/// The expression does not compile, names an unknown parameter, or does not evaluate to a number.
pub fn validate_expression<'n>(source: &str, known: impl IntoIterator<Item = &'n str>) -> Result<(), ExpressionError> {
    let known: Vec<&str> = known.into_iter().collect();
    let expression = Expression::compile(source)?;
    if let Some(unknown) = expression.parameters.iter().find(|p| !known.contains(&p.as_str())) {
        let column = column_of(source, unknown);
        return Err(ExpressionError { column, message: format!("there is no parameter {unknown}; known: {}", known.join(", ")) });
    }
    // Sample values differ, so that a division by the difference of two parameters succeeds.
    let sample = expression.parameters.iter().enumerate().map(|(i, name)| (name.as_str(), 1.5 + i as f64));
    match expression.run(&sample.collect()) {
        Ok(Value::Float(_) | Value::Int(_) | Value::UInt(_)) => Ok(()),
        Ok(other) => Err(ExpressionError { column: 1, message: format!("is {}, not a number", other.type_of()) }),
        Err(error) => Err(ExpressionError { column: 1, message: error.to_string() }),
    }
}

/// Column, counted from 1, in which a name stands as a whole word.
fn column_of(source: &str, name: &str) -> usize {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |at: &usize| !source[..*at].ends_with(part) && !source[*at + name.len()..].starts_with(part);
    source.match_indices(name).map(|(at, _)| at).find(whole).map_or(1, |at| source[..at].chars().count() + 1)
}

impl Expression {
    /// Parses `source` and refuses everything but arithmetic.
    ///
    /// # Errors
    /// The expression is empty, too long or too complex, has a syntax error, or uses more than numbers, parameters and `math`.
    pub fn compile(source: &str) -> Result<Self, ExpressionError> {
        let wrong = |column: usize, message: String| ExpressionError { column, message };
        let (mut tree, info) = parse_expression(source)?;
        let mut found = Narrowing { nodes: 0, parameters: Vec::new() };
        found.narrow(&mut tree, MAX_DEPTH).map_err(|(id, message)| {
            let start = info.offset_for(id).map_or(0, |(start, _)| start as usize);
            wrong(start + 1, message)
        })?;
        found.parameters.sort();
        found.parameters.dedup();
        Ok(Self { tree, parameters: found.parameters })
    }

    /// Names of the parameters that it uses, sorted.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Its value, or `None` if a parameter has no value or the result is not a finite number.
    pub fn evaluate(&self, values: &BTreeMap<&str, f64>) -> Option<f64> {
        let number = match self.run(values).ok()? {
            Value::Float(number) => number,
            Value::Int(number) => number as f64,
            Value::UInt(number) => number as f64,
            _ => return None,
        };
        number.is_finite().then_some(number)
    }

    fn run(&self, values: &BTreeMap<&str, f64>) -> Result<Value, ExecutionError> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        for name in &self.parameters {
            if let Some(value) = values.get(name.as_str()) {
                context.add_variable_from_value(name.clone(), *value);
            }
        }
        Value::resolve(&self.tree, &context)
    }
}

/// Parses an expression of a user within limits of length and nesting. What it may contain is for the caller to check.
///
/// # Errors
/// The expression is empty, too long or too complex, or has a syntax error.
pub fn parse_expression(source: &str) -> Result<(IdedExpr, SourceInfo), ExpressionError> {
    let wrong = |column: usize, message: String| ExpressionError { column, message };
    if source.trim().is_empty() {
        return Err(wrong(1, "is empty".into()));
    }
    if source.len() > MAX_LENGTH {
        return Err(wrong(MAX_LENGTH, format!("is longer than {MAX_LENGTH} bytes")));
    }
    small_enough(source)?;
    parse(source)
}

/// Refuses deep or long expressions before the recursive parser reads them.
fn small_enough(source: &str) -> Result<(), ExpressionError> {
    let (mut nesting, mut operators) = (0usize, 0);
    for (at, c) in source.char_indices() {
        match c {
            '(' | '[' | '{' => nesting += 1,
            ')' | ']' | '}' => nesting = nesting.saturating_sub(1),
            '+' | '-' | '*' | '/' | '%' | '?' | ':' | '<' | '>' | '=' | '!' | '&' | '|' | ',' | '.' => operators += 1,
            _ => {}
        }
        if nesting > MAX_NESTING || operators > MAX_OPERATORS {
            return Err(ExpressionError { column: at + 1, message: "is too complex".into() });
        }
    }
    Ok(())
}

/// Parses on a separate large stack, so that user input cannot overflow the caller's.
fn parse(source: &str) -> Result<(IdedExpr, SourceInfo), ExpressionError> {
    let failed = |message: String| ExpressionError { column: 1, message };
    let owned = source.to_owned();
    let parser = move || {
        ENV.parser().parse_with_source_info(&owned).map_err(|errors| {
            let first = errors.errors.first();
            let column = first.map_or(1, |e| usize::try_from(e.pos.1).unwrap_or(1).max(1));
            ExpressionError { column, message: first.map_or_else(|| "does not parse".into(), |e| e.msg.clone()) }
        })
    };
    let thread = std::thread::Builder::new().stack_size(PARSER_STACK).spawn(parser);
    let joined = thread.map_err(|e| failed(format!("cannot be parsed now: {e}")))?.join();
    joined.unwrap_or_else(|_| Err(failed("does not parse".into())))
}

struct Narrowing {
    nodes: usize,
    parameters: Vec<String>,
}

impl Narrowing {
    /// Refuses everything but arithmetic, converts every number to a double and collects the parameters.
    fn narrow(&mut self, node: &mut IdedExpr, depth: usize) -> Result<(), (u64, String)> {
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth == 0 {
            return Err((node.id, "is too complex for an algorithm".into()));
        }
        let refuse = |what: &str| Err((node.id, format!("{what} are not for algorithms; only numbers, parameters and math")));
        match &mut node.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Int(n) => *literal = LiteralValue::Double(CelDouble::from(*n.inner() as f64)),
                LiteralValue::UInt(n) => *literal = LiteralValue::Double(CelDouble::from(*n.inner() as f64)),
                LiteralValue::Double(_) | LiteralValue::Boolean(_) => {}
                LiteralValue::String(_) | LiteralValue::Bytes(_) | LiteralValue::Null => return refuse("strings and null"),
            },
            Expr::Ident(name) => self.parameters.push(name.clone()),
            Expr::Call(call) => {
                match &mut call.target {
                    Some(target) if target.expr == Expr::Ident("math".into()) => {}
                    Some(target) => self.narrow(target, depth - 1)?,
                    None => {}
                }
                for argument in &mut call.args {
                    self.narrow(argument, depth - 1)?;
                }
            }
            Expr::List(list) => {
                for element in &mut list.elements {
                    self.narrow(element, depth - 1)?;
                }
            }
            Expr::Select(_) => return refuse("fields"),
            Expr::Comprehension(_) => return refuse("comprehensions"),
            Expr::Map(_) | Expr::Struct(_) => return refuse("maps and messages"),
            Expr::Unspecified => return Err((node.id, "is empty".into())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(source: &str, values: &[(&str, f64)]) -> Option<f64> {
        Expression::compile(source).expect(source).evaluate(&values.iter().copied().collect())
    }

    fn error(source: &str) -> ExpressionError {
        validate_expression(source, ["a", "b"]).expect_err(source)
    }

    #[test]
    fn evaluate_treats_integers_as_doubles() {
        assert_eq!(value("a * 100 / b", &[("a", 1.0), ("b", 4.0)]), Some(25.0));
        assert_eq!(value("a > 1 ? a : 2", &[("a", 1.0)]), Some(2.0));
        assert_eq!(value("math.greatest(a, 3) + math.abs(-b)", &[("a", 1.0), ("b", 4.0)]), Some(7.0));
        assert_eq!(value("1 / 2", &[]), Some(0.5));
    }

    #[test]
    fn evaluate_returns_none_unless_finite_number() {
        assert_eq!(value("a / b", &[("a", 1.0), ("b", 0.0)]), None);
        assert_eq!(value("b / b", &[("b", 0.0)]), None);
        assert_eq!(value("a", &[]), None);
        assert_eq!(value("a > 1", &[("a", 1.0)]), None);
    }

    #[test]
    fn validate_reports_column_of_mistake() {
        assert_eq!(error("a + cpu").column, 5);
        assert_eq!(validate_expression("cpu_used + cpu", ["cpu_used"]).unwrap_err().column, 12);
        assert!(error("a + cpu").message.contains("cpu"));
        assert_eq!(error("a +").column, 4, "{}", error("a +"));
        assert!(error("a > 1").message.contains("not a number"));
        assert_eq!(error("a + 'x'").column, 5);
        assert!(validate_expression("a * 100 / (b - a)", ["a", "b"]).is_ok());
    }

    #[test]
    fn compile_refuses_complex_expressions() {
        assert!(error("[1, 2].map(x, x * 2)[0]").message.contains("comprehensions"));
        assert!(error(&"a+".repeat(600)).message.contains("longer"));
        let nested = |n| format!("{}a{}", "(".repeat(n), ")".repeat(n));
        assert!(error(&nested(100)).message.contains("too complex"));
        assert_eq!(value(&nested(16), &[("a", 2.0)]), Some(2.0));
        assert!(error(&format!("a{}", "+a".repeat(60))).message.contains("too complex"));
        assert_eq!(value(&format!("a{}", "+a".repeat(30)), &[("a", 1.0)]), Some(31.0));
    }
}
