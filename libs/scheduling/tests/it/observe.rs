//! The measured call graph, from spans and from the metrics of a service mesh.

use drover_scheduling::groups::Service;
use drover_scheduling::groups::observe::*;

fn span(trace: usize, id: &str, parent: Option<&str>, service: &str, at: f64) -> Span {
    Span {
        trace: format!("t{trace}"),
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        service: service.to_owned(),
        kind: SpanSide::Other,
        peer: None,
        at,
    }
}

/// For `seconds`, front calls cart twice per second, and cart calls its database, which sends no spans, once per second.
fn traffic(seconds: usize) -> Vec<Span> {
    (0..seconds * 2)
        .flat_map(|i| {
            let at = i as f64 / 2.0;
            let db = Span { kind: SpanSide::Client, peer: Some("cart-db".to_owned()), ..span(i, "c", Some("b"), "cart", at) };
            // Children may arrive before their parents.
            [span(i, "b", Some("a"), "cart", at), span(i, "a", None, "front", at)].into_iter().chain(i.is_multiple_of(2).then_some(db))
        })
        .collect()
}

#[test]
fn collector_rates_do_not_depend_on_span_order() {
    for seconds in [60, 6000] {
        let mut collector = Collector::new(Settings::default());
        traffic(seconds).iter().for_each(|s| collector.add(s));
        traffic(seconds).iter().rev().take(20).for_each(|s| collector.add(s)); // repeated by the exporter
        let edges = collector.edges(seconds as f64);
        let names: Vec<(&str, &str)> = edges.iter().map(|e| (e.from.as_str(), e.to.as_str())).collect();
        assert_eq!(names, [("cart", "cart-db"), ("front", "cart")]);
        assert!((edges[0].rate - 1.0).abs() < 0.05 && (edges[1].rate - 2.0).abs() < 0.1, "{edges:?}");
        assert!(edges.iter().all(|e| e.confidence > 0.85 && e.age <= 1.0));
    }
}

#[test]
fn collector_rate_decays_without_calls() {
    let mut collector = Collector::new(Settings::default());
    traffic(600).iter().for_each(|s| collector.add(s));
    let (then, later) = (collector.edges(600.0), collector.edges(600.0 + 6000.0));
    assert!(later[0].confidence < then[0].confidence && later[0].age > 5999.0);
    assert!(later[0].rate < then[0].rate / 100.0);
}

#[test]
fn collector_counts_calls_of_instrumented_service_once() {
    let mut collector = Collector::new(Settings::default());
    for i in 0..100 {
        let at = i as f64;
        collector.add(&Span { kind: SpanSide::Client, peer: Some("b".to_owned()), ..span(i, "x", None, "a", at) });
        collector.add(&span(i, "y", Some("x"), "b", at));
    }
    let edges = collector.edges(100.0);
    assert_eq!(edges.len(), 1);
    assert!((edges[0].rate - 1.0).abs() < 0.05);
}

#[test]
fn collector_limits_edges_and_spans() {
    let mut collector = Collector::new(Settings { edges: 5, spans: 10, ..Settings::default() });
    for i in 0..1000 {
        collector.add(&span(i, "a", None, &format!("s{i}"), 1.0));
        collector.add(&span(i, "b", Some("a"), &format!("d{i}"), 1.0));
        collector.add(&span(i, "c", Some("never comes"), "d", 1.0));
    }
    assert_eq!((collector.edges(2.0).len(), collector.dropped), (5, 995));
}

#[test]
fn spans_reads_otlp_json() {
    let text = r#"{"resourceSpans":[
        {"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"front"}}]},"scopeSpans":[{"spans":[
            {"traceId":"t","spanId":"1","parentSpanId":"","kind":2,"startTimeUnixNano":"1700000000000000000"},
            {"traceId":"t","spanId":"2","parentSpanId":"1","kind":"SPAN_KIND_CLIENT","startTimeUnixNano":1700000000000000000,
             "attributes":[{"key":"peer.service","value":{"stringValue":"db"}}]}, {"spanId":"no trace"}]}]},
        {"resource":{"attributes":[]},"scopeSpans":[{"spans":[{"traceId":"t","spanId":"3"}]}]}]}"#;
    let found = spans(text).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].parent.as_deref(), found[0].kind, found[0].at), (None, SpanSide::Other, 1.7e9));
    assert_eq!((found[1].parent.as_deref(), found[1].kind, found[1].peer.as_deref()), (Some("1"), SpanSide::Client, Some("db")));
    assert_eq!(spans(&format!("{}\n{}", text.replace('\n', " "), text.replace('\n', " "))).unwrap().len(), 4);
    assert!(matches!(spans("{}"), Err(ObserveError::Shape(_))));
    assert!(matches!(spans("<html>"), Err(ObserveError::Json(_))));
}

#[test]
fn rates_reads_mesh_metrics_into_graph() {
    let text = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"source_workload":"front","destination_workload":"cart"},"value":[1000,"2.5"]},
        {"metric":{"source_workload":"unknown","destination_workload":"front"},"value":[1000,"9"]},
        {"metric":{"source_workload":"cart","destination_workload":"db"},"value":[1000,"0.001"]},
        {"metric":{"source_workload":"cart","destination_workload":"old"},"value":[1000,"NaN"]}]}}"#;
    let edges = rates(text, &EdgeLabels::default(), RateWindow { window: 600.0, now: 1010.0 }).unwrap();
    assert_eq!(edges.len(), 2);
    assert_eq!((edges[1].from.as_str(), edges[1].rate, edges[1].age), ("front", 2.5, 10.0));
    assert!(edges[0].confidence < 0.3 && edges[1].confidence > 0.97);

    let services = ["front", "cart", "db"].map(|n| Service { name: n.to_owned(), request: [1.0, 1.0], replicas: 1 }).to_vec();
    assert_eq!(graph(services.clone(), &edges, 0.0).unwrap().calls().len(), 2);
    assert_eq!(graph(services, &edges, 0.5).unwrap().total(), 2.5);

    let refused = rates(r#"{"status":"error","error":"parse error"}"#, &EdgeLabels::default(), RateWindow { window: 1.0, now: 1.0 });
    assert_eq!(refused.unwrap_err().to_string(), "Prometheus answered with an error: parse error");
    assert!(rates(r#"{"status":"success"}"#, &EdgeLabels::default(), RateWindow { window: 1.0, now: 1.0 }).is_err());
}

#[test]
fn collector_stays_small_whatever_it_is_sent() {
    let mut collector = Collector::new(Settings { edges: 20, spans: 50, ..Settings::default() });
    let long = "x".repeat(1 << 20);
    for i in 0..5_000 {
        // Children of one parent and of many that never arrive, of services that nobody has heard of, and names and ids of a megabyte.
        let service = format!("service-{i}");
        collector.add(&span(1, &format!("a{i}"), Some("never"), &service, i as f64));
        collector.add(&span(i, "b", Some("missing"), &service, i as f64));
        collector.add(&Span { kind: SpanSide::Client, peer: Some(format!("peer-{i}")), ..span(i, "c", None, &service, i as f64) });
    }
    collector.add(&span(1, &long, None, "web", 0.0));
    collector.add(&span(1, "d", None, &long, 0.0));
    collector.add(&Span { trace: long.clone(), ..span(1, "e", None, "web", 0.0) });
    let kept = format!("{collector:?}").len();
    assert!(kept < 20_000, "{kept} bytes");
}
