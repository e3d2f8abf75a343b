//! What an activator says about an app, second by second.

use drover_autoscaler::path::activator::reporter::Reporter;

#[tokio::test(start_paused = true)]
async fn a_first_request_is_told_at_once_and_only_once() {
    let reporter = Reporter::new();
    assert_eq!(reporter.report(), None);
    let (first, now) = reporter.enter();
    assert_eq!(now.unwrap().average_concurrency, 1.0);
    let (second, now) = reporter.enter();
    assert_eq!(now, None);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0), "two were under way, one was told");
    drop((first, second));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(reporter.report().unwrap().average_concurrency, 0.0);
    assert_eq!(reporter.report(), None, "a second without any forgets the app");
    assert!(reporter.enter().1.is_some(), "and the next is a first one");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_is_told_with_its_second() {
    let reporter = Reporter::new();
    let (_under_way, _) = reporter.enter();
    reporter.not_told();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn a_request_shorter_than_its_second_leaves_no_negative_concurrency() {
    let reporter = Reporter::new();
    let (under_way, _) = reporter.enter();
    tokio::time::advance(std::time::Duration::from_millis(500)).await;
    drop(under_way);
    tokio::time::advance(std::time::Duration::from_millis(500)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (0.0, 0.0));
}
