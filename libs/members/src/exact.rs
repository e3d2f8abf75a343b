//! Objects that no binding owns: volumes and their claims, which outlive every copy of an app.
//!
//! Invariant: only an object whose uid was read just before is deleted, and none is overwritten.

use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use serde_json::Value;

use crate::error::{MemberError, RequestError, within};
use crate::labels::FIELD_MANAGER;
use crate::member::Member;
use crate::object_id::ObjectId;

impl Member {
    /// Makes an object. Returns false if there is one of that name.
    ///
    /// # Errors
    /// When the member refuses the object, or does not answer.
    pub async fn create(&self, id: &ObjectId, value: &Value) -> Result<bool, MemberError> {
        let refused = |reason: String| MemberError::Refused { id: Box::new(id.clone()), reason, here: false };
        let object: DynamicObject = serde_json::from_value(value.clone()).map_err(|error| refused(error.to_string()))?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        match within(self.api(id).await?.create(&params, &object)).await {
            Ok(_) => Ok(true),
            Err(RequestError::Api(409, _)) => Ok(false),
            Err(error) => Err(error.of_object(id)),
        }
    }

    /// Deletes exactly the object with this uid. Returns whether it is gone.
    ///
    /// # Errors
    /// When the member refuses the deletion, or does not answer.
    pub async fn delete_exactly(&self, id: &ObjectId, uid: &str) -> Result<bool, MemberError> {
        let exactly_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        match within(self.api(id).await?.delete(&id.name, &DeleteParams::background().preconditions(exactly_this))).await {
            Ok(answer) => Ok(answer.is_right()),
            Err(RequestError::Api(404, _)) => Ok(true),
            Err(error) => Err(error.of_object(id)),
        }
    }
}
