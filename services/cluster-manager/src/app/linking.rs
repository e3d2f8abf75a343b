//! Links of clusters that Drover cannot reach: invitations, acceptance, certificates, revocation.
//!
//! ```text
//! invite ─▶ Invited ─(an agent shows the token, with its key)▶ Waiting ─(accept names that key)▶ Accepted ─(it connects)▶ the token is gone
//!                                                                                              revoke ─▶ Revoked
//! ```
//! Everything is a row in Postgres, and each step may be repeated: an agent that dies before it has stored its certificate shows the same
//! token with the same key again. The token alone is worth nothing once a key has shown it, and before it was accepted.

use std::time::{Duration, SystemTime};

use drover_api::links::{InvitationOrder, LinkAcceptance, LinkInvitation, LinkPhase, LinkState};
use drover_link::keys::{self, Requested, Shown};
use drover_link::wire::{Enrolment, Issued, Renewal};
use drover_scheduling::MemberKey;
use drover_service::{Problem, codes};
use drover_store::{ResultExt, StoreError, Timestamp, Tx, now};
use rand::distr::{Alphanumeric, SampleString};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::App;
use super::authority::Authority;
use crate::resources::cluster::{CLUSTER, ClusterSpec};
use crate::store::links::{self, Row};

/// For how many hours an invitation can be used, and for how many at most.
const HOURS: (u32, u32) = (24, 720);
/// How long a request for a certificate waits for an operator before it is answered that it still waits.
const PATIENCE: Duration = Duration::from_secs(20);
/// Another process may have accepted the request.
const LOOK: Duration = Duration::from_secs(1);

/// An agent that may connect.
pub struct Joined {
    pub member: Uuid,
    pub generation: i64,
    /// Until when its certificate is valid.
    pub until: SystemTime,
}

impl App {
    /// Makes an invitation for the agent of a cluster, in the place of an earlier one.
    ///
    /// # Errors
    /// `not_found`; `wrong_state` for a cluster that is reached directly, or where this Drover takes no agents; `invalid` hours.
    pub async fn invite(&self, member: &MemberKey, order: &InvitationOrder, dry: bool) -> Result<LinkInvitation, Problem> {
        let hours = order.hours.unwrap_or(HOURS.0);
        if hours == 0 || hours > HOURS.1 {
            return Err(codes::INVALID.problem(format!("hours: 1 to {}", HOURS.1)));
        }
        let cluster = self.linked(member).await?;
        let (authority, hub) = self.takes_agents()?;
        let token = format!("drover-link-{}", Alphanumeric.sample_string(&mut rand::rng(), 40));
        let mut db = self.store.begin().await?;
        let deleted = || codes::NOT_FOUND.problem("The cluster has just been deleted");
        let expires =
            links::invite(&mut db, cluster, &digest(&token), hours).await.on_constraint::<Problem>("link_cluster_id_fkey", deleted)?;
        self.settle_link(db, dry).await?;
        let authority = authority.certificate().to_owned();
        Ok(LinkInvitation { cluster: member.0.to_string(), hub, authority, token, expires: expires.to_string() })
    }

    /// How far the link of a cluster is.
    ///
    /// # Errors
    /// `not_found`, or `wrong_state` for a cluster that is reached directly.
    pub async fn link(&self, member: &MemberKey) -> Result<LinkState, Problem> {
        let cluster = self.linked(member).await?;
        let mut db = self.store.acquire().await?;
        let row = links::get(&mut db, cluster).await?;
        Ok(self.state_of(cluster, row))
    }

    /// Accepts the agent that asks with the key of this fingerprint. It may be repeated.
    ///
    /// # Errors
    /// `wrong_state` if another key asks, or none; as [`App::link`].
    pub async fn accept(&self, member: &MemberKey, order: &LinkAcceptance, dry: bool) -> Result<LinkState, Problem> {
        let cluster = self.linked(member).await?;
        let mut db = self.store.begin().await?;
        let mut row = links::accept(&mut db, cluster, &order.fingerprint).await?;
        if row.is_none() {
            let known = links::get(&mut db, cluster).await?;
            if known.as_ref().is_none_or(|known| !known.keys.contains(&order.fingerprint)) {
                let asks = known.and_then(|known| known.asking.filter(|key| !known.keys.contains(key)));
                return Err(codes::WRONG_STATE.problem(match asks {
                    Some(other) => format!("the agent that asks has another key: {other}"),
                    None => format!("no agent of {member} asks for a certificate"),
                }));
            }
            row = known;
        }
        let state = self.state_of(cluster, row);
        self.settle_link(db, dry).await?;
        if !dry {
            // Of an agent that was accepted before.
            self.end_earlier_links(&[cluster]).await?;
        }
        Ok(state)
    }

    /// Takes back the access of a cluster's agent, and its invitation; its connections break. It may be repeated.
    ///
    /// # Errors
    /// As [`App::link`].
    pub async fn revoke(&self, member: &MemberKey, dry: bool) -> Result<(), Problem> {
        let cluster = self.linked(member).await?;
        let mut db = self.store.begin().await?;
        links::revoke(&mut db, cluster).await?;
        self.settle_link(db, dry).await?;
        if !dry {
            self.end_earlier_links(&[cluster]).await?;
        }
        Ok(())
    }

    /// Breaks the links of these members whose agents are not accepted any more.
    ///
    /// # Errors
    /// The store fails.
    pub async fn end_earlier_links(&self, members: &[Uuid]) -> Result<(), StoreError> {
        if members.is_empty() {
            return Ok(());
        }
        let mut db = self.store.acquire().await?;
        let present = links::generations(&mut db, members).await?.into_iter().collect();
        self.links.keep(members, &present);
        Ok(())
    }

    /// Issues the first certificate of an agent, when it is accepted; none if it still waits for that. It may be repeated until the agent has
    /// connected with it.
    ///
    /// # Errors
    /// `invitation_refused`: the token is unknown, has expired, or was used by another key; `invalid` request.
    pub async fn enrol(&self, order: &Enrolment) -> Result<Issued, Problem> {
        let (authority, _) = self.takes_agents()?;
        let requested = read(&order.request)?;
        let ends = Instant::now() + PATIENCE;
        let mut changes = self.links.changes();
        loop {
            changes.borrow_and_update();
            let row = self.ask(&order.token, &requested.fingerprint).await?;
            if row.keys.contains(&requested.fingerprint) {
                return self.issue(&authority, row.cluster_id, requested).await;
            }
            if Instant::now() >= ends {
                return Ok(Issued::default());
            }
            let _ = tokio::time::timeout(LOOK, changes.changed()).await;
        }
    }

    /// Records that a key asks with this token.
    async fn ask(&self, token: &str, key: &str) -> Result<Row, Problem> {
        let refused = |why: &str| codes::INVITATION_REFUSED.problem(why);
        let mut db = self.store.begin().await?;
        let row = links::invited(&mut db, &digest(token)).await?;
        let row = row.ok_or_else(|| refused("there is no such invitation, or it was used or taken back"))?;
        match &row.asking {
            Some(asking) if asking == key => {}
            Some(_) => return Err(refused("another agent has used this invitation")),
            None if row.token_expires_at.is_none_or(|at| at < now()) => return Err(refused("the invitation has expired")),
            None => {
                links::ask(&mut db, row.cluster_id, key).await?;
                db.commit().await.map_err(StoreError::from)?;
                tracing::info!(cluster.id = %row.cluster_id, key, "an agent asks for a certificate");
            }
        }
        Ok(row)
    }

    /// Issues the next certificate of an agent.
    ///
    /// # Errors
    /// `link_refused`: it is not accepted any more; `invalid` request.
    pub async fn renew(&self, agent: &Shown, order: &Renewal) -> Result<Issued, Problem> {
        let (authority, _) = self.takes_agents()?;
        let (member, requested) = (member_of(agent)?, read(&order.request)?);
        let mut db = self.store.acquire().await?;
        if !links::follow(&mut db, member, &agent.fingerprint, &requested.fingerprint).await? {
            return Err(not_accepted());
        }
        drop(db);
        self.issue(&authority, member, requested).await
    }

    async fn issue(&self, authority: &Authority, member: Uuid, requested: Requested) -> Result<Issued, Problem> {
        let (certificate, until) = authority
            .certify(member, requested.public, self.config.link_certificate())
            .map_err(|error| Problem::internal(format!("{error:#}")))?;
        let until = jiff::Timestamp::try_from(until).map_err(Problem::internal)?;
        let mut db = self.store.acquire().await?;
        links::issued(&mut db, member, Timestamp::from(until)).await?;
        Ok(Issued { certificate: Some(certificate), authority: Some(authority.certificate().to_owned()) })
    }

    /// Lets an agent connect whose certificate was verified.
    ///
    /// # Errors
    /// `link_refused`: it is not accepted any more.
    pub async fn join(&self, agent: &Shown) -> Result<Joined, Problem> {
        let member = member_of(agent)?;
        let mut db = self.store.acquire().await?;
        let generation = links::connected(&mut db, member, &agent.fingerprint).await?.ok_or_else(not_accepted)?;
        Ok(Joined { member, generation, until: agent.until })
    }

    /// The id of a cluster that is reached through its link.
    async fn linked(&self, member: &MemberKey) -> Result<Uuid, Problem> {
        let id = self.cluster_id(member.provider(), member.cluster()).await?;
        let path = format!("/v2/cluster-providers/{}/clusters/{}", member.provider(), member.cluster());
        match self.document::<ClusterSpec>(&CLUSTER, &path).await?.spec.link {
            true => Ok(id),
            false => Err(codes::WRONG_STATE.problem(format!("{member} was registered without a link, so Drover connects to it directly"))),
        }
    }

    fn takes_agents(&self) -> Result<(Authority, String), Problem> {
        let off = || codes::WRONG_STATE.problem("this Drover takes no agents of clusters: start cluster-manager with --link-listen");
        let taken = self.agents.as_ref().ok_or_else(off)?;
        Ok((taken.authority(), taken.address.clone()))
    }

    fn state_of(&self, cluster: Uuid, row: Option<Row>) -> LinkState {
        let health = self.links.health(cluster);
        let connected = health.is_some();
        let (since, version) = health.map_or((None, None), |health| (Some(health.since.to_string()), health.version));
        let Some(row) = row else { return LinkState { connected, connected_since: since, version, ..LinkState::default() } };
        let asking = row.asking.filter(|key| !row.keys.contains(key));
        let can_be_used = row.invited && asking.is_none() && row.token_expires_at.is_some_and(|at| at > now());
        let phase = match &asking {
            Some(_) => LinkPhase::Waiting,
            None if !row.keys.is_empty() => LinkPhase::Accepted,
            None if can_be_used => LinkPhase::Invited,
            None if row.revoked_at.is_some() => LinkPhase::Revoked,
            None => LinkPhase::NotInvited,
        };
        let accepted = row.accepted_at.filter(|_| !row.keys.is_empty());
        LinkState {
            phase,
            fingerprint: asking.or(row.keys.last().cloned()),
            invitation_expires: row.token_expires_at.filter(|_| can_be_used).map(|at| at.to_string()),
            accepted: accepted.map(|at| at.to_string()),
            certificate_expires: row.certificate_until.filter(|_| accepted.is_some()).map(|at| at.to_string()),
            connected,
            connected_since: since,
            version,
        }
    }

    async fn settle_link(&self, tx: Tx, dry: bool) -> Result<(), Problem> {
        if !dry {
            tx.commit().await.map_err(StoreError::from)?;
            self.links.raise();
        }
        Ok(())
    }
}

fn digest(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

fn read(request: &str) -> Result<Requested, Problem> {
    keys::read_request(request).map_err(|error| codes::INVALID.problem(format!("request: {error}")))
}

/// The member of an agent. TLS looks at the time of a certificate only when the connection begins.
fn member_of(agent: &Shown) -> Result<Uuid, Problem> {
    if agent.until <= SystemTime::now() {
        return Err(not_accepted());
    }
    agent.common_name.parse().map_err(|_| not_accepted())
}

fn not_accepted() -> Problem {
    codes::LINK_REFUSED
        .problem("the access of this agent was taken back, or its cluster was removed; invite it again: drover cluster invite")
}
