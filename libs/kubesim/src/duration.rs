//! Reads durations in the syntax of Go, as annotations have them.

use std::time::Duration;

/// Reads a duration like `1500ms`, `30s` or `1m30s`; `None` if the text is not one.
pub fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, 0f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    Duration::try_from_secs_f64(sum).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_reads_what_go_writes() {
        assert_eq!(duration("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("5"), None);
    }
}
