//! Users of an identity provider: a real issuer (oidc-provider, in tests/issuer) whose pages this test fills in as a browser would.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use drover::hub::Client as Drover;
use drover_e2e::{API_TOKEN, System};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::{Value, json};

struct Issuer {
    url: String,
    process: Child,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Issuer {
    fn start(secret: &str, callback: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("issuer");
        let cache = std::env::var_os("DROVER_CACHE")
            .map_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache/drover"), Into::into);
        let installed = cache.join("issuer");
        std::fs::create_dir_all(&installed).unwrap();
        for file in ["package.json", "package-lock.json", "issuer.mjs"] {
            std::fs::copy(folder.join(file), installed.join(file)).unwrap();
        }
        let npm = Command::new("npm")
            .args(["ci", "--silent", "--no-fund", "--no-audit"])
            .current_dir(&installed)
            .status()
            .expect("npm is installed");
        assert!(npm.success(), "npm ci in {}", installed.display());
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "node", "issuer.mjs", secret, callback])
            .current_dir(&installed)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node is installed");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { url: url.trim().to_owned(), process }
    }
}

/// A browser: it keeps cookies by host and port, and follows redirects by itself.
struct Browser {
    http: Client,
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

impl Browser {
    fn new() -> Self {
        Self {
            http: Client::builder().redirect(reqwest::redirect::Policy::none()).pool_max_idle_per_host(0).build().unwrap(),
            cookies: BTreeMap::new(),
        }
    }

    async fn send(&mut self, method: Method, url: &Url, form: Option<&[(&str, &str)]>) -> Response {
        let site = format!("{}:{}", url.host_str().unwrap(), url.port_or_known_default().unwrap());
        let cookies: Vec<String> =
            self.cookies.entry(site.clone()).or_default().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = self.http.request(method, url.clone()).header("cookie", cookies.join("; ")).header("accept", "text/html");
        if let Some(form) = form {
            request = request.form(form);
        }
        let answer = request.send().await.unwrap();
        for cookie in answer.headers().get_all("set-cookie") {
            let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.get_mut(&site).unwrap().insert(name.to_owned(), value.to_owned());
        }
        answer
    }

    /// Follows redirects; the last address and its answer.
    async fn go(&mut self, method: Method, url: Url, form: Option<&[(&str, &str)]>) -> (Url, Response) {
        let (mut url, mut answer) = (url.clone(), self.send(method, &url, form).await);
        while answer.status().is_redirection() {
            url = url.join(answer.headers()["location"].to_str().unwrap()).unwrap();
            answer = self.send(Method::GET, &url, None).await;
        }
        (url, answer)
    }

    /// Signs in as this user, on the pages of the issuer; the answer of Drover at the end.
    async fn sign_in(&mut self, drover: &Url, user: &str) -> Response {
        let (mut at, mut answer) = self.go(Method::GET, drover.join("login/oidc").unwrap(), None).await;
        for form in [&[("prompt", "login"), ("login", user), ("password", "any")][..], &[("prompt", "consent")][..]] {
            assert!(at.path().starts_with("/interaction/"), "{at}: {}", answer.text().await.unwrap());
            let page = answer.text().await.unwrap();
            let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(at.as_str());
            (at, answer) = self.go(Method::POST, at.join(action).unwrap(), Some(form)).await;
        }
        assert_eq!(at.path(), "/login/oidc/callback", "{at}");
        answer
    }

    async fn status(&mut self, drover: &Url, path: &str) -> u16 {
        self.send(Method::GET, &drover.join(path).unwrap(), None).await.status().as_u16()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_of_an_issuer_has_the_roles_of_user_and_groups() {
    let (secret, folder) = ("the secret of drover at the issuer", tempfile::tempdir().unwrap());
    let file = folder.path().join("secret");
    std::fs::write(&file, secret).unwrap();
    // The issuer must know the address of the gateway, and the gateway that of the issuer.
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let issuer = Issuer::start(secret, &format!("http://{listen}/login/oidc/callback"));
    let flag = |name: &str, value: &str| ("gateway", format!("--{name}={value}"));
    let flags =
        [flag("oidc-issuer", &issuer.url), flag("oidc-client-id", "drover"), flag("oidc-client-secret-file", &file.display().to_string())];
    let system = System::guarded_at(listen, &flags).await;
    let url = system.url().clone();
    system.client.ensure("/v2/projects", &json!({"metadata": {"name": "shop"}})).await.unwrap();
    system.client.ensure("/v2/projects", &json!({"metadata": {"name": "blog"}})).await.unwrap();

    let mut ann = Browser::new();
    assert_eq!(ann.status(&url, "v2/projects/shop").await, 401);
    let answer = ann.sign_in(&url, "ann.shop").await;
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await.unwrap());
    assert_eq!(ann.status(&url, "v2/projects/shop").await, 404, "a user without a role sees nothing");
    assert_eq!(ann.status(&url, "").await, 403, "the page says that a role is missing");

    let grant = async |name: &str, subject: &str, role: &str, project: &str| {
        let body = json!({"name": name, "subject": subject, "role": role, "projects": [project]});
        system.client.put(&format!("/v2/role-bindings/{name}"), &body).await.unwrap();
    };
    grant("shop", "group:shop", "viewer", "shop").await;
    assert_eq!((ann.status(&url, "v2/projects/shop").await, ann.status(&url, "v2/projects/blog").await), (200, 404));
    assert_eq!(ann.status(&url, "").await, 200);
    grant("ann", "user:ann.shop@example.com", "deployer", "blog").await;
    assert_eq!(ann.status(&url, "v2/projects/blog").await, 200, "roles of a user and of groups add up");
    let me: Value = ann.send(Method::GET, &url.join("v2/whoami").unwrap(), None).await.json().await.unwrap();
    assert_eq!(me["name"], "ann.shop@example.com");

    let mut bob = Browser::new();
    bob.sign_in(&url, "bob.other").await;
    assert_eq!(bob.status(&url, "v2/projects/shop").await, 404, "another group");
    let mut eve = Browser::new();
    eve.sign_in(&url, "ann.unverified").await;
    grant("eve", "user:ann.unverified@example.com", "viewer", "shop").await;
    assert_eq!(eve.status(&url, "v2/projects/shop").await, 404, "an address that is not verified is nobody's");

    system.client.delete("/v2/role-bindings/shop").await.unwrap();
    assert_eq!(ann.status(&url, "v2/projects/shop").await, 404, "what is taken away ends at once");

    // Another site sends a browser here with a code and a state of its own.
    let begun = Browser::new().send(Method::GET, &url.join("login/oidc").unwrap(), None).await;
    let at_issuer = Url::parse(begun.headers()["location"].to_str().unwrap()).unwrap();
    let (_, state) = at_issuer.query_pairs().find(|(name, _)| name == "state").expect("the issuer gets a state");
    let forged = url.join(&format!("login/oidc/callback?code=stolen&state={state}")).unwrap();
    let mut victim = Browser::new();
    let answer = victim.send(Method::GET, &forged, None).await;
    assert_eq!(answer.status(), 401);
    // The issuer would refuse this code, too. What matters is that it is not asked.
    assert!(answer.text().await.unwrap().contains("This browser has not begun to sign in here"), "the state is another browser's");
    assert_eq!(victim.status(&url, "v2/projects/shop").await, 401);

    for token in ["eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4uc2hvcCJ9.", "not.a.token", &forge(&issuer.url)] {
        let refused = Drover::new(url.clone(), Some(token.to_owned())).unwrap().get::<Value>("/v2/whoami").await.unwrap_err();
        assert!(drover::hub::is_status(&refused, 401), "{token}: {refused:#}");
    }
    let log: Value = system.client.get("/v2/audit?limit=1000").await.unwrap();
    assert!(!log.to_string().contains(secret) && !log.to_string().contains(API_TOKEN) && !log.to_string().contains("code="), "{log}");
    system.end().await;
}

/// A token with plausible claims, the symmetric algorithm HS256, and a signature that no key has made.
fn forge(issuer: &str) -> String {
    use base64::Engine;
    let part = |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"iss": issuer, "aud": "drover", "sub": "ann.shop", "exp": 4_000_000_000_u64, "iat": 1, "groups": ["shop"]});
    format!("{}.{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims), part(json!("signature")))
}
