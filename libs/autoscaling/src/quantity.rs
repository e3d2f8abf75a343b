//! Kubernetes quantities as thousandths, the way the HPA controller reads them (`Quantity.MilliValue()`: rounded up).

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Thousandths of a unit, from a quantity such as `15`, `"300m"`, `"1.5"` or `"2Gi"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Milli(pub i64);

/// Text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity; write a number with an optional suffix, like 15, 300m or 2Gi")]
pub struct QuantityError(String);

/// Suffix, its factor as numerator and denominator of thousandths.
const SUFFIXES: [(&str, i128, i128); 15] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
];

impl FromStr for Milli {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError(text.to_owned());
        let (number, over, under) =
            SUFFIXES.iter().find_map(|&(suffix, over, under)| Some((text.strip_suffix(suffix)?, over, under))).unwrap_or((text, 1, 1));
        let (number, exponent) = match number.split_once(['e', 'E']) {
            Some((number, exponent)) if (over, under) == (1, 1) => (number, exponent.parse::<i32>().map_err(|_| wrong())?),
            Some(_) => return Err(wrong()),
            None => (number, 0),
        };
        let (negative, number) = match number.as_bytes().first() {
            Some(b'-') => (true, &number[1..]),
            Some(b'+') => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{part}");
        if digits.is_empty() || digits.len() > 30 || exponent.abs() > 18 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let places = i32::try_from(part.len()).map_err(|_| wrong())? - exponent;
        let ten = |power: i32| 10_i128.checked_pow(power.max(0).unsigned_abs()).ok_or_else(wrong);
        let top = digits.parse::<i128>().map_err(|_| wrong())?;
        let top = top.checked_mul(over).and_then(|top| top.checked_mul(1_000)).ok_or_else(wrong)?;
        let top = top.checked_mul(ten(-places)?).ok_or_else(wrong)?;
        let bottom = under.checked_mul(ten(places)?).ok_or_else(wrong)?;
        // Away from zero, as Quantity does when it drops digits.
        let milli = i64::try_from(top.div_euclid(bottom) + i128::from(top.rem_euclid(bottom) != 0)).unwrap_or(i64::MAX);
        Ok(Self(if negative { -milli } else { milli }))
    }
}

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1_000 == 0 { write!(f, "{}", self.0 / 1_000) } else { write!(f, "{}m", self.0) }
    }
}

impl Serialize for Milli {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Milli {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Milli;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a number, or text such as \"300m\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Milli, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Milli, E> {
                value.checked_mul(1_000).map(Milli).ok_or_else(|| E::custom("this quantity is too large"))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Milli, E> {
                i64::try_from(value).map_err(E::custom).and_then(|value| self.visit_i64(value))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Milli, E> {
                value.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Milli {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A Kubernetes quantity: a number, or text such as 300m.",
            "anyOf": [{"type": "number"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Milli;

    #[test]
    fn quantities_are_read_as_thousandths_rounded_up() {
        for (text, milli) in [
            ("15", 15_000),
            ("300m", 300),
            ("1.5", 1_500),
            ("0.0001", 1),
            ("2Ki", 2_048_000),
            ("1e3", 1_000_000),
            ("12E2", 1_200_000),
            ("1E", i64::MAX),
            ("-100m", -100),
            ("5u", 1),
            (".5", 500),
        ] {
            assert_eq!(text.parse(), Ok(Milli(milli)), "{text}");
        }
        for text in ["", "m", "1..5", "x", "1 m", "1e3m", "--1", "1e99"] {
            assert!(text.parse::<Milli>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_travel_as_text() {
        let milli: Milli = serde_json::from_str("2").unwrap();
        assert_eq!(serde_json::to_string(&milli).unwrap(), "\"2\"");
        assert_eq!(serde_json::from_str::<Milli>("0.25").unwrap(), Milli(250));
    }
}
