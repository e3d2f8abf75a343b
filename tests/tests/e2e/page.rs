//! The web page in a real browser: it renders without an error on the console, and shows the moves.

use std::process::Stdio;

use drover_e2e::apps::App;
use drover_e2e::browser::Browser;
use drover_e2e::emco::Group;
use drover_e2e::{Backend, System, succeeded};
use tokio::process::Command;

use super::filling::ones;

struct Seen {
    dom: String,
    console: Vec<String>,
}

/// Opens `url` in headless Chromium, runs its scripts, and returns the page and the messages on the console.
async fn open(url: &str) -> Seen {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr", "--v=0"])
        .args(["--virtual-time-budget=3500", "--timeout=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(90), output).await.expect("the browser ends");
    let output = output.expect("chromium is installed (deploy/setup.sh)");
    let stderr = String::from_utf8_lossy(&output.stderr);
    Seen {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console: stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn page_shows_moves_and_plan() {
    let system = System::new(Backend::Simulated).await;
    let movable = Group::of("movable", ones("m", 4)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&movable.deploy(&system.client).await.unwrap());
    let newcomer = Group::new("newcomer", App::new("newcomer", 1000)).on(&["onprem/private-a"]);
    let operation = newcomer.deploy(&system.client).await.unwrap();
    succeeded(&operation);

    let page = open(system.client.base().as_str()).await;
    assert_eq!(page.console, Vec::<String>::new(), "nothing on the console");
    for wanted in ["data-cluster=\"onprem+private-a\"", "priority 5", "newcomer/newcomer", "data-move=\"movable/m-"] {
        assert!(page.dom.contains(wanted), "the page shows {wanted}: {}", page.dom);
    }
    let plan = page.dom.split("/ui/plans/").nth(1).and_then(|rest| rest.get(..36)).expect("a link to the plan");
    let plan = open(&format!("{}ui/plans/{plan}", system.client.base())).await;
    assert_eq!(plan.console, Vec::<String>::new());
    for wanted in ["before", "after", "class=\"arrow\"", "newcomer/newcomer", "movable/m-"] {
        assert!(plan.dom.contains(wanted), "the plan shows {wanted}: {}", plan.dom);
    }
    system.end().await;
}

/// What a person does: looks for an app, asks for a drain, reads the plan, applies it, and watches it end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cluster_is_drained_on_the_page() {
    let system = System::new(Backend::Simulated).await;
    let shop = Group::of("shop", ones("web", 2)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&shop.deploy(&system.client).await.unwrap());
    let base = system.client.base().to_string();
    let browser = Browser::start(1200).await.unwrap();
    let text = async |selector: &str| {
        let text = browser.value(&format!("document.querySelector('{selector}').innerText")).await.unwrap();
        text.as_str().unwrap_or_default().to_owned()
    };

    browser.open(&format!("{base}ui/apps?q=WEB-1")).await.unwrap();
    assert_eq!(browser.value("document.querySelectorAll('tr[data-app]').length").await.unwrap(), 1, "the filter takes one app");
    assert!(text("tr[data-app]").await.contains("onprem+private-a"));
    browser.value("document.querySelector('tr[data-app] a').click()").await.unwrap();
    browser.until("document.querySelector('#objects') !== null").await;
    assert!(text(".sentence").await.starts_with("shop/web-1 is on onprem+private-a: "), "{}", text(".sentence").await);
    assert!(text("#objects").await.contains("Deployment web-1") && text("#pods").await.contains("web-1"));

    browser.open(&base).await.unwrap();
    let card = "[data-cluster='onprem+private-a']";
    let question = browser.press(card, "Drain").await.unwrap();
    assert!(question.contains("Nothing moves before the plan is applied"), "{question}");
    browser.until("location.pathname.startsWith('/ui/plans/') && document.querySelector('.arrow') !== null").await;
    let question = browser.press("#plan", "Apply").await.unwrap();
    assert!(question.contains("It moves 2 apps") && question.contains("closes private-a to new copies"), "{question}");
    browser.until("location.pathname.startsWith('/ui/operations/') && document.querySelector('[data-ended]') !== null").await;
    assert!(text(".sentence").await.starts_with("Succeeded"), "{}", text(".sentence").await);

    browser.open(&base).await.unwrap();
    browser.until(&format!("document.querySelector(\"{card} [data-cordoned]\") !== null")).await;
    browser.press(card, "Uncordon").await.unwrap();
    browser.until(&format!("document.querySelector(\"{card} [data-cordoned]\") === null")).await;
    browser.open(&format!("{base}ui/apps?cluster=aws%2Bpublic-c")).await.unwrap();
    assert_eq!(browser.value("document.querySelectorAll('tr[data-app]').length").await.unwrap(), 2);
    assert_eq!(browser.console().await.unwrap(), Vec::<String>::new(), "nothing on the console");

    // What is not there is a page, too.
    browser.open(&format!("{base}ui/operations/00000000-0000-7000-8000-000000000000")).await.unwrap();
    assert!(text("#error").await.contains("not_found"));
    system.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn page_fits_a_small_window() {
    let system = System::new(Backend::Simulated).await;
    succeeded(&Group::of("shop", ones("web", 1)).on(&["onprem/private-a"]).deploy(&system.client).await.unwrap());
    let base = system.client.base().to_string();
    let browser = Browser::start(400).await.unwrap();
    for path in ["", "ui/apps", "ui/apps/e2e/shop/v1/shop/web-1"] {
        browser.open(&format!("{base}{path}")).await.unwrap();
        // A telephone shows a page that is wider than its window smaller.
        assert_eq!(browser.value("window.innerWidth").await.unwrap(), 400, "{path} is wider than the window");
        assert_eq!(browser.value("document.documentElement.scrollWidth").await.unwrap(), 400, "{path} is wider than the window");
    }
    system.end().await;
}

/// The page of the REST API sends requests to this Drover, with an example as the first body.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_are_sent_from_the_page_of_the_api() {
    let system = System::new(Backend::Simulated).await;
    let browser = Browser::start(1200).await.unwrap();
    browser.open(&format!("{}docs#project_create", system.client.base())).await.unwrap();
    browser.until("document.querySelectorAll('details.operation').length > 300").await;
    browser.until("document.querySelector('#project_create form') !== null").await;
    let body = "document.querySelector('#project_create textarea')";
    assert!(browser.value(&format!("JSON.parse({body}.value).metadata.name")).await.unwrap().is_string(), "the example is there");
    browser.value(&format!("{body}.value = '{{\"metadata\": {{\"name\": \"from-the-page\"}}}}'")).await.unwrap();
    let answer = "document.querySelector('#project_create .answer').textContent";
    browser.value("document.querySelector('#project_create button[type=submit]').click()").await.unwrap();
    browser.until(&format!("{answer}.startsWith('201') && {answer}.includes('etag')")).await;
    assert!(system.client.find("/v2/projects/from-the-page").await.unwrap().is_some());
    browser.value("document.querySelector('#project_create button[type=submit]').click()").await.unwrap();
    browser.until(&format!("{answer}.startsWith('409') && {answer}.includes('already_exists')")).await;
    let console: Vec<String> = browser.console().await.unwrap();
    assert!(console.iter().all(|line| line.contains("409")), "nothing but the refused request: {console:?}");
    system.end().await;
}
