//! Reads the documents of a text: YAML, or JSON values one after the other.
//!
//! Built on a parser that yields events, because only they say whether a scalar was quoted. Duplicate keys are allowed and the last one
//! counts, `<<` merges mappings in the order of the text: both as in go-yaml v2.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::budget::{Budget, Exceeded, Limits};
use crate::json::{self, JsonError};
use crate::scalar::{self, Scalar};

/// One document of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its number, from 1. Empty documents count.
    pub number: usize,
    /// The line on which it begins, from 1.
    pub line: usize,
    /// Its content; null if it is empty.
    pub value: Value,
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It is not YAML, or has a value that JSON cannot hold.
    #[error("document {document}, line {line}, column {column}: {reason}")]
    Syntax {
        /// Number of the document, from 1.
        document: usize,
        /// Line in the text, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The parser's message. It may quote the text.
        reason: String,
    },
    /// It holds more than the limits allow.
    #[error("document {document}: {exceeded}")]
    TooComplex {
        /// Number of the document, from 1.
        document: usize,
        /// The limit.
        exceeded: Exceeded,
    },
    /// It has more than one document, where one is expected.
    #[error("it has {0} documents, but only one is expected here")]
    Several(usize),
    /// It does not have the expected fields.
    #[error("{0}")]
    Shape(String),
}

impl YamlError {
    /// Whether the text was refused because of its size and not because of an error in it.
    pub fn is_too_complex(&self) -> bool {
        matches!(self, Self::TooComplex { .. })
    }
}

/// All documents of a text.
///
/// # Errors
/// A document is not YAML, or the text expands to more than [`Limits::MANIFESTS`].
pub fn documents(text: &str) -> Result<Vec<Document>, YamlError> {
    documents_within(text, Limits::MANIFESTS)
}

/// All documents of a text, within these limits.
///
/// # Errors
/// A document is not YAML, or the text expands to more than the limits.
pub fn documents_within(text: &str, limits: Limits) -> Result<Vec<Document>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        match json::values(text, &mut Budget::new(limits)) {
            Ok(values) => {
                let numbered = values.into_iter().enumerate();
                return Ok(numbered.map(|(at, (line, value))| Document { number: at + 1, line, value }).collect());
            }
            Err(JsonError::Exceeded(document, exceeded)) => return Err(YamlError::TooComplex { document, exceeded }),
            // YAML in flow style begins with the same characters.
            Err(JsonError::Syntax) => {}
        }
    }
    match Reader::new(limits).read(text) {
        Err(Refusal { error: YamlError::Syntax { line, .. }, underindented: true }) => read_indented(text, line, limits),
        outcome => outcome.map_err(|refusal| refusal.error),
    }
}

/// Reads a text whose quoted scalars go on in lines that are not indented enough, which kubectl accepts. Blanks at the beginning of such a line
/// mean nothing, so more are put there, line by line. `line` is the first.
fn read_indented(text: &str, mut line: usize, limits: Limits) -> Result<Vec<Document>, YamlError> {
    /// Each line takes another pass over the text, which gets longer.
    const MAX_BYTES: usize = 16 << 20;
    const BLANKS: &str = "                                                                ";
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let mut left = MAX_BYTES;
    loop {
        if let Some(wanted) = line.checked_sub(1).and_then(|at| lines.get_mut(at)) {
            wanted.insert_str(0, BLANKS);
        }
        let indented = lines.concat();
        left = left.saturating_sub(indented.len());
        match Reader::new(limits).read(&indented) {
            Err(Refusal { error: YamlError::Syntax { line: next, .. }, underindented: true }) if next > line && left > 0 => line = next,
            outcome => return outcome.map_err(|refusal| refusal.error),
        }
    }
}

/// The only document of a text; null if the text is empty.
///
/// # Errors
/// It is not YAML, has several documents, or expands to more than the limits.
pub fn one(text: &str, limits: Limits) -> Result<Value, YamlError> {
    let mut documents = documents_within(text, limits)?;
    documents.retain(|document| !document.value.is_null());
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.swap_remove(0).value),
        several => Err(YamlError::Several(several)),
    }
}

/// The only document of a text as a type.
///
/// # Errors
/// As for [`one`], or the document does not have the fields of the type.
pub fn typed<T: DeserializeOwned>(text: &str, limits: Limits) -> Result<T, YamlError> {
    serde_json::from_value(one(text, limits)?).map_err(|error| YamlError::Shape(error.to_string()))
}

/// A value that an alias may repeat.
struct Anchored {
    value: Value,
    nodes: usize,
    bytes: usize,
    height: usize,
}

/// A list or mapping that is being read.
struct Open {
    content: Content,
    anchor: usize,
    nodes_before: usize,
    bytes_before: usize,
    /// Levels inside it so far.
    height: usize,
}

enum Content {
    List(Vec<Value>),
    Mapping { fields: Map<String, Value>, key: Option<Key> },
}

enum Key {
    Named(String),
    Merge,
}

/// A node that has been read, to be put into what is open.
enum Node {
    Scalar(Scalar),
    Value(Value),
}

struct Reader {
    budget: Budget,
    /// Bytes of scalars, each use of an alias included.
    bytes: usize,
    anchors: HashMap<usize, Anchored>,
    open: Vec<Open>,
    root: Option<Value>,
    documents: Vec<Document>,
    line: usize,
}

/// Why a text was not read, and whether it may be read once a line has been indented.
struct Refusal {
    error: YamlError,
    underindented: bool,
}

enum Fault {
    Reason(String),
    Exceeded(Exceeded),
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Self::Reason(reason.to_owned())
    }
}

impl From<Exceeded> for Fault {
    fn from(exceeded: Exceeded) -> Self {
        Self::Exceeded(exceeded)
    }
}

impl Reader {
    fn new(limits: Limits) -> Self {
        Self {
            budget: Budget::new(limits),
            bytes: 0,
            anchors: HashMap::new(),
            open: Vec::new(),
            root: None,
            documents: Vec::new(),
            line: 1,
        }
    }

    fn read(mut self, text: &str) -> Result<Vec<Document>, Refusal> {
        let options = granit_parser::options! { emit_comments: false };
        for next in Parser::new_from_str_with_options(text, options) {
            let document = self.documents.len() + 1;
            let (event, span) = next.map_err(|error| Refusal {
                error: syntax(document, error.marker(), error.info()),
                underindented: *error.kind() == ErrorKind::InvalidQuotedScalarIndent,
            })?;
            self.event(event, span.start).map_err(|fault| match fault {
                Fault::Reason(reason) => Refusal { error: syntax(document, &span.start, reason), underindented: false },
                Fault::Exceeded(exceeded) => Refusal { error: YamlError::TooComplex { document, exceeded }, underindented: false },
            })?;
        }
        Ok(self.documents)
    }

    fn event(&mut self, event: Event<'_>, at: Marker) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(..) => {
                self.line = at.line();
                self.anchors.clear();
            }
            Event::DocumentEnd => {
                let value = self.root.take().unwrap_or(Value::Null);
                self.documents.push(Document { number: self.documents.len() + 1, line: self.line, value });
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.node(self.open.len())?;
                self.bytes += text.len();
                let tag = tag.as_deref().map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or_default().into_owned());
                let scalar = scalar::resolve(&text, style == ScalarStyle::Plain, tag.as_deref())?;
                if anchor > 0 {
                    let value = scalar.clone().into_value()?;
                    self.anchors.insert(anchor, Anchored { value, nodes: 1, bytes: text.len(), height: 0 });
                }
                self.put(Node::Scalar(scalar), 0)?;
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Content::List(Vec::new()), anchor)?,
            Event::MappingStart(_, anchor, _) => self.begin(Content::Mapping { fields: Map::new(), key: None }, anchor)?,
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => {
                let found = self.anchors.get(&anchor).ok_or("an anchor's value contains an alias of that anchor")?;
                self.budget.alias(found.nodes, found.bytes, self.open.len() + found.height)?;
                self.bytes = self.bytes.saturating_add(found.bytes);
                let (value, height) = (found.value.clone(), found.height);
                self.put(Node::Value(value), height)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, content: Content, anchor: usize) -> Result<(), Fault> {
        let (nodes_before, bytes_before) = (self.budget.nodes(), self.bytes);
        self.budget.node(self.open.len())?;
        self.open.push(Open { content, anchor, nodes_before, bytes_before, height: 0 });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { content, anchor, nodes_before, bytes_before, height }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(items) => Value::Array(items),
            Content::Mapping { fields, .. } => Value::Object(fields),
        };
        if anchor > 0 {
            let (nodes, bytes) = (self.budget.nodes() - nodes_before, self.bytes - bytes_before);
            self.anchors.insert(anchor, Anchored { value: value.clone(), nodes, bytes, height });
        }
        self.put(Node::Value(value), height)
    }

    /// Puts a node, which has this many levels inside it, where it belongs.
    fn put(&mut self, node: Node, height: usize) -> Result<(), Fault> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node.value()?);
            return Ok(());
        };
        open.height = open.height.max(height + 1);
        match &mut open.content {
            Content::List(items) => items.push(node.value()?),
            Content::Mapping { fields, key } => match key.take() {
                None => *key = Some(node.key()?),
                Some(Key::Named(name)) => drop(fields.insert(name, node.value()?)),
                Some(Key::Merge) => merge(fields, node.value()?)?,
            },
        }
        Ok(())
    }
}

impl Node {
    fn value(self) -> Result<Value, Fault> {
        match self {
            Self::Scalar(scalar) => Ok(scalar.into_value()?),
            Self::Value(value) => Ok(value),
        }
    }

    fn key(self) -> Result<Key, Fault> {
        let name = match self {
            Self::Scalar(Scalar::Merge) => return Ok(Key::Merge),
            Self::Scalar(scalar) => scalar::key(scalar),
            Self::Value(Value::String(text)) => Some(text),
            Self::Value(Value::Bool(flag)) => Some(flag.to_string()),
            Self::Value(Value::Number(number)) => Some(number.to_string()),
            Self::Value(Value::Null) => None,
            Self::Value(_) => return Err("a key is a mapping or a list; Kubernetes has only text as keys".into()),
        };
        name.map(Key::Named).ok_or_else(|| "a key is null; Kubernetes has only text as keys".into())
    }
}

/// `<<: *defaults`, or several mappings, of which the first has precedence.
fn merge(fields: &mut Map<String, Value>, from: Value) -> Result<(), Fault> {
    const WANTED: &str = "`<<` needs a mapping or a list of mappings";
    match from {
        Value::Object(more) => fields.extend(more),
        Value::Array(several) => {
            for one in several.into_iter().rev() {
                let Value::Object(more) = one else { return Err(WANTED.into()) };
                fields.extend(more);
            }
        }
        _ => return Err(WANTED.into()),
    }
    Ok(())
}

fn syntax(document: usize, at: &Marker, reason: String) -> YamlError {
    YamlError::Syntax { document, line: at.line(), column: at.col() + 1, reason }
}
