//! What other services may ask of resource-synchronizer. Made from openapi/resource-synchronizer.json by `cargo run -p xtask -- clients`; not to be edited.

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
#[doc = "Client for drover resource-synchronizer\n\nVersion: v2"]
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
    #[doc = "Stores the desired state of some bindings, and the bundle that comes with them. Storing the same again changes nothing. A binding with a\nlower fence than the stored one is refused, and so is one that is to be present and whose bundle is not stored. The answer is the first\nrefusal; the other bindings are stored nevertheless\n\nSends a `PUT` request to `/internal/bindings`\n\n"]
    pub async fn bindings_put<'a>(
        &'a self,
        body: &'a drover_api::bindings::DesiredBindings,
    ) -> Result<ResponseValue<::serde_json::Value>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/bindings", self.baseurl,);
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
        let info = OperationInfo { operation_id: "bindings_put" };
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
    #[doc = "Deletes a binding that is gone\n\nSends a `DELETE` request to `/internal/bindings/{id}`\n\n"]
    pub async fn binding_delete<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
    ) -> Result<ResponseValue<::serde_json::Value>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/bindings/{}", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "binding_delete" };
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
    #[doc = "Stores the share that the binding's autoscalers have of bounds over all members of its app. A lower version is refused\n\nSends a `PUT` request to `/internal/bindings/{id}/bounds`\n\n"]
    pub async fn binding_bounds_put<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
        body: &'a drover_api::bindings::BoundsOrder,
    ) -> Result<ResponseValue<drover_api::bindings::BoundsOrder>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/bindings/{}/bounds", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "binding_bounds_put" };
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
    #[doc = "The run of tests that was asked for last, with what the tests have printed\n\nSends a `GET` request to `/internal/bindings/{id}/test`\n\n"]
    pub async fn binding_test_get<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
    ) -> Result<ResponseValue<drover_api::bindings::TestRun>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/bindings/{}/test", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "binding_test_get" };
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
    #[doc = "Asks for a run of the tests of the binding's chart. Asking for the same run again changes nothing; a lower fence is refused\n\nSends a `PUT` request to `/internal/bindings/{id}/test`\n\n"]
    pub async fn binding_test_put<'a>(
        &'a self,
        id: &'a ::uuid::Uuid,
        body: &'a drover_api::bindings::TestOrder,
    ) -> Result<ResponseValue<drover_api::bindings::TestOrder>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/bindings/{}/test", self.baseurl, encode_path(&id.to_string()),);
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
        let info = OperationInfo { operation_id: "binding_test_put" };
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
    #[doc = "Asks a member whether it would accept objects. Nothing is written, in the member or here\n\nSends a `POST` request to `/internal/preflights`\n\n"]
    pub async fn preflight_ask<'a>(
        &'a self,
        body: &'a drover_api::bindings::Preflight,
    ) -> Result<ResponseValue<drover_api::bindings::PreflightAnswer>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/preflights", self.baseurl,);
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
        let info = OperationInfo { operation_id: "preflight_ask" };
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
    #[doc = "Asks a member which pods with volumes some StatefulSets have. Nothing is written\n\nSends a `POST` request to `/internal/volumes`\n\n"]
    pub async fn volumes_ask<'a>(
        &'a self,
        body: &'a drover_api::bindings::VolumeQuestion,
    ) -> Result<ResponseValue<drover_api::bindings::VolumeAnswer>, Error<drover_api::problem::ProblemDocument>> {
        let url = format!("{}/internal/volumes", self.baseurl,);
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
        let info = OperationInfo { operation_id: "volumes_ask" };
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
