//! Users of members, for logical clouds of level 1: a key, and a certificate that the member's own authority signs on request
//! (certificates.k8s.io). What the user may do is not decided here but by the roles that name it.
//!
//! Invariant: only names that begin with `drover:` are certified. Otherwise a tenant could become a user that the cluster already gives
//! rights to, such as `system:kube-scheduler`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::members::{SecretKubeconfig, UserOrder, UserState};
use drover_link::keys::{self, KeyError};
use drover_scheduling::MemberKey;
use drover_service::{Problem, codes};
use drover_store::{Timestamp, now};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use secrecy::zeroize::Zeroizing;
use serde_json::{Value, json};
use uuid::Uuid;
use x509_cert::Certificate;

use super::App;
use super::copies::problem;
use crate::probe::DEADLINE;
use crate::store::users::{self, MemberUser, Pems};

/// The beginning of the names of all users that are certified.
const OURS: &str = "drover:";
/// For how many seconds certificates are requested. The authority may choose less.
const LIFETIME: i32 = 90 * 24 * 3600;
/// How long the authority may take to sign.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time between two looks at the request.
const LOOK: Duration = Duration::from_millis(200);

impl App {
    /// Makes a user, or renews its certificate when two thirds of its time are over. Repeating it has no other effect.
    ///
    /// # Errors
    /// `invalid` for a name that is not Drover's; `not_found` without such a cluster; the member does not answer or refuses; the store fails.
    pub async fn issue_user(&self, member: &MemberKey, id: Uuid, order: &UserOrder) -> Result<UserState, Problem> {
        if !is_ours(&order.user_name) {
            let detail = format!("userName: {:?} does not begin with {OURS}, or has characters that no name has", order.user_name);
            return Err(codes::INVALID.problem(detail));
        }
        let cluster = self.cluster_id(member.provider(), member.cluster()).await?;
        let mut db = self.store.acquire().await?;
        let known = users::get(&mut db, &self.key, cluster, id).await?;
        let known = known.filter(|user| user.user_name == order.user_name && user.namespace == order.namespace);
        if let Some(user) = known.filter(|user| !is_due(user.validity, now())) {
            return Ok(UserState { expires: Some(user.validity.1.to_string()), reason: None });
        }
        // The member may be slow, so no database connection is held while it is asked.
        drop(db);
        let client = self.client_of(member).await?;
        let pems = match certified(&client, &order.user_name).await? {
            Ok(pems) => pems,
            Err(reason) => return Ok(UserState { expires: None, reason: Some(reason) }),
        };
        let validity = validity(&pems.certificate)?;
        let user = MemberUser { user_name: order.user_name.clone(), namespace: order.namespace.clone(), pems, validity };
        let mut db = self.store.acquire().await?;
        users::put(&mut db, &self.key, cluster, id, &user).await?;
        Ok(UserState { expires: Some(validity.1.to_string()), reason: None })
    }

    /// The kubeconfig of a user.
    ///
    /// # Errors
    /// `not_found` without such a user or cluster, or the store fails.
    pub async fn user_kubeconfig(&self, member: &MemberKey, id: Uuid) -> Result<SecretKubeconfig, Problem> {
        let cluster = self.cluster_id(member.provider(), member.cluster()).await?;
        let mut db = self.store.acquire().await?;
        let user = users::get(&mut db, &self.key, cluster, id).await?;
        let user = user.ok_or_else(|| codes::NOT_FOUND.problem(format!("{member} has no such user")))?;
        drop(db);
        let of_drover: Value = serde_json::from_str(self.credential(member).await?.kubeconfig.expose()).map_err(Problem::internal)?;
        let text = serde_yaml::to_string(&kubeconfig(&of_drover, member, &user)).map_err(Problem::internal)?;
        Ok(SecretKubeconfig::new(text))
    }

    /// Deletes the key and the certificate of a user. Kubernetes knows no revocation: it is the removal of the roles that ends its rights.
    ///
    /// # Errors
    /// The store fails.
    pub async fn forget_user(&self, _: &MemberKey, id: Uuid) -> Result<(), Problem> {
        let mut db = self.store.acquire().await?;
        Ok(users::delete(&mut db, id).await?)
    }
}

/// Whether a user of this name may be certified. The characters are those of names: a comma would begin another part of the subject, which
/// could be a group that the cluster gives rights to.
fn is_ours(user: &str) -> bool {
    user.starts_with(OURS) && user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":._-".contains(&byte))
}

/// Whether two thirds of the time of a certificate are over.
fn is_due((from, until): (Timestamp, Timestamp), now: Timestamp) -> bool {
    let (whole, left) = (until.as_second() - from.as_second(), until.as_second() - now.as_second());
    left * 3 < whole
}

/// A new key with a certificate for it, or why the member's authority has not issued one.
async fn certified(client: &kube::Client, user: &str) -> Result<Result<Pems, String>, Problem> {
    let (key, request) = request_for(user).map_err(Problem::internal)?;
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let name = format!("drover-{}", Uuid::now_v7());
    let body: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "drover"}},
        "spec": {
            "request": ByteString(request.into_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": LIFETIME,
            "usages": ["digital signature", "client auth"],
        },
    }))
    .map_err(Problem::internal)?;
    in_time(api.create(&PostParams::default(), &body)).await?;
    let approval = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "LogicalCloud", "message": "Approved by Drover for the user of a logical cloud"}]}});
    let issued = async {
        in_time(api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(&approval))).await?;
        signed(&api, &name).await
    }
    .await;
    // Only tidies up: Kubernetes deletes the request after an hour anyway.
    let _ = in_time(api.delete(&name, &DeleteParams::default())).await;
    Ok(issued?.map(|certificate| Pems { key: key.to_string(), certificate }))
}

/// A new key, and a request for a certificate for it, both in PEM.
fn request_for(user: &str) -> Result<(Zeroizing<String>, String), KeyError> {
    let key = keys::new_key();
    Ok((keys::to_pem(&key)?, keys::request(&key, user)?))
}

/// Waits for the certificate.
async fn signed(api: &Api<CertificateSigningRequest>, name: &str) -> Result<Result<String, String>, Problem> {
    let started = tokio::time::Instant::now();
    loop {
        let status = in_time(api.get(name)).await?.status.unwrap_or_default();
        if let Some(ByteString(certificate)) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
            return Ok(String::from_utf8(certificate).map_err(|_| "the cluster has issued a certificate that is not text".to_owned()));
        }
        let refused = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Failed" || condition.type_ == "Denied");
        if let Some(condition) = refused {
            return Ok(Err(format!("the cluster has not signed it: {}", condition.message.unwrap_or(condition.type_))));
        }
        if started.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Ok(Err(format!(
                "the cluster has issued no certificate within {seconds} s; does its controller manager sign requests?"
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// An answer of the member's API server, within its time.
async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, Problem> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Err(_) => Err(codes::CLUSTER_UNREACHABLE.problem("no answer in time")),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(codes::CLUSTER_UNAUTHORIZED.problem(format!(
            "Drover's account in the cluster may not have users certified: {}; a logical cloud of level 1 needs the right to create and approve \
             CertificateSigningRequests",
            status.message
        ))),
        Ok(Err(error)) => Err(problem(error.into())),
        Ok(Ok(answer)) => Ok(answer),
    }
}

/// From when until when a certificate is valid.
fn validity(pem: &str) -> Result<(Timestamp, Timestamp), Problem> {
    let unreadable = |why: String| Problem::internal(format!("the certificate cannot be read: {why}"));
    // The first certificate is the user's, others are those of intermediate authorities.
    let chain = Certificate::load_pem_chain(pem.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
    let certificate = chain.first().ok_or_else(|| unreadable("there is none".to_owned()))?;
    let at = |time: x509_cert::time::Time| {
        let second = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(second).map(Timestamp::from).map_err(|error| unreadable(error.to_string()))
    };
    let valid = certificate.tbs_certificate.validity;
    Ok((at(valid.not_before)?, at(valid.not_after)?))
}

/// A kubeconfig for a user, with the address and the authority that Drover's own has.
fn kubeconfig(of_drover: &Value, member: &MemberKey, user: &MemberUser) -> Value {
    let kept = ["server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify"];
    let cluster = &of_drover["clusters"][0]["cluster"];
    let cluster: serde_json::Map<String, Value> =
        kept.iter().filter_map(|field| Some(((*field).to_owned(), cluster.get(*field)?.clone()))).collect();
    let (name, user_name) = (member.0.as_str(), user.user_name.rsplit(':').next().unwrap_or_default());
    let context = format!("{user_name}@{name}");
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": name, "cluster": cluster}],
        "contexts": [{"name": context, "context": {"cluster": name, "user": user_name, "namespace": user.namespace}}],
        "users": [{"name": user_name, "user": {
            "client-certificate-data": STANDARD.encode(&user.pems.certificate), "client-key-data": STANDARD.encode(&user.pems.key)}}],
    })
}

#[cfg(test)]
mod tests {
    use x509_cert::der::DecodePem;

    use super::*;

    #[test]
    fn certificate_is_due_when_two_thirds_of_its_time_are_over() {
        let at = |second| Timestamp::from(jiff::Timestamp::from_second(second).unwrap());
        for (now, due) in [(0, false), (59, false), (61, true), (100, true)] {
            assert_eq!(is_due((at(0), at(90)), at(now)), due, "{now}");
        }
    }

    #[test]
    fn only_names_of_drovers_users_are_certified() {
        assert!(is_ours("drover:p:lc:ann.b_c-d"));
        for name in ["system:kube-scheduler", "drover:p:lc:ann,O=admins", "drover:p:lc:ann+O=admins", "drover:p:lc:ann\\", "drover:p:lc:ä"]
        {
            assert!(!is_ours(name), "{name}");
        }
    }

    #[test]
    fn request_names_the_user() {
        let (key, request) = request_for("drover:p:lc:ann").unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let read = x509_cert::request::CertReq::from_pem(request).unwrap();
        assert_eq!(read.info.subject.to_string(), "CN=drover:p:lc:ann");
    }

    #[test]
    fn kubeconfig_has_the_address_of_the_cluster_and_nothing_of_drovers_own_user() {
        let of_drover = json!({"clusters": [{"name": "x", "cluster": {"server": "https://a", "certificate-authority-data": "Y2E="}}],
            "users": [{"name": "u", "user": {"token": "drovers"}}]});
        let at = |second| Timestamp::from(jiff::Timestamp::from_second(second).unwrap());
        let pems = Pems { key: "key".into(), certificate: "certificate".into() };
        let user = MemberUser { user_name: "drover:p:lc:ann".into(), namespace: "ns1".into(), pems, validity: (at(0), at(1)) };
        let made = kubeconfig(&of_drover, &MemberKey::new("onprem", "a"), &user);
        assert!(!made.to_string().contains("drovers"), "{made}");
        assert_eq!(made["clusters"][0]["cluster"], json!({"server": "https://a", "certificate-authority-data": "Y2E="}));
        assert_eq!(made["contexts"][0]["context"], json!({"cluster": "onprem+a", "user": "ann", "namespace": "ns1"}));
        assert_eq!(made["users"][0]["user"]["client-key-data"], STANDARD.encode("key"));
    }
}
