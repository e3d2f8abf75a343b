//! Kubernetes quantities (`500m`, `1Gi`, `2e3`) as thousandths, the effective requests of a pod, and names of images. Pure.
//!
//! All parts that count requested resources use this crate: demands read from manifests, pods observed in members, pods of the
//! simulator. The invariant: amounts are rounded up, so none is ever counted as less than the member's scheduler counts it.

mod image;
mod pod;

pub use image::image_name;
pub use pod::{Container, PodSpec, Requests, Resources};

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Kubernetes quantity")]
pub struct NotAQuantity(pub String);

/// Thousandths of the unit: `250m` is 250, `1Ki` is 1024 · 1000. Smaller parts are rounded up.
///
/// # Errors
/// The text is not a quantity.
pub fn thousandths(text: &str) -> Result<i128, NotAQuantity> {
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
    let power = decimal + 3 - i32::try_from(fraction.len()).map_err(|_| wrong())?;
    let ten = 10_i128.pow(power.unsigned_abs());
    let large = mantissa.saturating_mul(1 << binary);
    Ok(if power >= 0 { large.saturating_mul(ten) } else { up(large, ten) })
}

/// In thousandths (CPU: millicores). Amounts beyond the range of i64 become its limit.
///
/// # Errors
/// The text is not a quantity.
pub fn milli(text: &str) -> Result<i64, NotAQuantity> {
    thousandths(text).map(narrow)
}

/// In whole units (bytes, pods, devices), rounded up; else as [`milli`].
///
/// # Errors
/// The text is not a quantity.
pub fn units(text: &str) -> Result<i64, NotAQuantity> {
    thousandths(text).map(|thousandths| narrow(up(thousandths, 1000)))
}

/// Thousandths as Kubernetes writes them: `250m`, `2`.
pub fn show(thousandths: i128) -> String {
    if thousandths % 1000 == 0 { (thousandths / 1000).to_string() } else { format!("{thousandths}m") }
}

fn up(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// A quantity in an object, as a text or as a number. A malformed one becomes an error only when its value is asked for, because one
/// malformed object must not make the whole list that it comes in unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity(Result<i128, NotAQuantity>);

impl Quantity {
    /// Thousandths of the unit.
    ///
    /// # Errors
    /// The object has something else than a quantity here.
    pub fn thousandths(&self) -> Result<i128, NotAQuantity> {
        self.0.clone()
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct QuantityVisitor;
        impl Visitor<'_> for QuantityVisitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a quantity: a text such as \"300m\", or a number")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(thousandths(text)))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(Ok(i128::from(number) * 1000)))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(Ok(i128::from(number) * 1000)))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(QuantityVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milli_and_units_read_kubernetes_notation_and_round_up() {
        for (text, expected) in [
            ("1", 1000),
            ("500m", 500),
            ("0.1", 100),
            ("1500u", 2),
            ("2e1", 20_000),
            ("100n", 1),
            ("0", 0),
            ("1.5", 1500),
            (".5", 500),
            ("0.0001", 1),
            ("1k", 1_000_000),
            ("-100m", -100),
            ("9E", i64::MAX),
        ] {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("1Ki", 1024),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("100M", 100_000_000),
            ("128974848000m", 128_974_848),
            ("1E", 1_000_000_000_000_000_000),
            ("9Ei", i64::MAX),
            ("1e3", 1000),
            ("1m", 1),
            ("1n", 1),
        ] {
            assert_eq!(units(text), Ok(expected), "{text}");
        }
        assert_eq!((show(1500), show(2000)), ("1500m".to_owned(), "2".to_owned()));
    }

    #[test]
    fn units_refuses_malformed_quantities() {
        for text in ["", "x", "1X", "1GB", "one", "1.2.3", "1e", "Gi", "1e99", "--1", "1-2", ".", " 1"] {
            assert_eq!(units(text), Err(NotAQuantity(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn quantity_reads_numbers_and_keeps_errors() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).unwrap().thousandths();
        assert_eq!([read("2"), read("0.25"), read("\"1Ki\"")], [Ok(2000), Ok(250), Ok(1_024_000)]);
        assert_eq!(read("\"lots\""), Err(NotAQuantity("lots".to_owned())));
    }
}
