//! Call graphs that are measured: a real OpenTelemetry exporter, and a server that answers as Prometheus does.

use axum::Json;
use axum::extract::Query;
use axum::routing::get;
use drover_orchestrator::tasks::observe;
use drover_testkit::HttpServer;
use opentelemetry::trace::{Span, SpanKind, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};

use crate::support::{Stack, deployment, doc, no_peers};

const GRAPH: &str = "/v2/projects/p/composite-apps/shop/v1/call-graphs/calls";

/// Apps web, cart and db with this call graph; the group's path.
async fn shop(stack: &Stack, spec: Value) -> String {
    let apps = ["web", "cart", "db"].map(|name| (name, deployment(name, "100m", 1)));
    let apps = apps.each_ref().map(|(name, yaml)| (*name, yaml.as_str()));
    let dig = stack.group("shop", &apps, &[("onprem", "a"), ("aws", "c")]).await;
    stack.post("/v2/projects/p/composite-apps/shop/v1/call-graphs", doc("calls", Some(spec)), 201).await;
    dig
}

/// Calls of an app as placement would be told now.
async fn told(stack: &Stack, dig: &str, app: &str) -> Vec<(String, f64)> {
    let approved = stack.call("POST", &format!("{dig}/approve"), None).await;
    assert_eq!(approved.status, 202, "{}", approved.body);
    let terms = stack.get("/internal/digs/lookup?project=p&compositeApp=shop&version=v1&dig=shop").await;
    let app = terms["apps"].as_array().unwrap().iter().find(|found| found["app"] == app).unwrap().clone();
    let calls = app["terms"]["calls"]["to"].as_array().cloned().unwrap_or_default();
    calls.iter().map(|call| (call["app"].as_str().unwrap().to_owned(), call["microCalls"].as_f64().unwrap() * 1e-6)).collect()
}

/// What services would send of so many requests: web calls cart, cart calls db, which sends nothing itself.
fn send(endpoint: &str, requests: usize) {
    let provider = |service: &'static str| {
        let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary).with_endpoint(endpoint).build().unwrap();
        let resource = Resource::builder().with_service_name(service).build();
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build()
    };
    let (web, cart) = (provider("web"), provider("cart"));
    for _ in 0..requests {
        let out = web.tracer("t").span_builder("out").with_kind(SpanKind::Client).start_with_context(&web.tracer("t"), &Context::new());
        let caller = Context::new().with_remote_span_context(out.span_context().clone());
        let served = cart.tracer("t").span_builder("in").with_kind(SpanKind::Server).start_with_context(&cart.tracer("t"), &caller);
        let inside = Context::new().with_remote_span_context(served.span_context().clone());
        let peer = [KeyValue::new("peer.service", "db")];
        let query = cart.tracer("t").span_builder("query").with_kind(SpanKind::Client).with_attributes(peer);
        drop(query.start_with_context(&cart.tracer("t"), &inside));
    }
    for provider in [web, cart] {
        provider.shutdown().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exported_spans_complete_declared_calls() {
    let stack = Stack::undocumented().await;
    let calls = json!([
        {"from": "web", "to": "cart", "calls": 2}, {"from": "cart", "to": "db", "calls": 6}, {"from": "web", "to": "db", "calls": 1},
    ]);
    let dig = shop(&stack, json!({"source": "both", "calls": calls})).await;
    assert_eq!(told(&stack, &dig, "cart").await, [("db".to_owned(), 6.0)], "nothing is measured yet");

    let endpoint = stack.url(&format!("{GRAPH}/v1/traces"));
    tokio::task::spawn_blocking(move || send(&endpoint, 40)).await.unwrap();
    observe::once(&stack.app, None).await.unwrap();

    let measured = stack.get(&format!("{GRAPH}/measured")).await;
    let pairs: Vec<(&str, &str)> =
        measured["items"].as_array().unwrap().iter().map(|m| (m["from"].as_str().unwrap(), m["to"].as_str().unwrap())).collect();
    assert_eq!(pairs, [("cart", "db"), ("web", "cart")], "{measured}");
    for call in measured["items"].as_array().unwrap() {
        assert_eq!(call["source"], "traces");
        assert!(call["confidence"].as_f64().unwrap() > 0.8 && call["age"].as_f64().unwrap() >= 0.0, "{call}");
    }
    // Each was called forty times, whatever was declared; the third pair, never seen, keeps its share of what was declared.
    let (cart, web) = (told(&stack, &dig, "cart").await, told(&stack, &dig, "web").await);
    let rate = |calls: &[(String, f64)], to: &str| calls.iter().find(|(app, _)| app == to).unwrap().1;
    assert!((rate(&cart, "db") / rate(&web, "cart") - 1.0).abs() < 0.01, "{cart:?} {web:?}");
    assert!((rate(&web, "db") / (rate(&web, "cart") + rate(&cart, "db")) - 1.0 / 8.0).abs() < 0.01, "{cart:?} {web:?}");

    // A second look without news writes nothing new, and a restart would find what is written.
    observe::once(&stack.app, None).await.unwrap();
    assert_eq!(stack.get(&format!("{GRAPH}/measured")).await["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn prometheus_query_measures_calls() {
    async fn answer(Query(query): Query<Vec<(String, String)>>) -> (http::StatusCode, Json<Value>) {
        if query != [("query".to_owned(), "calls by pair".to_owned())] {
            let error = json!({"status": "error", "errorType": "bad_data", "error": "parse error"});
            return (http::StatusCode::BAD_REQUEST, Json(error));
        }
        let pair = |from: &str, to: &str, rate: &str| json!({"metric": {"source_workload": from, "destination_workload": to}, "value": [1_700_000_000.5, rate]});
        let result = [pair("web", "cart", "3.5"), pair("unknown", "web", "9"), pair("cart", "db", "NaN")];
        (http::StatusCode::OK, Json(json!({"status": "success", "data": {"resultType": "vector", "result": result}})))
    }
    let prometheus = HttpServer::start(axum::Router::new().route("/prom/api/v1/query", get(answer))).await;
    let base = prometheus.url("/prom").parse().unwrap();
    let stack = Stack::start(no_peers()).await;
    let spec = |query: &str| json!({"source": "measured", "prometheus": {"query": query}, "confidence": 0});
    let dig = shop(&stack, spec("not what it knows")).await;
    observe::once(&stack.app, Some(&base)).await.unwrap();
    assert_eq!(stack.get(&format!("{GRAPH}/measured")).await["items"], json!([]), "an error teaches nothing");

    let changed = stack.call("PUT", GRAPH, Some(doc("calls", Some(spec("calls by pair"))))).await;
    assert!(changed.status < 300, "{}", changed.body);
    observe::once(&stack.app, Some(&base)).await.unwrap();
    let measured = stack.get(&format!("{GRAPH}/measured")).await;
    assert_eq!(measured["items"].as_array().unwrap().len(), 1, "{measured}");
    assert_eq!((&measured["items"][0]["source"], &measured["items"][0]["rate"]), (&json!("prometheus"), &json!(3.5)));
    assert_eq!(told(&stack, &dig, "web").await, [("cart".to_owned(), 3.5)]);
    assert!(told(&stack, &dig, "cart").await.is_empty());
}

#[tokio::test]
async fn invalid_spans_are_refused() {
    let stack = Stack::undocumented().await;
    shop(&stack, json!({"source": "measured"})).await;
    let client = reqwest::Client::new();
    let send = async |path: &str, kind: &str, body: &[u8]| {
        let request = client.post(stack.url(path)).header("content-type", kind).body(body.to_vec());
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json::<Value>().await.map_or(Value::Null, |body| body["code"].clone()))
    };
    let traces = format!("{GRAPH}/v1/traces");
    assert_eq!(send(&traces, "application/x-protobuf", b"\xff\xff\xff").await, (422, json!("malformed_upload")));
    assert_eq!(send(&traces, "application/json", b"{").await, (422, json!("malformed_json")));
    assert_eq!(send(&traces, "application/json", b"{\"resourceSpans\": []}").await, (200, Value::Null));
    assert_eq!(send(&traces, "application/x-protobuf", &vec![0; (4 << 20) + 1]).await, (413, json!("too_large")));
    assert_eq!(send(&traces, "text/plain", b"").await, (415, json!("unsupported_media_type")));
    let nowhere = traces.replace("call-graphs/calls", "call-graphs/none");
    assert_eq!(send(&nowhere, "application/x-protobuf", b"").await, (404, json!("not_found")));
}
