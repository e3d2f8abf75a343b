//! Names: the Services of an app answer in members where the app does not run, so that callers there find it when it, or they, move.
//!
//! A *stand-in* is a binding without pods: the Services of an app with EndpointSlices that lead to the pods of its copies in other members.
//! Its row follows from the rows of the copies and is written only here; orchestrator does not know it. Names are made between members of
//! one pod network (a label of the clusters), because slices contain addresses of pods: in members where the project has other apps in
//! the namespace, and where the app once was.
//!
//! An app that exports Services ([`crate::worker`], imports) also has one beside each of its copies.
//!
//! Invariant: a stand-in is present only while such a copy is, so nothing is left when an app is deleted. While a copy runs beside
//! it, the Services are the copy's; they change hands and are not deleted in between ([`crate::worker`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drover_api::bindings::{DesiredBinding, DesiredState};
use drover_api::members::Member;
use drover_api::traffic::CopyEndpoints;
use drover_scheduling::{MemberKey, pod_network};
use drover_service::TaskHandle;
use tokio::time::timeout;
use uuid::Uuid;

use crate::app::{App, Error, Networks};
use crate::store;
use crate::store::bindings::Row;
use crate::store::names::Change;

/// Time in which changes of endpoints are gathered.
const GATHER: Duration = Duration::from_millis(50);
/// The longest time without a sign of life of the task.
const IDLE: Duration = Duration::from_secs(5);
/// Pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(2);

/// Id of the stand-in of an app in a member.
pub fn stand_in_id(dig: Uuid, app: &str, member: &MemberKey) -> Uuid {
    Uuid::new_v5(&dig, format!("names/{app}/{member}").as_bytes())
}

/// What is to change of the stand-ins of a project with these rows. An app whose bundle is among the `exporting` ones has one also where it runs.
pub fn changes(rows: &[Row], networks: &Networks, exporting: &BTreeSet<String>) -> Vec<Change> {
    let copies = || rows.iter().filter(|row| !row.stand_in);
    let mut wanted: BTreeMap<Uuid, DesiredBinding> = BTreeMap::new();
    for copy in copies().filter(|row| row.desired.names && row.desired.state == DesiredState::Present) {
        let Some(network) = networks.get(&copy.desired.member) else { continue };
        let exports = exporting.contains(&*copy.desired.digest);
        let near = networks.iter().filter(|(member, of)| *of == network && (exports || **member != copy.desired.member));
        for member in near.map(|(member, _)| member) {
            let id = stand_in_id(copy.desired.dig.id, &copy.desired.app, member);
            if !is_needed(rows, copy, member, id) {
                continue;
            }
            let stand_in =
                DesiredBinding { id, member: member.clone(), names: false, rollback: false, share: None, ..copy.desired.clone() };
            let newer = |known: &DesiredBinding| (known.fence, &known.digest) < (stand_in.fence, &stand_in.digest);
            if wanted.get(&id).is_none_or(newer) {
                wanted.insert(id, stand_in);
            }
        }
    }
    let mut changes = Vec::new();
    for known in rows.iter().filter(|row| row.stand_in) {
        let (id, member) = (known.desired.id, known.desired.member.clone());
        let is_there = known.desired.state == DesiredState::Present;
        match wanted.remove(&id) {
            Some(wanted) if !is_there || !is_alike(&known.desired, &wanted) => changes.push(Change::Come(Box::new(wanted))),
            Some(_) => {}
            None if is_there => changes.push(Change::Go(id, member)),
            None if known.gone => changes.push(Change::Forget(id, member)),
            None => {}
        }
    }
    changes.extend(wanted.into_values().map(|wanted| Change::Come(Box::new(wanted))));
    changes
}

/// Whether callers in a member may look for this app: others of its project are there, or it was there itself.
fn is_needed(rows: &[Row], copy: &Row, member: &MemberKey, stand_in: Uuid) -> bool {
    let own = &copy.desired;
    rows.iter().filter(|row| row.desired.member == *member && row.desired.namespace == own.namespace).any(|row| {
        let of_app = row.desired.dig.id == own.dig.id && row.desired.app == own.app;
        let is_there = row.desired.state == DesiredState::Present;
        if row.stand_in { row.desired.id == stand_in && is_there } else { of_app || is_there }
    })
}

fn is_alike(known: &DesiredBinding, wanted: &DesiredBinding) -> bool {
    known.digest == wanted.digest && known.namespace == wanted.namespace && known.grants == wanted.grants && known.act_as == wanted.act_as
}

/// A member with its pod network, if it has one.
pub fn network(member: &Member) -> Option<(MemberKey, String)> {
    Some((member.key.clone(), pod_network(&member.labels)?.to_owned()))
}

impl App {
    /// Takes in which members have which pod network. Where that has changed, names come or go.
    pub async fn set_networks(&self, networks: Networks) {
        if !self.replace_networks(networks) {
            return;
        }
        self.settle_all_names().await;
    }

    /// Settles the names of all projects. What fails is settled later by [`follow_endpoints`].
    async fn settle_all_names(&self) {
        let projects = match store::names::projects(&self.store).await {
            Ok(projects) => projects,
            Err(error) => {
                self.names_due.store(true, Ordering::Release);
                return tracing::error!(%error, "cannot read where the names of Services are to answer");
            }
        };
        for project in projects {
            if let Err(error) = self.settle_names(&project).await {
                self.names_due.store(true, Ordering::Release);
                tracing::error!(project, %error, "cannot say where the names of Services are to answer");
            }
        }
    }

    /// Writes which stand-ins a project has, and wakes the workers of those that change.
    pub async fn settle_names(&self, project: &str) -> Result<(), Error> {
        let mut tx = store::names::begin(&self.store, project).await?;
        let rows = store::names::of_project(&mut tx, project).await?;
        let exporting = store::names::exporting(&mut tx, project).await?;
        let changes = changes(&rows, &self.networks(), &exporting);
        for change in &changes {
            store::names::change(&mut tx, change).await?;
        }
        tx.commit().await.map_err(drover_store::StoreError::from)?;
        for (id, member) in changes.iter().map(Change::whose) {
            if !self.wake(member, id)
                && let Some(mut row) = store::bindings::get(&self.store, id).await?
            {
                self.give_up(&mut row).await?;
            }
        }
        Ok(())
    }

    /// If the bundle with this digest exports Services, wakes the stand-ins of all apps that export some: which app's export of a name
    /// counts may have changed.
    pub async fn wake_exports(&self, digest: &str) -> Result<(), Error> {
        for (id, member) in store::names::stand_ins_of_exports(&self.store, digest).await? {
            self.wake(&member, id);
        }
        Ok(())
    }

    /// Wakes the stand-ins of the apps of these copies.
    pub async fn wake_stand_ins(&self, copies: &[Uuid]) -> Result<(), Error> {
        for (id, member) in store::names::concerned(&self.store, copies).await? {
            self.wake(&member, id);
        }
        Ok(())
    }
}

/// Wakes stand-ins when the endpoints of copies change. Runs until the service ends.
pub async fn follow_endpoints(app: App, task: TaskHandle) {
    let mut changes = app.endpoints.changes();
    // What has changed before this task was started again.
    changes.mark_changed();
    let mut known: BTreeMap<String, Arc<CopyEndpoints>> = BTreeMap::new();
    loop {
        task.active();
        match timeout(IDLE, changes.changed()).await {
            Ok(Ok(())) => tokio::time::sleep(GATHER).await,
            Ok(Err(_)) => return,
            Err(_) => {
                if app.names_due.swap(false, Ordering::AcqRel) {
                    app.settle_all_names().await;
                }
                continue;
            }
        }
        if app.networks().is_empty() {
            continue;
        }
        let now = app.endpoints.snapshot();
        let same = |key: &String| match (known.get(key), now.get(key)) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after) || before == after,
            _ => false,
        };
        let changed: BTreeSet<&String> = known.keys().chain(now.keys()).filter(|key| !same(key)).collect();
        let copies: Vec<Uuid> = changed.into_iter().filter_map(|key| key.parse().ok()).collect();
        while let Err(error) = app.wake_stand_ins(&copies).await {
            task.active();
            tracing::error!(%error, "cannot read which names depend on endpoints");
            tokio::time::sleep(RETRY).await;
        }
        known = now;
    }
}

#[cfg(test)]
mod tests {
    use drover_scheduling::DigRef;

    use super::*;

    fn row(app: &str, member: &str, state: DesiredState) -> Row {
        let dig = DigRef { id: Uuid::from_u128(app.len() as u128), project: "shop".into(), ..DigRef::default() };
        let desired = DesiredBinding {
            id: Uuid::new_v5(&dig.id, member.as_bytes()),
            dig: dig.into(),
            app: app.into(),
            member: MemberKey::new("p", member),
            namespace: "default".into(),
            digest: "d".into(),
            state,
            fence: 1,
            grants: None,
            act_as: None,
            share: None,
            rollback: false,
            delete_volumes: false,
            names: true,
        };
        Row { desired, gone: false, kept: Vec::new(), hooks: None, served: None, test: None, stand_in: false, bounds: None }
    }

    /// The rows after these changes.
    fn after(mut rows: Vec<Row>, changes: Vec<Change>) -> Vec<Row> {
        for change in changes {
            let (id, _) = change.whose();
            let known = rows.iter().position(|row| row.desired.id == id).map(|at| rows.remove(at));
            match change {
                Change::Come(desired) => rows.push(Row { desired: *desired, stand_in: true, ..row("any", "any", DesiredState::Present) }),
                Change::Go(..) => {
                    let mut row = known.expect("it was there");
                    row.desired.state = DesiredState::Absent;
                    rows.push(row);
                }
                Change::Forget(..) => {}
            }
        }
        rows
    }

    fn stand_ins(rows: &[Row]) -> Vec<String> {
        let there = rows.iter().filter(|row| row.stand_in && row.desired.state == DesiredState::Present);
        let mut found: Vec<String> = there.map(|row| format!("{}@{}", row.desired.app, row.desired.member.cluster())).collect();
        found.sort();
        found
    }

    fn settle(rows: Vec<Row>) -> Vec<Row> {
        let networks = ["a", "b", "c"].map(|member| (MemberKey::new("p", member), "flat".to_owned())).into();
        let found = changes(&rows, &networks, &BTreeSet::new());
        let rows = after(rows, found);
        assert!(
            changes(&rows, &networks, &BTreeSet::new()).iter().all(|change| matches!(change, Change::Forget(..))),
            "nothing is left to do"
        );
        rows
    }

    #[test]
    fn names_answer_where_others_of_the_project_are_and_where_the_app_was() {
        use DesiredState::{Absent, Present};
        let rows = settle(vec![row("cart", "a", Present), row("web", "b", Present)]);
        assert_eq!(stand_ins(&rows), ["cart@b", "web@a"], "nothing is in c");
        // cart moves to c: first both copies, then only the new one, at last without a trace of the old one.
        let mut rows = settle([rows, vec![row("cart", "c", Present)]].concat());
        assert_eq!(stand_ins(&rows), ["cart@a", "cart@b", "cart@c", "web@a", "web@c"]);
        rows.retain(|known| known.stand_in || known.desired.member.cluster() != "a");
        let rows = settle([rows, vec![row("cart", "a", Absent)]].concat());
        assert_eq!(stand_ins(&rows), ["cart@a", "cart@b", "web@a", "web@c"], "no copy elsewhere needs the one in c");
        let rows = settle(rows.into_iter().filter(|row| row.stand_in || row.desired.member.cluster() != "a").collect());
        assert!(stand_ins(&rows).contains(&"cart@a".to_owned()), "it stays where it was");
        // Both are deleted.
        let mut rows = rows;
        rows.iter_mut().filter(|row| !row.stand_in).for_each(|row| row.desired.state = Absent);
        assert!(stand_ins(&settle(rows)).is_empty());
    }

    #[test]
    fn names_need_a_pod_network_and_the_same_one() {
        let rows = [row("cart", "a", DesiredState::Present), row("web", "b", DesiredState::Present)];
        let network = |of: [(&str, &str); 2]| of.map(|(member, name)| (MemberKey::new("p", member), name.to_owned())).into();
        let changes = |networks: &Networks| changes(&rows, networks, &BTreeSet::new());
        assert!(changes(&Networks::new()).is_empty());
        assert!(changes(&network([("a", "x"), ("b", "y")])).is_empty());
        assert_eq!(changes(&network([("a", "x"), ("b", "x")])).len(), 2);
    }

    #[test]
    fn app_that_exports_has_a_stand_in_where_it_runs_too() {
        let networks = ["a", "b"].map(|member| (MemberKey::new("p", member), "flat".to_owned())).into();
        let rows = [row("cart", "a", DesiredState::Present)];
        assert!(changes(&rows, &networks, &BTreeSet::new()).is_empty());
        let exporting = BTreeSet::from(["d".to_owned()]);
        let rows = after(rows.to_vec(), changes(&rows, &networks, &exporting));
        assert_eq!(stand_ins(&rows), ["cart@a"], "nobody is in b");
        let mut rows = rows;
        rows.iter_mut().filter(|row| !row.stand_in).for_each(|row| row.desired.state = DesiredState::Absent);
        let found = changes(&rows, &networks, &exporting);
        assert!(stand_ins(&after(rows, found)).is_empty());
    }
}
