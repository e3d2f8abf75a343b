//! Writes an object that server-side apply refuses although `kubectl apply` accepts it: with two items of one key in a list, such as a
//! variable that is set twice, or two names for one port of a container.
//!
//! It is created, or its desired fields are replaced. Unlike with server-side apply, a field that is no longer desired stays. The
//! caller has checked to whom the object belongs.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::Value;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::error::{MemberError, RequestError, within};
use crate::member::Member;
use crate::object_id::ObjectId;

impl Member {
    /// Creates the object, or replaces the fields that it is to have. Returns its metadata.
    pub(crate) async fn write_plainly(
        &self,
        id: &ObjectId,
        value: &Value,
        manager: &str,
        dry_run: bool,
    ) -> Result<ObjectMeta, MemberError> {
        let api = self.writing(id).await?;
        let params = PatchParams { dry_run, field_manager: Some(manager.into()), ..PatchParams::default() };
        match within(api.patch_metadata(&id.name, &params, &Patch::Merge(value))).await {
            Ok(answer) => return Ok(answer.metadata),
            Err(RequestError::Api(404, _)) => {}
            Err(error) => return Err(self.refusal(error, id)),
        }
        let refused = |error: serde_json::Error| MemberError::Refused { id: Box::new(id.clone()), reason: error.to_string(), here: false };
        let object: DynamicObject = serde_json::from_value(value.clone()).map_err(refused)?;
        let params = PostParams { dry_run, field_manager: Some(manager.into()) };
        let made = within(api.create(&params, &object)).await.map_err(|error| self.refusal(error, id))?;
        Ok(made.metadata)
    }
}
