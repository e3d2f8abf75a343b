//! What other services may ask of orchestrator. Made from openapi/orchestrator.json by `cargo run -p xtask -- clients`; not to be edited.

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
#[doc = "Client for drover orchestrator\n\nVersion: v2"]
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
    #[doc = "An approved group with its apps' demands and terms\n\nSends a `GET` request to `/internal/digs/lookup`\n\nArguments:\n- `composite_app`: Composite app.\n- `dig`: Deployment intent group.\n- `project`\n- `version`: Its version.\n"]
    pub async fn dig_lookup<'a>(
        &'a self,
        composite_app: &'a str,
        dig: &'a str,
        project: &'a str,
        version: &'a str,
    ) -> Result<ResponseValue<drover_api::digs::DigTerms>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/digs/lookup", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("compositeApp", &composite_app))
            .query(&progenitor_client::QueryParam::new("dig", &dig))
            .query(&progenitor_client::QueryParam::new("project", &project))
            .query(&progenitor_client::QueryParam::new("version", &version))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "dig_lookup" };
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
    #[doc = "The uuid of a document\n\nSends a `GET` request to `/internal/documents/lookup`\n\nArguments:\n- `path`: Its path, from `/v2`.\n"]
    pub async fn document_lookup<'a>(
        &'a self,
        path: &'a str,
    ) -> Result<ResponseValue<drover_api::digs::DocumentRef>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/documents/lookup", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("path", &path))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "document_lookup" };
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
    #[doc = "Groups that operations work on\n\nSends a `GET` request to `/internal/holds`\n\n"]
    pub async fn hold_list<'a>(&'a self) -> Result<ResponseValue<drover_api::digs::DigHolds>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/holds", self.baseurl,);
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
        let info = OperationInfo { operation_id: "hold_list" };
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
    #[doc = "Explains why an app is where it is: the decision that placed or refused it, and what would be decided now\n\nSends a `GET` request to `/v2/explain`\n\nArguments:\n- `app`: `<composite app or deployment intent group>/<app>`.\n- `project`: Project; `default` if absent.\n"]
    pub async fn explain<'a>(
        &'a self,
        app: &'a str,
        project: Option<&'a str>,
    ) -> Result<ResponseValue<drover_api::ledger::Explanation>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/v2/explain", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("app", &app))
            .query(&progenitor_client::QueryParam::new("project", &project))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "explain" };
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
    #[doc = "Operations, newest first, without their steps. Operations that were started by another one are listed too, with `parent`;\ntheir moves are also shown with the parent\n\nSends a `GET` request to `/v2/operations`\n\nArguments:\n- `after`: Only operations older than this one: the last id of the previous page.\n- `dig`: Only operations of this deployment intent group: its uuid, or `project/app/version/group`.\n- `kind`: Only operations of this kind: `instantiate`, `terminate`, `update`, `relocate`.\n- `limit`: Maximum number of operations; default 100.\n- `state`: Only operations in this state.\n"]
    pub async fn operations_list<'a>(
        &'a self,
        after: Option<&'a ::uuid::Uuid>,
        dig: Option<&'a str>,
        kind: Option<&'a str>,
        limit: Option<::std::num::NonZeroU64>,
        state: Option<&'a drover_api::operations::OperationState>,
    ) -> Result<ResponseValue<drover_api::operations::OperationList>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/v2/operations", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("after", &after))
            .query(&progenitor_client::QueryParam::new("dig", &dig))
            .query(&progenitor_client::QueryParam::new("kind", &kind))
            .query(&progenitor_client::QueryParam::new("limit", &limit))
            .query(&progenitor_client::QueryParam::new("state", &state))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "operations_list" };
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
    #[doc = "One operation. Its moves include those of the operations that it started\n\nSends a `GET` request to `/v2/operations/{id}`\n\nArguments:\n- `id`\n- `wait`: Wait this long for the end of the operation, such as `30s`; at most a minute.\n"]
    pub async fn operation_get<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
        wait: Option<&'a str>,
    ) -> Result<ResponseValue<drover_api::operations::Operation>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/v2/operations/{}", self.baseurl, encode_path(&id.to_string()),);
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
            .query(&progenitor_client::QueryParam::new("wait", &wait))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "operation_get" };
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
