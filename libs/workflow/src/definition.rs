//! A workflow as its author writes it: a type, and a table of steps.
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
//!             // Held before anything else is looked at, so that …
//!             .step(Step::local("hold_victims", hold_victims).undo_local(drop_holds))
//!             .step(Step::remote("claim", claim).undo(release))
//!             .step(Step::wait("destinations_ready", destinations_ready))
//!             .pivot(Step::local("cut_over", cut_over))
//!             .step(Step::remote("remove_old", remove_old))
//!             .finally(Step::local("drop_holds", drop_holds))
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

/// A kind of workflow, in one version. A changed step list is a new version; the old one stays registered until its last
/// workflow has ended.
pub trait Workflow: Sized + Send + Sync + 'static {
    /// Its name in the journal, in operations and in failpoints.
    const KIND: &'static str;
    /// Of the step list and the state.
    const VERSION: i32;
    /// What the steps reach: clients, settings. Not written anywhere.
    type Environment: Send + Sync + 'static;
    /// What it is started with; never changes.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What its steps tell later ones. Written with each step that ends in next or park, dropped by retry and failure.
    type State: Serialize + DeserializeOwned + Default + Send + Sync + 'static;

    /// What it is about, for people and for filters: `shop/cart`.
    fn subject(_input: &Self::Input) -> String {
        String::new()
    }

    /// The table.
    fn steps() -> Steps<Self>;
}

/// What a step knows.
pub struct Ctx<W: Workflow> {
    /// The workflow's id, which is the operation's.
    pub id: Uuid,
    /// Goes with each write into another service; newer hands have higher ones.
    pub fence: i64,
    /// 1, and one more for each [`crate::Outcome::Repeat`] so far. In undo: the round of the run that is undone.
    pub round: i32,
    /// What the workflow was started with.
    pub input: W::Input,
    /// What earlier steps left and later ones will find.
    pub state: W::State,
    /// The world outside.
    pub environment: Arc<W::Environment>,
    /// When this step was started first (in this round): deadlines count from here.
    pub started: Timestamp,
    /// When the workflow was.
    pub created: Timestamp,
    /// Someone wants it undone. Before the pivot the engine sees to that; after it a step may shorten what it still does.
    pub cancel_requested: bool,
    /// Of a step with children that have all ended: how, in the order of their ids.
    pub children: Vec<ChildOutcome>,
    pub(crate) message: Option<String>,
}

impl<W: Workflow> Ctx<W> {
    /// A sentence on how far it is, for those who watch; shown until the next one.
    pub fn progress(&mut self, message: impl Into<String>) {
        self.message = Some(message.into());
    }

    /// An id for what this step makes, the same each time it is repeated: of the workflow, the round and the name.
    pub fn derived_id(&self, name: &str) -> Uuid {
        Uuid::new_v5(&self.id, format!("{}/{}", self.round, name).as_bytes())
    }

    /// How long this step has been waiting.
    pub fn waited(&self) -> Duration {
        let waited = drover_store::now().duration_since(*self.started);
        Duration::try_from(waited).unwrap_or_default()
    }

    /// When this step's patience ends, for [`crate::Outcome::until`].
    pub fn deadline(&self, patience: Duration) -> Timestamp {
        Timestamp(self.started.saturating_add(patience).unwrap_or(*self.started))
    }
}

/// An `async fn(&mut Ctx<W>) -> StepResult`.
pub trait RemoteFn<'a, W: Workflow>: Send + Sync + 'static {
    /// Its future.
    type Future: Future<Output = StepResult> + Send + 'a;
    /// Calls it.
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
    /// Its future.
    type Future: Future<Output = T> + Send + 'a;
    /// Calls it.
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

/// What an engine must know of a step to drive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Local,
    Remote,
    Children,
}

/// One row of the table.
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

    /// Domain writes, journal and cursor in one short transaction, guarded by the fence: done exactly once.
    /// Any other end than next rolls the writes back.
    pub fn local(name: &'static str, f: impl for<'a> LocalFn<'a, W, StepResult>) -> Self {
        Self::new(name, StepKind::Local, Effect::Local(local(f)))
    }

    /// An effect outside, started after its intent is in the journal; no connection is held. After a crash it is repeated, so
    /// it must be a PUT to a chosen id with [`Ctx::fence`], or the like.
    pub fn remote(name: &'static str, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self::new(name, StepKind::Remote, Effect::Remote(remote(f)))
    }

    /// A question asked until its answer is next: again when woken by a key it parked on, at its deadline, and on a slow poll.
    /// Parked workflows cost a row, nothing else.
    pub fn wait(name: &'static str, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self::remote(name, f)
    }

    /// Starts the children that `spawn` names (in one transaction with the journal), parks until all have ended, and then asks
    /// `collect`, with their outcomes in [`Ctx::children`], for its own. On cancel and undo they are cancelled first.
    pub fn children(
        name: &'static str,
        spawn: impl for<'a> LocalFn<'a, W, Result<Vec<Child>, StepError>>,
        collect: impl for<'a> LocalFn<'a, W, StepResult>,
    ) -> Self {
        Self { spawn: Some(local(spawn)), ..Self::new(name, StepKind::Children, Effect::Local(local(collect))) }
    }

    /// How it is undone, outside. Called also for a step that was started and not finished: undo what may be there.
    pub fn undo(self, f: impl for<'a> RemoteFn<'a, W>) -> Self {
        Self { undo: Some(Effect::Remote(remote(f))), ..self }
    }

    /// How it is undone, in one transaction with the journal.
    pub fn undo_local(self, f: impl for<'a> LocalFn<'a, W, StepResult>) -> Self {
        Self { undo: Some(Effect::Local(local(f))), ..self }
    }

    /// Passed over where it has nothing to do, which costs no write and leaves no trace in the journal: after a crash the question
    /// is asked again. The answer must stay yes until the step has ended.
    pub fn when(self, due: fn(&W::Input, &W::State) -> bool) -> Self {
        Self { due: Some(due), ..self }
    }

    /// The service that its effect and the undoing of it are in, where that is another one: for readers and for tests that
    /// kill it ([`crate::failpoints`]).
    pub fn at(self, service: &'static str) -> Self {
        Self { at: Some(service), undo_at: Some(service), ..self }
    }

    /// The same where only the undo's effect is in another one.
    pub fn undo_at(self, service: &'static str) -> Self {
        Self { undo_at: Some(service), ..self }
    }

    /// Gives up (code `step_failed`) after so many attempts, instead of trying until cancelled. Undo never gives up.
    pub fn attempts(self, attempts: i32) -> Self {
        Self { attempts: Some(attempts), ..self }
    }
}

/// The table of steps.
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
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next step.
    pub fn step(mut self, step: Step<W>) -> Self {
        assert!(self.finally.is_none(), "{}: {} comes after a final step", W::KIND, step.name);
        self.push(step);
        self
    }

    /// The point of no return: before it a failure or a cancel undoes everything, once it has committed the workflow only goes
    /// forward. A local step, so that the passing is one transaction.
    pub fn pivot(mut self, step: Step<W>) -> Self {
        assert!(self.pivot.is_none() && step.kind == StepKind::Local, "{}: one pivot, and a local one", W::KIND);
        assert!(step.due.is_none(), "{}: the pivot is never passed over", W::KIND);
        self.pivot = Some(self.steps.len());
        self.step(step)
    }

    /// A last step that is also done when one after the pivot has failed: it lets go of what the workflow held. Only past the
    /// pivot; before it, undo does that.
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
