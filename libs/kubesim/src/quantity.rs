//! Kubernetes quantities as thousandths of their unit: `250m` is 250, `1Gi` is 1024³ · 1000.

/// Thousandths; rounded up, as Kubernetes does. None when it is no quantity.
pub fn milli(text: &str) -> Option<i128> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024f64,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        e if e.starts_with(['e', 'E']) => 10f64.powi(e[1..].parse().ok()?),
        _ => return None,
    };
    // Floats carry sums of real clusters exactly enough: 2^53 thousandths of a byte are 9 TB.
    let value = number * factor * 1000.0;
    Some(if value.fract().abs() < 1e-6 { value.round() } else { value.ceil() } as i128)
}

/// Thousandths of a JSON value, numbers included.
pub fn of(value: &serde_json::Value) -> i128 {
    match value {
        serde_json::Value::String(text) => milli(text).unwrap_or(0),
        serde_json::Value::Number(number) => number.as_f64().map_or(0, |n| (n * 1000.0) as i128),
        _ => 0,
    }
}

/// Written back as cpu is: `250m`, `2`.
pub fn show(milli: i128) -> String {
    if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, want) in
            [("1", 1000), ("250m", 250), ("1.5", 1500), ("1Ki", 1_024_000), ("2k", 2_000_000), ("1e3", 1_000_000), ("100n", 1)]
        {
            assert_eq!(milli(text), Some(want), "{text}");
        }
        assert_eq!(milli("much"), None);
        assert_eq!(milli("1X"), None);
        assert_eq!(show(1500), "1500m");
        assert_eq!(show(2000), "2");
    }
}
