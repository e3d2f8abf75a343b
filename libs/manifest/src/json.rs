//! Reads JSON values, one after the other, within the limits.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::budget::{Budget, Exceeded};

/// Why a text was not read.
pub(crate) enum JsonError {
    /// It is no JSON: it may be YAML.
    Syntax,
    /// The value of this number, counted from 1, is too large.
    Exceeded(usize, Exceeded),
}

/// All values of a text, each with the line on which it begins.
pub(crate) fn values(text: &str, budget: &mut Budget) -> Result<Vec<(usize, Value)>, JsonError> {
    let mut values = Vec::new();
    let mut rest = text.trim_start();
    let mut line = 1 + newlines(&text[..text.len() - rest.len()]);
    while !rest.is_empty() {
        let mut exceeded = None;
        let mut reader = serde_json::Deserializer::from_str(rest);
        let value = Counted { budget, depth: 0, exceeded: &mut exceeded }.deserialize(&mut reader);
        if let Some(exceeded) = exceeded {
            return Err(JsonError::Exceeded(values.len() + 1, exceeded));
        }
        values.push((line, value.map_err(|_| JsonError::Syntax)?));
        let end = reader.into_iter::<Value>().byte_offset();
        let next = rest[end..].trim_start();
        line += newlines(&rest[..rest.len() - next.len()]);
        rest = next;
    }
    Ok(values)
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Makes a value and charges it to the budget.
struct Counted<'b> {
    budget: &'b mut Budget,
    depth: usize,
    exceeded: &'b mut Option<Exceeded>,
}

impl Counted<'_> {
    fn inner(&mut self) -> Counted<'_> {
        Counted { budget: self.budget, depth: self.depth + 1, exceeded: self.exceeded }
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if let Err(exceeded) = self.budget.node(self.depth) {
            *self.exceeded = Some(exceeded);
            return Err(D::Error::custom(exceeded));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.inner())? {
            items.push(item);
        }
        Ok(items.into())
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            fields.insert(key, map.next_value_seed(self.inner())?);
        }
        Ok(fields.into())
    }
}
