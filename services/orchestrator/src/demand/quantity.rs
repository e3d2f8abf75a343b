//! Kubernetes quantities (`500m`, `1Gi`, `2e3`) as whole numbers. Rounded up, as the scheduler does.

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no Kubernetes quantity")]
pub struct NotAQuantity(pub String);

/// The quantity in thousandths (CPU in milli-cores).
pub fn milli(text: &str) -> Result<i64, NotAQuantity> {
    scaled(text, 1000)
}

/// The quantity in whole units (bytes, devices).
pub fn units(text: &str) -> Result<i64, NotAQuantity> {
    scaled(text, 1)
}

fn scaled(text: &str, scale: i128) -> Result<i64, NotAQuantity> {
    let wrong = || NotAQuantity(text.to_owned());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    let (numerator, denominator) = suffix_factor(suffix).ok_or_else(wrong)?;
    let (mantissa, fraction) = decimal(number).ok_or_else(wrong)?;

    let above = mantissa.checked_mul(numerator).and_then(|n| n.checked_mul(scale)).ok_or_else(wrong)?;
    let below = denominator.checked_mul(fraction).ok_or_else(wrong)?;
    let rounded_up = above.div_euclid(below) + i128::from(above.rem_euclid(below) != 0);
    i64::try_from(rounded_up).map_err(|_| wrong())
}

/// `12.50` as (1250, 100).
fn decimal(number: &str) -> Option<(i128, i128)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa = format!("{whole}{fraction}").parse().ok()?;
    Some((mantissa, 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?))
}

fn suffix_factor(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 1));
    let decimal = |power: u32| Some((1000_i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let factor = 10_i128.checked_pow(power.unsigned_abs())?;
            Some(if power < 0 { (1, factor) } else { (factor, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_writes() {
        let cases = [("500m", 500), ("2", 2000), ("1.5", 1500), ("0.0001", 1), ("1k", 1_000_000), ("100u", 1), ("2e3", 2_000_000)];
        for (text, expected) in cases {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
        let cases = [
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("100M", 100_000_000),
            ("128974848000m", 128_974_848),
            ("1E", 1_000_000_000_000_000_000),
        ];
        for (text, expected) in cases {
            assert_eq!(units(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_none() {
        for text in ["", "Gi", "1GB", "one", "1e", "--1", "1.2.3", "9999E"] {
            assert!(units(text).is_err(), "{text}");
        }
    }
}
