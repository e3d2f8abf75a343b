//! Checks kubeconfigs before they are used.
//!
//! A kubeconfig can name programs to run and files to read on the machine that uses it; Drover's services must do neither
//! for a tenant. [`vet`] keeps the current context and, of its cluster and user, only the fields on an allow-list; its
//! result is the only form in which a kubeconfig is stored, sent and used.
//!
//! Invariant: a [`VettedKubeconfig`] needs no file, no program and no host but its server.

use std::fmt;

use base64::Engine as _;
use drover_manifest::{Limits, YamlError};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

/// Why a kubeconfig cannot be used. Never contains a value of the kubeconfig, only names of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The text is not a usable kubeconfig.
    #[error("{field}: {reason}")]
    Invalid {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The text is a kubeconfig that asks for something which Drover does not do.
    #[error("{field}: {reason}")]
    Refused {
        /// Path of the field.
        field: String,
        /// Why it is refused.
        reason: String,
    },
    /// The text expands to more than a kubeconfig may hold.
    #[error("kubeconfig: {reason}")]
    TooComplex {
        /// The limit that it exceeds.
        reason: String,
    },
}

impl KubeconfigError {
    /// Stable code for problem+json.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "kubeconfig_invalid",
            Self::Refused { .. } => "kubeconfig_refused",
            Self::TooComplex { .. } => "too_complex",
        }
    }
    /// The field that cannot be used.
    pub fn field(&self) -> &str {
        match self {
            Self::Invalid { field, .. } | Self::Refused { field, .. } => field,
            Self::TooComplex { .. } => "kubeconfig",
        }
    }
    fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
    fn refused(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { field: field.into(), reason: reason.into() }
    }
}

/// A kubeconfig that passed [`vet`], reduced to one cluster, one user and one context. Its text is never printed.
#[derive(Clone)]
pub struct VettedKubeconfig {
    text: SecretString,
    server: String,
    linked: bool,
}

impl VettedKubeconfig {
    /// The same for a member that is reached through its link: its server is then only the name that the API server's certificate has, and is
    /// never connected to.
    pub fn linked(self, linked: bool) -> Self {
        Self { linked, ..self }
    }
    /// Whether the member is reached through its link.
    pub fn is_linked(&self) -> bool {
        self.linked
    }
    /// Address of the API server; not secret.
    pub fn server(&self) -> &str {
        &self.server
    }
    /// The kubeconfig as JSON text, for sealing and for clients. It contains secrets.
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

impl fmt::Debug for VettedKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VettedKubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

const CLUSTER_FILES: [(&str, &str); 1] = [("certificate-authority", "certificate-authority-data")];
const CLUSTER_KEPT: [&str; 4] = ["server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify"];
const USER_FILES: [(&str, &str); 3] =
    [("client-certificate", "client-certificate-data"), ("client-key", "client-key-data"), ("tokenFile", "token")];
const USER_KEPT: [&str; 9] =
    ["token", "username", "password", "client-certificate-data", "client-key-data", "as", "as-uid", "as-groups", "as-user-extra"];

/// Vets a kubeconfig (YAML or JSON). Pure: reads no file and resolves no name.
///
/// Plain `http` and `insecure-skip-tls-verify` are accepted on loopback only, where nobody can listen in between (the
/// simulator, a port-forward). Vetting a vetted kubeconfig returns it unchanged.
///
/// # Errors
/// When the text is no kubeconfig, or when it needs a file, a program, a proxy or an unverified server.
pub fn vet(text: &str) -> Result<VettedKubeconfig, KubeconfigError> {
    let document = drover_manifest::one(text, Limits::KUBECONFIG).map_err(|error| match error {
        YamlError::TooComplex { exceeded, .. } => KubeconfigError::TooComplex { reason: exceeded.to_string() },
        // The parser's own message may quote the text, which holds secrets, so only the position is told.
        YamlError::Syntax { line, column, .. } => {
            KubeconfigError::invalid("kubeconfig", format!("is not one document of YAML or JSON at line {line}, column {column}"))
        }
        _ => KubeconfigError::invalid("kubeconfig", "is not one document of YAML or JSON"),
    })?;
    if !document.is_object() {
        return Err(KubeconfigError::invalid("kubeconfig", "is not a mapping"));
    }
    let context_name = string(&document, "current-context", "current-context")?
        .ok_or_else(|| KubeconfigError::invalid("current-context", "is missing"))?;
    let (context, context_path) = named(&document, "contexts", "context", &context_name)?;
    let cluster_name = string(context, "cluster", &format!("{context_path}.cluster"))?
        .ok_or_else(|| KubeconfigError::invalid(format!("{context_path}.cluster"), "is missing"))?;
    let (cluster, cluster_path) = named(&document, "clusters", "cluster", &cluster_name)?;
    refuse_files(cluster, &cluster_path, &CLUSTER_FILES)?;
    if present(cluster, "proxy-url") {
        let field = format!("{cluster_path}.proxy-url");
        return Err(KubeconfigError::refused(field, "Drover connects to members directly, not through a proxy"));
    }

    let server_path = format!("{cluster_path}.server");
    let server = string(cluster, "server", &server_path)?.ok_or_else(|| KubeconfigError::invalid(&server_path, "is missing"))?;
    check_channel(cluster, &cluster_path, &server)?;
    let mut kept_cluster = keep(cluster, &CLUSTER_KEPT);
    kept_cluster.insert("server".into(), json!(server));
    check_pem(&kept_cluster, &cluster_path, "certificate-authority-data")?;

    let mut kept_user = Map::new();
    if let Some(user_name) = string(context, "user", &format!("{context_path}.user"))? {
        let (user, user_path) = named(&document, "users", "user", &user_name)?;
        if present(user, "exec") {
            let reason = "names a program to run; use a service account's token or a client certificate";
            return Err(KubeconfigError::refused(format!("{user_path}.exec"), reason));
        }
        if present(user, "auth-provider") {
            let reason = "auth providers are not run; use a service account's token or a client certificate";
            return Err(KubeconfigError::refused(format!("{user_path}.auth-provider"), reason));
        }
        refuse_files(user, &user_path, &USER_FILES)?;
        kept_user = keep(user, &USER_KEPT);
        for field in ["token", "username", "password", "as", "as-uid"] {
            string(user, field, &format!("{user_path}.{field}"))?;
        }
        check_impersonation(user, &user_path)?;
        check_pem(&kept_user, &user_path, "client-certificate-data")?;
        check_pem(&kept_user, &user_path, "client-key-data")?;
        if kept_user.contains_key("client-certificate-data") != kept_user.contains_key("client-key-data") {
            let reason = "a client certificate and its key belong together";
            return Err(KubeconfigError::invalid(format!("{user_path}.client-key-data"), reason));
        }
    }

    let mut kept_context = json!({"cluster": "member", "user": "drover"});
    if let Some(namespace) = string(context, "namespace", &format!("{context_path}.namespace"))? {
        kept_context["namespace"] = json!(namespace);
    }
    let vetted = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "member",
        "clusters": [{"name": "member", "cluster": kept_cluster}],
        "users": [{"name": "drover", "user": kept_user}],
        "contexts": [{"name": "member", "context": kept_context}],
    });
    Ok(VettedKubeconfig { text: SecretString::from(vetted.to_string()), server, linked: false })
}

/// The entry `name` of a list of named entries, with its path for messages.
fn named<'a>(document: &'a Value, list: &str, inner: &str, name: &str) -> Result<(&'a Value, String), KubeconfigError> {
    let index = document[list]
        .as_array()
        .and_then(|entries| entries.iter().position(|entry| entry["name"] == name))
        .ok_or_else(|| KubeconfigError::invalid(list, format!("has no entry named {name:?}")))?;
    let path = format!("{list}[{index}].{inner}");
    match &document[list][index][inner] {
        value @ Value::Object(_) => Ok((value, path)),
        // `user: {}` and `user:` both mean a user without credentials.
        Value::Null if inner == "user" => Ok((&Value::Null, path)),
        _ => Err(KubeconfigError::invalid(path, "is not a mapping")),
    }
}

fn present(value: &Value, field: &str) -> bool {
    !value[field].is_null()
}

fn string(value: &Value, field: &str, path: &str) -> Result<Option<String>, KubeconfigError> {
    match &value[field] {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(KubeconfigError::invalid(path, "is not a string")),
    }
}

fn refuse_files(value: &Value, path: &str, fields: &[(&str, &str)]) -> Result<(), KubeconfigError> {
    for (field, instead) in fields {
        if present(value, field) {
            let reason = format!("names a file; put the contents into {instead}");
            return Err(KubeconfigError::refused(format!("{path}.{field}"), reason));
        }
    }
    Ok(())
}

fn keep(value: &Value, fields: &[&str]) -> Map<String, Value> {
    fields
        .iter()
        .filter(|field| present(value, field) && value[**field] != "")
        .map(|field| ((*field).to_owned(), value[*field].clone()))
        .collect()
}

fn check_channel(cluster: &Value, path: &str, server: &str) -> Result<(), KubeconfigError> {
    let field = format!("{path}.server");
    let uri: http::Uri = server.parse().map_err(|_| KubeconfigError::invalid(&field, "is not an address"))?;
    let host = uri.host().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| KubeconfigError::invalid(&field, "has no host"))?;
    let loopback =
        host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if loopback => {}
        Some("http") => return Err(KubeconfigError::refused(field, "plain http is accepted on loopback only")),
        _ => return Err(KubeconfigError::invalid(field, "is not an https address")),
    }
    match &cluster["insecure-skip-tls-verify"] {
        Value::Null | Value::Bool(false) => Ok(()),
        Value::Bool(true) if loopback => Ok(()),
        Value::Bool(true) => Err(KubeconfigError::refused(
            format!("{path}.insecure-skip-tls-verify"),
            "the server's identity would not be checked; give certificate-authority-data",
        )),
        _ => Err(KubeconfigError::invalid(format!("{path}.insecure-skip-tls-verify"), "is not true or false")),
    }
}

/// Whom the credential acts as. Something that cannot be sent must be refused: without it the credential would act with all its rights.
fn check_impersonation(user: &Value, path: &str) -> Result<(), KubeconfigError> {
    let strings = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(|item| item.as_str().is_some_and(sendable)));
    let invalid = |field: &str, reason: &str| Err(KubeconfigError::invalid(format!("{path}.{field}"), reason));
    if present(user, "as-groups") && !strings(&user["as-groups"]) {
        return invalid("as-groups", "is not a list of names");
    }
    let extra = &user["as-user-extra"];
    if present(user, "as-user-extra") && !extra.as_object().is_some_and(|fields| fields.values().all(strings)) {
        return invalid("as-user-extra", "is not a mapping to lists of texts");
    }
    for field in ["as", "as-uid"] {
        if user[field].as_str().is_some_and(|text| !sendable(text)) {
            return invalid(field, "has characters that cannot be sent");
        }
    }
    let named = user["as"].as_str().is_some_and(|name| !name.is_empty());
    match ["as-groups", "as-uid", "as-user-extra"].into_iter().find(|field| present(user, field) && user[*field] != "") {
        Some(field) if !named => invalid(field, "needs `as`, the user that it belongs to"),
        _ => Ok(()),
    }
}

fn sendable(text: &str) -> bool {
    http::HeaderValue::from_str(text).is_ok()
}

fn check_pem(kept: &Map<String, Value>, path: &str, field: &str) -> Result<(), KubeconfigError> {
    let Some(data) = kept.get(field) else { return Ok(()) };
    let pem = data
        .as_str()
        .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text.trim()).ok())
        .is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains("-----BEGIN "));
    if pem { Ok(()) } else { Err(KubeconfigError::invalid(format!("{path}.{field}"), "is not PEM in base64")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cluster: &str, user: &str) -> Result<VettedKubeconfig, KubeconfigError> {
        vet(&format!(
            "current-context: b\ncontexts:\n- {{name: a, context: {{cluster: x, user: x}}}}\n\
             - {{name: b, context: {{cluster: c, user: u, namespace: ns}}}}\n\
             clusters:\n- {{name: x, cluster: {{server: 'https://other'}}}}\n- {{name: c, cluster: {{{cluster}}}}}\n\
             users:\n- {{name: x, user: {{exec: {{command: evil}}}}}}\n- {{name: u, user: {{{user}}}}}\n"
        ))
    }
    fn fault(result: Result<VettedKubeconfig, KubeconfigError>) -> (String, String) {
        let error = result.expect_err("must not pass");
        (error.code().to_owned(), error.field().to_owned())
    }

    #[test]
    fn vet_keeps_the_current_context_only_and_is_idempotent() {
        let vetted = with("server: 'https://k:6443', extensions: [x]", "token: t0p, unknown: 1").unwrap();
        assert_eq!(vetted.server(), "https://k:6443");
        let value: Value = serde_json::from_str(vetted.expose()).unwrap();
        assert_eq!(value["users"], json!([{"name": "drover", "user": {"token": "t0p"}}]));
        assert_eq!(value["contexts"][0]["context"]["namespace"], "ns");
        assert_eq!(value["clusters"].as_array().unwrap().len(), 1);
        assert_eq!(vet(vetted.expose()).unwrap().expose(), vetted.expose());
        assert!(!format!("{vetted:?}").contains("t0p"));
    }

    #[test]
    fn vet_refuses_programs_files_proxies_and_unverified_servers() {
        let server = "server: 'https://k'";
        let user = |field: &str| ("kubeconfig_refused".to_owned(), format!("users[1].user.{field}"));
        assert_eq!(fault(with(server, "exec: {command: aws}")), user("exec"));
        assert_eq!(fault(with(server, "auth-provider: {name: gcp}")), user("auth-provider"));
        assert_eq!(fault(with(server, "client-certificate: /a")), user("client-certificate"));
        assert_eq!(fault(with(server, "client-key: /a")), user("client-key"));
        assert_eq!(fault(with(server, "tokenFile: /a, token: t")), user("tokenFile"));
        let cluster = |field: &str| ("kubeconfig_refused".to_owned(), format!("clusters[1].cluster.{field}"));
        assert_eq!(fault(with("server: 'https://k', certificate-authority: /a", "")), cluster("certificate-authority"));
        assert_eq!(fault(with("server: 'https://k', insecure-skip-tls-verify: true", "")), cluster("insecure-skip-tls-verify"));
        assert_eq!(fault(with("server: 'https://k', proxy-url: 'http://p'", "")), cluster("proxy-url"));
        assert_eq!(fault(with("server: 'http://k'", "token: t")), cluster("server"));
        with("server: 'http://127.0.0.1:1/clusters/a', insecure-skip-tls-verify: true", "token: t").unwrap();
        with("server: 'http://[::1]:1'", "token: t").unwrap();
    }

    #[test]
    fn vet_refuses_impersonation_that_could_not_be_sent_whole() {
        let server = "server: 'https://k'";
        let invalid = |field: &str| ("kubeconfig_invalid".to_owned(), format!("users[1].user.{field}"));
        with(server, "token: t, as: a, as-groups: [g, h], as-uid: u, as-user-extra: {scope: [x]}").unwrap();
        assert_eq!(fault(with(server, "token: t, as-groups: [g]")), invalid("as-groups"));
        assert_eq!(fault(with(server, "token: t, as: a, as-groups: g")), invalid("as-groups"));
        assert_eq!(fault(with(server, "token: t, as: a, as-user-extra: {scope: x}")), invalid("as-user-extra"));
        assert_eq!(fault(with(server, "token: t, as-uid: u")), invalid("as-uid"));
        assert_eq!(fault(with(server, "token: t, as: \"a\\nb\"")), invalid("as"));
    }

    #[test]
    fn vet_names_invalid_fields_without_quoting_values() {
        let invalid = |field: &str| ("kubeconfig_invalid".to_owned(), field.to_owned());
        assert_eq!(fault(vet("")), invalid("kubeconfig"));
        assert_eq!(fault(vet("just text")), invalid("kubeconfig"));
        let error = vet("users: [{token: s3cret").unwrap_err();
        assert!(!error.to_string().contains("s3cret") && error.to_string().contains("line"), "{error}");
        assert_eq!(fault(vet("{}")), invalid("current-context"));
        let repeated = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(999), "*a,".repeat(30));
        assert_eq!(fault(vet(&repeated)), ("too_complex".to_owned(), "kubeconfig".to_owned()));
        assert_eq!(fault(vet("current-context: a")), invalid("contexts"));
        assert_eq!(fault(with("", "")), invalid("clusters[1].cluster.server"));
        assert_eq!(fault(with("server: 'ftp://k'", "")), invalid("clusters[1].cluster.server"));
        assert_eq!(
            fault(with("server: 'https://k', certificate-authority-data: '%%'", "")),
            invalid("clusters[1].cluster.certificate-authority-data")
        );
        let cert = base64::engine::general_purpose::STANDARD.encode("-----BEGIN CERTIFICATE-----");
        assert_eq!(
            fault(with("server: 'https://k'", &format!("client-certificate-data: {cert}"))),
            invalid("users[1].user.client-key-data")
        );
        assert_eq!(fault(with("server: 'https://k'", "token: [1]")), invalid("users[1].user.token"));
    }
}
