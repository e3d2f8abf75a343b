//! Failpoints as a test outside of the process arms them.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use drover_store::failpoint::{Action, Failpoints, Injected, marker};

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_file_arms_and_disarms_a_process_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let arm = |text: &str| std::fs::write(directory.path().join("armed"), text).unwrap();
    let failpoints = Failpoints::armed_in(Some(directory.path().to_owned()));
    let reach = async |who: &str| failpoints.reached_for(who, || "kind/step/do/before".to_owned()).await;
    reach("shop").await.unwrap();

    arm("kind/step/do/before@shop=error\nkind/step/do/after_effect=error\n");
    assert_eq!(reach("shop").await, Err(Injected::Error));
    assert_eq!(reach("shop").await, Err(Injected::Error), "as long as the line is there");
    assert_eq!(reach("other").await, Ok(()), "meant for another");

    arm("kind/step/do/before@shop=pause\n");
    let paused = tokio::spawn({
        let failpoints = failpoints.clone();
        async move { failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await }
    });
    let seen = directory.path().join(marker("kind/step/do/before@shop"));
    tokio::time::timeout(PATIENCE, async {
        while !seen.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("its marker tells that it pauses");
    assert!(!paused.is_finished());
    arm("");
    assert_eq!(tokio::time::timeout(PATIENCE, paused).await.expect("it goes on").unwrap(), Ok(()));
}

#[tokio::test]
async fn settings_of_the_process_may_mean_one_as_well() {
    let failpoints = Failpoints::default();
    failpoints.set("kind/step/do/before@shop", Action::ErrorOnce);
    assert_eq!(failpoints.reached_for("other", || "kind/step/do/before".to_owned()).await, Ok(()));
    assert_eq!(failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await, Err(Injected::Error));
    assert_eq!(failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await, Ok(()));
}
