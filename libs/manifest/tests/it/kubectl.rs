//! Scalars, keys and structures as a built kubectl reads them (`kubectl annotate --local` reads a file as all its commands do, and
//! needs no API server).

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use drover_manifest::Limits;
use drover_manifest::one;
use serde_json::Value;

const SCALARS: &[&str] = &[
    "0744",
    "0400",
    "0o744",
    "0O17",
    "0x1F",
    "0X1f",
    "-0x10",
    "+0x10",
    "0b101",
    "0B11",
    "-0b11",
    "08",
    "09",
    "0777",
    "00",
    "0",
    "-0",
    "-0.0",
    "+0",
    "010.5",
    "1_000",
    "1__0",
    "_1",
    "1_",
    "-_1",
    "0_8",
    "0x_F",
    "1.0",
    "1.5",
    "1.",
    ".5",
    "-.5",
    "+.5",
    "._5",
    ".1_5",
    ".5_",
    "1e3",
    "1E3",
    "1e-3",
    "1e+3",
    "1e",
    "e1",
    "1e400",
    "1.e1",
    "123456789012",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999",
    "1e20",
    "1e22",
    "0x",
    "0o",
    "0b",
    "0b2",
    "0xFFFFFFFFFFFFFFFF",
    "0xFFFFFFFFFFFFFFFFFF",
    "0x1p3",
    "+",
    "-",
    "--1",
    "+-1",
    "1-1",
    "1.2.3",
    "1:30",
    "12:30:45",
    "190:20:30",
    "yes",
    "Yes",
    "YES",
    "yEs",
    "y",
    "Y",
    "n",
    "N",
    "no",
    "No",
    "NO",
    "on",
    "On",
    "ON",
    "off",
    "Off",
    "OFF",
    "true",
    "True",
    "TRUE",
    "tRue",
    "false",
    "False",
    "FALSE",
    "null",
    "Null",
    "NULL",
    "nULL",
    "~",
    "",
    "nan",
    "NaN",
    "inf",
    "Infinity",
    "=",
    "2001-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43.10 -5",
    "2023-01-01T00:00:00Z",
    "12e03",
    "1,000",
    "100m",
    "1Gi",
    "10%",
    "v1",
    "0.1.2",
    "'yes'",
    "\"yes\"",
    "'0744'",
    "\"0744\"",
    "'null'",
    "\"\"",
    "''",
    "!!str yes",
    "!!str 0744",
    "!!int '0744'",
    "!!int \"3\"",
    "!!float 3",
    "!!bool 'yes'",
    "!!binary aGVsbG8=",
    "!custom yes",
    "! yes",
    "! 12",
    "!!null ''",
    "a b",
    "a: b",
    "'it''s'",
    "\"a\\tb\\u00e9\\x41\\e\"",
    "\"a\\\n  b\"",
    "|\n  yes\n  0744",
    "|-\n  yes",
    "|+\n  a\n\n",
    ">\n  a\n  b\n\n  c",
    ">-\n  a\n   b\n  c",
    "|2\n    a\n   b",
    "[yes, 0744, ~, '1']",
    "{a: yes, 1: 2}",
    "[a, [b]]",
    "*x",
    "a\n  b",
    "a #b",
    "a#b",
    "http://a:80/b?c#d",
    "@a",
    "%a",
    "`a",
    "- a",
    "? a",
    "{}",
    "[]",
    "\u{e9}\u{1F600}",
    "<<",
];

const DOCUMENTS: &[&str] = &[
    "on: x\nyes: 1\n1: a\n1.5: b\n1e6: d\n1234567.0: e\n0.00001: f\n0x10: g\n010: h\n~a: i\ntrue: j\n2001-01-01: k\n",
    "a: 1\na: 2\n",
    "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {y: 3, <<: *b}\nmany: {<<: [{x: 5}, *b], z: 1}\nquoted: {'<<': 1}\n",
    "anchor: &a [1, &b two, *b]\nalso: *a\n*b : key\n",
    "multi: &m\n  - {a: &s yes}\n  - *s\nagain: *m\n",
    "# comment\na: 1 # one\n\n\nb:\n- 1\n-   2\n-\n  - 3\n",
    "text: |\n  ---\n  # no comment\n  yes\nnext: \"a --- b\"\n",
    "? a\n: 1\n? [b]\n",
    "{\"a\": \"\\ud83d\\ude00\", \"b\": 1.0, \"c\": 1e3, \"d\": [null, true], \"e\": \"\\/\"}\n",
    "a:\tb\n",
    "a: 'x\n  y\nz'\nb: \"1\n2\n  3\n\"\nc:\n  d:\n    - '[\n  x\n]'\n",
    "a: |\n  x\n  y",
    "a: >-\n  x",
    "a: |+\n  x\n\n  y",
    "a: x",
    "a: [1,\n2,\n  3]\nb: {x: 1,\ny: 2}\n",
    "a: 'x\n\n  y'\nb: \"x\n  y\\\n  z\"\n",
    "&k a: 1\nb: *k\n",
    "a: !!set {x, y}\nb: !!omap [x: 1]\n",
    "a: .inf\n",
    "a: .nan\n",
    "a: !!int x\n",
    "a: *nowhere\n",
    "a: &a [*a]\n",
    "~: 1\n",
    "a: b: c\n",
    "a: 1\n b: 2\n",
    "a: [1\n",
    "a: yes\n...\n",
    "a: \"\\q\"\n",
    "a: @b\n",
    "a: x\r\nb: |\r\n  1\r\n  2\r\n",
    "a:\n  - b\n  -c\n",
    "a: -\n",
    "a: [-1, - 1]\n",
    "a: {b:1, c: 2, d}\n",
    "a: \"b\"c\n",
];

/// What kubectl refuses and Drover reads: newer YAML, and a directive in the first document.
const LENIENT: &[(&str, &str)] = &[
    ("a: \"\\ud83d\\ude00\"\n", "{\"a\": \"\u{1F600}\"}"),
    ("a: \"\\/\"\n", "{\"a\": \"/\"}"),
    ("\ta: 1\n", "{\"a\": 1}"),
    ("%YAML 1.1\n---\na: yes\n", "{\"a\": true}"),
];

fn kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("DROVER_KUBE_BIN").or_else(|| drover_testkit::needs("DROVER_KUBE_BIN"))?;
    Some(PathBuf::from(path).join("kubectl"))
}

/// What kubectl makes of `spec`; `None` if it refuses it.
fn read_by_kubectl(kubectl: &PathBuf, spec: &str) -> Option<Value> {
    let mut child = Command::new(kubectl)
        .args(["annotate", "--local", "-f", "-", "-o", "json", "read=yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(object(spec).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| {
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        found["spec"].clone()
    })
}

/// An object with this spec. What begins with `%` or `{` stands alone, because it cannot be indented.
fn object(spec: &str) -> String {
    if spec.starts_with('{') {
        return format!(
            "{{\"apiVersion\": \"example.io/v1\", \"kind\": \"Probe\", \"metadata\": {{\"name\": \"p\"}}, \"spec\": {}}}",
            spec.trim_end()
        );
    }
    let (directive, spec) = match spec.strip_prefix("%YAML 1.1\n---\n") {
        Some(spec) => ("%YAML 1.1\n---\n", spec),
        None => ("", spec),
    };
    let (spec, end) = spec.strip_suffix("...\n").map_or((spec, ""), |spec| (spec, "...\n"));
    let indented: String = spec.split_inclusive('\n').map(|line| format!("  {line}")).collect();
    let last = if spec.ends_with('\n') { "\n" } else { "" };
    format!("{directive}apiVersion: example.io/v1\nkind: Probe\nmetadata: {{name: p}}\nspec:\n{indented}{last}{end}")
}

fn read(spec: &str) -> Option<Value> {
    let found = one(&object(spec), Limits::MANIFESTS).ok()?;
    Some(found["spec"].clone())
}

/// Compares as an API server would: 1 and 1.0 are the same number, and what is above 2^63 is a float.
fn same(ours: &Option<Value>, theirs: &Option<Value>) -> bool {
    fn equal(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => a == b || (a.as_f64() == b.as_f64() && !(a.is_i64() && b.is_i64())),
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
            (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| equal(a, b))),
            (a, b) => a == b,
        }
    }
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => equal(ours, theirs),
        (None, None) => true,
        _ => false,
    }
}

#[test]
fn scalars_mean_what_they_mean_to_kubectl() {
    let Some(kubectl) = kubectl() else { return };
    let mut different = Vec::new();
    let mut compare = |spec: &str| {
        let (ours, theirs) = (read(spec), read_by_kubectl(&kubectl, spec));
        if !same(&ours, &theirs) {
            different.push(format!("{spec:?}: {ours:?}, kubectl {theirs:?}"));
        }
    };
    // All at once, and one by one where a document is refused.
    let readable: Vec<&&str> = SCALARS.iter().filter(|scalar| read(&format!("v: {scalar}\n")).is_some()).collect();
    let all: String = readable.iter().enumerate().map(|(at, scalar)| format!("v{at}: {scalar}\n")).collect();
    compare(&all);
    for scalar in SCALARS.iter().filter(|scalar| !readable.contains(scalar)) {
        compare(&format!("v: {scalar}\n"));
    }
    if !different.is_empty() {
        different.clear();
        for scalar in SCALARS {
            let spec = format!("v: {scalar}\n");
            let (ours, theirs) = (read(&spec), read_by_kubectl(&kubectl, &spec));
            if !same(&ours, &theirs) {
                different.push(format!("{spec:?}: {ours:?}, kubectl {theirs:?}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn documents_mean_what_they_mean_to_kubectl() {
    let Some(kubectl) = kubectl() else { return };
    let mut different = Vec::new();
    for spec in DOCUMENTS {
        let (ours, theirs) = (read(spec), read_by_kubectl(&kubectl, spec));
        if !same(&ours, &theirs) {
            let why = one(&object(spec), Limits::MANIFESTS).err();
            different.push(format!("{spec:?}: {ours:?} ({why:?}), kubectl {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn newer_yaml_that_kubectl_refuses_is_read() {
    let Some(kubectl) = kubectl() else { return };
    for (spec, expected) in LENIENT {
        assert_eq!(read(spec), Some(serde_json::from_str(expected).unwrap()), "{spec:?}");
        assert_eq!(read_by_kubectl(&kubectl, spec), None, "{spec:?} is no longer refused: move it to DOCUMENTS");
    }
}
