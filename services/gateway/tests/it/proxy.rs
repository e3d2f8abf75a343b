//! Requests to services that cannot be reached, limits of connections, and signing in.

use std::time::Duration;

use drover_gateway::{AuditSettings, Config, OidcSettings, ProgramSettings, RateSettings, start};
use drover_service::{Common, Peers, SealSettings};
use drover_testkit::seal_key;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// An address that does not answer connection requests: its queue of connections that nobody accepts is full, so the kernel drops
/// further SYN packets, as a firewall or a host that is down would.
struct Silent {
    listener: TcpListener,
    _queued: TcpStream,
}

impl Silent {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Linux queues one connection more than the backlog.
        let listener = socket.listen(0).unwrap();
        let queued = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        Self { listener, _queued: queued }
    }

    fn url(&self) -> url::Url {
        format!("http://{}/", self.listener.local_addr().unwrap()).parse().unwrap()
    }
}

pub fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        max_connections_per_address: 3,
        seal: SealSettings { seal_key: Some(seal_key()), ..SealSettings::default() },
        rate: RateSettings::default(),
        programs: ProgramSettings::default(),
        audit: AuditSettings::default(),
        oidc: OidcSettings::default(),
    }
}

#[tokio::test]
async fn login_link_signs_one_browser_in_once() {
    let mut common = Common::new("", "token", Peers::default());
    common.api_token = Some("api".to_owned().into());
    let gateway = start(config(), common).await.unwrap();
    let http = reqwest::Client::new();
    let links = format!("http://{}/v2/login-links", gateway.addr);
    assert_eq!(http.post(&links).send().await.unwrap().status(), 401, "only who has the token may let others in");
    let made: Value = http.post(&links).bearer_auth("api").send().await.unwrap().json().await.unwrap();
    let link = format!("http://{}{}", gateway.addr, made["path"].as_str().unwrap());
    let signed_in = http.get(&link).send().await.unwrap();
    assert_eq!(signed_in.status(), 200);
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    drop(signed_in);
    assert_eq!(http.get(&link).send().await.unwrap().status(), 401, "it works once");
    let page = async |cookie: &str| http.get(format!("http://{}/", gateway.addr)).header("cookie", cookie).send().await.unwrap().status();
    assert_eq!(page(&cookie).await, 200);
    assert_eq!(page("drover_session=guess").await, 401);
    gateway.stop().await;
}

#[tokio::test]
async fn browser_that_may_not_enter_gets_a_page_and_a_program_gets_a_problem() {
    let mut common = Common::new("", "token", Peers::default());
    common.api_token = Some("api".to_owned().into());
    let gateway = start(config(), common).await.unwrap();
    let http = reqwest::Client::new();
    let get = async |path: &str, accept: &str| {
        let answer = http.get(format!("http://{}{path}", gateway.addr)).header("accept", accept).send().await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), kind, answer.headers().contains_key("www-authenticate"), answer.text().await.unwrap())
    };

    let (status, kind, challenge, text) = get("/", "text/html,*/*").await;
    assert_eq!((status, &*kind, challenge), (401, "text/html; charset=utf-8", true));
    assert!(text.contains("drover page"), "it says how to get in: {text}");
    for (path, accept) in [("/", "*/*"), ("/v2/projects", "text/html")] {
        assert_eq!(get(path, accept).await.1, "application/problem+json", "{path}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn one_document_describes_all_public_operations() {
    let gateway = start(config(), Common::new("", "token", Peers::default())).await.unwrap();
    for (name, version) in [("openapi.json", "3.1.0"), ("openapi-3.0.json", "3.0.3")] {
        let url = format!("http://{}/{name}", gateway.addr);
        let document: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
        assert_eq!(document["openapi"], version);
        for path in ["/v2/projects", "/v2/plans", "/v2/clusters", "/v2/cluster-providers", "/v2/login-links"] {
            assert!(document["paths"].get(path).is_some(), "{name}: {path}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn connections_of_one_address_are_limited() {
    let gateway = start(config(), Common::new("", "token", Peers::default())).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(gateway.addr).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        stream.read_u8().await.expect("an answer");
        open.push(stream);
    }
    let mut refusal = String::new();
    let mut fourth = TcpStream::connect(gateway.addr).await.unwrap();
    tokio::time::timeout(Duration::from_secs(40), fourth.read_to_string(&mut refusal)).await.expect("it is closed").unwrap();
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    gateway.stop().await;
}

#[tokio::test]
async fn unreachable_service_is_answered_with_peer_unavailable() {
    let silent = Silent::start().await;
    let peers = Peers { orchestrator: silent.url(), ..Peers::default() };
    let common = Common::new("", "token", peers);
    let gateway = start(config(), common).await.unwrap();
    // Without a limit of its own for connecting, the gateway answers only when the limit for long polls (85 s) has passed.
    let request = reqwest::Client::new().get(format!("http://{}/v2/projects", gateway.addr)).timeout(Duration::from_secs(40));
    let response = request.send().await.expect("the gateway gives up connecting");
    assert_eq!((response.status().as_u16(), &response.headers()["content-type"]), (503, &"application/problem+json".parse().unwrap()));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "peer_unavailable", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("orchestrator"), "{problem}");
    gateway.stop().await;
}
