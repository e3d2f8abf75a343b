//! The meaning of scalars, as go-yaml v2 reads them, which is what kubectl and helm use (through sigs.k8s.io/yaml).
//!
//! It is neither YAML 1.1 nor 1.2 to the letter: octal numbers are `0744` and `0o744`, `08` is the number 8, base 60 does not exist,
//! dates are strings. `tests/it/kubectl.rs` compares a table of scalars with a built kubectl.

use base64::Engine;
use serde_json::{Number, Value};

/// A scalar with its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Too large for [`Scalar::Int`].
    Uint(u64),
    Float(f64),
    Text(String),
    /// An unquoted `<<`: as a key it merges mappings.
    Merge,
}

/// Reads a scalar. `tag` is the name of a tag of YAML itself (`str` for `!!str`); other tags make it text.
pub(crate) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Scalar, String> {
    match tag {
        None if plain => Ok(implicit(text)),
        None | Some("str") => Ok(Scalar::Text(text.to_owned())),
        Some("binary") => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| "the !!binary value is not base64")?;
            Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Some(tag @ ("bool" | "int" | "float" | "null")) => match (tag, implicit(text)) {
            ("float", Scalar::Int(number)) => Ok(Scalar::Float(number as f64)),
            ("bool", found @ Scalar::Bool(_))
            | ("int", found @ (Scalar::Int(_) | Scalar::Uint(_)))
            | ("float", found @ Scalar::Float(_))
            | ("null", found @ Scalar::Null) => Ok(found),
            _ => Err(format!("{text:?} is no !!{tag}")),
        },
        Some("merge") if text == "<<" => Ok(Scalar::Merge),
        Some(_) => Ok(Scalar::Text(text.to_owned())),
    }
}

fn implicit(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        "<<" => return Scalar::Merge,
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' if underscores_separate_digits(text) => float(&text.replace('_', "")),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

/// An integer in Go's notation: `0x`, `0o`, `0b`, or `0` for octal.
fn integer(text: &str) -> Option<Scalar> {
    let (negative, signed, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, true, &text[1..]),
        b'+' => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let (digits, radix) = match magnitude.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (&magnitude[2..], 16),
        Some("0o") => (&magnitude[2..], 8),
        Some("0b") => (&magnitude[2..], 2),
        Some(two) if two.starts_with('0') => (&magnitude[1..], 8),
        _ => (magnitude, 10),
    };
    // Rust's parser would accept a second sign.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    match i64::try_from(value) {
        Ok(value) => Some(Scalar::Int(if negative { -value } else { value })),
        Err(_) if negative && value == i64::MIN.unsigned_abs() => Some(Scalar::Int(i64::MIN)),
        Err(_) if signed => None,
        Err(_) => Some(Scalar::Uint(value)),
    }
}

/// A decimal fraction: digits, a point, an exponent. Neither `inf` nor a hexadecimal fraction.
fn float(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let regular = digits(whole)
        && digits(fraction)
        && (!whole.is_empty() || !fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    if !regular {
        return None;
    }
    // Go reports a number that is too large as an error, and the text stays text.
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Scalar::Float)
}

fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    (0..bytes.len()).filter(|at| bytes[*at] == b'_').all(|at| digit(at.checked_sub(1)) && digit(Some(at + 1)))
}

impl Scalar {
    /// The JSON value that kubectl makes of it. A whole float becomes an integer, as in Go's JSON.
    pub(crate) fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => flag.into(),
            Self::Int(number) => number.into(),
            Self::Uint(number) => number.into(),
            Self::Float(number) => json_number(number).ok_or_else(|| format!("{number} has no form in JSON"))?.into(),
            Self::Text(text) => text.into(),
            Self::Merge => "<<".into(),
        })
    }
}

fn json_number(number: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Some((number as i64).into());
    }
    Number::from_f64(number)
}

/// The name that a scalar has as the key of a mapping; `None` for null.
pub(crate) fn key(scalar: Scalar) -> Option<String> {
    Some(match scalar {
        Scalar::Null => return None,
        Scalar::Bool(flag) => flag.to_string(),
        Scalar::Int(number) => number.to_string(),
        Scalar::Uint(number) => number.to_string(),
        Scalar::Float(number) => short_float(number),
        Scalar::Text(text) => text,
        Scalar::Merge => "<<".to_owned(),
    })
}

/// A float as Go's shortest `%g` with the precision of 32 bits writes it, which is what sigs.k8s.io/yaml does with keys.
fn short_float(number: f64) -> String {
    let number = number as f32;
    if number.is_nan() {
        return ".nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    number.to_string()
}
