//! Traffic intents as NetworkPolicies: who may reach the pods of a server.

use drover_resources::{NoSpec, TypedDocument, children};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::Error;
use crate::resources::controllers::traffic::{
    INBOUND_CLIENTS_INTENT, INBOUND_SERVER_INTENT, InboundClientsIntentSpec, InboundServerIntentSpec, label,
};

/// The NetworkPolicy of a server.
#[derive(Clone, Debug)]
pub struct Policy {
    pub app: String,
    pub object: Value,
}

/// Reads the policies of a traffic group intent. What Drover does not do is added to `broken`.
pub(super) async fn of(tx: &mut PgConnection, intent: &TypedDocument<NoSpec>, broken: &mut Vec<String>) -> Result<Vec<Policy>, Error> {
    let mut policies = Vec::new();
    for server in children::<InboundServerIntentSpec>(&mut *tx, &INBOUND_SERVER_INTENT, intent.id).await? {
        broken.extend(server.spec.beyond().map(|what| format!("{}: {what}; leave it out", server.path)));
        let clients = children::<InboundClientsIntentSpec>(&mut *tx, &INBOUND_CLIENTS_INTENT, server.id).await?;
        let clients: Vec<_> = clients.into_iter().map(|client| client.spec).collect();
        // As in EMCO: a server without clients is left open.
        if !clients.is_empty() {
            match policy(&format!("{}-{}", intent.name, server.name), &server.spec, &clients) {
                Ok(object) => policies.push(Policy { app: server.spec.app, object }),
                Err(reason) => broken.push(format!("{}: {reason}", server.path)),
            }
        }
    }
    Ok(policies)
}

fn policy(name: &str, server: &InboundServerIntentSpec, clients: &[InboundClientsIntentSpec]) -> Result<Value, String> {
    let labels = |text: &str| label(text).map(|(key, value)| json!({"matchLabels": {key: value}}));
    let mut from = Vec::new();
    for client in clients {
        let mut peer = json!({"podSelector": labels(&client.app_label)?});
        if !client.namespaces.is_empty() {
            let within = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": client.namespaces});
            peer["namespaceSelector"] = json!({"matchExpressions": [within]});
        }
        from.push(peer);
        from.extend(client.cidrs.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
    }
    let name: String = name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    Ok(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {
            "podSelector": labels(&server.app_label)?,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": from, "ports": [{"protocol": server.protocol, "port": server.port}]}],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_admits_the_clients_to_the_port_of_the_server() {
        let server =
            InboundServerIntentSpec { app_label: "app=http-server".into(), port: 8080, protocol: "TCP".into(), ..Default::default() };
        let client = InboundClientsIntentSpec {
            app_label: "app=http-client".into(),
            namespaces: vec!["web".into()],
            cidrs: vec!["10.20.0.0/16".into()],
            ..Default::default()
        };
        let object = policy("Group-server_1", &server, &[client]).unwrap();
        assert_eq!(object["metadata"]["name"], "group-server-1");
        assert_eq!(
            object["spec"],
            json!({
                "podSelector": {"matchLabels": {"app": "http-server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [
                        {"podSelector": {"matchLabels": {"app": "http-client"}}, "namespaceSelector": {"matchExpressions": [
                            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["web"]}]}},
                        {"ipBlock": {"cidr": "10.20.0.0/16"}},
                    ],
                    "ports": [{"protocol": "TCP", "port": 8080}],
                }],
            })
        );
    }
}
