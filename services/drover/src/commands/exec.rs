//! `drover exec`: runs a program in a container of an application, wherever that runs.
//!
//! The request is a WebSocket to Drover, which passes the messages on to the cluster: Kubernetes' protocol `v5.channel.k8s.io`, in which
//! the first byte of a message says which stream it is of.

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use drover_api::members::CopyPod;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::look::{Copy, copies, meant, pods_of};
use crate::hub::segment;
use crate::session::Session;

/// `drover exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover exec shop -- env
  drover exec -it shop/cart -- sh
  drover exec shop/db -c postgres -- pg_dump shop > shop.sql
  drover exec -i shop/db -- psql < schema.sql

The exit code is that of the program. Without --pod it runs in the first ready pod by cluster and name, of those
that are neither of Jobs nor tests if there are others. It needs the role deployer in the
project, and is in the audit log.")]
pub struct ExecArgs {
    /// `APPLICATION/APP`, or the application if it has one app.
    app: String,
    /// In this pod, or in a pod of `Job/NAME`.
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// In this container of the pod [default: its first].
    #[arg(long, short = 'c', value_name = "NAME")]
    container: Option<String>,
    /// Pass the input of this command on to the program.
    #[arg(long, short = 'i')]
    stdin: bool,
    /// Give the program a terminal, if this is one.
    #[arg(long, short = 't')]
    tty: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The streams of the protocol.
mod channel {
    pub const STDIN: u8 = 0;
    pub const STDOUT: u8 = 1;
    pub const STDERR: u8 = 2;
    pub const STATUS: u8 = 3;
    pub const RESIZE: u8 = 4;
    pub const CLOSE: u8 = 255;
}

/// Runs the program and connects it with this terminal; its exit code.
///
/// # Errors
/// There is no such app or no ready pod, the request is refused, or the connection breaks off.
pub async fn run(session: &Session, args: &ExecArgs) -> Result<ExitCode> {
    let (copy, pod) = chosen(session, args).await?;
    let tty = args.tty && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.tty && !tty {
        eprintln!("note: the program gets no terminal, because the input or the output of this command is none");
    }
    let container = args.container.as_ref().or(pod.containers.first());
    let mut path = format!("{}/exec?pod={}&stdin={}&tty={tty}", copy.path, segment(&pod.name), args.stdin);
    path.extend(container.map(|container| format!("&container={}", segment(container))));
    path.extend(args.command.iter().map(|word| format!("&command={}", segment(word))));
    let socket = session.client.websocket(&path, "v5.channel.k8s.io").await?;
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;

    // Without input nobody could press Ctrl-C: the terminal must then go on to make a signal of it.
    let raw = (tty && args.stdin).then(Raw::enter).transpose()?;
    let mut input = args.stdin.then(stdin);
    let mut resized = tty.then(|| signal(SignalKind::window_change())).transpose()?;
    let (mut terminated, mut hung_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    if tty {
        socket.send(size()).await?;
    }
    let status = loop {
        tokio::select! {
            message = socket.next() => match message.context("the connection ended before the program")?? {
                Message::Binary(bytes) => match bytes.split_first() {
                    Some((&channel::STDOUT, bytes)) => write(&mut std::io::stdout(), bytes)?,
                    Some((&channel::STDERR, bytes)) => write(&mut std::io::stderr(), bytes)?,
                    Some((&channel::STATUS, bytes)) => break serde_json::from_slice::<Value>(bytes).context("the cluster's status is not JSON")?,
                    _ => {}
                },
                Message::Close(frame) => bail!("the cluster closed the connection{}", frame.map(|frame| format!(": {}", frame.reason)).unwrap_or_default()),
                _ => {}
            },
            bytes = next(&mut input) => {
                let end = bytes.is_none();
                let message = bytes.map_or_else(|| vec![channel::CLOSE, channel::STDIN], |bytes| [&[channel::STDIN], &*bytes].concat());
                socket.send(Message::Binary(message.into())).await?;
                if end {
                    input = None;
                }
            }
            () = changed(&mut resized) => socket.send(size()).await?,
            // An error, so that the terminal is as it was.
            _ = terminated.recv() => bail!("ended by a signal; the program may still run"),
            _ = hung_up.recv() => bail!("the terminal is gone; the program may still run"),
        }
    };
    drop(raw);
    let _ = socket.close(None).await;
    ended(&status)
}

/// The pod in which the program runs.
async fn chosen(session: &Session, args: &ExecArgs) -> Result<(Copy, CopyPod)> {
    let copies = copies(session, &args.app).await?;
    if let Some(other) = copies.iter().find(|copy| copy.app != copies[0].app) {
        bail!("{} has several apps; give one of them, for example {} or {}", args.app, copies[0].app, other.app);
    }
    let found = meant(pods_of(session, copies).await?, args.pod.as_deref());
    if let Some(wanted) = args.pod.as_ref().filter(|_| found.is_empty()) {
        bail!("{} has no pod {wanted}; `drover pods {}` lists them", args.app, args.app);
    }
    // A pod that is named may not be ready: that may be why somebody wants to look into it.
    let named = found.first().filter(|_| args.pod.is_some()).cloned();
    let total = found.len();
    let ready = found.into_iter().find(|(_, pod)| pod.ready).or(named);
    let (copy, pod) =
        ready.with_context(|| format!("none of the {total} pods of {} is ready; `drover pods {}` lists them", args.app, args.app))?;
    if total > 1 {
        eprintln!("note: in {} on {}, one of {total} pods; --pod names another", pod.name, copy.member);
    }
    Ok((copy, pod))
}

/// What is read from stdin, until its end. By a thread that ends with the process: a read of a terminal cannot be given up.
fn stdin() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read) = std::io::stdin().read(&mut buffer) {
            if read == 0 || send.blocking_send(buffer[..read].to_vec()).is_err() {
                break;
            }
        }
    });
    receive
}

/// The next piece of input; `None` at its end. Without input it never returns.
async fn next(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

fn write(to: &mut impl Write, bytes: &[u8]) -> Result<()> {
    to.write_all(bytes)?;
    Ok(to.flush()?)
}

async fn changed(resized: &mut Option<Signal>) {
    match resized {
        Some(resized) => drop(resized.recv().await),
        None => std::future::pending().await,
    }
}

/// The message that tells the size of this terminal.
fn size() -> Message {
    let (width, height) = crossterm::terminal::size().unwrap_or((80, 24));
    let text = json!({"Width": width, "Height": height}).to_string();
    Message::Binary([&[channel::RESIZE], text.as_bytes()].concat().into())
}

/// The terminal passes on each key as it is pressed, as long as this lives.
struct Raw;

impl Raw {
    fn enter() -> Result<Self> {
        crossterm::terminal::enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

/// The exit code that Kubernetes' status at the end says.
fn ended(status: &Value) -> Result<ExitCode> {
    if status["status"] == "Success" {
        return Ok(ExitCode::SUCCESS);
    }
    let mut causes = status["details"]["causes"].as_array().into_iter().flatten();
    let code = causes.find(|cause| cause["reason"] == "ExitCode").and_then(|cause| cause["message"].as_str()?.parse::<u8>().ok());
    match code {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("the program could not be run: {}", status["message"].as_str().unwrap_or("the cluster gives no reason")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_that_of_the_program_and_a_refusal_is_an_error() {
        let failed =
            json!({"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}});
        assert_eq!(format!("{:?}", ended(&failed).unwrap()), format!("{:?}", ExitCode::from(7)));
        assert_eq!(format!("{:?}", ended(&json!({"status": "Success"})).unwrap()), format!("{:?}", ExitCode::SUCCESS));
        let error = ended(&json!({"status": "Failure", "message": "no such file"})).unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }
}
