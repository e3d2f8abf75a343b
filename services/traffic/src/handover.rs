//! Handing the ports over to the next process: the listening sockets themselves, so that no connection is refused or lost meanwhile.
//!
//! The next process connects to a Unix socket in the directory that both use. It asks for one socket after the other and gets the last
//! answer when there are no more; then it says that it serves, and the old process accepts nothing more. Only a process of the same user
//! gets the sockets. A next process that dies before it says so changes nothing.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::net::UnixListener;

use crate::failpoint::reached;

/// Time for the other process to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Asks for the next socket.
const NEXT: u8 = b'n';
/// Says that the next process serves.
const SERVES: u8 = b's';
/// Name of the port for other services, in messages; routes have no port 0.
pub const INTERNAL: u16 = 0;

/// The Unix socket in a directory.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("handover.sock")
}

/// The sockets of the process that serves now, and the connection on which to say that this one serves.
pub struct TakenOver {
    /// By port; [`INTERNAL`] for the one for other services.
    pub sockets: BTreeMap<u16, TcpListener>,
    connection: UnixStream,
}

/// Takes the sockets over from the process that uses this directory; none if there is no such process.
///
/// # Errors
/// The other process does not answer as expected.
pub fn take(dir: &Path) -> io::Result<Option<TakenOver>> {
    let mut connection = match UnixStream::connect(socket(dir)) {
        Ok(connection) => connection,
        // A socket that nobody listens on is left from a process that was killed.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => return Ok(None),
        // The path is longer than a Unix socket may have, so that no process listens there.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => return Err(error),
    };
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    let mut sockets = BTreeMap::new();
    loop {
        connection.write_all(&[NEXT])?;
        match receive(&connection)? {
            (port, Some(socket)) => {
                sockets.insert(port, TcpListener::from(socket));
            }
            (_, None) => return Ok(Some(TakenOver { sockets, connection })),
        }
    }
}

impl TakenOver {
    /// Says that this process serves on the sockets.
    ///
    /// # Errors
    /// The other process is gone, which does no harm.
    pub fn serves(mut self) -> io::Result<()> {
        self.connection.write_all(&[SERVES])
    }
}

/// Opens the Unix socket of a directory; one that is left from before is replaced.
///
/// # Errors
/// It cannot be opened.
pub fn listen(dir: &Path) -> io::Result<UnixListener> {
    let path = socket(dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

/// Waits for the next process and gives it the sockets; completes when it serves.
///
/// # Errors
/// The Unix socket fails.
pub async fn give(
    listener: UnixListener,
    sockets: impl Fn() -> io::Result<Vec<(u16, TcpListener)>> + Clone + Send + 'static,
) -> io::Result<()> {
    loop {
        let connection = listener.accept().await?.0.into_std()?;
        connection.set_nonblocking(false)?;
        let sockets = sockets.clone();
        // Blocks for as long as the other process may take to answer.
        match tokio::task::spawn_blocking(move || give_to(connection, &sockets)).await? {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "a process that wanted to take over the ports went away"),
        }
    }
}

fn give_to(mut connection: UnixStream, sockets: &impl Fn() -> io::Result<Vec<(u16, TcpListener)>>) -> io::Result<bool> {
    connection.set_read_timeout(Some(ANSWER))?;
    connection.set_write_timeout(Some(ANSWER))?;
    let other = rustix::net::sockopt::socket_peercred(&connection)?;
    if other.uid != rustix::process::geteuid() {
        tracing::warn!(uid = other.uid.as_raw(), "a process of another user wanted to take over the ports; it was refused");
        return Ok(false);
    }
    let mut left = sockets()?.into_iter();
    loop {
        let mut asked = [0];
        connection.read_exact(&mut asked)?;
        match asked[0] {
            NEXT => match left.next() {
                Some((port, socket)) => {
                    reached("traffic/give/asked");
                    send(&connection, port, Some(&socket))?;
                }
                None => {
                    send(&connection, 0, None)?;
                    reached("traffic/give/given");
                }
            },
            SERVES => {
                reached("traffic/give/served");
                return Ok(true);
            }
            _ => return Ok(false),
        }
    }
}

fn send(connection: &UnixStream, port: u16, socket: Option<&TcpListener>) -> io::Result<()> {
    let [high, low] = port.to_be_bytes();
    let text = [u8::from(socket.is_some()), high, low];
    let borrowed: Vec<_> = socket.iter().map(|socket| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other("the message has no room for a socket"));
    }
    rustix::net::sendmsg(connection, &[IoSlice::new(&text)], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

fn receive(connection: &UnixStream) -> io::Result<(u16, Option<OwnedFd>)> {
    let mut text = [0; 3];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(connection, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != text.len() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process that has the ports went away"));
    }
    let socket = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    match (text[0], socket) {
        (1, Some(socket)) => Ok((u16::from_be_bytes([text[1], text[2]]), Some(socket))),
        (0, None) => Ok((0, None)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the process that has the ports sent no socket")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::sync::Arc;

    use super::*;

    /// What the test does meanwhile blocks.
    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.expect("no panic")
    }

    #[tokio::test]
    async fn sockets_go_to_the_next_process_and_connections_that_wait_in_them_too() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(take(dir.path()).expect("no error").is_none(), "nobody is there");
        let open = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a port"));
        let waiting = TcpStream::connect(open.local_addr().expect("an address")).expect("it waits in the queue of the kernel");
        let old = tokio::spawn(give(listen(dir.path()).expect("a Unix socket"), move || Ok(vec![(8080, open.try_clone()?)])));
        let from = dir.path().to_owned();
        let taken = blocking(move || take(&from)).await.expect("an answer").expect("a process is there");
        let socket = taken.sockets[&8080].try_clone().expect("a copy");
        taken.serves().expect("it is told");
        old.await.expect("no panic").expect("it gave them away");
        let (_, client) = blocking(move || socket.accept()).await.expect("the connection is still there");
        assert_eq!(client, waiting.local_addr().expect("an address"));
        assert!(take(dir.path()).expect("a socket that nobody listens on is no error").is_none());
    }

    #[tokio::test]
    async fn next_process_that_dies_before_it_serves_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a port"));
        let old = tokio::spawn(give(listen(dir.path()).expect("a Unix socket"), move || Ok(vec![(INTERNAL, open.try_clone()?)])));
        let from = dir.path().to_owned();
        let (first, second) = (from.clone(), from);
        drop(blocking(move || take(&first)).await.expect("an answer"));
        let taken = blocking(move || take(&second)).await.expect("an answer").expect("it is still there");
        assert!(!old.is_finished());
        taken.serves().expect("it is told");
        old.await.expect("no panic").expect("it gave them away");
    }
}
