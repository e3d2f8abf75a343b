//! The token that identifies a reporter to the decider. The kubelet renews its file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Path of the token file in the manifests.
pub const FILE: &str = "/var/run/secrets/drover.io/token";
/// The file is read again after this time; tokens are renewed long before they expire.
const AGAIN: Duration = Duration::from_secs(60);

/// When the file was read, and the header made from it.
type Read = Option<(Instant, Option<HeaderValue>)>;

/// A token in a file. Without a file nothing is sent, and the decider's answer says what to do.
#[derive(Clone, Debug)]
pub struct Token {
    file: PathBuf,
    read: Arc<Mutex<Read>>,
}

impl Token {
    /// The token in this file.
    pub fn new(file: PathBuf) -> Self {
        Self { file, read: Arc::default() }
    }

    /// The value of the header `Authorization`.
    pub async fn authorization(&self) -> Option<HeaderValue> {
        let mut read = self.read.lock().await;
        match &*read {
            Some((at, value)) if at.elapsed() < AGAIN && value.is_some() => value.clone(),
            _ => {
                let value = tokio::fs::read_to_string(&self.file).await.ok().and_then(|token| {
                    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).ok()?;
                    value.set_sensitive(true);
                    Some(value)
                });
                *read = Some((Instant::now(), value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[tokio::test(start_paused = true)]
    async fn token_rereads_file_after_a_minute_and_hides_value() {
        let dir = tempfile::tempdir().unwrap();
        let token = Token::new(dir.path().join("token"));
        assert_eq!(token.authorization().await, None);
        let sent = async || token.authorization().await.map(|value| value.to_str().unwrap().to_owned());
        for (written, seen) in [("one\n", "Bearer one"), ("two\n", "Bearer one")] {
            std::fs::write(dir.path().join("token"), written).unwrap();
            assert_eq!(sent().await.as_deref(), Some(seen));
        }
        tokio::time::advance(super::AGAIN).await;
        assert_eq!(sent().await.as_deref(), Some("Bearer two"));
        assert!(!format!("{token:?}").contains("two"));
    }
}
