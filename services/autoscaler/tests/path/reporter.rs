//! The reports of an activator about an app, second by second.

use drover_autoscaler::path::activator::reporter::Reporter;

#[tokio::test(start_paused = true)]
async fn reporter_reports_first_request_at_once_and_once() {
    let reporter = Reporter::new();
    assert_eq!(reporter.report(), None);
    let (first, now) = reporter.enter();
    assert_eq!(now.unwrap().average_concurrency, 1.0);
    let (second, now) = reporter.enter();
    assert_eq!(now, None);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0), "two were in progress, one was reported");
    drop((first, second));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(reporter.report().unwrap().average_concurrency, 0.0);
    assert_eq!(reporter.report(), None, "after a second without requests there is no report");
    assert!(reporter.enter().1.is_some(), "the next request is a first request again");
}

#[tokio::test(start_paused = true)]
async fn reporter_repeats_unaccepted_first_request_with_its_second() {
    let reporter = Reporter::new();
    let (_under_way, _) = reporter.enter();
    reporter.report_rejected();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn reporter_concurrency_is_never_negative() {
    let reporter = Reporter::new();
    let (under_way, _) = reporter.enter();
    tokio::time::advance(std::time::Duration::from_millis(500)).await;
    drop(under_way);
    tokio::time::advance(std::time::Duration::from_millis(500)).await;
    let report = reporter.report().unwrap();
    assert_eq!((report.average_concurrency, report.count), (0.0, 0.0));
}
