//! docs/tutorial.md, run from its text: all its commands succeed, and what it shows of their output is there.

use crate::page;
use crate::program::start_anew;

#[test]
fn tutorial_does_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let near = page::clusters(3, &folder.path().join("near"));
    let mut far = Some(page::clusters(1, &folder.path().join("far")));
    let (up, url) = start_anew(folder.path());
    let not_run = page::run("tutorial.md", &url, folder.path(), |_| far.take().unwrap().shutdown_background());
    assert_eq!(not_run, 0, "every command of the tutorial runs");
    assert!(far.is_none(), "the tutorial no longer stops its third terminal");
    drop((up, near));
}
