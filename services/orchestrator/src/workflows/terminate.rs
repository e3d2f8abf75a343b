//! Terminating a deployment intent group: its state is Terminated at once, its copies are removed afterwards. Unreachable clusters
//! do not delay the end; task `retire` removes what is left there when they answer again.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::scheduling::DigRef;
use drover_workflow::{Ctx, Outcome, Step, StepResult, Steps, Workflow};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use uuid::Uuid;

use super::remove::{self, Removal, RemovesCopies};
use super::{After, PLACEMENT, SYNCHRONIZER};
use crate::environment::Environment;
use crate::store::binding::{self, Binding, Role};
use crate::store::deployment::{self, DeploymentState};
use crate::store::hold;

/// The input of a termination.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub dig: DigRef,
    pub revision: i64,
    /// Dependencies, by app.
    #[serde(default)]
    pub after: BTreeMap<String, Vec<After>>,
    /// Whether volume claims that StatefulSets made are deleted, with their data.
    #[serde(default)]
    pub delete_volumes: bool,
}

/// The state of a termination.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TerminateState {
    /// Bindings that are being removed.
    #[serde(default)]
    going: Vec<Uuid>,
    #[serde(default)]
    removal: Removal,
}

/// The workflow that terminates a group.
pub struct Terminate;

impl RemovesCopies for Terminate {
    fn removal(state: &mut TerminateState) -> &mut Removal {
        &mut state.removal
    }
}

impl Workflow for Terminate {
    const KIND: &'static str = "terminate";
    const VERSION: i32 = 2;
    type Environment = Environment;
    type Input = Order;
    type State = TerminateState;

    fn subject(order: &Order) -> String {
        super::subject(&order.dig)
    }

    fn steps() -> Steps<Self> {
        Steps::new()
            // There is nothing to prepare or to undo: the workflow only goes forward from its first step.
            .pivot(Step::local("let_go", let_go))
            // A newcomer may be promised this room while the copies are being removed.
            .step(Step::remote("leave", leave).at(PLACEMENT))
            // Apps that others depend on are removed last.
            .step(Step::wait("remove", remove_all).at(SYNCHRONIZER))
            .finally(Step::local("drop_hold", drop_hold))
    }
}

async fn let_go(ctx: &mut Ctx<Terminate>, tx: &mut PgConnection) -> StepResult {
    let bindings = binding::of_dig(&mut *tx, ctx.input.dig.id).await?;
    let serving: Vec<Uuid> = bindings.iter().filter(|binding| binding.role == Role::Current).map(|binding| binding.id).collect();
    binding::set_role(&mut *tx, &serving, Role::Retiring, ctx.id).await?;
    deployment::reach(tx, ctx.input.dig.id, DeploymentState::Terminated, ctx.input.revision, Some(ctx.id)).await?;
    ctx.state.going = bindings.iter().map(|binding| binding.id).collect();
    Ok(Outcome::next())
}

async fn leave(ctx: &mut Ctx<Terminate>) -> StepResult {
    let rows = binding::find(&mut *ctx.environment.store.acquire().await?, &ctx.state.going).await?;
    remove::mark_leaving(ctx, &rows).await?;
    Ok(Outcome::next())
}

async fn remove_all(ctx: &mut Ctx<Terminate>) -> StepResult {
    ctx.state.removal.delete_volumes = ctx.input.delete_volumes;
    let rows = binding::find(&mut *ctx.environment.store.acquire().await?, &ctx.state.going).await?;
    let (free, later) = in_order(&rows, &ctx.input.after);
    let removed = remove::remove(ctx, &free).await?;
    if let Some(park) = removed.park() {
        ctx.progress(format!("{} of {} gone", removed.gone.len(), rows.len()));
        return Ok(park);
    }
    // The others are gone or left: now those that they depended on. The deadline is the same for all.
    let removed = if later.is_empty() { removed } else { remove::remove(ctx, &rows).await? };
    if let Some(park) = removed.park() {
        ctx.progress(format!("{} of {} gone", removed.gone.len(), rows.len()));
        return Ok(park);
    }
    remove::mark_left(ctx, &removed.left).await?;
    ctx.progress(if removed.left.is_empty() {
        "terminated".to_owned()
    } else {
        format!("terminated; {} left for later", removed.left.len())
    });
    Ok(Outcome::next())
}

/// Bindings on which no other app depends any more, and the others.
fn in_order(rows: &[Binding], after: &BTreeMap<String, Vec<After>>) -> (Vec<Binding>, Vec<Binding>) {
    let needed: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row.role != Role::Gone)
        .flat_map(|row| after.get(&row.app).map_or(&[][..], Vec::as_slice))
        .map(|dependency| dependency.app.as_str())
        .collect();
    rows.iter().cloned().partition(|row| row.role == Role::Gone || !needed.contains(row.app.as_str()))
}

async fn drop_hold(ctx: &mut Ctx<Terminate>, tx: &mut PgConnection) -> StepResult {
    hold::drop_all(tx, ctx.id).await?;
    Ok(Outcome::next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_that_others_depend_on_are_removed_last() {
        let row = |app: &str, role| Binding {
            id: Uuid::now_v7(),
            dig: DigRef::default(),
            app: app.into(),
            member: Default::default(),
            namespace: String::new(),
            digest: String::new(),
            request: Default::default(),
            role,
            operation: Uuid::nil(),
        };
        let after = [("web".to_owned(), vec![After { app: "db".into(), ready: true, wait_s: 0 }])].into();
        let names = |rows: &[Binding]| rows.iter().map(|row| row.app.clone()).collect::<Vec<_>>();
        let (free, later) = in_order(&[row("db", Role::Retiring), row("web", Role::Retiring)], &after);
        assert_eq!((names(&free), names(&later)), (vec!["web".to_owned()], vec!["db".to_owned()]));
        let (free, later) = in_order(&[row("db", Role::Retiring), row("web", Role::Gone)], &after);
        assert_eq!((names(&free).len(), names(&later).len()), (2, 0));
    }
}
