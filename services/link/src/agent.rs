//! The life of the agent: it gets a certificate, keeps a link open, and renews the certificate.
//!
//! A new certificate means a new connection. It is opened before the old one ends, and what runs on the old one goes on until the old
//! certificate expires.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use drover_link::carry;
use drover_link::keys;
use drover_link::wire::{ENROL, Enrolment, Invitation, Issued, RENEW, Renewal};
use drover_tasks::backoff;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Config;
use crate::drill::Drill;
use crate::hub::{AskError, Hub};
use crate::state::{self, Identity, State};

/// The longest pause between two attempts to connect.
const LONGEST: Duration = Duration::from_secs(15);
/// The pause after Drover has refused the certificate: an operator has to do something.
const REFUSED: Duration = Duration::from_secs(60);
/// A link that lasted longer than this worked: the pauses start again.
const WORKED: Duration = Duration::from_secs(20);
/// The longest pause between two looks at the clock, which may be set.
const CLOCK: Duration = Duration::from_secs(60);

/// Runs until the future is dropped.
///
/// # Errors
/// The settings or files cannot be used, or the invitation is refused.
pub async fn run(config: Config) -> Result<()> {
    let api_server = config.api_server()?;
    let state = State::open(&config.state)?;
    let known = state.known(config.invitation.as_deref())?;
    let hub = Hub::new(config.hub.clone().unwrap_or(known.hub), &known.authority)?;
    tracing::info!(cluster = known.cluster, api_server, "Drover will be connected to this API server and to nothing else");
    let agent = Agent { state, hub, drill: config.drill.clone() };
    let identity = match agent.state.identity()? {
        Some(identity) => {
            agent.state.settle(&identity)?;
            identity
        }
        None => agent.enrol(config.invitation.as_deref()).await?,
    };
    let (renewed, newest) = watch::channel(identity);
    tokio::select! {
        never = keep_linked(&agent.hub, newest, &api_server) => never,
        never = agent.keep_renewed(&renewed) => never,
    }
}

struct Agent {
    state: State,
    hub: Hub,
    drill: Drill,
}

impl Agent {
    /// Asks for the first certificate until it is issued.
    async fn enrol(&self, invitation: Option<&Path>) -> Result<Identity> {
        let Some(path) = invitation else { bail!("there is no certificate yet: give --invitation FILE") };
        let Invitation { token, cluster, .. } = state::invitation(path)?;
        let pem = self.next_key().await?;
        let key = keys::from_pem(&pem)?;
        let order = Enrolment { token, request: keys::request(&key, "drover-link")? };
        let fingerprint = keys::fingerprint(&key)?;
        tracing::info!("waiting for an operator: drover cluster accept {} --fingerprint {fingerprint}", cluster.replace('+', "/"));
        let mut failures = 0;
        loop {
            match self.hub.ask::<Issued>(None, ENROL, &order).await {
                Ok(issued) => match self.take(&pem, issued).await? {
                    Some(identity) => return Ok(identity),
                    None => failures = 0,
                },
                Err(AskError::Refused { code, detail }) if code == "invitation_refused" || code == "invalid" => {
                    bail!("{detail} ({code}); if no agent of this cluster is connected, invite it again: drover cluster invite")
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!("{error}");
                    tokio::time::sleep(backoff(failures + 3, LONGEST)).await;
                }
            }
        }
    }

    async fn next_key(&self) -> Result<String> {
        let key = self.state.next_key()?;
        self.drill.reached("key").await;
        Ok(key)
    }

    /// Stores what was issued for a key; none if there is no certificate in it. Who dies in between asks again with the same key. The authority
    /// comes first: with it the agent believes a hub that shows the new one as well as one that shows a chain to it.
    async fn take(&self, pem: &str, issued: Issued) -> Result<Option<Identity>> {
        let Some(certificate) = issued.certificate else { return Ok(None) };
        self.drill.reached("issued").await;
        if let Some(authority) = issued.authority {
            self.hub.believe(&authority)?;
            self.state.believe(&authority)?;
        }
        self.drill.reached("authority").await;
        let identity = self.state.keep(pem, &certificate)?;
        self.drill.reached("identity").await;
        self.state.settle(&identity)?;
        self.drill.reached("settled").await;
        Ok(Some(identity))
    }

    /// Renews the certificate whenever two thirds of its time are over.
    async fn keep_renewed<T>(&self, newest: &watch::Sender<Identity>) -> T {
        let (mut failures, mut at_once) = (0, self.drill.renews());
        loop {
            let present = newest.borrow().clone();
            let left = present.shown.due().duration_since(SystemTime::now()).unwrap_or_default();
            if !left.is_zero() && !at_once {
                tokio::time::sleep(left.min(CLOCK)).await;
                continue;
            }
            match self.renew(&present).await {
                Ok(identity) => {
                    (failures, at_once) = (0, false);
                    tracing::info!("the certificate was renewed");
                    newest.send_replace(identity);
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(failures, "the certificate was not renewed: {error}");
                    tokio::time::sleep(backoff(failures + 5, CLOCK)).await;
                }
            }
        }
    }

    async fn renew(&self, present: &Identity) -> Result<Identity, AskError> {
        let key = self.next_key().await?;
        let order = Renewal { request: keys::request(&keys::from_pem(&key).map_err(broken)?, "drover-link").map_err(broken)? };
        let issued: Issued = self.hub.ask(Some(present), RENEW, &order).await?;
        Ok(self.take(&key, issued).await?.context("there is no certificate in the answer")?)
    }
}

/// Keeps a link with the newest certificate open.
async fn keep_linked<T>(hub: &Hub, mut newest: watch::Receiver<Identity>, api_server: &str) -> T {
    let mut links = JoinSet::new();
    let mut failures = 0;
    loop {
        let identity = newest.borrow_and_update().clone();
        let current = links.spawn(link(hub.clone(), identity, api_server.to_owned())).id();
        let ended = loop {
            tokio::select! {
                Some(ended) = links.join_next_with_id() => match ended {
                    Ok((id, ended)) if id == current => break Some(ended),
                    Err(error) if error.id() == current => break Some(Err(AskError::Broken(error.into()))),
                    // One with an earlier certificate.
                    _ => {}
                },
                // The present one goes on beside the new one.
                Ok(()) = newest.changed() => break None,
            }
        };
        let pause = match ended {
            None => Duration::ZERO,
            Some(Ok(lasted)) => {
                failures = if lasted > WORKED { 1 } else { failures + 1 };
                backoff(failures, LONGEST)
            }
            Some(Err(AskError::Refused { code, detail })) => {
                tracing::error!("Drover does not accept this agent: {detail} ({code})");
                REFUSED
            }
            Some(Err(error)) => {
                failures += 1;
                if failures == 1 || failures.is_multiple_of(20) {
                    tracing::warn!(failures, "{error}");
                }
                backoff(failures, LONGEST)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(()) = newest.changed() => {}
        }
    }
}

/// Opens a link and serves it to its end; how long it lasted.
async fn link(hub: Hub, identity: Identity, api_server: String) -> Result<Duration, AskError> {
    // Drover would break the connection off without a word.
    if identity.shown.until <= SystemTime::now() {
        let detail = "its certificate has expired; invite it again: drover cluster invite".to_owned();
        return Err(AskError::Refused { code: "link_refused".to_owned(), detail });
    }
    let connection = hub.link(&identity).await?;
    let began = Instant::now();
    tracing::info!("connected to Drover");
    match carry::serve(connection, &api_server).await {
        Ok(()) => tracing::info!("the connection to Drover has ended"),
        Err(error) => tracing::warn!(%error, "the connection to Drover broke off"),
    }
    Ok(began.elapsed())
}

fn broken(error: keys::KeyError) -> AskError {
    AskError::Broken(error.into())
}
