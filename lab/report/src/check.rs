//! A check: a target and the measured result.

use serde::Serialize;

use crate::table::number;

/// A target and the result that this run measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: String,
    /// The target in words, for example `at most 50 ms`.
    pub reach: String,
    /// The result in words, for example `31.2 ms`.
    pub got: String,
    /// Whether the target was reached.
    pub ok: bool,
}

impl Check {
    /// A check of anything other than a number against a bound.
    pub fn holds(name: impl Into<String>, reach: impl Into<String>, got: impl Into<String>, ok: bool) -> Self {
        Check { name: name.into(), reach: reach.into(), got: got.into(), ok }
    }

    /// Holds if `got <= reach`; never for NaN.
    pub fn at_most(name: impl Into<String>, reach: f64, got: f64, unit: &str) -> Self {
        Check::holds(name, format!("at most {}", with(reach, unit)), with(got, unit), got <= reach)
    }

    /// Holds if `got >= reach`; never for NaN.
    pub fn at_least(name: impl Into<String>, reach: f64, got: f64, unit: &str) -> Self {
        Check::holds(name, format!("at least {}", with(reach, unit)), with(got, unit), got >= reach)
    }

    /// Holds if `|got - aim| <= tolerance`; never for NaN.
    pub fn within(name: impl Into<String>, aim: f64, tolerance: f64, got: f64, unit: &str) -> Self {
        Check::holds(name, format!("{} ± {}", number(aim), with(tolerance, unit)), with(got, unit), (got - aim).abs() <= tolerance)
    }
}

fn with(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_include_their_bound_and_never_hold_for_nan() {
        assert!(Check::at_most("plan", 50.0, 50.0, "ms").ok);
        assert!(!Check::at_most("plan", 50.0, 50.1, "ms").ok);
        assert!(Check::within("restarts", -58.0, 10.0, -50.2, "%").ok);
        for check in
            [Check::at_most("x", 1.0, f64::NAN, ""), Check::at_least("x", 1.0, f64::NAN, ""), Check::within("x", 1.0, 9.0, f64::NAN, "")]
        {
            assert!(!check.ok, "{check:?}");
        }
        assert_eq!(Check::at_least("rate", 8000.0, 9123.4, "/s").got, "9123 /s");
    }
}
