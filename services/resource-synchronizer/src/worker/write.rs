//! Writes the objects of one binding into its member.
//!
//! Order: preflight, unless there is only a single new object; the inventory records the intention (unless the desired state has changed
//! by then); the member is changed.
//! After a crash at any point the next pass finds everything that was written. Does not use the worker's view, so that several
//! bindings of a member are written at once; at most one write per binding and per object address runs at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::bindings::DesiredBinding;
use drover_members::bounds::is_policy;
use drover_members::{Applied, Member, MemberError, Object, Owner, Sharers};
use uuid::Uuid;

use super::binding_state::Failure;
use super::carry;
use crate::app::{App, Error};
use crate::store::inventory::{Answered, Intention};

/// The code of a write that a dry run has shown to be impossible.
const PREFLIGHT: &str = "preflight_failed";
/// The code of a write that the member refused when it was applied; other objects of the binding may be written already.
const APPLY: &str = "apply_failed";

/// One write: the objects of a binding that are to be applied.
pub struct Write {
    /// Store, hub, failpoints.
    pub app: App,
    /// The member.
    pub member: Arc<Member>,
    /// To whom the objects belong.
    pub owner: Owner,
    /// The desired row from which they follow.
    pub desired: DesiredBinding,
    /// All objects to apply, in this order.
    pub due: Vec<Object>,
    /// The known uid of each.
    pub uids: Vec<Option<Arc<str>>>,
    /// Whether each is a workload that starts with as many replicas as run of it in another member, if this copy is moved here.
    pub starting: Vec<bool>,
    /// Those that apps may share, and the other bindings that contain them.
    pub shared: Sharers,
    /// Those among them that need a preflight.
    pub new: Vec<Object>,
}

/// The result of a write.
pub struct Written {
    /// Id of the binding.
    pub id: Uuid,
    /// The objects that were to be applied.
    pub due: Vec<Object>,
    /// Whether the intention was recorded: from then on the objects may exist.
    pub intended: bool,
    /// The member's answers, for the first of `due`.
    pub applied: Vec<Applied>,
    /// How it ended.
    pub end: WriteEnd,
}

/// How a write ended.
pub enum WriteEnd {
    /// Everything is applied.
    Done,
    /// Something changed at the same time: to be tried again soon.
    Later,
    /// The desired state cannot be reached until it changes.
    Failed(Failure),
    /// The store, a failpoint, or a member that does not answer.
    Broken(Error),
}

impl From<Error> for WriteEnd {
    fn from(error: Error) -> Self {
        Self::of(error, APPLY)
    }
}

impl WriteEnd {
    /// What an error means; `refused` is the code of a refused object that has none of its own.
    fn of(error: Error, refused: &'static str) -> Self {
        match error {
            // A kind whose CRD is not effective yet, or an object that somebody else changed at the same time.
            Error::Member(MemberError::UnknownKind { .. } | MemberError::Conflict(_)) => Self::Later,
            Error::Member(error) if error.is_object() => Self::Failed(Failure::against(error.code_or(refused), &[error])),
            error => Self::Broken(error),
        }
    }
}

impl Write {
    /// Runs the write.
    pub async fn run(self) -> Written {
        let (intended, (applied, end)) = match self.prepare().await {
            Ok(starts) => (true, self.change(&starts).await),
            Err(end) => (false, (Vec::new(), end)),
        };
        Written { id: self.desired.id, due: self.due, intended, applied, end }
    }

    /// Whether there is only one object, which was not applied before: the attempt tells as much as a dry run, and leaves nothing half done.
    /// An update is tried first, because what is recorded of the applied object must survive a refusal.
    fn is_single(&self) -> bool {
        self.due.len() == 1 && self.uids.iter().all(Option::is_none)
    }

    /// Runs the preflight and records the intention. Returns the number of replicas with which each object starts, if it is not the one
    /// that the object says.
    async fn prepare(&self) -> Result<Vec<Option<i32>>, WriteEnd> {
        if !self.new.is_empty() && !self.is_single() {
            let against =
                self.member.preflight(&self.new, &self.owner, &self.desired.namespace, &self.shared).await.map_err(Error::from)?;
            if against.iter().any(|error| matches!(error, MemberError::Conflict(_))) {
                return Err(WriteEnd::Later);
            }
            if !against.is_empty() {
                let code = against.iter().map(|error| error.code_or(PREFLIGHT)).find(|code| *code != PREFLIGHT).unwrap_or(PREFLIGHT);
                return Err(WriteEnd::Failed(Failure::against(code, &against)));
            }
        }
        let objects = self.due.iter().map(|object| (Arc::clone(&object.id), Arc::clone(&object.digest))).collect();
        let intention = Intention { desired: self.desired.clone(), objects, elsewhere: self.starting.contains(&true) };
        // The preflight took time: the desired state may have changed.
        match self.app.intentions.write(intention).await {
            Ok(Some(elsewhere)) => {
                let start = |(object, starting): (&Object, &bool)| elsewhere.get(&*object.id).copied().filter(|_| *starting);
                Ok(self.due.iter().zip(&self.starting).map(start).collect())
            }
            Ok(None) => Err(WriteEnd::Later),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Applies the objects and records the member's answers. If one fails, those before it are applied. An answer that could not be
    /// recorded counts as none.
    async fn change(&self, starts: &[Option<i32>]) -> (Vec<Applied>, WriteEnd) {
        let mut applied = Vec::new();
        let done = self.apply(starts, &mut applied).await;
        if let Err(error @ Error::Injected(_)) = done {
            return (Vec::new(), WriteEnd::Broken(error));
        }
        let answers: Vec<_> = self.due.iter().zip(&applied).map(|(object, answer)| (Arc::clone(&object.id), answer.clone())).collect();
        let recorded = match answers.is_empty() {
            true => Ok(()),
            false => self.app.answers.write(Answered { binding: self.desired.id, answers }).await,
        };
        match recorded {
            Ok(()) => (applied, done.map_or_else(|error| WriteEnd::of(error, self.refused()), |()| WriteEnd::Done)),
            Err(error) => (Vec::new(), WriteEnd::Broken(error.into())),
        }
    }

    /// The code of an object that the member refuses. Of a single object that was not applied before nothing has changed then, as if a dry run
    /// had told; a later pass that is refused in the same way says the same.
    fn refused(&self) -> &'static str {
        if self.is_single() { PREFLIGHT } else { APPLY }
    }

    async fn apply(&self, starts: &[Option<i32>], applied: &mut Vec<Applied>) -> Result<(), Error> {
        let brought: BTreeSet<&str> =
            self.due.iter().filter(|object| object.id.kind == "Namespace").map(|object| object.id.name.as_str()).collect();
        let used: BTreeSet<&str> = self.due.iter().map(|object| object.id.namespace.as_str()).filter(|name| !name.is_empty()).collect();
        for namespace in used.difference(&brought) {
            self.member.ensure_namespace(namespace, self.app.hub).await?;
        }
        for ((object, uid), start) in self.due.iter().zip(&self.uids).zip(starts) {
            self.app.failpoints.reached(|| "synchronizer/apply/before".into()).await?;
            let carried =
                uid.is_none() && carry::is_learner(object) && carry::learned(&self.app, &self.member, &self.desired, object).await;
            let carrying = match uid.is_none() && is_policy(&object.value) {
                true => carry::remembered(&self.app, &self.desired, object).await,
                false => None,
            };
            let object = carrying.as_ref().unwrap_or(object);
            let sharers = self.shared.get(&object.id).map(Vec::as_slice);
            let answer = self.member.apply(object, &self.owner, uid.as_deref(), *start, sharers).await?;
            if carried {
                carry::belongs_to(&self.member, object, &answer).await;
            }
            applied.push(answer);
            self.app.failpoints.reached(|| "synchronizer/apply/after_effect".into()).await?;
        }
        Ok(())
    }
}
