//! Placement controllers: which clusters are excluded for an app, and which are preferred.

use std::collections::BTreeMap;

use drover_api::scheduling::{Advice, AppRequest, PlacementTerms};
use serde::Deserialize;
use serde_json::json;

use super::{ClusterName, Controller, ControllerAnswer, ControllerKind, question, refusal, unusable};
use crate::app::actions::clusters::LabelledMembers;
use crate::app::approve::Prepared;
use crate::app::{App, Error, GroupPath, approve, controllers, group, terms};

/// The answer of a placement controller.
#[derive(Debug, Default, Deserialize)]
struct PlacementAnswer {
    #[serde(default)]
    apps: Vec<AppAdvice>,
    /// Why the group must not be deployed now.
    #[serde(default)]
    refused: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct AppAdvice {
    app: String,
    #[serde(default)]
    clusters: Vec<ClusterAdvice>,
}

#[derive(Debug, Deserialize)]
struct ClusterAdvice {
    #[serde(flatten)]
    name: ClusterName,
    /// Why the app must not be placed there.
    #[serde(default)]
    excluded: Option<String>,
    #[serde(default)]
    score: Option<i64>,
}

/// What all placement controllers of a group say, by app.
#[derive(Clone, Debug, Default)]
pub struct GroupAdvice {
    by_app: BTreeMap<String, Vec<Advice>>,
    pub answers: Vec<ControllerAnswer>,
}

impl GroupAdvice {
    /// Adds the advice on an app to its terms.
    pub fn add_to(&self, terms: &mut PlacementTerms, app: &str) {
        if let Some(advice) = self.by_app.get(app) {
            terms.advice.clone_from(advice);
        }
    }
}

impl App {
    /// What the placement controllers that a group names say about its approved apps.
    ///
    /// # Errors
    /// The group does not exist, a controller failed or refuses, or a query failed.
    pub async fn advice(&self, path: &GroupPath, dry: bool) -> Result<GroupAdvice, Error> {
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let named = controllers::named(&mut db, &group, ControllerKind::Placement).await?;
        if named.is_empty() {
            return Ok(GroupAdvice::default());
        }
        let requests = approve::approved_requests(&mut db, &group).await?;
        drop(db);
        self.advice_on(path, &named, &requests, dry).await
    }

    /// Asks the placement controllers that a group names about its apps as they would be now, and adds what they say.
    ///
    /// # Errors
    /// As for [`App::advice`].
    pub(in crate::app) async fn advise(&self, path: &GroupPath, prepared: &mut Prepared, dry: bool) -> Result<(), Error> {
        let named = controllers::named(&mut *self.store.acquire().await?, &prepared.group.renewed(), ControllerKind::Placement).await?;
        let advice = self.advice_on(path, &named, &prepared.requests(), dry).await?;
        for (app, terms) in &mut prepared.terms {
            advice.add_to(terms, app);
        }
        prepared.answers.extend(advice.answers);
        Ok(())
    }

    /// What these controllers say about these apps.
    async fn advice_on(&self, path: &GroupPath, named: &[Controller], requests: &[AppRequest], dry: bool) -> Result<GroupAdvice, Error> {
        let mut advice = GroupAdvice::default();
        if named.is_empty() {
            return Ok(advice);
        }
        let mut db = self.store.acquire().await?;
        let group = group::at(&mut db, path).await?;
        let cloud = terms::cloud(&mut db, &group).await?;
        drop(db);
        let members = self.labelled(&cloud.members, true).await?;
        let apps: Vec<_> =
            requests.iter().map(|request| json!({"app": request.app, "demand": request.demand, "intent": request.terms.intent})).collect();
        for controller in named {
            let mut question = question(controller, &group, &members, dry);
            question["apps"] = json!(apps);
            let asked = self.controllers.ask::<PlacementAnswer>(controller, &question).await?;
            let mut record = asked.record;
            if let Some(answer) = asked.answer {
                refusal(controller, answer.refused)?;
                match read(controller, &answer.apps, requests, &members) {
                    Ok((found, said)) => {
                        record.said = said;
                        found.into_iter().for_each(|(app, one)| advice.by_app.entry(app).or_default().push(one));
                    }
                    Err(reason) => unusable(controller, &mut record, reason)?,
                }
            }
            advice.answers.push(record);
        }
        Ok(advice)
    }
}

/// The advice by app, and what it says to people.
type Read = (Vec<(String, Advice)>, Vec<String>);

fn read(controller: &Controller, apps: &[AppAdvice], requests: &[AppRequest], members: &LabelledMembers) -> Result<Read, String> {
    let (mut found, mut said) = (Vec::new(), Vec::new());
    for AppAdvice { app, clusters } in apps {
        if !requests.iter().any(|request| request.app == *app) {
            return Err(format!("it names the app {app}, which does not exist"));
        }
        let mut advice = Advice { controller: controller.name.clone(), ..Advice::default() };
        for cluster in clusters {
            let member = cluster.name.member(members)?;
            if let Some(why) = &cluster.excluded {
                said.push(format!("{app}: not on {member}: {why}"));
                advice.excluded.insert(member.clone(), why.clone());
            }
            if let Some(score) = cluster.score {
                said.push(format!("{app}: {member} has the score {score}"));
                advice.scores.insert(member, score);
            }
        }
        found.push((app.clone(), advice));
    }
    Ok((found, said))
}

#[cfg(test)]
mod tests {
    use drover_api::scheduling::MemberKey;
    use serde_json::Value;

    use super::*;
    use crate::resources::controller::ControllerHook;

    fn advice(answer: Value) -> Result<Read, String> {
        let hook: ControllerHook = serde_json::from_value(json!({"url": "http://localhost/"})).unwrap();
        let controller = Controller { name: "c".into(), kind: ControllerKind::Placement, intent: "i".into(), priority: 1, hook };
        let members = LabelledMembers([(MemberKey::new("p", "a"), Default::default())].into());
        let answer: PlacementAnswer = serde_json::from_value(answer).unwrap();
        read(&controller, &answer.apps, &[AppRequest { app: "web".into(), ..AppRequest::default() }], &members)
    }

    #[test]
    fn answer_excludes_and_scores_clusters_of_the_logical_cloud_only() {
        let of = |app: &str, cluster: &str| json!({"apps": [{"app": app, "clusters": [{"clusterProvider": "p", "cluster": cluster, "excluded": "full", "score": 3}]}]});
        let (found, said) = advice(of("web", "a")).unwrap();
        assert_eq!(found[0].1.excluded[&MemberKey::new("p", "a")], "full");
        assert_eq!(said, ["web: not on p+a: full", "web: p+a has the score 3"]);
        assert_eq!(advice(of("web", "b")).unwrap_err(), "it names p+b, which is not in the logical cloud");
        assert_eq!(advice(of("db", "a")).unwrap_err(), "it names the app db, which does not exist");
    }
}
