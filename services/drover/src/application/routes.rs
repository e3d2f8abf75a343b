//! `drover deploy --route`: addresses at which users reach the application wherever it runs.

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use drover_api::scheduling::MemberKey;
use drover_api::traffic::GatewayRef;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Application, names};
use crate::hub::segment;
use crate::manifests::Upload;
use crate::session::Session;

/// `--route [PROTOCOL://][HOST]:PORT=SERVICE:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteArg {
    protocol: &'static str,
    host: Option<String>,
    port: u16,
    service: String,
    service_port: String,
}

impl FromStr for RouteArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |what: &str| format!("{what}; write it as shop.example:80=web:8080, https://shop.example:443=web:8080 or tcp://:5432=db:5432");
        let (address, target) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
        let (protocol, address) = match address.split_once("://") {
            None => ("http", address),
            Some(("http", rest)) => ("http", rest),
            Some(("https", rest)) => ("https", rest),
            Some(("tcp", rest)) => ("tcp", rest),
            Some((other, _)) => return Err(wrong(&format!("{other} is not http, https or tcp"))),
        };
        let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("the address has no port"))?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong(&format!("{port} is not a port")))?;
        let (service, service_port) = target.split_once(':').ok_or_else(|| wrong("the Service has no port"))?;
        if service.is_empty() || service_port.is_empty() {
            return Err(wrong("the Service or its port is missing"));
        }
        let host = Some(host.to_owned()).filter(|host| !host.is_empty());
        Ok(Self { protocol, host, port, service: service.to_owned(), service_port: service_port.to_owned() })
    }
}

/// `--route-by gateway:PROVIDER+CLUSTER/NAMESPACE/HTTPROUTE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteByArg(GatewayRef);

impl FromStr for RouteByArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write it as gateway:PROVIDER+CLUSTER/NAMESPACE/HTTPROUTE".to_owned();
        let parts: Vec<&str> = text.strip_prefix("gateway:").ok_or_else(wrong)?.split('/').collect();
        match parts.as_slice() {
            [cluster, namespace, http_route] if cluster.contains('+') && !namespace.is_empty() && !http_route.is_empty() => {
                let [cluster, namespace, http_route] = [cluster, namespace, http_route].map(|part| (*part).to_owned());
                Ok(Self(GatewayRef { cluster: MemberKey(cluster), namespace, http_route }))
            }
            _ => Err(wrong()),
        }
    }
}

impl RouteArg {
    /// The name of the route's document.
    fn name(&self) -> String {
        let host = self.host.as_deref().map_or_else(|| self.protocol.to_owned(), |host| host.replacen('*', "any", 1));
        format!("{host}-{}", self.port)
    }

    fn document(&self, app: &str) -> Value {
        let port = self.service_port.parse::<u16>().map_or_else(|_| json!(self.service_port), |number| json!(number));
        let mut spec = json!({"app": app, "service": self.service, "servicePort": port, "protocol": self.protocol, "port": self.port});
        if let Some(host) = &self.host {
            spec["host"] = json!(host);
        }
        json!({"metadata": {"name": self.name()}, "spec": spec})
    }

    /// `http://shop.example:80`.
    pub fn url(&self) -> String {
        format!("{}://{}:{}", self.protocol, self.host.as_deref().unwrap_or("localhost"), self.port)
    }
}

/// The collection of an application's routes.
pub fn collection(application: &Application) -> String {
    format!("{}/routes", application.group)
}

/// Makes these the routes of the application. A route that is there keeps the settings that the command line does not have.
pub async fn replace(
    session: &Session,
    application: &Application,
    wanted: &[RouteArg],
    by: Option<&RouteByArg>,
    uploads: &[Upload],
) -> Result<()> {
    let collection = collection(application);
    for known in names(session, &collection).await? {
        if !wanted.iter().any(|route| route.name() == known) {
            session.client.delete(&format!("{collection}/{}", segment(&known))).await?;
        }
    }
    for route in wanted {
        let mut document = route.document(app_of(uploads, &route.service)?);
        let name = segment(&route.name());
        if let Some(known) = session.client.find(&format!("{collection}/{name}")).await? {
            for setting in ["holdSeconds", "shift"] {
                document["spec"][setting] = known["spec"][setting].clone();
            }
        }
        if let Some(RouteByArg(gateway)) = by {
            document["spec"]["gateway"] = json!(gateway);
        }
        session.client.upsert(&collection, &name, &document).await.with_context(|| format!("the route {}", route.url()))?;
    }
    Ok(())
}

/// Deletes the routes of the application, or those of one of its apps.
pub async fn delete(session: &Session, application: &Application, app: Option<&str>) -> Result<()> {
    let collection = collection(application);
    let Some(list) = session.client.find(&collection).await? else { return Ok(()) };
    for route in list.as_array().into_iter().flatten() {
        if app.is_none_or(|app| route["spec"]["app"] == app) {
            let name = route["metadata"]["name"].as_str().unwrap_or_default();
            session.client.delete(&format!("{collection}/{}", segment(name))).await?;
        }
    }
    Ok(())
}

/// The app that has the Service.
fn app_of<'a>(uploads: &'a [Upload], service: &str) -> Result<&'a str> {
    if let [only] = uploads {
        return Ok(&only.name);
    }
    let has = |upload: &&Upload| {
        let documents = serde_yaml::Deserializer::from_slice(&upload.file);
        documents.filter_map(|document| Value::deserialize(document).ok()).any(|object| {
            let items = object["items"].as_array().cloned().unwrap_or_else(|| vec![object]);
            items.iter().any(|object| object["kind"] == "Service" && object["metadata"]["name"] == service)
        })
    };
    match uploads.iter().find(has) {
        Some(upload) => Ok(&upload.name),
        None => {
            bail!("none of the apps {} has a Service {service}", uploads.iter().map(|u| u.name.as_str()).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_parsed_with_protocol_host_and_ports() {
        let route = |text: &str| text.parse::<RouteArg>();
        let shop = route("shop.example:80=web:8080").unwrap();
        assert_eq!((shop.name().as_str(), shop.url().as_str()), ("shop.example-80", "http://shop.example:80"));
        assert_eq!(
            shop.document("shop")["spec"],
            json!({"app": "shop", "service": "web", "servicePort": 8080, "protocol": "http", "port": 80, "host": "shop.example"})
        );
        let data = route("tcp://:5432=db:postgres").unwrap();
        assert_eq!((data.name().as_str(), data.document("x")["spec"]["servicePort"].as_str()), ("tcp-5432", Some("postgres")));
        assert_eq!(route("https://*.example:443=web:80").unwrap().name(), "any.example-443");
        for wrong in ["shop", "shop=web:80", "shop:80=web", "shop:0=web:80", "ftp://a:1=b:2", "a:99999=b:1", "a:1=:2"] {
            assert!(route(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gateway_is_parsed_with_cluster_namespace_and_name() {
        let RouteByArg(gateway) = "gateway:onprem+a/shop/web".parse().unwrap();
        assert_eq!((&*gateway.cluster.0, &*gateway.namespace, &*gateway.http_route), ("onprem+a", "shop", "web"));
        for wrong in ["onprem+a/shop/web", "gateway:a/shop/web", "gateway:onprem+a/web", "gateway:onprem+a//web", "gateway:onprem+a/b/c/d"]
        {
            assert!(wrong.parse::<RouteByArg>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn route_belongs_to_the_app_that_has_the_service() {
        let upload = |name: &str, text: &str| Upload { name: name.into(), file: text.into(), callers: Vec::new() };
        let uploads = [
            upload("cart", "kind: Deployment\nmetadata: {name: cart}\n"),
            upload("web", "kind: Deployment\n---\nkind: Service\nmetadata: {name: front}\n"),
        ];
        assert_eq!(app_of(&uploads, "front").unwrap(), "web");
        assert!(app_of(&uploads, "other").is_err());
        assert_eq!(app_of(&uploads[..1], "other").unwrap(), "cart", "of a chart nothing is known before it is rendered");
    }
}
