//! Splits a template into text and actions, and an action into words.

use super::TemplateError;

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Action { line: usize, words: Vec<Word> },
}

/// A word of an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    /// `if`, `eq`, `true`
    Name(String),
    /// `.a.b`; no fields: the dot itself.
    Field(Vec<String>),
    /// `$x.a`; an empty name is `$`, the values as a whole.
    Variable(String, Vec<String>),
    Text(String),
    Number(serde_json::Number),
    /// `:=`, `=`, `|`, `,`, `(`, `)`
    Sign(&'static str),
}

/// Splits a template. The trim marks `{{-` and `-}}` are applied to the texts beside them.
pub(super) fn split(template: &str) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut rest, mut line, mut trim) = (Vec::new(), template, 1, false);
    while let Some(start) = rest.find("{{") {
        let (text, action) = (&rest[..start], &rest[start + 2..]);
        line += text.matches('\n').count();
        let failed = |reason: &str| TemplateError { line, reason: reason.to_owned() };
        let (trim_before, action) = match action.strip_prefix('-') {
            Some(inner) if inner.starts_with(char::is_whitespace) => (true, inner),
            _ => (false, action),
        };
        let text = if trim { text.trim_start() } else { text };
        push(&mut pieces, if trim_before { text.trim_end() } else { text });
        let end = end_of(action).ok_or_else(|| failed("an action is not closed with }}"))?;
        let inner = &action[..end];
        rest = &action[end + 2..];
        let (inner, trim_after) = match inner.strip_suffix('-') {
            Some(inner) if inner.ends_with(char::is_whitespace) => (inner, true),
            _ => (inner, false),
        };
        trim = trim_after;
        if !inner.trim_start().starts_with("/*") {
            pieces.push(Piece::Action { line, words: words(inner).map_err(|reason| failed(&reason))? });
        }
        line += inner.matches('\n').count();
    }
    push(&mut pieces, if trim { rest.trim_start() } else { rest });
    Ok(pieces)
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// Where `}}` closes an action; not inside a quoted text or a comment.
fn end_of(action: &str) -> Option<usize> {
    if action.trim_start().starts_with("/*") {
        let comment = action.find("*/")? + 2;
        return action[comment..].find("}}").map(|end| comment + end);
    }
    let (mut quote, mut escaped) = (None, false);
    for (at, letter) in action.char_indices() {
        match quote {
            Some('"') if escaped => escaped = false,
            Some('"') if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '`' => quote = Some(letter),
            None if action[at..].starts_with("}}") => return Some(at),
            None => {}
        }
    }
    None
}

fn words(mut rest: &str) -> Result<Vec<Word>, String> {
    const SIGNS: [&str; 6] = [":=", "=", "|", ",", "(", ")"];
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return Ok(words) };
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            words.push(Word::Sign(sign));
            rest = &rest[sign.len()..];
        } else if first == '"' || first == '`' {
            let (text, length) = quoted(rest, first)?;
            words.push(Word::Text(text));
            rest = &rest[length..];
        } else {
            let length = rest.find(|c: char| c.is_whitespace() || "|,()=:\"`".contains(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(length.max(first.len_utf8()));
            words.push(plain(word)?);
            rest = after;
        }
    }
}

/// A quoted text at the start, and how many bytes it takes.
fn quoted(rest: &str, quote: char) -> Result<(String, usize), String> {
    let not_closed = || format!("a text is not closed with {quote}");
    if quote == '`' {
        let end = rest[1..].find('`').ok_or_else(not_closed)?;
        return Ok((rest[1..=end].to_owned(), end + 2));
    }
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                let text = serde_json::from_str(&rest[..=at]).map_err(|_| format!("{} is not a valid text", &rest[..=at]))?;
                return Ok((text, at + 1));
            }
            _ => {}
        }
    }
    Err(not_closed())
}

fn plain(word: &str) -> Result<Word, String> {
    let fields = |path: &str| -> Result<Vec<String>, String> {
        let parts: Vec<String> = path.split('.').skip(1).map(str::to_owned).collect();
        if parts.iter().any(|part| !is_name(part)) {
            return Err(format!("{word} is not a field"));
        }
        Ok(parts)
    };
    if word == "." {
        return Ok(Word::Field(Vec::new()));
    }
    if word.starts_with('.') {
        return fields(word).map(Word::Field);
    }
    if let Some(variable) = word.strip_prefix('$') {
        let (name, path) = variable.split_at(variable.find('.').unwrap_or(variable.len()));
        return Ok(Word::Variable(name.to_owned(), fields(path)?));
    }
    if let Ok(number) = word.parse() {
        return Ok(Word::Number(number));
    }
    if is_name(word) { Ok(Word::Name(word.to_owned())) } else { Err(format!("{word} is not understood")) }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_alphanumeric() || c == '_')
}
