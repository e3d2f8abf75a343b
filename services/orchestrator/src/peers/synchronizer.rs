//! Client of resource-synchronizer: desired state of the members. Their actual state comes by feed (`tasks::follow`).

use async_trait::async_trait;
use drover_api::bindings::{
    BoundsOrder, DesiredBinding, DesiredBindings, Preflight, PreflightAnswer, TestOrder, TestRun, VolumeAnswer, VolumeQuestion,
};
use drover_service::clients::resource_synchronizer::Client;
use drover_service::{Answer, PeerError};
use uuid::Uuid;

/// The operations of resource-synchronizer that orchestrator uses. A method fails when the service is unavailable or refuses the
/// request.
#[async_trait]
pub trait Synchronizer: Send + Sync {
    /// Sets the desired state of some bindings, and stores the bundle that they name if there is one. Repeating it has no effect. After an
    /// error some may be stored.
    async fn put_bindings(&self, desired: &DesiredBindings) -> Result<(), PeerError>;
    /// Sets the desired state of one binding.
    async fn put_binding(&self, desired: DesiredBinding) -> Result<(), PeerError> {
        self.put_bindings(&DesiredBindings::from_iter([desired])).await
    }
    /// Deletes the desired state of a binding that is gone. Repeating it has no effect.
    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError>;
    /// Why a member would refuse objects. Nothing is written.
    async fn preflight(&self, asked: &Preflight) -> Result<PreflightAnswer, PeerError>;
    /// The pods with volumes of some StatefulSets. Nothing is written.
    async fn volumes(&self, asked: &VolumeQuestion) -> Result<VolumeAnswer, PeerError>;
    /// Asks for a run of the tests of a binding's chart. Repeating it has no effect.
    async fn put_test(&self, binding: Uuid, order: TestOrder) -> Result<(), PeerError>;
    /// Sets the share that a binding's autoscalers have of bounds over all members. Repeating it has no effect.
    async fn put_bounds(&self, binding: Uuid, order: &BoundsOrder) -> Result<(), PeerError>;
    /// The run of tests that was asked for last, with what they have printed.
    async fn test(&self, binding: Uuid) -> Result<Option<TestRun>, PeerError>;
}

#[async_trait]
impl Synchronizer for Client {
    async fn put_bindings(&self, desired: &DesiredBindings) -> Result<(), PeerError> {
        self.bindings_put(desired).await.answer(self).map(drop)
    }
    async fn forget_binding(&self, binding: Uuid) -> Result<(), PeerError> {
        self.binding_delete(&binding).await.found(self).map(drop)
    }
    async fn preflight(&self, asked: &Preflight) -> Result<PreflightAnswer, PeerError> {
        self.preflight_ask(asked).await.answer(self)
    }
    async fn volumes(&self, asked: &VolumeQuestion) -> Result<VolumeAnswer, PeerError> {
        self.volumes_ask(asked).await.answer(self)
    }
    async fn put_test(&self, binding: Uuid, order: TestOrder) -> Result<(), PeerError> {
        self.binding_test_put(&binding, &order).await.answer(self).map(drop)
    }
    async fn put_bounds(&self, binding: Uuid, order: &BoundsOrder) -> Result<(), PeerError> {
        self.binding_bounds_put(&binding, order).await.answer(self).map(drop)
    }
    async fn test(&self, binding: Uuid) -> Result<Option<TestRun>, PeerError> {
        self.binding_test_get(&binding).await.found(self)
    }
}
