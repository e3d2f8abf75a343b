//! Builds the tree of a template.

use serde_json::Value;

use super::TemplateError;
use super::lex::{Piece, Word};

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Text(String),
    Print {
        line: usize,
        value: Expression,
    },
    /// `:=` makes a variable, `=` changes one.
    Set {
        line: usize,
        makes: bool,
        name: String,
        value: Expression,
    },
    /// The branches of `if … else if …`, and `else`.
    If {
        line: usize,
        branches: Vec<(Expression, Vec<Node>)>,
        otherwise: Vec<Node>,
    },
    Range {
        line: usize,
        variables: Vec<String>,
        over: Expression,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    With {
        line: usize,
        variables: Vec<String>,
        value: Expression,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
}

/// What an action computes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Literal(Value),
    /// Fields of the dot.
    Field(Vec<String>),
    /// Fields of a variable; the name of `$` is empty.
    Variable(String, Vec<String>),
    Call(String, Vec<Expression>),
}

const BLOCKS: [&str; 8] = ["if", "range", "with", "else", "end", "define", "template", "block"];

/// Builds the tree.
pub(super) fn parse(pieces: Vec<Piece>) -> Result<Vec<Node>, TemplateError> {
    let mut parser = Parser { pieces: pieces.into_iter(), line: 1 };
    let (nodes, end) = parser.body()?;
    match end {
        BodyEnd::Nothing => Ok(nodes),
        BodyEnd::Close | BodyEnd::Else(_) => Err(parser.failed("end or else without if, range or with")),
    }
}

struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    line: usize,
}

/// How a body ends.
enum BodyEnd {
    Nothing,
    Close,
    /// The words after `else`.
    Else(Vec<Word>),
}

impl Parser {
    fn failed(&self, reason: impl Into<String>) -> TemplateError {
        TemplateError { line: self.line, reason: reason.into() }
    }

    fn body(&mut self) -> Result<(Vec<Node>, BodyEnd), TemplateError> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (line, words) = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Piece::Action { line, words } => (line, words),
            };
            self.line = line;
            match words.split_first() {
                None => return Err(self.failed("an action is empty")),
                Some((Word::Name(name), rest)) if BLOCKS.contains(&name.as_str()) => match name.as_str() {
                    "end" => return Ok((nodes, BodyEnd::Close)),
                    "else" => return Ok((nodes, BodyEnd::Else(rest.to_vec()))),
                    "if" => nodes.push(self.condition(line, rest)?),
                    "range" | "with" => nodes.push(self.scope(line, name, rest)?),
                    other => return Err(self.failed(format!("{other} is not supported"))),
                },
                Some((Word::Variable(name, fields), [Word::Sign(sign @ (":=" | "=")), rest @ ..]))
                    if fields.is_empty() && !name.is_empty() =>
                {
                    nodes.push(Node::Set { line, makes: *sign == ":=", name: name.clone(), value: self.expression(rest)? });
                }
                Some(_) => nodes.push(Node::Print { line, value: self.expression(&words)? }),
            }
        }
        Ok((nodes, BodyEnd::Nothing))
    }

    fn condition(&mut self, line: usize, words: &[Word]) -> Result<Node, TemplateError> {
        let mut branches = Vec::new();
        let mut condition = self.expression(words)?;
        loop {
            let (body, end) = self.body()?;
            branches.push((condition, body));
            match end {
                BodyEnd::Nothing => return Err(TemplateError { line, reason: "if has no end".into() }),
                BodyEnd::Close => return Ok(Node::If { line, branches, otherwise: Vec::new() }),
                BodyEnd::Else(words) => match words.split_first() {
                    Some((Word::Name(name), rest)) if name == "if" => condition = self.expression(rest)?,
                    Some(_) => return Err(self.failed("else is followed by something else than if")),
                    None => return Ok(Node::If { line, branches, otherwise: self.last(line)? }),
                },
            }
        }
    }

    fn scope(&mut self, line: usize, name: &str, words: &[Word]) -> Result<Node, TemplateError> {
        let (variables, words) = match words.iter().position(|word| *word == Word::Sign(":=")) {
            None => (Vec::new(), words),
            Some(at) => {
                let named = words[..at].iter().filter(|word| **word != Word::Sign(","));
                let variables: Option<Vec<String>> = named
                    .map(|word| match word {
                        Word::Variable(name, fields) if fields.is_empty() && !name.is_empty() => Some(name.clone()),
                        _ => None,
                    })
                    .collect();
                let variables = variables.filter(|names| (1..=if name == "range" { 2 } else { 1 }).contains(&names.len()));
                (variables.ok_or_else(|| self.failed(format!("the variables of {name} are not understood")))?, &words[at + 1..])
            }
        };
        let value = self.expression(words)?;
        let (body, end) = self.body()?;
        let otherwise = match end {
            BodyEnd::Close => Vec::new(),
            BodyEnd::Else(words) if words.is_empty() => self.last(line)?,
            BodyEnd::Else(_) => return Err(self.failed(format!("else of {name} has no condition"))),
            BodyEnd::Nothing => return Err(TemplateError { line, reason: format!("{name} has no end") }),
        };
        Ok(match name {
            "range" => Node::Range { line, variables, over: value, body, otherwise },
            _ => Node::With { line, variables, value, body, otherwise },
        })
    }

    /// The body after `else`, which must be closed with `end`.
    fn last(&mut self, line: usize) -> Result<Vec<Node>, TemplateError> {
        match self.body()? {
            (body, BodyEnd::Close) => Ok(body),
            _ => Err(TemplateError { line, reason: "else has no end".into() }),
        }
    }

    /// A pipeline: the result of each command is the last argument of the next one.
    fn expression(&self, words: &[Word]) -> Result<Expression, TemplateError> {
        let mut depth = 0;
        let mut commands = vec![Vec::new()];
        for word in words {
            match word {
                Word::Sign("(") => depth += 1,
                Word::Sign(")") => depth -= 1,
                Word::Sign("|") if depth == 0 => {
                    commands.push(Vec::new());
                    continue;
                }
                _ => {}
            }
            if let Some(command) = commands.last_mut() {
                command.push(word.clone());
            }
        }
        if depth != 0 {
            return Err(self.failed("parentheses do not match"));
        }
        let mut value = None;
        for command in commands {
            value = Some(self.command(&command, value)?);
        }
        value.ok_or_else(|| self.failed("an expression is missing"))
    }

    fn command(&self, words: &[Word], piped: Option<Expression>) -> Result<Expression, TemplateError> {
        let mut arguments = Vec::new();
        let mut rest = words;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            arguments.push(match word {
                Word::Field(fields) => Expression::Field(fields.clone()),
                Word::Variable(name, fields) => Expression::Variable(name.clone(), fields.clone()),
                Word::Text(text) => Expression::Literal(text.clone().into()),
                Word::Number(number) => Expression::Literal(number.clone().into()),
                Word::Name(name) => match name.as_str() {
                    "true" => Expression::Literal(true.into()),
                    "false" => Expression::Literal(false.into()),
                    "nil" => Expression::Literal(Value::Null),
                    function => Expression::Call(function.to_owned(), Vec::new()),
                },
                Word::Sign("(") => {
                    let close = self.closing(after)?;
                    rest = &after[close + 1..];
                    self.expression(&after[..close])?
                }
                Word::Sign(sign) => return Err(self.failed(format!("{sign} is not expected here"))),
            });
        }
        let mut arguments = arguments.into_iter();
        match arguments.next() {
            // A name at the start of a command is a function, the rest are its arguments.
            Some(Expression::Call(function, none)) if none.is_empty() => Ok(Expression::Call(function, arguments.chain(piped).collect())),
            Some(value) if arguments.len() == 0 && piped.is_none() => Ok(value),
            Some(_) => Err(self.failed("only a function has arguments")),
            None => Err(self.failed("an expression is missing")),
        }
    }

    fn closing(&self, words: &[Word]) -> Result<usize, TemplateError> {
        let mut depth = 1;
        for (at, word) in words.iter().enumerate() {
            match word {
                Word::Sign("(") => depth += 1,
                Word::Sign(")") => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(at);
            }
        }
        Err(self.failed("parentheses do not match"))
    }
}
