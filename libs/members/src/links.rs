//! Members that are reached through a connection which their agent has opened (libs/link), and in no other way.
//!
//! Who has that connection differs by service, so it is given as [`Links`]. TLS and the credential are the same as for other members:
//! the stream is only another way to the API server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use drover_scheduling::MemberKey;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

/// A stream of bytes.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What [`Links::dial`] returns.
pub type Dialled<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// The links of members.
pub trait Links: Send + Sync {
    /// A new connection to the API server of a member through its link.
    fn dial<'a>(&'a self, member: &'a MemberKey) -> Dialled<'a>;
}

/// Connects to one member, whatever address a request names.
#[derive(Clone)]
pub(crate) struct LinkConnector {
    pub(crate) links: Arc<dyn Links>,
    pub(crate) member: MemberKey,
}

impl Service<Uri> for LinkConnector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { links, member } = self.clone();
        Box::pin(async move { Ok(TokioIo::new(links.dial(&member).await?)) })
    }
}

impl Connection for Box<dyn Stream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::kubeconfig::vet;
    use crate::{Clients, Reach, clients};

    /// Gives one end of each connection away.
    struct Recorded(tokio::sync::mpsc::UnboundedSender<(MemberKey, tokio::io::DuplexStream)>);

    impl Links for Recorded {
        fn dial<'a>(&'a self, member: &'a MemberKey) -> Dialled<'a> {
            Box::pin(async move {
                let (near, far) = tokio::io::duplex(1024);
                self.0.send((member.clone(), far)).map_err(io::Error::other)?;
                Ok(Box::new(near) as Box<dyn Stream>)
            })
        }
    }

    #[tokio::test]
    async fn linked_member_is_reached_through_its_link_and_nowhere_else() {
        // Something answers at the address of the kubeconfig, and must not be asked.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n",
            listener.local_addr().unwrap()
        );
        let vetted = vet(&text).unwrap().linked(true);
        let key = MemberKey::new("p", "a");
        assert!(Clients::new(Reach::Anywhere).get(&key, 1, &vetted).await.is_err(), "without links there is no way");
        assert!(clients::connect(&vetted, Reach::Anywhere).await.is_err());

        let (dialled, mut far) = tokio::sync::mpsc::unbounded_channel();
        // The reach is for addresses that are connected to; this one is not.
        let clients = Clients::new(Reach::Remote).through(Arc::new(Recorded(dialled)));
        let client = clients.get(&key, 1, &vetted).await.unwrap();
        let server = async {
            let (member, mut stream) = far.recv().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            (member, String::from_utf8(head).unwrap())
        };
        let ((member, head), answer) = tokio::join!(server, client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()));
        answer.unwrap();
        assert_eq!(member, key);
        assert!(head.contains("Bearer t"), "the member's own credential is sent: {head}");
        assert!(Clients::new(Reach::Remote).get(&key, 1, &vetted.linked(false)).await.is_err(), "directly it is out of reach");
        assert!(tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await.is_err());
    }
}
