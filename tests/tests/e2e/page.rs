//! The web page in a real browser: it renders without an error on the console, and shows the moves.

use std::process::Stdio;

use drover_e2e::apps::App;
use drover_e2e::browser::Browser;
use drover_e2e::emco::Group;
use drover_e2e::{Backend, System, succeeded};
use serde_json::json;
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
        .args(["--virtual-time-budget=3500", "--timeout=80000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(180), output).await.expect("the browser ends");
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

/// Every page, as those hear it who do not see it, and as those see it who need contrast: nothing that axe-core objects to, in both colour
/// schemes, on a telephone and on a desk.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_are_accessible() {
    let axe = std::process::Command::new("../deploy/page/axe.sh").output().unwrap();
    assert!(axe.status.success(), "{}", String::from_utf8_lossy(&axe.stderr));
    let axe = std::fs::read_to_string(String::from_utf8(axe.stdout).unwrap().trim()).unwrap();
    let system = System::new(Backend::Simulated).await;
    let shop = Group::of("shop", ones("web", 2)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    let operation = shop.deploy(&system.client).await.unwrap();
    succeeded(&operation);
    let wish = json!({"kind": "drain", "clusterProvider": "onprem", "cluster": "private-a"});
    let plan = system.client.post("/v2/plans", Some(&wish)).await.unwrap().body;
    let cordon = "/v2/cluster-providers/onprem/clusters/private-b/cordon";
    system.client.put(cordon, &json!({"reason": "new racks"})).await.unwrap();
    let pages = [
        String::new(),
        "ui/apps".to_owned(),
        "ui/apps?q=nothing".to_owned(),
        "ui/apps/e2e/shop/v1/shop/web-1".to_owned(),
        format!("ui/plans/{}", plan["id"].as_str().unwrap()),
        format!("ui/operations/{}", operation.id),
        "ui/operations/00000000-0000-7000-8000-000000000000".to_owned(),
        "docs".to_owned(),
    ];
    let mut found = Vec::new();
    for width in [400, 1200] {
        let browser = Browser::start(width).await.unwrap();
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await.unwrap();
            for page in &pages {
                browser.open(&format!("{}{page}", system.client.base())).await.unwrap();
                if page == "docs" {
                    browser.until("document.querySelectorAll('details.operation').length > 300").await;
                    browser.value("document.querySelector('#plan_create summary').click()").await.unwrap();
                    browser.until("document.querySelector('#plan_create form') !== null").await;
                    // All operations have the same form: the rest stays out, so that the check takes seconds.
                    browser
                        .value("document.querySelectorAll('details.operation:not([open])').forEach((one, at) => at > 20 && one.remove())")
                        .await
                        .unwrap();
                }
                let against = browser.inaccessible(&axe).await.unwrap();
                found.extend(against.into_iter().map(|line| format!("{page} at {width}, {scheme}: {line}")));
                let current =
                    browser.value("[...document.querySelectorAll('nav [aria-current]')].map(a => a.textContent).join()").await.unwrap();
                let expected = match page.as_str() {
                    "" => "Overview",
                    "ui/apps" | "ui/apps?q=nothing" => "Apps",
                    "docs" => "REST API",
                    _ => "",
                };
                assert_eq!(current, expected, "{page}");
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));

    // The check finds what is wrong: a page without a language, and text that is hardly there.
    let browser = Browser::start(1200).await.unwrap();
    browser.open(system.client.base().as_str()).await.unwrap();
    browser.value("(document.documentElement.lang = '', document.querySelector('h1').style.color = '#eee')").await.unwrap();
    let against = browser.inaccessible(&axe).await.unwrap().join("\n");
    assert!(against.contains("html-has-lang") && against.contains("color-contrast"), "{against}");
    system.end().await;
}

/// With the keyboard alone: past the navigation, to the button that drains, through the plan, to the end of the operation. The focus is not
/// lost while the page refreshes itself, and what changes is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cluster_is_drained_with_the_keyboard() {
    const TAB: &str = "\u{E004}";
    const ENTER: &str = "\u{E007}";
    let system = System::new(Backend::Simulated).await;
    let shop = Group::of("shop", ones("web", 2)).on(&["onprem/private-a", "aws/public-c"]).movable(5);
    succeeded(&shop.deploy(&system.client).await.unwrap());
    let browser = Browser::start(1200).await.unwrap();
    let focused = async |expression: &str| browser.value(&format!("document.activeElement.{expression}")).await.unwrap();
    let walk_to = async |name: &str| {
        for _ in 0..60 {
            browser.key(TAB).await.unwrap();
            if focused("getAttribute('aria-label')").await == name {
                assert_eq!(focused("matches(':focus-visible')").await, true, "{name} shows that it has the focus");
                assert_ne!(browser.value("getComputedStyle(document.activeElement).outlineStyle").await.unwrap(), "none");
                return;
            }
        }
        panic!("{name} is not reached");
    };

    browser.open(system.client.base().as_str()).await.unwrap();
    browser.key(TAB).await.unwrap();
    assert_eq!(focused("textContent").await, "Skip to the content");
    browser.key(ENTER).await.unwrap();
    browser.until("document.activeElement.id === 'content'").await;
    walk_to("Drain private-a").await;
    // The page changes below: another app arrives.
    succeeded(&Group::of("late", ones("late", 1)).on(&["onprem/private-b"]).deploy(&system.client).await.unwrap());
    browser.until("document.querySelector('main').textContent.includes('late/late-1')").await;
    assert_eq!(focused("getAttribute('aria-label')").await, "Drain private-a", "the focus stays");
    browser.until("document.getElementById('news').textContent.includes('late')").await;

    // The question holds the page, and with it the answer to the key.
    let _ = browser.key(ENTER).await;
    assert!(browser.agree().await.unwrap().contains("Nothing moves before the plan is applied"));
    browser.until("location.pathname.startsWith('/ui/plans/') && document.querySelector('.arrow') !== null").await;
    walk_to("Apply the plan").await;
    // The question holds the page, and with it the answer to the key.
    let _ = browser.key(ENTER).await;
    assert!(browser.agree().await.unwrap().contains("It moves 2 apps"));
    browser.until("location.pathname.startsWith('/ui/operations/') && document.querySelector('[data-ended]') !== null").await;
    assert_eq!(
        browser.value("document.querySelectorAll('[tabindex]:not([tabindex=\"0\"]):not([tabindex=\"-1\"])').length").await.unwrap(),
        0
    );
    assert_eq!(browser.console().await.unwrap(), Vec::<String>::new(), "nothing on the console");
    system.end().await;
}
