//! Reasons of an error that differ only in names and numbers, as one line with a count. Pure.

/// How many reasons of a kind are printed one by one.
const EACH: usize = 3;

/// The reasons in their order. Of more than [`EACH`] that differ only in words with digits or `+` (clusters, nodes, amounts), the first is
/// printed with the number of the others.
pub fn condensed(reasons: &[String]) -> Vec<String> {
    let mut kinds: Vec<(String, Vec<&String>)> = Vec::new();
    for reason in reasons {
        let kind = kind(reason);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, alike)) => alike.push(reason),
            None => kinds.push((kind, vec![reason])),
        }
    }
    let lines = kinds.into_iter().flat_map(|(_, alike)| match alike.len() {
        1..=EACH => alike.into_iter().cloned().collect(),
        count => vec![format!("{} (and {} more like this)", alike[0], count - 1)],
    });
    lines.collect()
}

fn kind(reason: &str) -> String {
    let word = |word: &str| if word.contains(|c: char| c.is_ascii_digit() || c == '+') { "#".to_owned() } else { word.to_owned() };
    reason.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_only_in_names_and_numbers_are_one_line() {
        let full = |at: usize| format!("web: onprem+site-{at}: cpu: needs 1500m on one node, the emptiest has {at}00m free");
        let mut reasons: Vec<String> = (0..70).map(full).collect();
        reasons.insert(5, "its owner has not agreed to moves".to_owned());

        let lines = condensed(&reasons);

        assert_eq!(lines, [format!("{} (and 69 more like this)", full(0)), "its owner has not agreed to moves".to_owned()]);
    }

    #[test]
    fn few_reasons_are_printed_as_they_are() {
        let reasons = ["a 1".to_owned(), "a 2".to_owned(), "a 3".to_owned()];
        assert_eq!(condensed(&reasons), reasons);
    }
}
