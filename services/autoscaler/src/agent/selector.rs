//! Label selectors in the notation of the `scale` subresource: `app=web,tier in (a,b),!canary`.

use kube::core::{Expression, Selector};

/// Parses a selector. None: it is invalid, or empty; an empty one would select every pod.
pub fn parse(text: &str) -> Option<Selector> {
    let terms: Option<Vec<Expression>> = split(text).into_iter().map(|term| expression(term.trim())).collect();
    let terms = terms?;
    if terms.is_empty() { None } else { Some(terms.into_iter().collect()) }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0u32, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn expression(term: &str) -> Option<Expression> {
    if let Some(key) = term.strip_prefix('!') {
        return Some(Expression::DoesNotExist(key.trim().to_owned()));
    }
    if let Some((head, values)) = term.strip_suffix(')').and_then(|term| term.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let key = key.trim().to_owned();
        return match operator {
            "in" => Some(Expression::In(key, values)),
            "notin" => Some(Expression::NotIn(key, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some(Expression::NotEqual(key.trim().to_owned(), value.trim().to_owned()));
    }
    if let Some((key, value)) = term.split_once('=') {
        return Some(Expression::Equal(key.trim().to_owned(), value.trim_start_matches('=').trim().to_owned()));
    }
    (!term.contains(char::is_whitespace)).then(|| Expression::Exists(term.to_owned()))
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt;

    use super::parse;

    #[test]
    fn parse_reads_scale_subresource_selectors() {
        let labels =
            |text: &str| text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let web = labels("app=web,tier=a");
        for (text, matches) in [
            ("app=web", true),
            ("app==web", true),
            ("app=web,tier in (a,b)", true),
            ("tier in (b)", false),
            ("tier notin (b, c)", true),
            ("app", true),
            ("!app", false),
            ("!canary,app!=db", true),
            ("app!=web", false),
        ] {
            assert_eq!(parse(text).unwrap_or_else(|| panic!("{text}")).matches(&web), matches, "{text}");
        }
        for text in ["", " , ", "a within (b)", "a b"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
