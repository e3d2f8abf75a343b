//! Whether a member would accept objects, asked in a dry run. Nothing is written.

use std::collections::BTreeMap;

use drover_api::bindings::{DesiredBinding, Preflight, PreflightAnswer};
use drover_members::objects::flatten;
use drover_members::{MemberError, Object, Owner, Sharers};

use crate::app::{App, Error};
use crate::store::inventory;
use crate::worker::{not_granted, split};

/// What speaks against it; also that the member does not answer, which another one may.
///
/// # Errors
/// The objects are no objects of Kubernetes, or the store fails.
pub async fn ask(app: &App, asked: &Preflight) -> Result<PreflightAnswer, Error> {
    let flat = flatten(&asked.objects)?;
    let desired = &asked.binding;
    let member = match app.member(&desired.member).await {
        Ok(member) => member.acting_as(desired.act_as.as_ref()),
        Err(reason) => {
            let reasons = vec![format!("it could not be asked: {reason}")];
            return Ok(PreflightAnswer { reasons, elsewhere: true, may_end: true, lasting: vec![] });
        }
    };
    let owner = Owner { hub: app.hub, dig: desired.dig.id, app: desired.app.clone(), binding: desired.id };
    let objects = match member.prepare(&flat, &desired.namespace, &owner).await {
        Ok(objects) => objects,
        Err(errors) => {
            let reasons = errors.iter().map(ToString::to_string).collect();
            let lasting = MemberError::lasting(&errors);
            return Ok(PreflightAnswer { reasons, elsewhere: true, may_end: lasting.is_empty(), lasting });
        }
    };
    let refused = not_granted(desired, &objects);
    if !refused.is_empty() {
        return Ok(PreflightAnswer { reasons: refused.clone(), elsewhere: false, may_end: false, lasting: refused });
    }
    let (mut objects, hooks) = split(objects);
    // A test is written only when somebody asks for it.
    for hook in hooks.into_iter().filter(|hook| !hook.only_tests()) {
        // One that is there is deleted before it runs again, so it need not be changed.
        if matches!(member.metadata(&hook.object.id).await, Ok(None)) {
            objects.push(hook.object);
        }
    }
    let (shared, mut reasons) = sharers(app, desired, &objects).await?;
    // The other app may leave.
    let (mut elsewhere, mut lasting) = (true, Vec::new());
    match member.preflight(&objects, &owner, &desired.namespace, &shared).await {
        Ok(against) => {
            lasting = MemberError::lasting(&against);
            // Somebody changes the object at this moment: it would be tried again.
            for error in against.iter().filter(|error| !matches!(error, MemberError::Conflict(_))) {
                elsewhere &= error.is_of_this_member();
                reasons.push(error.to_string());
            }
        }
        Err(error) => reasons.push(format!("it could not be asked: {error}")),
    }
    let any = !reasons.is_empty();
    Ok(PreflightAnswer { reasons, elsewhere: elsewhere && any, may_end: any && lasting.is_empty(), lasting })
}

/// Who else contains the objects that apps may share, and which of them have another content.
async fn sharers(app: &App, desired: &DesiredBinding, objects: &[Object]) -> Result<(Sharers, Vec<String>), Error> {
    let held_by_others = inventory::held_by_others(&app.store, desired).await?;
    let shareable: BTreeMap<_, _> =
        objects.iter().filter(|object| object.id.is_shareable()).map(|object| (object.id.clone(), object)).collect();
    let mut shared: Sharers = shareable.keys().map(|id| (id.clone(), Vec::new())).collect();
    let mut differing = Vec::new();
    for held in held_by_others {
        if held.stand_in {
            shared.entry(held.object.into()).or_default();
            continue;
        }
        let Some(object) = shareable.get(&held.object) else { continue };
        match *held.digest == *object.digest {
            true => shared.entry(object.id.clone()).or_default().push(held.binding),
            false => differing.push(format!("app {} of {} contains {} with different content", held.app, held.group, held.object)),
        }
    }
    Ok((shared, differing))
}
