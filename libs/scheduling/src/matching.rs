//! Whether a node admits a pod: cordons, taints, node selectors and required node affinity, as the Kubernetes scheduler checks them.
//!
//! Room is checked afterwards, in `fit.rs`.

use std::fmt;

use crate::{Node, NodeRequirement, Operator, PodGroup, Taint, Toleration};

/// Why a node admits no pod of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// Cordoned or not Ready.
    Unschedulable,
    /// A taint that the pods do not tolerate.
    Taint(&'a Taint),
    /// The node selector does not match.
    Selector,
    /// The required node affinity does not match.
    Affinity,
}

impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("cordoned or not ready"),
            Self::Taint(taint) if taint.value.is_empty() => write!(f, "taint {}:{} is not tolerated", taint.key, taint.effect),
            Self::Taint(taint) => write!(f, "taint {}={}:{} is not tolerated", taint.key, taint.value, taint.effect),
            Self::Selector => f.write_str("labels do not match the node selector"),
            Self::Affinity => f.write_str("labels do not match the required node affinity"),
        }
    }
}

/// Whether `node` admits pods of `group`, whatever its room.
///
/// # Errors
/// The reason why it does not.
pub fn admits<'a>(node: &'a Node, group: &PodGroup) -> Result<(), Refusal<'a>> {
    if node.unschedulable {
        return Err(Refusal::Unschedulable);
    }
    let forbids = |taint: &&Taint| taint.effect != "PreferNoSchedule" && !group.tolerations.iter().any(|t| tolerates(t, taint));
    if let Some(taint) = node.taints.iter().find(forbids) {
        return Err(Refusal::Taint(taint));
    }
    if group.node_selector.iter().any(|(key, value)| node.labels.get(key) != Some(value)) {
        return Err(Refusal::Selector);
    }
    if !group.node_affinity.is_empty() && !group.node_affinity.iter().any(|term| term_holds(node, term)) {
        return Err(Refusal::Affinity);
    }
    Ok(())
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key == taint.key || (toleration.key.is_empty() && toleration.exists);
    effect && key && (toleration.exists || toleration.value == taint.value)
}

/// Whether a term of node affinity matches. An empty term matches no node, as in Kubernetes.
fn term_holds(node: &Node, term: &[NodeRequirement]) -> bool {
    !term.is_empty() && term.iter().all(|requirement| requirement_holds(node, requirement))
}

fn requirement_holds(node: &Node, requirement: &NodeRequirement) -> bool {
    let value = match requirement.key.as_str() {
        "metadata.name" => Some(&node.name),
        key => node.labels.get(key),
    };
    let listed = value.is_some_and(|v| requirement.values.contains(v));
    let numbers = || Some((value?.parse::<i64>().ok()?, requirement.values.first()?.parse::<i64>().ok()?));
    match requirement.operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => numbers().is_some_and(|(have, bound)| have > bound),
        Operator::Lt => numbers().is_some_and(|(have, bound)| have < bound),
    }
}
