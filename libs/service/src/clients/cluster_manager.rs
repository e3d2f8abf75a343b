//! What other services may ask of cluster-manager. Made from openapi/cluster-manager.json by `cargo run -p xtask -- clients`; not to be edited.

#[allow(unused_imports)]
pub use progenitor_client::{ByteStream, ClientInfo, Error, ResponseValue};
#[allow(unused_imports)]
use progenitor_client::{ClientHooks, OperationInfo, RequestBuilderExt, encode_path};
#[doc = r" Types used as operation parameters and responses."]
#[allow(clippy::all)]
pub mod types {
    #[doc = " Error types."]
    pub mod error {
        #[doc = r" Error from a `TryFrom` or `FromStr` implementation."]
        pub struct ConversionError(::std::borrow::Cow<'static, str>);
        impl ::std::error::Error for ConversionError {}
        impl ::std::fmt::Display for ConversionError {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> Result<(), ::std::fmt::Error> {
                ::std::fmt::Display::fmt(&self.0, f)
            }
        }
        impl ::std::fmt::Debug for ConversionError {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> Result<(), ::std::fmt::Error> {
                ::std::fmt::Debug::fmt(&self.0, f)
            }
        }
        impl From<&'static str> for ConversionError {
            fn from(value: &'static str) -> Self {
                Self(value.into())
            }
        }
        impl From<String> for ConversionError {
            fn from(value: String) -> Self {
                Self(value.into())
            }
        }
    }
}
#[derive(Clone, Debug)]
#[doc = "Client for drover cluster-manager\n\nVersion: v2"]
pub struct Client {
    pub(crate) baseurl: String,
    pub(crate) client: reqwest::Client,
    pub(crate) inner: crate::Peer,
}
impl Client {
    #[doc = r" Create a new client."]
    #[doc = r""]
    #[doc = r" `baseurl` is the base URL provided to the internal"]
    #[doc = r" `reqwest::Client`, and should include a scheme and hostname,"]
    #[doc = r" as well as port and a path stem if applicable."]
    pub fn new(baseurl: &str, inner: crate::Peer) -> Self {
        #[cfg(not(target_arch = "wasm32"))]
        let client = {
            let dur = ::std::time::Duration::from_secs(15u64);
            reqwest::ClientBuilder::new().connect_timeout(dur).timeout(dur)
        };
        #[cfg(target_arch = "wasm32")]
        let client = reqwest::ClientBuilder::new();
        Self::new_with_client(baseurl, client.build().unwrap(), inner)
    }
    #[doc = r" Construct a new client with an existing `reqwest::Client`,"]
    #[doc = r" allowing more control over its configuration."]
    #[doc = r""]
    #[doc = r" `baseurl` is the base URL provided to the internal"]
    #[doc = r" `reqwest::Client`, and should include a scheme and hostname,"]
    #[doc = r" as well as port and a path stem if applicable."]
    pub fn new_with_client(baseurl: &str, client: reqwest::Client, inner: crate::Peer) -> Self {
        Self { baseurl: baseurl.to_string(), client, inner }
    }
}
impl ClientInfo<crate::Peer> for Client {
    fn api_version() -> &'static str {
        "v2"
    }
    fn baseurl(&self) -> &str {
        self.baseurl.as_str()
    }
    fn client(&self) -> &reqwest::Client {
        &self.client
    }
    fn inner(&self) -> &crate::Peer {
        &self.inner
    }
}
const _: () = {
    #[allow(dead_code)]
    fn assert_client_hooks()
    where
        Client: ClientHooks<crate::Peer>,
    {
    }
};
#[allow(clippy::all)]
impl Client {
    #[doc = "The agents that clusters are to run, each with the clusters that its document means now\n\nSends a `GET` request to `/internal/agents`\n\n"]
    pub async fn agent_orders<'a>(
        &'a self,
    ) -> Result<ResponseValue<drover_api::agents::AgentOrders>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/agents", self.baseurl,);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .get(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "agent_orders" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
    #[doc = "Returns the kubeconfig of a member, for resource-synchronizer\n\nSends a `GET` request to `/internal/members/{key}/kubeconfig`\n\n"]
    pub async fn member_kubeconfig_get<'a>(
        &'a self,
        key: &'a str,
    ) -> Result<ResponseValue<drover_api::members::MemberCredential>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/members/{}/kubeconfig", self.baseurl, encode_path(&key.to_string()),);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .get(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "member_kubeconfig_get" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
    #[doc = "Makes a user of a member: a key, and a certificate that the member's own authority signs. One that exists is renewed when two thirds of its\ntime are over\n\nSends a `PUT` request to `/internal/members/{key}/users/{id}`\n\n"]
    pub async fn member_user_put<'a>(
        &'a self,
        key: &'a str,
        id: &'a ::uuid::Uuid,
        body: &'a drover_api::members::UserOrder,
    ) -> Result<ResponseValue<drover_api::members::UserState>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/members/{}/users/{}", self.baseurl, encode_path(&key.to_string()), encode_path(&id.to_string()),);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .put(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .json(&body)
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "member_user_put" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
    #[doc = "Forgets a user of a member\n\nSends a `DELETE` request to `/internal/members/{key}/users/{id}`\n\n"]
    pub async fn member_user_delete<'a>(
        &'a self,
        key: &'a str,
        id: &'a ::uuid::Uuid,
    ) -> Result<ResponseValue<::serde_json::Value>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/members/{}/users/{}", self.baseurl, encode_path(&key.to_string()), encode_path(&id.to_string()),);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .delete(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "member_user_delete" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
    #[doc = "Returns the kubeconfig of a user of a member\n\nSends a `GET` request to `/internal/members/{key}/users/{id}/kubeconfig`\n\n"]
    pub async fn member_user_kubeconfig<'a>(
        &'a self,
        key: &'a str,
        id: &'a ::uuid::Uuid,
    ) -> Result<ResponseValue<drover_api::members::UserKubeconfig>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!(
            "{}/internal/members/{}/users/{}/kubeconfig",
            self.baseurl,
            encode_path(&key.to_string()),
            encode_path(&id.to_string()),
        );
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .get(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "member_user_kubeconfig" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
    #[doc = "Closes a cluster to new copies of apps. One that is closed already keeps the time since when it is\n\nSends a `PUT` request to `/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/cordon`\n\nArguments:\n- `cluster_provider`\n- `cluster`\n- `dry_run`: `All`: check everything and write nothing.\n- `body`\n"]
    pub async fn cluster_cordon<'a>(
        &'a self,
        cluster_provider: &'a str,
        cluster: &'a str,
        dry_run: Option<&'a str>,
        body: &'a drover_api::members::CordonOrder,
    ) -> Result<ResponseValue<drover_api::scheduling::Cordon>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!(
            "{}/v2/cluster-providers/{}/clusters/{}/cordon",
            self.baseurl,
            encode_path(&cluster_provider.to_string()),
            encode_path(&cluster.to_string()),
        );
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .put(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .json(&body)
            .query(&progenitor_client::QueryParam::new("dryRun", &dry_run))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "cluster_cordon" };
        self.pre(&mut request, &info).await?;
        let result = self.exec(request, &info).await;
        self.post(&result, &info).await?;
        let response = result?;
        match response.status().as_u16() {
            200u16 => ResponseValue::from_response(response).await,
            400u16..=499u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            500u16..=599u16 => Err(Error::ErrorResponse(ResponseValue::from_response(response).await?)),
            _ => Err(Error::UnexpectedResponse(response)),
        }
    }
}
#[doc = r" Items consumers will typically use such as the Client."]
pub mod prelude {
    #[allow(unused_imports)]
    pub use super::Client;
}
