//! Routes: what is published of them for the data path, and the list that users see.

use std::collections::HashMap;

use drover_api::scheduling::MemberKey;
use drover_api::traffic::{RouteBackend, RouteBackendView, RouteList, RouteTable, RouteView};
use drover_resources::TypedDocument;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::apps::names;
use super::{App, Error};
use crate::resources::route::{RouteSpec, ServicePort};
use crate::store::traffic::{self, RoutedCopy};
use crate::store::{bundle, route};

type Route = TypedDocument<RouteSpec>;

/// What a route leads to, by digest of the bundle, Service and port: found once per bundle.
pub type Targets = HashMap<(String, String, ServicePort), Result<Target, String>>;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the port as EndpointSlices have it.
    pub port: String,
    /// Path of the HTTP request with which the app's own readiness probe asks at this port.
    pub probe: Option<String>,
}

impl App {
    /// Publishes all routes with their copies and weights for the data path.
    ///
    /// # Errors
    /// A query failed.
    pub async fn publish_routes(&self, targets: &mut Targets) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        let (routes, copies) = routes(&mut tx).await?;
        let (mut tables, mut broken, mut used) = (Vec::new(), HashMap::new(), Targets::new());
        for (at, route) in routes.iter().enumerate() {
            if let Some(first) = same_address(&routes, at) {
                broken.insert(route.id, format!("{} has the address {}", first.path, route.spec.address()));
                continue;
            }
            let copies: Vec<&RoutedCopy> = copies_of(route, &copies).collect();
            // A copy that is being updated has the digest of what it will be.
            let Some(digest) = copies.first().map(|copy| copy.digest.clone()) else {
                tables.push(table(route, &Target { port: String::new(), probe: None }, &[]));
                continue;
            };
            let key = (digest.clone(), route.spec.service.clone(), route.spec.service_port.clone());
            let target = match targets.remove(&key) {
                Some(known) => known,
                None => target(&bundle::objects(&mut tx, self.store.key()?, &digest).await?, &route.spec),
            };
            match &target {
                Ok(target) => tables.push(table(route, target, &copies)),
                Err(reason) => drop(broken.insert(route.id, reason.clone())),
            }
            used.insert(key, target);
        }
        tx.rollback().await?;
        *targets = used;
        self.environment.traffic.publish(tables, broken);
        Ok(())
    }

    /// All routes, or those of one project.
    ///
    /// # Errors
    /// A query failed.
    pub async fn routes(&self, project: Option<&str>) -> Result<RouteList, Error> {
        let mut tx = self.store.begin().await?;
        let (routes, copies) = routes(&mut tx).await?;
        tx.rollback().await?;
        let mut items = Vec::new();
        for route in routes {
            let Some([of, composite_app, version, group]) = route.path.rsplitn(3, '/').nth(2).and_then(names) else { continue };
            if project.is_some_and(|project| project != of) {
                continue;
            }
            let reported = self.environment.traffic.reported(route.id, route.spec.target());
            let backends: Vec<RouteBackendView> = copies_of(&route, &copies)
                .map(|copy| {
                    let counted = reported.copy(copy.binding);
                    RouteBackendView {
                        binding: copy.binding,
                        cluster: MemberKey(copy.member.clone()),
                        weight: copy.weight(),
                        answering: counted.answering,
                        under_way: counted.under_way,
                        requests: counted.requests,
                        failures: counted.failures,
                    }
                })
                .collect();
            let problem = self.environment.traffic.broken(route.id);
            let problem = problem.or_else(|| reported.reports.iter().find_map(|report| report.problem.clone()));
            let served = !reported.reports.is_empty();
            let answers = backends.iter().any(|backend| backend.weight > 0 && backend.answering > 0);
            let (state, reason) = match problem {
                Some(problem) => ("not served", Some(problem)),
                None if !self.environment.traffic.is_served(route.spec.target()) => {
                    ("not served", Some("orchestrator was started without --traffic-url, so there is no data path".to_owned()))
                }
                None if !served => ("not served", Some(format!("no process that carries it answers: {}", reported.missing.join(", ")))),
                None if backends.is_empty() => ("no endpoint", Some(format!("the app {} does not run", route.spec.app))),
                None if !answers => (
                    "no endpoint",
                    Some(match &route.spec.gateway {
                        None => "no ready pod answers the data path; see docs/how-to/traffic.md".to_owned(),
                        Some(gateway) => format!("{gateway} has no backend that leads to a ready pod; see docs/how-to/traffic.md"),
                    }),
                ),
                None => ("serving", None),
            };
            items.push(RouteView {
                project: of.to_owned(),
                composite_app: composite_app.to_owned(),
                version: version.to_owned(),
                group: group.to_owned(),
                name: route.name.clone(),
                protocol: route.spec.protocol,
                address: route.spec.address(),
                app: route.spec.app.clone(),
                target: format!("{}:{}", route.spec.service, route.spec.service_port),
                gateway: route.spec.gateway.clone(),
                state: state.to_owned(),
                reason,
                backends,
            });
        }
        Ok(RouteList { items })
    }
}

async fn routes(tx: &mut PgConnection) -> Result<(Vec<Route>, Vec<RoutedCopy>), Error> {
    let routes = route::all(&mut *tx).await?;
    let digs: Vec<Uuid> = routes.iter().filter_map(|route| route.parent_id).collect();
    let copies = if digs.is_empty() { Vec::new() } else { traffic::copies(tx, &digs).await? };
    Ok((routes, copies))
}

/// The route that has the address of this one. Only routes of intents can have one of another: documents are refused.
fn same_address(routes: &[Route], at: usize) -> Option<&Route> {
    let (route, is_intent) = (&routes[at], |route: &Route| route.path.contains("/inbound-intents/"));
    if !is_intent(route) {
        return None;
    }
    let goes_first = |(other_at, other): &(usize, &Route)| *other_at < at || !is_intent(other);
    let mut others = routes.iter().enumerate().filter(goes_first).map(|(_, other)| other);
    others.find(|other| route.spec.excludes(&other.spec))
}

fn copies_of<'a>(route: &'a Route, copies: &'a [RoutedCopy]) -> impl Iterator<Item = &'a RoutedCopy> {
    copies.iter().filter(|copy| Some(copy.dig_id) == route.parent_id && copy.app == route.spec.app)
}

fn table(route: &Route, target: &Target, copies: &[&RoutedCopy]) -> RouteTable {
    let names = route.path.rsplitn(3, '/').nth(2).and_then(names);
    let [project, composite_app, ..] = names.unwrap_or_default();
    RouteTable {
        id: route.id,
        name: format!("{project}/{composite_app}/{}", route.name),
        protocol: route.spec.protocol,
        host: route.spec.host.clone(),
        port: route.spec.port,
        service: route.spec.service.clone(),
        service_port: target.port.clone(),
        probe: target.probe.clone(),
        hold_seconds: route.spec.hold_seconds,
        gateway: route.spec.gateway.clone(),
        backends: copies
            .iter()
            .map(|copy| RouteBackend { binding: copy.binding, member: MemberKey(copy.member.clone()), weight: copy.weight() })
            .collect(),
    }
}

/// Finds the port of the Service among the objects of an app, and how the app itself is asked there whether it is ready.
fn target(objects: &[Value], route: &RouteSpec) -> Result<Target, String> {
    let services = || objects.iter().filter(|object| object["kind"] == "Service");
    let Some(service) = services().find(|service| service["metadata"]["name"] == *route.service) else {
        let names: Vec<&str> = services().filter_map(|service| service["metadata"]["name"].as_str()).collect();
        return Err(match names.as_slice() {
            [] => format!("the app {} has no Service", route.app),
            names => format!("the app {} has no Service {}; it has {}", route.app, route.service, names.join(", ")),
        });
    };
    let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |port: &&Value| match &route.service_port {
        ServicePort::Number(number) => port["port"] == *number,
        ServicePort::Name(name) => port["name"] == **name,
    };
    // EMCO's intents have the port of the pods.
    let leads_to = |port: &&Value| matches!(&route.service_port, ServicePort::Number(number) if port["targetPort"] == *number);
    let Some(port) = ports.iter().find(is).or_else(|| ports.iter().find(leads_to)) else {
        let all: Vec<String> = ports.iter().map(|port| port["port"].to_string()).collect();
        return Err(format!("the Service {} has no port {}; it has {}", route.service, route.service_port, all.join(", ")));
    };
    Ok(Target { port: port["name"].as_str().unwrap_or_default().to_owned(), probe: probe(objects, service, port) })
}

/// The path of the readiness probe of the container that has the port, if it asks by HTTP at this port.
fn probe(objects: &[Value], service: &Value, port: &Value) -> Option<String> {
    let selector = service["spec"]["selector"].as_object()?;
    let wanted = match &port["targetPort"] {
        Value::Null => &port["port"],
        target => target,
    };
    let pods = objects.iter().map(|object| if object["kind"] == "Pod" { object } else { &object["spec"]["template"] });
    let pods = pods.filter(|pod| selector.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value));
    pods.flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten()).find_map(|container| {
        let number = |port: &Value| match port {
            Value::String(name) => {
                container["ports"].as_array()?.iter().find(|port| port["name"] == **name).and_then(|port| port["containerPort"].as_u64())
            }
            port => port.as_u64(),
        };
        let asked = &container["readinessProbe"]["httpGet"];
        let plain = asked["scheme"].as_str().unwrap_or("HTTP").eq_ignore_ascii_case("HTTP");
        let same = number(&asked["port"]).is_some() && number(&asked["port"]) == number(wanted);
        (plain && same).then(|| asked["path"].as_str().filter(|path| path.starts_with('/')).unwrap_or("/").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(target: Value, probe: Value) -> Vec<Value> {
        let container = json!({"name": "main", "ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": {"httpGet": probe}});
        vec![
            json!({"kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80, "targetPort": target}, {"name": "metrics", "port": 9090}]}}),
            json!({"kind": "Deployment", "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}}),
        ]
    }

    fn route(service: &str, port: ServicePort) -> RouteSpec {
        serde_json::from_value(json!({"app": "shop", "service": service, "servicePort": port, "port": 80})).unwrap()
    }

    #[test]
    fn target_has_the_name_of_the_port_and_the_apps_own_probe() {
        let objects = objects(json!("web"), json!({"path": "/healthz", "port": 8080}));
        let found = target(&objects, &route("web", ServicePort::Number(80))).unwrap();
        assert_eq!(found, Target { port: "http".into(), probe: Some("/healthz".into()) });
        let metrics = target(&objects, &route("web", ServicePort::Name("metrics".into()))).unwrap();
        assert_eq!(metrics, Target { port: "metrics".into(), probe: None }, "the probe asks at another port");
    }

    #[test]
    fn probe_with_tls_is_not_repeated() {
        let objects = objects(json!(8080), json!({"port": "web", "scheme": "HTTPS"}));
        assert_eq!(target(&objects, &route("web", ServicePort::Number(80))).unwrap().probe, None);
    }

    #[test]
    fn missing_service_or_port_is_named_with_what_there_is() {
        let objects = objects(json!(8080), json!({}));
        let service = target(&objects, &route("wbe", ServicePort::Number(80))).unwrap_err();
        assert_eq!(service, "the app shop has no Service wbe; it has web");
        assert_eq!(target(&objects, &route("web", ServicePort::Number(8080))).unwrap().port, "http", "by the port of the pods");
        let port = target(&objects, &route("web", ServicePort::Number(81))).unwrap_err();
        assert_eq!(port, "the Service web has no port 81; it has 80, 9090");
    }
}
