//! Members that are reached through their link: cluster-manager has the links, and joins each connection with one of them.

use std::io;

use drover_link::wire::PROTOCOL;
use drover_members::links::{Dialled, Links, Stream};
use drover_scheduling::MemberKey;
use drover_service::{Peer, segment};

/// The links of cluster-manager.
pub struct PeerLinks(pub Peer);

impl Links for PeerLinks {
    fn dial<'a>(&'a self, member: &'a MemberKey) -> Dialled<'a> {
        Box::pin(async move {
            let stream = self.0.stream(&format!("/internal/links/{}", segment(&member.0)), PROTOCOL).await;
            Ok(Box::new(stream.map_err(io::Error::other)?) as Box<dyn Stream>)
        })
    }
}
