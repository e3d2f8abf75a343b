//! Agents: which clusters run Drover's agents, in which version and with which settings. Orchestrator carries it out.

use drover_api::agents::AgentOrder;
use drover_resources::{DocumentKind, Invalid, Put, Spec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The agents that there are.
pub const AGENTS: [&str; 2] = ["autoscaler", "memory-guard"];
/// The longest time that `healthySeconds` may ask for.
const LONGEST: u32 = 3600;

/// Spec of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct AgentSpec(#[schema(inline)] pub AgentOrder);

impl Spec for AgentSpec {
    fn validate(&self, name: &str) -> Result<(), Invalid> {
        let order = &self.0;
        let mut reasons = Vec::new();
        if !AGENTS.contains(&name) {
            reasons.push(format!("metadata.name: there is no agent {name:?}; the agents are {}", AGENTS.join(" and ")));
        }
        if !is_tag(&order.version) {
            reasons.push(format!("spec.version: {:?} is not the tag of an image", order.version));
        }
        if !is_image(&order.image) {
            reasons.push(format!("spec.image: {:?} is not the name of an image without a tag", order.image));
        }
        if order.on.is_empty() {
            reasons.push("spec.on: names no clusters; `[{}]` means all of them".to_owned());
        }
        if order.healthy_seconds > LONGEST {
            reasons.push(format!("spec.healthySeconds: {} is more than {LONGEST}", order.healthy_seconds));
        }
        let all = order.settings.keys().chain(order.members.values().flat_map(|settings| settings.keys()));
        reasons.extend(
            all.filter(|key| !is_setting(key)).map(|key| format!("spec.settings: {key:?} is not the name of an environment variable")),
        );
        Invalid::unless_empty(reasons)
    }
}

/// Whether this may be the tag of an image.
fn is_tag(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && text.len() <= 128 && text.bytes().all(inner)
}

fn is_image(text: &str) -> bool {
    let (name, last) = (text.trim_matches('/') == text, text.rsplit('/').next().unwrap_or_default());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b':');
    name && !last.is_empty() && !last.contains(':') && text.len() <= 255 && text.bytes().all(allowed)
}

fn is_setting(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `agents/{agent}`
pub static AGENT: DocumentKind = DocumentKind::of::<AgentSpec>("agent", "Agent", "agents", &["agent"]).put(Put::Upsert);

#[cfg(test)]
mod tests {
    use drover_api::agents::AgentPlace;

    use super::*;

    #[test]
    fn orders_are_checked() {
        let good = AgentOrder {
            version: "1.2".into(),
            image: "localhost:5000/drover".into(),
            on: vec![AgentPlace::default()],
            ..AgentOrder::default()
        };
        let refused = |name: &str, order: AgentOrder| AgentSpec(order).validate(name).err().map(|invalid| invalid.reasons.join("; "));
        assert_eq!(refused("autoscaler", good.clone()), None);
        let wrong = [
            ("guard", good.clone(), "there is no agent"),
            ("autoscaler", AgentOrder { version: "a b".into(), ..good.clone() }, "spec.version"),
            ("autoscaler", AgentOrder { image: "drover:1".into(), ..good.clone() }, "spec.image"),
            ("autoscaler", AgentOrder { on: vec![], ..good.clone() }, "spec.on"),
            ("autoscaler", AgentOrder { healthy_seconds: 3601, ..good.clone() }, "spec.healthySeconds"),
            ("autoscaler", AgentOrder { settings: [("A=B".into(), "1".into())].into(), ..good.clone() }, "spec.settings"),
        ];
        for (name, order, reason) in wrong {
            let refused = refused(name, order).unwrap_or_default();
            assert!(refused.contains(reason), "{refused:?} lacks {reason:?}");
        }
    }
}
