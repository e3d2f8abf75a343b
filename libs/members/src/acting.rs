//! Writing as a service account of the member (Kubernetes impersonation), so that the member's own rules hold for what is written.
//!
//! Reads remain those of the member's credential, and so does what Drover writes for itself: namespaces, and volumes that move.
//! Invariant: a request that is to act as an account carries its name, or is not sent; and it never carries two names.

use http::header::{HeaderName, HeaderValue};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use tower::BoxError;

/// The API server derives the groups of a service account from this name, so that no right to act as a group is needed.
pub(crate) const USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A client that sends every request of `client` as the service account `namespace/name`.
pub(crate) fn client_as(client: &Client, account: &str) -> Client {
    let (client, user) = (client.clone(), HeaderValue::try_from(user_name(account)).ok());
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let (client, user) = (client.clone(), user.clone());
        async move {
            request.headers_mut().insert(USER, user.ok_or("the name of the account cannot be sent")?);
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

/// As the API server calls the service account `namespace/name`.
fn user_name(account: &str) -> String {
    format!("system:serviceaccount:{}", account.replacen('/', ":", 1))
}

/// Passes a request on unless it is to act as an account with a kubeconfig that acts as somebody already: the API server would know only one
/// of them.
///
/// # Errors
/// As if the API server had refused it.
pub(crate) fn one_name(kubeconfig_acts_as: Option<&str>, request: http::Request<Body>) -> Result<http::Request<Body>, BoxError> {
    match (kubeconfig_acts_as, request.headers().get(USER)) {
        (Some(already), Some(_)) => {
            let message = format!(
                "the kubeconfig of the cluster acts as {already:?} already, so that User {already:?} cannot impersonate an account as well"
            );
            Err(Box::new(kube::Error::Api(Box::new(Status::failure(&message, "Forbidden").with_code(403)))))
        }
        _ => Ok(request),
    }
}

/// What the API server says that a user may not do, from its refusal. `None`: it refuses for another reason, such as a quota.
pub(crate) fn verb(refusal: &str) -> Option<&str> {
    let (before, after) = refusal.split_once(" cannot ")?;
    before.contains("User \"").then(|| after.split(' ').next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_rights_are_told_from_others() {
        let rights = r#"secrets "token" is forbidden: User "system:serviceaccount:shop:deployer" cannot patch resource "secrets" in API group "" in the namespace "shop""#;
        assert_eq!(verb(rights), Some("patch"));
        assert_eq!(verb(r#"pods "web" is forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=1, limited: cpu=2"#), None);
        assert_eq!(user_name("shop/deployer"), "system:serviceaccount:shop:deployer");
    }

    #[test]
    fn two_names_are_refused() {
        let plain = || http::Request::new(Body::empty());
        let acting = || {
            let mut request = plain();
            request.headers_mut().insert(USER, HeaderValue::from_static("system:serviceaccount:shop:deployer"));
            request
        };
        assert!(one_name(None, acting()).is_ok() && one_name(Some("jane"), plain()).is_ok());
        let error = one_name(Some("jane"), acting()).unwrap_err();
        let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() else { panic!("{error}") };
        assert_eq!((status.code, verb(&status.message)), (403, Some("impersonate")), "{}", status.message);
    }
}
