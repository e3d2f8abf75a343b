//! The protocol on the NRI socket: ttrpc messages of two logical connections, cut into frames.
//!
//! ```text
//! frame    connection u32 | length u32 | bytes            (nri: pkg/net/multiplex; big endian, as all here)
//! message  length u32 | stream u32 | kind u8 | flags u8 | protobuf      (ttrpc: PROTOCOL.md), in one frame or over several
//! ```

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The connection on which the runtime calls the plugin.
pub const PLUGIN: u32 = 1;
/// The connection on which the plugin calls the runtime.
pub const RUNTIME: u32 = 2;

const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
/// The largest message that ttrpc allows, in bytes.
const LARGEST: usize = 4 << 20;
/// The longest frame that the runtime's reader takes in one piece, in bytes.
const LONGEST_FRAME: usize = 4096;

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Request,
    Response,
    /// Part of a stream, which NRI does not use.
    Other(u8),
}

impl MessageKind {
    fn number(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Other(number) => number,
        }
    }
}

/// A ttrpc message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub connection: u32,
    /// The call that it belongs to.
    pub stream: u32,
    pub kind: MessageKind,
    /// An encoded [`crate::proto::ttrpc::Request`] or `Response`.
    pub body: Vec<u8>,
}

/// One end of an NRI socket.
#[derive(Debug)]
pub struct NriSocket<S> {
    socket: S,
    /// The received part of incomplete messages, by connection.
    partial: BTreeMap<u32, Vec<u8>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> NriSocket<S> {
    /// Wraps a connected socket.
    pub fn new(socket: S) -> Self {
        Self { socket, partial: BTreeMap::new() }
    }

    ///
    /// # Errors
    /// When the socket is closed or the message is too long.
    pub async fn send(&mut self, connection: u32, stream: u32, kind: MessageKind, body: &impl prost::Message) -> io::Result<()> {
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

    /// Waits for the next complete message.
    ///
    /// # Errors
    /// When the socket is closed, or the peer speaks another protocol.
    pub async fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.complete_message()? {
                return Ok(message);
            }
            let connection = self.socket.read_u32().await?;
            let length = self.socket.read_u32().await? as usize;
            if length > LARGEST + MESSAGE_HEADER {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a frame of {length} bytes exceeds the limit of the protocol"),
                ));
            }
            let partial = self.partial.entry(connection).or_default();
            let from = partial.len();
            partial.resize(from + length, 0);
            self.socket.read_exact(&mut partial[from..]).await?;
        }
    }

    /// Removes a message that was received completely.
    fn complete_message(&mut self) -> io::Result<Option<Message>> {
        for (&connection, partial) in &mut self.partial {
            let Some((header, rest)) = partial.split_first_chunk::<MESSAGE_HEADER>() else { continue };
            let [l0, l1, l2, l3, s0, s1, s2, s3, kind, _] = *header;
            let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
            if length > LARGEST {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of {length} bytes exceeds the limit of the protocol"),
                ));
            }
            let Some(body) = rest.get(..length) else { continue };
            let kind = match kind {
                1 => MessageKind::Request,
                2 => MessageKind::Response,
                other => MessageKind::Other(other),
            };
            let message = Message { connection, stream: u32::from_be_bytes([s0, s1, s2, s3]), kind, body: body.to_vec() };
            partial.drain(..MESSAGE_HEADER + length);
            return Ok(Some(message));
        }
        Ok(None)
    }
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))
}

impl Message {
    /// Decodes the body.
    ///
    /// # Errors
    /// When the body is no such message.
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
    async fn receive_joins_the_frames_of_two_connections_into_messages() -> io::Result<()> {
        let (one, other) = tokio::io::duplex(64);
        let (mut one, mut other) = (NriSocket::new(one), NriSocket::new(other));
        let sender = async {
            one.send(PLUGIN, 1, MessageKind::Request, &call(3 * LONGEST_FRAME)).await?;
            one.send(RUNTIME, 5, MessageKind::Response, &call(0)).await?;
            one.send(PLUGIN, 3, MessageKind::Request, &call(1)).await
        };
        let receiver = async { Ok::<_, io::Error>([other.receive().await?, other.receive().await?, other.receive().await?]) };
        let (sent, received) = tokio::join!(sender, receiver);
        sent?;
        let received = received?;
        let heads = received.each_ref().map(|message| (message.connection, message.stream, message.kind));
        assert_eq!(heads, [(PLUGIN, 1, MessageKind::Request), (RUNTIME, 5, MessageKind::Response), (PLUGIN, 3, MessageKind::Request)]);
        assert_eq!(received[0].read::<Request>()?.payload.len(), 3 * LONGEST_FRAME);
        assert_eq!(received[2].read::<Request>()?, call(1));
        Ok(())
    }

    #[tokio::test]
    async fn receive_refuses_another_protocol() {
        let (mut one, other) = tokio::io::duplex(64);
        let mut other = NriSocket::new(other);
        one.write_all(b"GET / HTTP/1.1\r\n").await.unwrap_or_default();
        assert_eq!(other.receive().await.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }
}
