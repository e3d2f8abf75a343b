//! A headless Chromium that does what a person does: chromedriver, spoken to by the WebDriver protocol (W3C).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use drover_testkit::eventually;
use serde_json::{Value, json};

/// How long something may take to appear. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A browser with one window, which ends when the value is dropped.
pub struct Browser {
    driver: Child,
    client: reqwest::Client,
    /// Address of the session.
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of chromedriver is not that of its browser; the end of the session is.
        let _ = self.end_session();
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.driver.id().cast_signed()), nix::sys::signal::Signal::SIGTERM);
        let _ = self.driver.wait();
    }
}

/// Starts chromedriver and returns its port. It takes a free port of IPv4 and then the same of IPv6, and ends if another program was faster.
fn chromedriver() -> Result<(Child, u16)> {
    let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut driver = driver.context("chromedriver cannot be started; deploy/setup.sh installs it")?;
    let mut lines = BufReader::new(driver.stdout.take().context("its output is read")?).lines();
    let port = lines.find_map(|line| line.ok()?.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse().ok());
    let Some(port) = port else {
        driver.wait()?;
        bail!("chromedriver ended before it said its port");
    };
    std::thread::spawn(move || lines.for_each(drop));
    Ok((driver, port))
}

impl Browser {
    fn end_session(&self) -> Result<()> {
        let address = self.session.trim_start_matches("http://");
        let (host, path) = address.split_once('/').context("an address with a path")?;
        let mut driver = std::net::TcpStream::connect(host)?;
        driver.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(driver, "DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        // The answer comes when the browser has ended; chromedriver may keep the connection.
        driver.read_exact(&mut [0; 1])?;
        Ok(())
    }

    /// Starts it with a window of this width.
    ///
    /// # Errors
    /// chromedriver or Chromium is missing or does not start.
    pub async fn start(width: u32) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut started = chromedriver();
        for _ in 0..4 {
            started = started.or_else(|_| chromedriver());
        }
        let (driver, port) = started?;
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            &format!("--window-size={width},900"),
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        // A window is not narrower than 500 pixels; a telephone is.
        let mut chrome = json!({"args": arguments});
        if width < 500 {
            chrome["mobileEmulation"] = json!({"deviceMetrics": {"width": width, "height": 900, "pixelRatio": 1.0}});
        }
        let mut options =
            json!({"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}, "unhandledPromptBehavior": "ignore"});
        // The check of a page for accessibility takes longer than the 30 s of WebDriver on a slow machine.
        options["timeouts"] = json!({"script": 600_000});
        let client = reqwest::Client::new();
        let body = json!({"capabilities": {"alwaysMatch": options}});
        let made: Value = client.post(format!("http://127.0.0.1:{port}/session")).json(&body).send().await?.json().await?;
        let id = made["value"]["sessionId"].as_str().with_context(|| format!("no session: {made}"))?;
        Ok(Self { driver, client, session: format!("http://127.0.0.1:{port}/session/{id}"), _profile: profile })
    }

    async fn post(&self, command: &str, body: Value) -> Result<Value> {
        let answer: Value = self.client.post(format!("{}/{command}", self.session)).json(&body).send().await?.json().await?;
        ensure!(answer["value"]["error"].is_null(), "{command} {body}: {answer}");
        Ok(answer["value"].clone())
    }

    /// Opens an address.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.post("url", json!({"url": url})).await.map(drop)
    }

    /// The value of a JavaScript expression in the page.
    ///
    /// # Errors
    /// It throws an error, or the browser does not answer.
    pub async fn value(&self, expression: &str) -> Result<Value> {
        self.post("execute/sync", json!({"script": format!("return {expression}"), "args": []})).await
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        let holds = async || (self.value(expression).await.ok()? == json!(true)).then_some(());
        let wait = tokio::time::timeout(TIMEOUT, eventually(TIMEOUT, holds)).await;
        if wait.is_err() {
            let page = self.value("document.body.innerText").await;
            panic!("{expression} does not become true; the page says {page:?}");
        }
    }

    /// Clicks the button with this label in the element that the selector finds, and agrees to its question, which is returned.
    ///
    /// # Errors
    /// There is no such button, or it asks nothing.
    pub async fn press(&self, within: &str, label: &str) -> Result<String> {
        let buttons = format!("[...document.querySelectorAll({})].flatMap(e => [...e.querySelectorAll('button')])", json!(within));
        let button = format!("{buttons}.find(b => b.textContent === {})", json!(label));
        self.until(&format!("{button} !== undefined")).await;
        // The page asks its question inside the click, which therefore must not be waited for.
        self.value(&format!("setTimeout(() => {button}.click())")).await?;
        self.agree().await
    }

    /// Shows pages as a user wants them who prefers this colour scheme: `light` or `dark`.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn prefer(&self, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}]);
        let body = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}});
        self.post("goog/cdp/execute", body).await.map(drop)
    }

    /// Presses a key of the keyboard, as WebDriver writes it, for whatever has the focus.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn key(&self, key: &str) -> Result<()> {
        let strokes = json!([{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]);
        self.post("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})).await.map(drop)
    }

    /// Agrees to the question that the page asks, and returns it.
    ///
    /// # Errors
    /// It asks nothing.
    pub async fn agree(&self) -> Result<String> {
        let asked = async || {
            let answer: Value = self.client.get(format!("{}/alert/text", self.session)).send().await.ok()?.json().await.ok()?;
            answer["value"].as_str().map(str::to_owned)
        };
        let question = eventually(TIMEOUT, asked).await;
        self.post("alert/accept", json!({})).await?;
        Ok(question)
    }

    /// What axe-core (`deploy/page/axe.sh`) has to say against the accessibility of the page, a line for each element.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn inaccessible(&self, axe: &str) -> Result<Vec<String>> {
        self.post("execute/sync", json!({"script": axe, "args": []})).await?;
        let run = "const done = arguments[0]; axe.run().then((found) => done(found.violations.flatMap((rule) => \
                   rule.nodes.map((node) => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))), (error) => done([String(error)]));";
        let found = self.post("execute/async", json!({"script": run, "args": []})).await?;
        Ok(found.as_array().into_iter().flatten().filter_map(|line| line.as_str().map(str::to_owned)).collect())
    }

    /// What the page wrote to the console as errors and warnings since it was asked last.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn console(&self) -> Result<Vec<String>> {
        let lines = self.post("se/log", json!({"type": "browser"})).await?;
        let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
        Ok(lines.as_array().into_iter().flatten().map(text).collect())
    }
}
