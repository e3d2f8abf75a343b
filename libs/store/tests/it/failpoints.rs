//! Failpoints that a test sets in another process, and those for one subject.

use std::time::Duration;

use drover_store::failpoint::{Action, Failpoints, Injected, marker};

const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn armed_file_sets_and_clears_failpoints() {
    let directory = tempfile::tempdir().unwrap();
    let arm = |text: &str| std::fs::write(directory.path().join("armed"), text).unwrap();
    let failpoints = Failpoints::armed_in(Some(directory.path().to_owned()));
    let reach = async |who: &str| failpoints.reached_for(who, || "kind/step/do/before".to_owned()).await;
    reach("shop").await.unwrap();

    arm("kind/step/do/before@shop=error\nkind/step/do/after_effect=error\n");
    assert_eq!(reach("shop").await, Err(Injected::Error));
    assert_eq!(reach("shop").await, Err(Injected::Error), "it acts as long as the line is there");
    assert_eq!(reach("other").await, Ok(()), "it is set for another subject");

    arm("kind/step/do/before@shop=pause\n");
    let paused = tokio::spawn({
        let failpoints = failpoints.clone();
        async move { failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await }
    });
    let seen = directory.path().join(marker("kind/step/do/before@shop"));
    tokio::time::timeout(TIMEOUT, async {
        while !seen.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("its marker appears when it pauses");
    assert!(!paused.is_finished());
    arm("");
    assert_eq!(tokio::time::timeout(TIMEOUT, paused).await.expect("it continues").unwrap(), Ok(()));
}

#[tokio::test]
async fn failpoint_set_for_one_subject_acts_only_there() {
    let failpoints = Failpoints::default();
    failpoints.set("kind/step/do/before@shop", Action::ErrorOnce);
    assert_eq!(failpoints.reached_for("other", || "kind/step/do/before".to_owned()).await, Ok(()));
    assert_eq!(failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await, Err(Injected::Error));
    assert_eq!(failpoints.reached_for("shop", || "kind/step/do/before".to_owned()).await, Ok(()));
}
