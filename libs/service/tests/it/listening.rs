//! Addresses that are reserved before the service that will listen on them starts.

use axum::Router;
use axum::routing::get;
use drover_service::{Common, Peers, bind, serve};

fn common() -> Common {
    Common::new("postgres://nowhere/", "token", Peers::default()).scoped("test")
}

#[tokio::test]
async fn reserved_address_is_free_for_its_own_service_only() {
    let (one, two) = (common(), common());
    let first = one.reserved.reserve(0).unwrap();
    // As a second `drover up` that wants the same ports at the same time.
    let second = two.reserved.reserve(first.port()).unwrap();
    assert_ne!(first, second, "the second finds the first port taken");
    assert!(bind(first, &two).await.is_err());

    let mut running = Vec::new();
    for (common, address, name) in [(&one, first, "one"), (&two, second, "two")] {
        let listener = bind(address, common).await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        running.push(serve(listener, Router::new().route("/", get(move || async move { name })), common));
    }
    for (address, name) in [(first, "one"), (second, "two")] {
        let answer = reqwest::get(format!("http://{address}/")).await.unwrap().text().await.unwrap();
        assert_eq!(answer, name);
    }
    assert!(bind(first, &one).await.is_err(), "it was handed out once");
    for running in running {
        running.stop().await;
    }
}
