//! Every parser that takes users' bytes, on bytes that nobody meant: it answers, in bounded time and memory, and does not panic.
//!
//! Inputs are mutations of what is in `tests/corpus`, a folder per parser. `make test-long` gives each parser 10 minutes of CPU
//! (`DROVER_FUZZ_SECONDS`), however busy the machine is; `make test` a second. An input that was found to break a parser is added to its folder. Mutations are blind:
//! to be guided by coverage (cargo-fuzz) they would need a nightly compiler, which the build does not have.
#![allow(clippy::unwrap_used, reason = "a helper of tests is a test, though not a function with the attribute")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// No input may take more CPU time: a request waits for it. Generous, because the parsers of a debug build are slow.
const LIMIT: Duration = Duration::from_secs(20);

/// Words on which parsers turn: structure, references, numbers at their limits.
const WORDS: [&str; 26] = [
    "&a ",
    "*a",
    "<<: *a\n",
    "---\n",
    "!!binary ",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "- ",
    "\"",
    "'",
    "|\n",
    "%YAML 1.2\n",
    "\t",
    "\u{feff}",
    "\\u0000",
    "1e999",
    "-9223372036854775809",
    "0x",
    ".inf",
    "null",
    "apiVersion: v1\nkind: List\nitems:\n",
    "exec:\n  command: sh\n",
    "((((((((",
];

/// CPU time of this process: some parsers use threads of their own.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// One parser at a time, so that the time of none is counted for another.
static TURN: Mutex<()> = Mutex::new(());

/// Calls the parser on mutations of the inputs in its folder for as long as this run allows.
fn fuzz(parser: &str, limit: usize, parse: impl Fn(&[u8])) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(parser);
    let mut corpus: Vec<Vec<u8>> = std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    corpus.sort();
    assert!(!corpus.is_empty(), "{} has no inputs", folder.display());
    let seconds = std::env::var("DROVER_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed = std::env::var("DROVER_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    eprintln!("{parser}: {seconds} s of CPU, DROVER_FUZZ_SEED={seed}");
    let (mut rng, end, mut count) = (StdRng::seed_from_u64(seed), cpu_time() + Duration::from_secs(seconds), 0_u64);
    corpus.iter().for_each(|input| timed(parser, input, &parse));
    while cpu_time() < end {
        let mut input = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(1..=8) {
            mutate(&mut rng, &mut input, &corpus);
        }
        input.truncate(limit);
        timed(parser, &input, &parse);
        count += 1;
    }
    eprintln!("{parser}: {count} inputs");
}

fn timed(parser: &str, input: &[u8], parse: &impl Fn(&[u8])) {
    let began = cpu_time();
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parse(input))).is_err() || cpu_time() - began > LIMIT {
        let file = std::env::temp_dir().join(format!("drover-fuzz-{parser}-{}", std::process::id()));
        std::fs::write(&file, input).unwrap();
        panic!("{parser} panicked, or took {:?}, on {}", cpu_time() - began, file.display());
    }
}

fn mutate(rng: &mut StdRng, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = rng.random_range(0..=input.len());
    match rng.random_range(0..7) {
        0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
        1 if at < input.len() => input[at] = rng.random(),
        2 => {
            let end = rng.random_range(at..=input.len());
            input.drain(at..end);
        }
        3 => drop(input.splice(at..at, WORDS[rng.random_range(0..WORDS.len())].bytes())),
        4 => {
            // A part of it many times: depth and aliases.
            let end = rng.random_range(at..=input.len()).min(at + 40);
            let part = input[at..end].repeat(rng.random_range(1..400));
            drop(input.splice(at..at, part));
        }
        5 => {
            let other = &corpus[rng.random_range(0..corpus.len())];
            let (from, to) = (rng.random_range(0..=other.len()), rng.random_range(0..=other.len()));
            drop(input.splice(at..at, other[from.min(to)..from.max(to)].iter().copied()));
        }
        _ => input.truncate(at),
    }
}

#[test]
fn manifest_parser_survives_any_bytes() {
    fuzz("manifests", 256 << 10, |bytes| {
        if let Ok(objects) = drover_manifest::objects::read("upload", &String::from_utf8_lossy(bytes)) {
            let _ = drover_manifest::objects::settle(objects, "default");
        }
    });
}

#[test]
fn kubeconfig_parser_survives_any_bytes() {
    fuzz("kubeconfigs", 64 << 10, |bytes| drop(drover_members::kubeconfig::vet(&String::from_utf8_lossy(bytes))));
}

#[test]
fn archive_reader_survives_any_bytes() {
    use std::io::Write;
    fuzz("archives", 256 << 10, |bytes| {
        let _ = drover_orchestrator::render::Archive::read(bytes);
        // A changed file behind a checksum that fits.
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        let _ = drover_orchestrator::render::Archive::read(&gzip.finish().unwrap());
    });
}

#[test]
fn expression_parser_survives_any_bytes() {
    use drover_api::scheduling::validate_expression;
    fuzz("expressions", 8 << 10, |bytes| drop(validate_expression(&String::from_utf8_lossy(bytes), ["cpu_used", "cpu_requested"])));
}

#[test]
fn quantity_parser_survives_any_bytes() {
    fuzz("quantities", 4 << 10, |bytes| drop(drover_quantity::thousandths(&String::from_utf8_lossy(bytes))));
}

/// Bodies of requests: JSON and forms, as documents of each kind that has a file. The first line of an input is its content type.
#[test]
fn body_reader_survives_any_bytes() {
    use axum::body::Bytes;
    use axum::http::HeaderValue;
    use drover_resources::{DocumentKind, check_body};
    let kinds: Vec<&DocumentKind> = drover_orchestrator::resources::KINDS.into_iter().filter(|kind| kind.file.is_some()).collect();
    assert!(kinds.len() > 1, "some kinds have files");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    fuzz("bodies", 256 << 10, |bytes| {
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let Ok(content_type) = HeaderValue::from_bytes(&bytes[..end]) else { return };
        let body = Bytes::copy_from_slice(&bytes[(end + 1).min(bytes.len())..]);
        for kind in &kinds {
            // A check that panics in its own thread becomes an answer.
            if let Err(problem) = runtime.block_on(check_body(kind, content_type.clone(), body.clone())) {
                assert_ne!(problem.code().name, "internal", "{}: {:?}", kind.name, problem.document());
            }
        }
    });
}

/// Spans of applications, as OTLP in protobuf and in JSON, and what is counted of them.
#[test]
fn span_collector_survives_any_bytes() {
    use drover_api::scheduling::groups::observe::{Collector, Settings};
    use prost::Message;
    let sample = protobuf_sample();
    fuzz("spans", 64 << 10, |bytes| {
        // The corpus is text. What is no JSON changes the bytes of the sample in protobuf, so that mutations reach its fields.
        let mixed: Vec<u8> =
            sample.encode_to_vec().iter().zip(bytes.iter().cycle()).map(|(a, b)| if b % 7 == 0 { *b } else { *a }).collect();
        let mut collector = Collector::new(Settings { half_life: 600.0, edges: 100, spans: 100 });
        for (content_type, body) in
            [("application/json", bytes.to_vec()), ("application/x-protobuf", bytes.to_vec()), ("application/x-protobuf", mixed)]
        {
            if let Ok(spans) = drover_orchestrator::spans_of(content_type, body.into()) {
                spans.iter().for_each(|span| collector.add(span));
            }
        }
        for edge in collector.edges(1.7e9) {
            assert!(edge.rate >= 0.0 && (0.0..=1.0).contains(&edge.confidence), "{edge:?}");
        }
    });
}

/// A call of one service to another.
fn protobuf_sample() -> opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    let named = |key: &str, value: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
        ..KeyValue::default()
    };
    let span = |id: u8, parent: &[u8]| Span {
        trace_id: vec![7; 16],
        span_id: vec![id; 8],
        parent_span_id: parent.to_vec(),
        kind: 3,
        start_time_unix_nano: 1_700_000_000_000_000_000,
        attributes: vec![named("peer.service", "postgres")],
        ..Span::default()
    };
    let of = |service: &str, span: Span| ResourceSpans {
        resource: Some(Resource { attributes: vec![named("service.name", service)], ..Resource::default() }),
        scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![of("web", span(1, &[])), of("cart", span(2, &[1; 8]))] }
}
