//! Spans out of OTLP in JSON (`ExportTraceServiceRequest`), as OTLP/HTTP carries it and as collectors write it to files.

use serde_json::Value;

use super::ObserveError;

/// Which side of a call a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Waits for somebody else: client, or producer.
    Client,
    /// Serves, or works inside its service.
    Other,
}

/// A span, as far as the graph needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace: String,
    /// Itself.
    pub id: String,
    /// Who caused it.
    pub parent: Option<String>,
    /// `service.name` of its resource.
    pub service: String,
    /// Which side it is.
    pub kind: Kind,
    /// `peer.service` (or the newer `service.peer.name`): whom a client calls, where it is told.
    pub peer: Option<String>,
    /// Its start, seconds since the epoch.
    pub at: f64,
}

/// The spans of a document; one JSON, or one a line. Spans without a service, an id or a time are skipped: they say nothing.
///
/// # Errors
/// When it is no OTLP in JSON.
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
    // 64-bit numbers are strings in protobuf's JSON, but not every writer knows.
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
        kind: if client { Kind::Client } else { Kind::Other },
        peer: attribute(Some(span), "peer.service").or_else(|| attribute(Some(span), "service.peer.name")),
        at: nanos * 1e-9,
    })
}
