//! How the data path of Drover, which carries users' requests, reaches the pods of a member, and what the routes of an app need of it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{MemberRoom, PlacementTerms};

/// Prefix of the label that names the way.
const LABEL: &str = "reachability=";

/// How the data path reaches the pods of a member. A label of the cluster says it, `reachability=nodePort` for example; without one it is
/// the pod network, and none for a linked member: a link carries nothing but Drover's requests to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Reachability {
    /// By the addresses of its pods.
    #[default]
    PodNetwork,
    /// By a port of its nodes, which leads to the pods of a Service.
    NodePort,
    /// By the load balancer of a Service.
    LoadBalancer,
    /// Not at all.
    None,
}

/// A label names a way that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reachability is podNetwork, nodePort, loadBalancer or none")]
pub struct UnknownReachability;

impl FromStr for Reachability {
    type Err = UnknownReachability;

    fn from_str(text: &str) -> Result<Self, UnknownReachability> {
        match text {
            "podNetwork" => Ok(Self::PodNetwork),
            "nodePort" => Ok(Self::NodePort),
            "loadBalancer" => Ok(Self::LoadBalancer),
            "none" => Ok(Self::None),
            _ => Err(UnknownReachability),
        }
    }
}

impl Reachability {
    /// The way to a cluster with these labels, which is reached through its link or directly.
    pub fn of(labels: &[String], linked: bool) -> Self {
        Self::named(labels).unwrap_or(if linked { Self::None } else { Self::PodNetwork })
    }

    fn named(labels: &[String]) -> Option<Self> {
        labels.iter().find_map(|label| label.strip_prefix(LABEL)?.parse().ok())
    }

    /// Checks a label that is to be given to a cluster.
    ///
    /// # Errors
    /// It names a way that does not exist.
    pub fn check(label: &str) -> Result<(), UnknownReachability> {
        label.strip_prefix(LABEL).map_or(Ok(()), |way| way.parse::<Self>().map(drop))
    }
}

/// The way by which the data path reaches the member's pods, if the routes of the app cannot use it; `None` if they can.
pub(crate) fn out_of_reach(terms: &PlacementTerms, room: &MemberRoom) -> Option<Reachability> {
    if terms.reached_by.is_empty() {
        return None;
    }
    let member = room.member.as_ref()?;
    let way = Reachability::of(&member.labels, member.link.is_some());
    Some(way).filter(|way| !terms.reached_by.contains(way))
}

/// Why the app's routes would lead nowhere on the member, for users.
pub(crate) fn why_out_of_reach(terms: &PlacementTerms, room: &MemberRoom) -> &'static str {
    match out_of_reach(terms, room) {
        Some(Reachability::NodePort) => {
            "users' traffic reaches its pods only by ports of nodes (label reachability=nodePort), and the Service of the app's route has \
             none; type NodePort gives it some"
        }
        Some(Reachability::LoadBalancer) => {
            "users' traffic reaches its pods only by load balancers (label reachability=loadBalancer), and the Service of the app's route \
             has none; type LoadBalancer gives it one"
        }
        _ if room.member.as_ref().is_some_and(|member| Reachability::named(&member.labels).is_none()) => {
            "users' traffic does not reach its pods, and the app has a route: its link carries only Drover's requests to its API server; a \
             label of the cluster says how else its pods are reached (reachability=podNetwork, nodePort or loadBalancer)"
        }
        _ => "users' traffic does not reach its pods (label reachability=none), and the app has a route",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_the_way_and_only_known_ones_are_accepted() {
        let labels = |label: &str| vec!["zone=a".to_owned(), label.to_owned()];
        for linked in [false, true] {
            assert_eq!(Reachability::of(&labels("reachability=nodePort"), linked), Reachability::NodePort);
            assert_eq!(Reachability::of(&labels("reachability=podNetwork"), linked), Reachability::PodNetwork);
        }
        assert_eq!(Reachability::of(&labels("gpu"), false), Reachability::PodNetwork);
        assert_eq!(Reachability::of(&labels("gpu"), true), Reachability::None, "a link carries no traffic of users");
        assert!(Reachability::check("reachability=loadBalancer").is_ok() && Reachability::check("zone=a").is_ok());
        assert_eq!(Reachability::check("reachability=vpn"), Err(UnknownReachability));
    }
}
