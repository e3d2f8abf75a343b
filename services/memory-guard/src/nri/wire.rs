//! What NRI speaks on its socket: ttrpc messages of two logical connections, cut into frames.
//!
//! ```text
//! frame    connection u32 | length u32 | bytes            (nri: pkg/net/multiplex; big endian, as all here)
//! message  length u32 | stream u32 | kind u8 | flags u8 | protobuf      (ttrpc: PROTOCOL.md), in one frame or over several
//! ```

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// On this connection the runtime calls the plugin.
pub const PLUGIN: u32 = 1;
/// On this one the plugin calls the runtime.
pub const RUNTIME: u32 = 2;

const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
/// The largest message of ttrpc.
const LARGEST: usize = 4 << 20;
/// The runtime's reader takes no longer frame in one piece.
const LONGEST_FRAME: usize = 4096;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call.
    Request,
    /// Its answer.
    Response,
    /// A part of a stream; NRI has none.
    Other(u8),
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Other(number) => number,
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// On which connection.
    pub connection: u32,
    /// Which call it belongs to.
    pub stream: u32,
    /// What it is.
    pub kind: Kind,
    /// Protobuf of a [`crate::proto::ttrpc::Request`] or `Response`.
    pub body: Vec<u8>,
}

/// One end of the socket.
#[derive(Debug)]
pub struct Wire<S> {
    socket: S,
    /// What has come of messages that are not whole yet, by connection.
    begun: BTreeMap<u32, Vec<u8>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Of a connected socket.
    pub fn new(socket: S) -> Self {
        Self { socket, begun: BTreeMap::new() }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The socket is closed.
    pub async fn send(&mut self, connection: u32, stream: u32, kind: Kind, body: &impl prost::Message) -> io::Result<()> {
        let body = body.encode_to_vec();
        let mut message = Vec::with_capacity(MESSAGE_HEADER + body.len());
        message.extend(length(body.len())?.to_be_bytes());
        message.extend(stream.to_be_bytes());
        message.extend([kind.number(), 0]);
        message.extend(body);
        let mut frames = Vec::with_capacity(message.len() + FRAME_HEADER);
        for part in message.chunks(LONGEST_FRAME) {
            frames.extend(connection.to_be_bytes());
            frames.extend(length(part.len())?.to_be_bytes());
            frames.extend(part);
        }
        self.socket.write_all(&frames).await
    }

    /// Waits for the next whole message.
    ///
    /// # Errors
    /// The socket is closed, or what comes is no such protocol.
    pub async fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(message);
            }
            let connection = self.socket.read_u32().await?;
            let length = self.socket.read_u32().await? as usize;
            if length > LARGEST + MESSAGE_HEADER {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
            }
            let begun = self.begun.entry(connection).or_default();
            let from = begun.len();
            begun.resize(from + length, 0);
            self.socket.read_exact(&mut begun[from..]).await?;
        }
    }

    /// Takes out a message that has wholly come.
    fn whole(&mut self) -> io::Result<Option<Message>> {
        for (&connection, begun) in &mut self.begun {
            let Some((header, rest)) = begun.split_first_chunk::<MESSAGE_HEADER>() else { continue };
            let [l0, l1, l2, l3, s0, s1, s2, s3, kind, _] = *header;
            let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
            if length > LARGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
            }
            let Some(body) = rest.get(..length) else { continue };
            let kind = match kind {
                1 => Kind::Request,
                2 => Kind::Response,
                other => Kind::Other(other),
            };
            let message = Message { connection, stream: u32::from_be_bytes([s0, s1, s2, s3]), kind, body: body.to_vec() };
            begun.drain(..MESSAGE_HEADER + length);
            return Ok(Some(message));
        }
        Ok(None)
    }
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).ok().filter(|_| bytes <= LARGEST).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too long a message"))
}

impl Message {
    /// Its body, read as that.
    ///
    /// # Errors
    /// It is none.
    pub fn read<T: prost::Message + Default>(&self) -> io::Result<T> {
        T::decode(self.body.as_slice()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ttrpc::Request;

    fn call(payload: usize) -> Request {
        Request { service: "s".into(), method: "m".into(), payload: vec![7; payload], timeout_nano: 0 }
    }

    #[tokio::test]
    async fn messages_of_two_connections_come_whole_however_they_are_cut() -> io::Result<()> {
        let (one, other) = tokio::io::duplex(64);
        let (mut one, mut other) = (Wire::new(one), Wire::new(other));
        let sender = async {
            one.send(PLUGIN, 1, Kind::Request, &call(3 * LONGEST_FRAME)).await?;
            one.send(RUNTIME, 5, Kind::Response, &call(0)).await?;
            one.send(PLUGIN, 3, Kind::Request, &call(1)).await
        };
        let receiver = async { Ok::<_, io::Error>([other.receive().await?, other.receive().await?, other.receive().await?]) };
        let (sent, received) = tokio::join!(sender, receiver);
        sent?;
        let received = received?;
        let heads = received.each_ref().map(|message| (message.connection, message.stream, message.kind));
        assert_eq!(heads, [(PLUGIN, 1, Kind::Request), (RUNTIME, 5, Kind::Response), (PLUGIN, 3, Kind::Request)]);
        assert_eq!(received[0].read::<Request>()?.payload.len(), 3 * LONGEST_FRAME);
        assert_eq!(received[2].read::<Request>()?, call(1));
        Ok(())
    }

    #[tokio::test]
    async fn what_is_no_such_protocol_is_an_error_and_no_allocation() {
        let (mut one, other) = tokio::io::duplex(64);
        let mut other = Wire::new(other);
        one.write_all(b"GET / HTTP/1.1\r\n").await.unwrap_or_default();
        assert_eq!(other.receive().await.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }
}
