//! Background tasks: an item that fails or hangs does not hold up the others.

use std::sync::Arc;
use std::time::Duration;

use drover_api::scheduling::{Claim, DigRef};
use drover_orchestrator::tasks::sweep;
use drover_testkit::eventually;
use uuid::Uuid;

use crate::base::member;
use crate::fakes::{Fakes, ReleaseFault};
use crate::scenarios::{approved, expect_state, run, stack};

/// Waits until exactly these apps have a claim.
async fn claims_become(fakes: &Fakes, apps: &[&str]) {
    eventually(Duration::from_secs(60), async || {
        let claims = fakes.ledger.all();
        claims.iter().map(|claim| claim.request.app.as_str()).eq(apps.iter().copied()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn retire_settles_other_bindings_while_one_fails_and_one_hangs() {
    let (fakes, stack) = stack().await;
    for app in ["a-fails", "b-hangs", "c", "d"] {
        let dig = approved(&stack, app, "100m", &["a"], None).await;
        expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    }
    let claims = fakes.ledger.all();
    fakes.ledger.trouble(claims[0].id, ReleaseFault::Fails);
    fakes.ledger.trouble(claims[1].id, ReleaseFault::Hangs);
    // Left behind by operations that have ended; the faulty ones come first.
    for (age, claim) in claims.iter().rev().enumerate() {
        let sql = "update binding set role = 'retiring', operation = $2, changed_at = now() - $3 * interval '1 second' where id = $1";
        let age = i32::try_from(age).unwrap();
        sqlx::query(sql)
            .bind(claim.id)
            .bind(Uuid::now_v7())
            .bind(age)
            .execute(&mut *stack.app.store.acquire().await.unwrap())
            .await
            .unwrap();
    }
    stack.app.retire.send();
    claims_become(&fakes, &["a-fails", "b-hangs"]).await;
    fakes.ledger.heal();
    claims_become(&fakes, &[]).await;
}

#[tokio::test]
async fn sweep_releases_other_claims_while_one_fails_and_one_hangs() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "100m", &["a"], None).await;
    expect_state(&run(&stack, &format!("{dig}/instantiate")).await, "succeeded");
    let serving = fakes.ledger.all().remove(0);
    let stray = |app: &str| {
        let dig = Arc::new(DigRef { id: Uuid::now_v7(), ..DigRef::clone(&serving.dig) });
        let request = Arc::new(drover_api::scheduling::AppRequest { app: app.into(), ..serving.request.as_ref().clone() });
        Claim { id: Uuid::now_v7(), dig, request, ..serving.clone() }
    };
    let strays = ["a-fails", "b-hangs", "c", "d"].map(stray);
    for stray in &strays {
        fakes.ledger.put(stray.clone());
    }
    fakes.ledger.trouble(strays[0].id, ReleaseFault::Fails);
    fakes.ledger.trouble(strays[1].id, ReleaseFault::Hangs);
    let app = stack.app.clone();
    let pass = tokio::spawn(async move { sweep::once(&app).await });
    claims_become(&fakes, &["a-fails", "b-hangs", "shop"]).await;
    // The others may have been released before the first one was tried.
    eventually(Duration::from_secs(60), async || fakes.ledger.has_failed(strays[0].id).then_some(())).await;
    fakes.ledger.heal();
    let mut released = pass.await.unwrap().unwrap();
    released.sort();
    let mut expected = [strays[1].id, strays[2].id, strays[3].id];
    expected.sort();
    assert_eq!(released, expected, "only claims that were released are reported");
    assert_eq!(sweep::once(&stack.app).await.unwrap(), [strays[0].id], "the failed one is released in the next pass");
}

#[tokio::test]
async fn sweep_releases_only_unexplained_claims() {
    let (fakes, stack) = stack().await;
    let dig = approved(&stack, "shop", "500m", &["a"], None).await;
    let operation = run(&stack, &format!("{dig}/instantiate")).await;
    let serving = fakes.ledger.all().remove(0);
    let strange = Arc::new(DigRef { id: Uuid::now_v7(), ..DigRef::clone(&serving.dig) });
    let stray = Claim { id: Uuid::now_v7(), member: member("b"), dig: strange, ..serving.clone() };
    let unknown = Claim { id: Uuid::now_v7(), member: member("c"), operation: Uuid::now_v7(), ..stray.clone() };
    assert_eq!(stray.operation.to_string(), operation["id"].as_str().unwrap());
    fakes.ledger.put(stray.clone());
    fakes.ledger.put(unknown);
    assert_eq!(sweep::once(&stack.app).await.unwrap(), [stray.id]);
    assert_eq!(fakes.ledger.summary(), ["shop@c held", "shop@a held"], "a claim with a binding, and one of an unknown operation, stay");
    assert!(sweep::once(&stack.app).await.unwrap().is_empty());
}
