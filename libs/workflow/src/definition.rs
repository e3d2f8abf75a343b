//! A workflow as its author writes it: a type and a list of steps.
//!
//! ```ignore
//! pub struct Relocate;
//! impl Workflow for Relocate {
//!     const KIND: &'static str = "relocate";
//!     const VERSION: i32 = 1;
//!     type Environment = Peers; type Input = Order; type State = Progress;
//!     fn subject(input: &Order) -> String { input.plan.to_string() }
//!     fn steps() -> Steps<Self> {
//!         Steps::new()
//!             // First, so that no other workflow moves the same apps meanwhile.
//!             .step(Step::local("hold_victims", hold_victims).undo_local(drop_holds))
//!             .step(Step::remote("claim", claim).undo(release))
//!             .step(Step::wait("destinations_ready", destinations_ready))
//!             .pivot(Step::local("cut_over", cut_over))
//!             .step(Step::remote("remove_old", remove_old))
//!             .finally(Step::local("release_holds", drop_holds))
//!     }
//! }
//! async fn hold_victims(ctx: &mut Ctx<Relocate>, tx: &mut PgConnection) -> StepResult { … Ok(Outcome::next()) }
//! async fn claim(ctx: &mut Ctx<Relocate>) -> StepResult { … }
//! ```

use std::sync::Arc;
use std::time::Duration;

use drover_store::Timestamp;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Child, ChildOutcome, StepError, StepResult};

/// A kind of workflow, in one version. A changed step list needs a new version; the old version stays registered until its last
/// workflow has ended.
pub trait Workflow: Sized + Send + Sync + 'static {
    /// The name of the kind in the journal, in operations and in failpoints.
    const KIND: &'static str;
    /// The version of the step list and of the state's type.
    const VERSION: i32;
    /// What the steps use: clients, settings. It is not written anywhere.
    type Environment: Send + Sync + 'static;
    /// What a workflow is started with. It never changes.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What steps leave for later ones. It is written when a step ends with next or park; after a retry or a failure what the step
    /// has changed in it is lost.
    type State: Serialize + DeserializeOwned + Default + Send + Sync + 'static;

    /// What the workflow is about, for people and for filters: `shop/cart`.
    fn subject(_input: &Self::Input) -> String {
        String::new()
    }

    /// The list of steps.
    fn steps() -> Steps<Self>;
}

/// What a step gets, and where it leaves state and progress.
pub struct Ctx<W: Workflow> {
    /// The id of the workflow, which is also the operation's.
    pub id: Uuid,
    /// Sent with each write to another service. An engine that takes the workflow over gets a higher fence, and services refuse lower ones.
    pub fence: i64,
    /// A fence that was drawn together with the start of this step: higher than all that were drawn before. None in an undo; may be none in
    /// a step that continues after a pause or a crash.
    pub drawn: Option<i64>,
    /// Starts at 1 and grows with each [`crate::Outcome::Repeat`]. In an undo: the round of the step that is undone.
    pub round: i32,
    pub input: W::Input,
    /// What earlier steps left, and what later ones will find.
    pub state: W::State,
    pub environment: Arc<W::Environment>,
    /// When this step was first started (in this round). Deadlines count from here.
    pub started: Timestamp,
    /// When the workflow was started.
    pub created: Timestamp,
    /// Whether a cancel was requested. Before the pivot the engine then undoes the workflow; after it a step may choose to do less.
    pub cancel_requested: bool,
    /// The outcomes of this step's children, in the order of their ids. Empty until all of them have ended.
    pub children: Vec<ChildOutcome>,
    pub(crate) message: Option<String>,
}

impl<W: Workflow> Ctx<W> {
    /// Sets the progress message that users see until the next one.
    pub fn progress(&mut self, message: impl Into<String>) {
        self.message = Some(message.into());
    }

    /// An id for something that this step creates. It is derived from workflow, round and name, so it is the same in each repetition.
    pub fn derived_id(&self, name: &str) -> Uuid {
        Uuid::new_v5(&self.id, format!("{}/{}", self.round, name).as_bytes())
    }

    /// The time since this step was first started.
    pub fn waited(&self) -> Duration {
        let waited = drover_store::now().duration_since(*self.started);
        Duration::try_from(waited).unwrap_or_default()
    }

    /// The time limit of this step as a point in time, for [`crate::Outcome::until`].
    pub fn deadline(&self, limit: Duration) -> Timestamp {
        Timestamp(self.started.saturating_add(limit).unwrap_or(*self.started))
    }
}

/// An `async fn(&mut Ctx<W>) -> StepResult`.
pub trait RemoteFn<'a, W: Workflow>: Send + Sync + 'static {
    type Future: Future<Output = StepResult> + Send + 'a;
    /// Calls the function.
    fn call(&self, ctx: &'a mut Ctx<W>) -> Self::Future;
}

impl<'a, W: Workflow, F, Fut> RemoteFn<'a, W> for F
where
    F: Fn(&'a mut Ctx<W>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = StepResult> + Send + 'a,
{
    type Future = Fut;
    fn call(&self, ctx: &'a mut Ctx<W>) -> Fut {
        self(ctx)
    }
}

/// An `async fn(&mut Ctx<W>, &mut PgConnection) -> T`.
pub trait LocalFn<'a, W: Workflow, T>: Send + Sync + 'static {
    type Future: Future<Output = T> + Send + 'a;
    /// Calls the function.
    fn call(&self, ctx: &'a mut Ctx<W>, tx: &'a mut PgConnection) -> Self::Future;
}

impl<'a, W: Workflow, T, F, Fut> LocalFn<'a, W, T> for F
where
    F: Fn(&'a mut Ctx<W>, &'a mut PgConnection) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = T> + Send + 'a,
{
    type Future = Fut;
    fn call(&self, ctx: &'a mut Ctx<W>, tx: &'a mut PgConnection) -> Fut {
        self(ctx, tx)
    }
}

pub(crate) type Remote<W> = Box<dyn for<'a> Fn(&'a mut Ctx<W>) -> BoxFuture<'a, StepResult> + Send + Sync>;
pub(crate) type Local<W, T> = Box<dyn for<'a> Fn(&'a mut Ctx<W>, &'a mut PgConnection) -> BoxFuture<'a, T> + Send + Sync>;

fn remote<W: Workflow>(f: impl for<'a> RemoteFn<'a, W>) -> Remote<W> {
    Box::new(move |ctx| Box::pin(f.call(ctx)))
}

fn local<W: Workflow, T: 'static>(f: impl for<'a> LocalFn<'a, W, T>) -> Local<W, T> {
    Box::new(move |ctx, tx| Box::pin(f.call(ctx, tx)))
}

pub(crate) enum Effect<W: Workflow> {
    Local(Local<W, StepResult>),
    Remote(Remote<W>),
}

/// Whether a step has anything to do.
pub(crate) type Due<W> = fn(&<W as Workflow>::Input, &<W as Workflow>::State) -> bool;

/// How the engine has to run a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Local,
    Remote,
    Children,
}

/// A step of a workflow.
pub struct Step<W: Workflow> {
    pub(crate) name: &'static str,
    pub(crate) kind: StepKind,
    pub(crate) effect: Effect<W>,
    pub(crate) spawn: Option<Local<W, Result<Vec<Child>, StepError>>>,
    pub(crate) undo: Option<Effect<W>>,
    pub(crate) due: Option<Due<W>>,
    pub(crate) attempts: Option<i32>,
    pub(crate) at: Option<&'static str>,
    pub(crate) undo_at: Option<&'static str>,
}

impl<W: Workflow> Step<W> {
    fn new(name: &'static str, kind: StepKind, effect: Effect<W>) -> Self {
        Self { name, kind, effect, spawn: None, undo: None, due: None, attempts: None, at: None, undo_at: None }
    }

    /// A step whose writes go to the service's own database, in one short transaction with the journal that commits only if the fence
    /// matches: they happen exactly once. Any other end than next rolls them back.
    pub fn local(name: &'static str, f: impl for<'a> LocalFn<'a, W, StepResult>) -> Self {
        Self::new(name, StepKind::Local, Effect::Local(local(f)))
    }

    /// A step with an effect outside the database. Its start is journaled before the effect, and no connection is held meanwhile. After
    /// a crash the effect is repeated, so it must be idempotent, for example a PUT to a chosen id with [`Ctx::fence`].
    pub fn remote(name: &'static str, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self::new(name, StepKind::Remote, Effect::Remote(remote(f)))
    }

    /// A step that is run again until it returns next: when one of the keys it parked on is woken, at its deadline, and on a slow poll.
    /// It may have effects, which must be idempotent as those of [`Step::remote`]. A parked workflow costs a row and nothing else.
    pub fn wait(name: &'static str, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self::remote(name, f)
    }

    /// A step that starts the children that `spawn` returns (in one transaction with the journal), parks until all have ended, and then
    /// calls `collect` with their outcomes in [`Ctx::children`]. On cancel and undo the children are cancelled first.
    pub fn children(
        name: &'static str,
        spawn: impl for<'a> LocalFn<'a, W, Result<Vec<Child>, StepError>>,
        collect: impl for<'a> LocalFn<'a, W, StepResult>,
    ) -> Self {
        Self { spawn: Some(local(spawn)), ..Self::new(name, StepKind::Children, Effect::Local(local(collect))) }
    }

    /// Sets a remote undo. It is also called for a step that was started and not finished, so it must undo whatever may be there.
    pub fn undo(self, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self { undo: Some(Effect::Remote(remote(f))), ..self }
    }

    /// Sets an undo whose writes go to the service's own database, in one transaction with the journal.
    pub fn undo_local(self, f: impl for<'a> LocalFn<'a, W, StepResult>) -> Self {
        Self { undo: Some(Effect::Local(local(f))), ..self }
    }

    /// Skips the step while `due` is false. Skipping writes nothing to the journal, so `due` is asked again after a crash; once true it must
    /// stay true until the step has ended.
    pub fn when(self, due: fn(&W::Input, &W::State) -> bool) -> Self {
        Self { due: Some(due), ..self }
    }

    /// Names the other service in which the step and its undo take effect: for readers, and for tests that kill that service
    /// ([`crate::failpoints`]).
    pub fn at(self, service: &'static str) -> Self {
        Self { at: Some(service), undo_at: Some(service), ..self }
    }

    /// The same where only the undo takes effect in another service.
    pub fn undo_at(self, service: &'static str) -> Self {
        Self { undo_at: Some(service), ..self }
    }

    /// Lets the step fail (code `step_failed`) after so many attempts. Without it the step is tried until the workflow is cancelled. An undo
    /// is always tried without end.
    pub fn attempts(self, attempts: i32) -> Self {
        Self { attempts: Some(attempts), ..self }
    }
}

/// The list of steps of a workflow.
pub struct Steps<W: Workflow> {
    pub(crate) steps: Vec<Step<W>>,
    pub(crate) pivot: Option<usize>,
    pub(crate) finally: Option<usize>,
}

impl<W: Workflow> Default for Steps<W> {
    fn default() -> Self {
        Self { steps: Vec::new(), pivot: None, finally: None }
    }
}

impl<W: Workflow> Steps<W> {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step.
    ///
    /// # Panics
    /// The name is taken, or a final step comes before it.
    pub fn step(mut self, step: Step<W>) -> Self {
        assert!(self.finally.is_none(), "{}: {} comes after a final step", W::KIND, step.name);
        self.push(step);
        self
    }

    /// Adds the point of no return. Before it a failure or a cancel undoes everything; once it is committed the workflow only goes
    /// forward. It is a local step, so that it is one transaction.
    ///
    /// # Panics
    /// There is a pivot already, the step is not local, or it may be skipped.
    pub fn pivot(mut self, step: Step<W>) -> Self {
        assert!(self.pivot.is_none() && step.kind == StepKind::Local, "{}: one pivot, and a local one", W::KIND);
        assert!(step.due.is_none(), "{}: the pivot is never passed over", W::KIND);
        self.pivot = Some(self.steps.len());
        self.step(step)
    }

    /// Adds a final step, which is also done when a step after the pivot has failed: it releases what the workflow held. When a step before
    /// the pivot fails, undo does that.
    ///
    /// # Panics
    /// The name is taken.
    pub fn finally(mut self, step: Step<W>) -> Self {
        self.finally.get_or_insert(self.steps.len());
        self.push(step);
        self
    }

    fn push(&mut self, step: Step<W>) {
        assert!(self.steps.iter().all(|other| other.name != step.name), "{}: two steps named {}", W::KIND, step.name);
        self.steps.push(step);
    }
}
