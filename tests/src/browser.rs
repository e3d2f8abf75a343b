//! A headless Chromium that does what a person does: chromedriver, spoken to by the WebDriver protocol (W3C).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_testkit::eventually;
use serde_json::{Value, json};

/// How long something may take to appear. It only guards against hanging.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A browser with one window. Ends with the value.
pub struct Browser {
    driver: Child,
    client: reqwest::Client,
    /// Address of the session.
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // chromedriver ends its browser with it.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.driver.id().cast_signed()), nix::sys::signal::Signal::SIGTERM);
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Starts it with a window of this width.
    ///
    /// # Errors
    /// chromedriver or Chromium is missing or does not start.
    pub async fn start(width: u32) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let driver = driver.as_mut().ok().and_then(|child| child.stdout.take()).zip(driver.ok());
        let (stdout, driver) = driver.context("chromedriver is installed (deploy/setup.sh)")?;
        let mut lines = BufReader::new(stdout).lines();
        let port =
            lines.find_map(|line| line.ok()?.split("started successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok());
        std::thread::spawn(move || lines.for_each(drop));
        let port = port.context("chromedriver says its port")?;
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
        let options = json!({"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}, "unhandledPromptBehavior": "ignore"});
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
        let asked = async || {
            let answer: Value = self.client.get(format!("{}/alert/text", self.session)).send().await.ok()?.json().await.ok()?;
            answer["value"].as_str().map(str::to_owned)
        };
        let question = eventually(TIMEOUT, asked).await;
        self.post("alert/accept", json!({})).await?;
        Ok(question)
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
