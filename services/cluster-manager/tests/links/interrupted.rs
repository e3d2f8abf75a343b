//! Agents that are killed while they get a certificate, and an authority that is replaced meanwhile.

use super::*;

/// Waits until the agent has stopped, ends it, and lets another one go on with what is on its disk.
async fn goes_on(linked: &Linked, point: &str, agent: Agent, drill: &Drill, invitation: Option<&Path>) -> Agent {
    tokio::time::timeout(SOON, drill.stopped()).await.unwrap_or_else(|_| panic!("{point} was not reached"));
    drop(agent);
    // What is seen of a connection from here on is the next one.
    eventually(SOON, async || (linked.link().await["connected"] == false).then_some(())).await;
    linked.agent("state", invitation)
}

/// The authority that the agent with this state believes.
fn believed(linked: &Linked) -> String {
    let hub = std::fs::read_to_string(linked.state("state").join("hub.json")).unwrap();
    serde_json::from_str::<Value>(&hub).unwrap()["authority"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn agent_that_is_killed_at_any_point_of_its_first_certificate_goes_on_with_the_same_invitation() {
    let linked = Linked::start().await;
    for point in POINTS {
        let file = linked.file("invitation", &linked.invite().await);
        let drill = Drill::stop_at(point);
        let agent = linked.drilled("state", Some(&file), drill.clone());
        // Before it has asked, nobody can accept it.
        let asks = point != "key";
        if asks {
            linked.accept().await;
        }
        let _agent = goes_on(&linked, point, agent, &drill, Some(&file)).await;
        if !asks {
            linked.accept().await;
        }
        let connected = async || (linked.link().await["connected"] == true).then_some(());
        eventually(SOON, connected).await;
        linked.is_ready().await;
        assert!(!linked.state("state").join("next.key").exists(), "{point}: the key was used");
        linked.stack.delete(LINK).await.is(204);
        linked.is_unreachable().await;
    }
}

#[tokio::test]
async fn agent_that_is_killed_at_any_point_of_a_renewal_needs_no_invitation() {
    let linked = Linked::start().await;
    drop(linked.joined().await);
    let identity = || std::fs::read_to_string(linked.state("state").join("identity.pem")).unwrap();
    for point in POINTS {
        let before = identity();
        let drill = Drill::stop_at(point).renewing();
        let agent = linked.drilled("state", None, drill.clone());
        let again = goes_on(&linked, point, agent, &drill, None).await;
        let key = |pem: &str| keys::fingerprint(&keys::from_pem(&pem[..pem.find("-----BEGIN CERTIFICATE").unwrap()]).unwrap()).unwrap();
        let connects = async || {
            let allowed = linked.stack.count(&format!("link where keys @> array['{}'] ", key(&identity()))).await == 1;
            (allowed && linked.link().await["connected"] == true).then_some(())
        };
        eventually(SOON, connects).await;
        assert_eq!(identity() == before, ["key", "issued", "authority"].contains(&point), "{point}");
        drop(again);
        // Whatever it was left with, it can renew from there.
        let (before, renews) = (identity(), linked.drilled("state", None, Drill::default().renewing()));
        eventually(SOON, async || (identity() != before).then_some(())).await;
        let settled = async || (linked.stack.count("link where cardinality(keys) = 1").await == 1).then_some(());
        eventually(SOON, settled).await;
        assert!(!linked.state("state").join("next.key").exists(), "{point}");
        drop(renews);
    }
}

#[tokio::test]
async fn agent_whose_state_is_lost_is_told_to_be_invited_again() {
    let linked = Linked::start().await;
    let file = linked.file("invitation", &linked.invite().await);
    let agent = linked.agent("state", Some(&file));
    linked.accept().await;
    linked.is_ready().await;
    drop(agent);
    for (invitation, why) in [(None, "there is no invitation"), (Some(file.as_path()), "invite it again: drover cluster invite")] {
        let mut agent = linked.agent("lost", invitation);
        let error = tokio::time::timeout(SOON, &mut agent.0).await.expect("it ends").unwrap().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// Replaces the key by which the authority's key is sealed, and starts the service again.
async fn rotate(linked: &mut Linked) {
    let file = linked.stack.config.seal.seal_key_file.clone();
    let old = std::fs::read_to_string(&file).unwrap();
    let other = file.with_extension("other");
    let _ = std::fs::remove_file(&other);
    drover_store::SealKey::from_file_or_create(&other).unwrap();
    let newest = std::fs::read_to_string(&other).unwrap();
    std::fs::write(&file, format!("{newest}{old}")).unwrap();
    linked.stack.restart().await;
}

#[tokio::test]
async fn authority_is_replaced_with_the_seal_key_and_agents_go_on() {
    let mut linked = Linked::start().await;
    let authority_of_invitation = |invitation: &Value| invitation["authority"].as_str().unwrap().to_owned();
    let early = linked.invite().await;
    let (first, file) = (authority_of_invitation(&early), linked.file("invitation", &early));
    let agent = linked.agent("state", Some(&file));
    linked.accept().await;
    linked.is_ready().await;
    assert_eq!(believed(&linked), first);
    linked.stack.restart().await;
    assert_eq!(linked.stack.count("link_authority_earlier").await, 0, "a start alone replaces nothing");
    let mut unused = linked.invite().await;

    for replaced in 1..=2 {
        rotate(&mut linked).await;
        assert_eq!(linked.stack.count("link_authority_earlier").await, replaced);
        linked.is_ready().await;
    }
    // What it has was signed by the first authority, and that is the one that it knows.
    assert_eq!(linked.link().await["connected"], true);
    drop(agent);
    let second = authority_of_invitation(&linked.invite().await);
    assert_ne!(second, first);
    let renews = linked.drilled("state", None, Drill::default().renewing());
    eventually(SOON, async || (believed(&linked) == second).then_some(())).await;
    linked.is_ready().await;
    drop(renews);
    // An invitation of the time before is worth as much as before, if it was not replaced by another one.
    unused["token"] = linked.invite().await["token"].clone();
    let _late = linked.agent("late", Some(&linked.file("unused", &unused)));
    linked.accept().await;
    linked.is_ready().await;
    // The keys of the earlier ones are gone.
    let stored: Vec<Value> = sqlx::query_scalar("select to_jsonb(t) from drover_cluster_manager.link_authority_earlier t")
        .fetch_all(&linked.stack.pool)
        .await
        .unwrap();
    assert!(stored.len() == 2 && stored.iter().all(|row| row.get("sealed").is_none()), "{stored:?}");
}
