//! Reads spans from OTLP in JSON (`ExportTraceServiceRequest`), as sent by OTLP/HTTP and as written to files by collectors.

use serde_json::Value;

use super::ObserveError;

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSide {
    /// The calling side: client or producer.
    Client,
    /// The serving side, or work inside a service.
    Other,
}

/// The parts of a span that the call graph needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Id of its trace.
    pub trace: String,
    /// Id of the span.
    pub id: String,
    /// Id of its parent.
    pub parent: Option<String>,
    /// `service.name` of its resource.
    pub service: String,
    /// Side of the call.
    pub kind: SpanSide,
    /// `peer.service` or the newer `service.peer.name`: the service that a client calls.
    pub peer: Option<String>,
    /// Start, in seconds since the epoch.
    pub at: f64,
}

/// Reads the spans of a document: one JSON value, or one per line. Spans without a service, an id or a time are skipped.
///
/// # Errors
/// The text is not JSON or not an OTLP trace.
pub fn spans(text: &str) -> Result<Vec<Span>, ObserveError> {
    let mut found = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let document = document?;
        let resources =
            document.get("resourceSpans").and_then(Value::as_array).ok_or(ObserveError::Shape("OTLP trace: it has no resourceSpans"))?;
        for resource in resources {
            let Some(service) = attribute(resource.get("resource"), "service.name") else { continue };
            for scope in list(resource, "scopeSpans") {
                found.extend(list(scope, "spans").iter().filter_map(|span| read(span, &service)));
            }
        }
    }
    Ok(found)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn attribute(of: Option<&Value>, key: &str) -> Option<String> {
    let all = list(of?, "attributes");
    let value = all.iter().find(|a| a.get("key").and_then(Value::as_str) == Some(key))?.get("value")?;
    value.get("stringValue").and_then(Value::as_str).filter(|v| !v.is_empty()).map(str::to_owned)
}

fn read(span: &Value, service: &str) -> Option<Span> {
    let text = |name: &str| span.get(name).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    // Protobuf's JSON writes 64-bit numbers as strings, but some exporters write numbers.
    let nanos = span.get("startTimeUnixNano")?;
    let nanos: f64 = nanos.as_str().map_or_else(|| nanos.as_f64(), |t| t.parse().ok())?;
    let kind = span.get("kind");
    let client = kind.and_then(Value::as_u64).is_some_and(|k| k == 3 || k == 4)
        || kind.and_then(Value::as_str).is_some_and(|k| k == "SPAN_KIND_CLIENT" || k == "SPAN_KIND_PRODUCER");
    Some(Span {
        trace: text("traceId")?,
        id: text("spanId")?,
        parent: text("parentSpanId"),
        service: service.to_owned(),
        kind: if client { SpanSide::Client } else { SpanSide::Other },
        peer: attribute(Some(span), "peer.service").or_else(|| attribute(Some(span), "service.peer.name")),
        at: nanos * 1e-9,
    })
}
