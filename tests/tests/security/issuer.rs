//! Users of an identity provider: a real issuer (oidc-provider, in tests/issuer) whose pages this test fills in as a browser would.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drover::hub::Client as Drover;
use drover_e2e::emco::free_port;
use drover_e2e::{API_TOKEN, System};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

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

impl Issuer {
    /// An ID token that a program of this user gets, with the secret of Drover. Drover never sees the code.
    async fn id_token(&self, secret: &str, callback: &str, user: &str) -> String {
        let verifier = "v".repeat(64);
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let query = [
            ("response_type", "code"),
            ("client_id", "drover"),
            ("redirect_uri", callback),
            ("scope", "openid email groups"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let begin = Url::parse_with_params(&format!("{}/auth", self.url), query).unwrap();
        let at = Browser::new().fill_in(begin, callback, user).await;
        let (_, code) = at.query_pairs().find(|(name, _)| name == "code").expect("the issuer gives a code");
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", callback),
            ("client_id", "drover"),
            ("client_secret", secret),
            ("code_verifier", &verifier),
        ];
        let tokens: Value = Client::new().post(format!("{}/token", self.url)).form(&form).send().await.unwrap().json().await.unwrap();
        tokens["id_token"].as_str().unwrap_or_else(|| panic!("{tokens}")).to_owned()
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

    /// Follows redirects until one leads to `end`; the last address and, if that was asked, its answer.
    async fn go(&mut self, method: Method, url: Url, form: Option<&[(&str, &str)]>, end: &str) -> (Url, Option<Response>) {
        let (mut url, mut answer) = (url.clone(), self.send(method, &url, form).await);
        while answer.status().is_redirection() {
            url = url.join(answer.headers()["location"].to_str().unwrap()).unwrap();
            if url.as_str().starts_with(end) {
                return (url, None);
            }
            answer = self.send(Method::GET, &url, None).await;
        }
        (url, Some(answer))
    }

    /// Signs in as this user, on the pages of the issuer that `begin` leads to; where the issuer sends the browser back to, below `end`.
    async fn fill_in(&mut self, begin: Url, end: &str, user: &str) -> Url {
        let (mut at, mut answer) = self.go(Method::GET, begin, None, end).await;
        for form in [&[("prompt", "login"), ("login", user), ("password", "any")][..], &[("prompt", "consent")][..]] {
            let page = answer.expect("the issuer shows a page").text().await.unwrap();
            assert!(at.path().starts_with("/interaction/"), "{at}: {page}");
            let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(at.as_str());
            (at, answer) = self.go(Method::POST, at.join(action).unwrap(), Some(form), end).await;
        }
        assert!(answer.is_none(), "{at} is not {end}");
        at
    }

    /// Signs in to Drover as this user; its answer at the end.
    async fn sign_in(&mut self, drover: &Url, user: &str) -> Response {
        let end = drover.join("login/oidc/callback").unwrap();
        let back = self.fill_in(drover.join("login/oidc").unwrap(), end.as_str(), user).await;
        self.send(Method::GET, &back, None).await
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
    let listen = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
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

    // A program may send the ID token itself.
    let token = issuer.id_token(secret, &format!("http://{listen}/login/oidc/callback"), "ann.shop").await;
    let asked = async |token: &str| Drover::new(url.clone(), Some(token.to_owned())).unwrap().get::<Value>("/v2/whoami").await;
    assert_eq!(asked(&token).await.unwrap()["name"], "ann.shop@example.com");
    for forged in forgeries(&token) {
        let refused = asked(&forged).await.unwrap_err();
        assert!(drover::hub::is_status(&refused, 401), "{forged}: {refused:#}");
    }
    let log: Value = system.client.get("/v2/audit?limit=1000").await.unwrap();
    assert!(!log.to_string().contains(secret) && !log.to_string().contains(API_TOKEN) && !log.to_string().contains("code="), "{log}");
    system.end().await;
}

/// Tokens that look like this one and that the issuer has not made.
fn forgeries(token: &str) -> Vec<String> {
    let [head, claims, signature]: [&str; 3] = token.split('.').collect::<Vec<_>>().try_into().expect("a token has three parts");
    let read = |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    let write = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let with = |part: &str, name: &str, value: Value| {
        let mut part = read(part);
        part[name] = value;
        write(&part)
    };
    vec![
        "not.a.token".to_owned(),
        format!("{head}.{}.{signature}", with(claims, "sub", json!("bob.other"))),
        format!("{head}.{}.{signature}", with(claims, "exp", json!(4_000_000_000_u64))),
        format!("{}.{claims}.", with(head, "alg", json!("none"))),
        format!("{}.{claims}.{signature}", with(head, "alg", json!("HS256"))),
        format!("{}.{claims}.{signature}", with(head, "kid", json!("another"))),
    ]
}
