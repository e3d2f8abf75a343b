//! Kubernetes quantities as whole numbers, rounded up as the scheduler does.

use std::collections::BTreeMap;

use drover_scheduling::Amounts;

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no Kubernetes quantity")]
pub struct NotAQuantity(pub String);

/// In thousandths (CPU: milli-cores).
pub fn milli(text: &str) -> Result<i64, NotAQuantity> {
    scaled(text, 3)
}

/// In whole units (bytes, pods, devices).
pub fn units(text: &str) -> Result<i64, NotAQuantity> {
    scaled(text, 0)
}

/// A resource list (`requests`, `allocatable`) as amounts.
pub fn amounts(list: &BTreeMap<String, String>) -> Result<Amounts, NotAQuantity> {
    let mut amounts = Amounts::default();
    for (name, text) in list {
        match name.as_str() {
            "cpu" => amounts.cpu = milli(text)?,
            "memory" => amounts.memory = units(text)?,
            "pods" => amounts.pods = units(text)?,
            _ => {
                amounts.extra.insert(name.clone(), units(text)?);
            }
        }
    }
    Ok(amounts)
}

/// `text` × 10^`shift`, rounded up; amounts beyond i64 are its end, as nothing real is larger.
fn scaled(text: &str, shift: i32) -> Result<i64, NotAQuantity> {
    let wrong = || NotAQuantity(text.to_owned());
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 18 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
    let (binary, decimal) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(wrong)?;
            (0, exponent.parse::<i32>().ok().filter(|e| (-18..=18).contains(e)).ok_or_else(wrong)?)
        }
    };
    let power = decimal + shift - i32::try_from(fraction.len()).map_err(|_| wrong())?;
    let ten = 10_i128.pow(power.unsigned_abs());
    let large = mantissa.saturating_mul(1 << binary);
    let value = if power >= 0 { large.saturating_mul(ten) } else { -(-large).div_euclid(ten) };
    Ok(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_writes() {
        for (text, expected) in
            [("1", 1000), ("500m", 500), ("0.1", 100), ("1500u", 2), ("2e1", 20_000), ("100n", 1), ("0", 0), ("1.5", 1500)]
        {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("1Ki", 1024),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("128974848000m", 128_974_848),
            ("1E", 1_000_000_000_000_000_000),
            ("9Ei", i64::MAX),
            ("1e3", 1000),
            ("1m", 1),
        ] {
            assert_eq!(units(text), Ok(expected), "{text}");
        }
        for text in ["", "x", "1X", "1.2.3", "1e", "Gi", "1e99"] {
            assert!(units(text).is_err(), "{text}");
        }
    }
}
