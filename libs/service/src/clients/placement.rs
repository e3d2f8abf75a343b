//! What other services may ask of placement. Made from openapi/placement.json by `cargo run -p xtask -- clients`; not to be edited.

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
#[doc = "Client for drover placement\n\nVersion: v2"]
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
    #[doc = "Lists committed claims\n\nSends a `GET` request to `/internal/claims`\n\nArguments:\n- `dig`: Deployment intent group (its uuid).\n- `member`: Member, `<provider>+<cluster>`.\n- `operation`: Operation that wrote the claim last.\n"]
    pub async fn claim_list<'a>(
        &'a self,
        dig: Option<&'a ::uuid::Uuid>,
        member: Option<&'a str>,
        operation: Option<&'a ::uuid::Uuid>,
    ) -> Result<ResponseValue<drover_api::ledger::Claims>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/claims", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("dig", &dig))
            .query(&progenitor_client::QueryParam::new("member", &member))
            .query(&progenitor_client::QueryParam::new("operation", &operation))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "claim_list" };
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
    #[doc = "Lists all committed claims without the requests of their apps\n\nSends a `GET` request to `/internal/claims/heads`\n\n"]
    pub async fn claim_heads<'a>(
        &'a self,
    ) -> Result<ResponseValue<drover_api::ledger::ClaimHeads>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/claims/heads", self.baseurl,);
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
        let info = OperationInfo { operation_id: "claim_heads" };
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
    #[doc = "Decides without writing\n\nSends a `POST` request to `/internal/decisions/dry-run`\n\n"]
    pub async fn decision_dry_run<'a>(
        &'a self,
        body: &'a drover_api::scheduling::DecisionRequest,
    ) -> Result<ResponseValue<drover_api::scheduling::Decision>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/decisions/dry-run", self.baseurl,);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .post(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .json(&body)
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "decision_dry_run" };
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
    #[doc = "Decides and claims room for all apps or none. A repeated id gets the stored answer\n\nSends a `PUT` request to `/internal/decisions/{id}`\n\n"]
    pub async fn decision_put<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
        body: &'a drover_api::scheduling::DecisionRequest,
    ) -> Result<ResponseValue<drover_api::scheduling::Decision>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/decisions/{}", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "decision_put" };
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
    #[doc = "Explains why an app is where it is: the decision that placed or refused it, and what would be decided now\n\nSends a `POST` request to `/internal/explanations`\n\n"]
    pub async fn explanation<'a>(
        &'a self,
        body: &'a drover_api::ledger::ExplainQuestion,
    ) -> Result<ResponseValue<drover_api::ledger::Explanation>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/explanations", self.baseurl,);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .post(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .json(&body)
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "explanation" };
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
    #[doc = "Returns what a transaction would be answered now, without writing\n\nSends a `POST` request to `/internal/transactions/dry-run`\n\n"]
    pub async fn transaction_dry_run<'a>(
        &'a self,
        body: &'a drover_api::ledger::LedgerTransaction,
    ) -> Result<ResponseValue<drover_api::ledger::LedgerReceipt>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/transactions/dry-run", self.baseurl,);
        let mut header_map = ::reqwest::header::HeaderMap::with_capacity(1usize);
        header_map.append(
            ::reqwest::header::HeaderName::from_static("api-version"),
            ::reqwest::header::HeaderValue::from_static(Self::api_version()),
        );
        #[allow(unused_mut)]
        let mut request = self
            .client
            .post(url)
            .header(::reqwest::header::ACCEPT, ::reqwest::header::HeaderValue::from_static("application/json"))
            .json(&body)
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "transaction_dry_run" };
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
    #[doc = "Makes all changes or none. A repeated id gets the stored answer. A refusal names every difference\n\nSends a `PUT` request to `/internal/transactions/{id}`\n\n"]
    pub async fn transaction_put<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
        body: &'a drover_api::ledger::LedgerTransaction,
    ) -> Result<ResponseValue<drover_api::ledger::LedgerReceipt>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/transactions/{}", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "transaction_put" };
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
    #[doc = "Room of every cluster: allocatable, requested, reserved, used and free, with the age of the observation. The most preferred first\n\nSends a `GET` request to `/v2/clusters`\n\nArguments:\n- `view`: `capacity`, the only view and the default.\n"]
    pub async fn cluster_capacity_list<'a>(
        &'a self,
        view: Option<&'a str>,
    ) -> Result<ResponseValue<::std::vec::Vec<drover_api::ledger::ClusterCapacity>>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/v2/clusters", self.baseurl,);
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
            .query(&progenitor_client::QueryParam::new("view", &view))
            .headers(header_map)
            .build()?;
        let info = OperationInfo { operation_id: "cluster_capacity_list" };
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
