//! Kubernetes quantities in thousandths, rounded up as the HPA controller does it (`Quantity.MilliValue()`).

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Thousandths of a unit, read from a quantity such as `15`, `"300m"`, `"1.5"` or `"2Gi"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Milli(pub i64);

/// The text is not a Kubernetes quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write a number with an optional suffix, like 15, 300m or 2Gi")]
pub struct QuantityError(#[from] drover_quantity::NotAQuantity);

impl FromStr for Milli {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(drover_quantity::milli(text)?))
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
    fn milli_parses_quantities_rounded_up() {
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
    fn milli_serializes_as_text_and_reads_numbers() {
        let milli: Milli = serde_json::from_str("2").unwrap();
        assert_eq!(serde_json::to_string(&milli).unwrap(), "\"2\"");
        assert_eq!(serde_json::from_str::<Milli>("0.25").unwrap(), Milli(250));
    }
}
