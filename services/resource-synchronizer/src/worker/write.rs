//! Writes the objects of one binding into its member.
//!
//! Order: the preflight asks, the intention is written down (unless something else is desired by now), then the member is changed.
//! A crash or an end anywhere leaves nothing that the next pass does not find. Knows nothing of the worker's picture, so that several
//! bindings of a member are written at once; at most one write of a binding and one of an object's name at a time.

use std::sync::Arc;

use drover_api::bindings::DesiredBinding;
use drover_members::{Applied, Member, MemberError, Object, Owner};
use uuid::Uuid;

use super::judge::Failure;
use crate::app::{App, Error};
use crate::store;

/// What is to be written.
pub struct Write {
    /// Store, hub, failpoints.
    pub app: App,
    /// Where.
    pub member: Arc<Member>,
    /// Whose the objects are.
    pub owner: Owner,
    /// The row that they follow from.
    pub desired: DesiredBinding,
    /// All objects to apply, in their order.
    pub due: Vec<Object>,
    /// Uid of each, where it is known.
    pub uids: Vec<Option<Arc<str>>>,
    /// Those to ask about first.
    pub new: Vec<Object>,
}

/// What came of it.
pub struct Written {
    /// The binding.
    pub id: Uuid,
    /// What was to be applied.
    pub due: Vec<Object>,
    /// Whether the intention was written down: from then on the objects can be there.
    pub intended: bool,
    /// What the member answered, for the first of `due`.
    pub applied: Vec<Applied>,
    /// How it ended.
    pub end: End,
}

/// How a write ended.
pub enum End {
    /// Everything is applied.
    Done,
    /// Something moved under our hands: soon.
    Later,
    /// Stands in the way until something else is desired.
    Failed(Failure),
    /// The store, a failpoint, or a member that does not answer.
    Broken(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error {
            // A kind that its CRD has not brought yet, or an object that moved under our hands.
            Error::Member(MemberError::UnknownKind { .. } | MemberError::Conflict(_)) => Self::Later,
            Error::Member(error @ MemberError::Foreign { .. }) => Self::Failed(Failure { code: error.code(), reason: error.to_string() }),
            Error::Member(error @ MemberError::Refused { .. }) => Self::Failed(Failure { code: "apply_failed", reason: error.to_string() }),
            error => Self::Broken(error),
        }
    }
}

impl Write {
    /// Writes.
    pub async fn run(self) -> Written {
        let (intended, (applied, end)) = match self.asked().await {
            Ok(()) => (true, self.change().await),
            Err(end) => (false, (Vec::new(), end)),
        };
        Written { id: self.desired.id, due: self.due, intended, applied, end }
    }

    /// Asks, and writes down what is intended.
    async fn asked(&self) -> Result<(), End> {
        if !self.new.is_empty() {
            let against = self.member.preflight(&self.new, &self.owner, &self.desired.namespace).await.map_err(Error::from)?;
            if against.iter().any(|error| matches!(error, MemberError::Conflict(_))) {
                return Err(End::Later);
            }
            if !against.is_empty() {
                let reasons: Vec<String> = against.iter().map(ToString::to_string).collect();
                return Err(End::Failed(Failure { code: "preflight_failed", reason: reasons.join("; ") }));
            }
        }
        let _turn = self.app.turn_to_note().await;
        // All this took its time: something else may be desired by now.
        match store::inventory::intend(&self.app.store, &self.desired, &self.due).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Later),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Applies, and writes down what the member answered; those before one that failed are there. An answer that could not be
    /// written down counts as none.
    async fn change(&self) -> (Vec<Applied>, End) {
        let mut applied = Vec::new();
        let done = self.apply(&mut applied).await;
        if let Err(error @ Error::Injected(_)) = done {
            return (Vec::new(), End::Broken(error));
        }
        let _turn = self.app.turn_to_note().await;
        match store::inventory::applied(&self.app.store, self.desired.id, &self.due, &applied).await {
            Ok(()) => (applied, done.map_or_else(End::from, |()| End::Done)),
            Err(error) => (Vec::new(), End::Broken(error.into())),
        }
    }

    async fn apply(&self, applied: &mut Vec<Applied>) -> Result<(), Error> {
        let namespace = &self.desired.namespace;
        let brings = |object: &Object| object.id.kind == "Namespace" && object.id.name == *namespace;
        if !self.due.iter().any(brings) && self.due.iter().any(|object| object.id.namespace == *namespace) {
            self.member.ensure_namespace(namespace, self.app.hub).await?;
        }
        // One that the preflight looked at last, just now, is not looked at again.
        let looked_at = self.due.len() == 1 && self.new.len() == 1;
        for (object, uid) in self.due.iter().zip(&self.uids) {
            self.app.failpoints.reached(|| "synchronizer/apply/before".into()).await?;
            let answer = match looked_at {
                true => self.member.apply_looked_at(object).await,
                false => self.member.apply(object, &self.owner, uid.as_deref()).await,
            };
            applied.push(answer?);
            self.app.failpoints.reached(|| "synchronizer/apply/after_effect".into()).await?;
        }
        Ok(())
    }
}
