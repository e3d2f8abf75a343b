//! Go's text/template as files of EMCO documents use it (`emcoctl -v`): fields, variables, `if`, `range`, `with`, comments, and the
//! functions for comparison, logic and printing. Named templates (`define`, `template`, `block`) are not supported.
//!
//! One rule is stricter than Go's: printing a value that does not exist is an error, where Go prints `<no value>` into the document.

mod evaluate;
mod lex;
mod parse;

use serde_json::Value;

/// What is wrong with a template or its values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TemplateError {
    /// Line of the template, from 1.
    pub line: usize,
    pub reason: String,
}

/// Fills `values` into a template.
///
/// # Errors
/// The template is not valid, uses something that is not supported, or prints a value that does not exist.
pub fn render(template: &str, values: &Value) -> Result<String, TemplateError> {
    let nodes = parse::parse(lex::split(template)?)?;
    evaluate::run(&nodes, values)
}

/// Whether a text has template actions at all.
pub fn is_template(text: &str) -> bool {
    text.contains("{{")
}

#[cfg(test)]
mod tests;
