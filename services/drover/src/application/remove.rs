//! Removes the EMCO resources of an application that does not run.

use anyhow::Result;

use super::{Application, NAME, names, routes};
use crate::hub::{self, segment};
use crate::session::Session;

/// Removes the resources that [`prepare`] made, of an application that does not run.
///
/// # Errors
/// A request fails.
pub async fn remove(session: &Session, application: &Application) -> Result<()> {
    routes::delete(session, application, None).await?;
    // EMCO lists group intents without their names; this is the name that `prepare` uses.
    session.client.delete(&format!("{}/intents/{NAME}", application.group)).await?;
    for collection in ["generic-placement-intents", "migration-intents"] {
        let path = format!("{}/{collection}", application.group);
        for intent in names(session, &path).await? {
            for child in names(session, &format!("{path}/{intent}/app-intents")).await? {
                session.client.delete(&format!("{path}/{intent}/app-intents/{child}")).await?;
            }
            session.client.delete(&format!("{path}/{intent}")).await?;
        }
    }
    session.client.delete(&application.group).await?;
    for profile in names(session, &application.profiles()).await? {
        session.client.delete(&format!("{}/{}", application.profiles(), segment(&profile))).await?;
    }
    for app in names(session, &format!("{}/apps", application.composite)).await? {
        session.client.delete(&format!("{}/apps/{app}", application.composite)).await?;
    }
    session.client.delete(&format!("{}/composite-profiles/{NAME}", application.composite)).await?;
    session.client.delete(&application.composite).await
}

/// Removes a logical cloud that [`prepare`] made.
///
/// # Errors
/// A request fails, for example because the logical cloud has got other applications.
pub async fn remove_cloud(session: &Session, application: &Application, cloud: &str) -> Result<()> {
    let cloud = format!("{}/logical-clouds/{}", application.project, segment(cloud));
    if session.client.find(&cloud).await?.is_some() {
        match session.client.post(&format!("{cloud}/terminate"), None).await {
            Err(error) if hub::code(&error) == Some("wrong_state") => {
                // It is not instantiated, or another application has come to use it: that one needs its clusters.
                let status = session.client.find(&format!("{cloud}/status")).await?;
                if status.is_some_and(|status| status["deployedStatus"] == "Instantiated") {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        for reference in names(session, &format!("{cloud}/cluster-references")).await? {
            session.client.delete(&format!("{cloud}/cluster-references/{}", segment(&reference))).await?;
        }
        session.client.delete(&cloud).await?;
    }
    Ok(())
}
