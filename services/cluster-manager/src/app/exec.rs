//! Programs that are run in a container of a copy of an app, through the member's API server: the client's WebSocket is joined with the
//! server's. What its messages say is not read here.

use axum::body::Body;
use drover_scheduling::MemberKey;
use drover_service::tunnel::Handshake;
use drover_service::{Problem, codes};
use http::Response;
use utoipa::IntoParams;
use uuid::Uuid;

use super::App;
use super::copies::{pod_of, problem, refused};
use crate::probe::{DEADLINE, Failure};

/// What is run, and how. Read by [`ExecOrder::read`], because `command` may be there several times.
#[derive(Clone, Debug, Default, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ExecOrder {
    /// Name of the pod.
    pub pod: String,
    /// Container; may be left out for pods of one container.
    pub container: Option<String>,
    /// The program, then each of its arguments.
    #[param(explode = true)]
    pub command: Vec<String>,
    /// Whether the client sends input.
    pub stdin: Option<bool>,
    /// Whether the program gets a terminal; stdout and stderr are then one stream.
    pub tty: Option<bool>,
}

impl ExecOrder {
    /// Reads a query.
    ///
    /// # Errors
    /// `invalid`, and which parameter.
    pub fn read(query: &str) -> Result<Self, Problem> {
        let mut order = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let flag = || match &*value {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err(codes::INVALID.problem(format!("{key}: use true or false"))),
            };
            match &*key {
                "pod" => order.pod = value.into_owned(),
                "container" => order.container = Some(value.into_owned()),
                "command" => order.command.push(value.into_owned()),
                "stdin" => order.stdin = flag()?,
                "tty" => order.tty = flag()?,
                _ => return Err(codes::INVALID.problem(format!("{key}: there is no such parameter"))),
            }
        }
        match (order.pod.is_empty(), order.command.is_empty()) {
            (true, _) => Err(codes::INVALID.problem("pod: name a pod of the copy")),
            (_, true) => Err(codes::INVALID.problem("command: name the program that is to run")),
            _ => Ok(order),
        }
    }
}

impl App {
    /// Runs a program in a container, and joins its streams with the client that has sent `handshake`.
    ///
    /// # Errors
    /// As [`App::log_of`].
    pub async fn exec_in(
        &self,
        member: &MemberKey,
        binding: Uuid,
        order: &ExecOrder,
        handshake: Handshake,
    ) -> Result<Response<Body>, Problem> {
        let client = self.client_of(member).await?;
        let pod = pod_of(&client, member, binding, &order.pod, order.container.as_deref()).await?;
        let mut request =
            http::Request::get(format!("{pod}/exec?{}", query_of(order))).body(kube::client::Body::empty()).map_err(Problem::internal)?;
        request.headers_mut().extend(handshake.headers().clone());
        let answer = tokio::time::timeout(DEADLINE, client.send(request)).await;
        let answer = answer.map_err(|_| problem(Failure::unreachable("no answer in time")))?.map_err(refused)?;
        match handshake.join(answer, ()) {
            Ok(switched) => Ok(switched),
            Err(answer) => Err(refused(said(answer).await)),
        }
    }
}

/// How an API server is asked to run a program.
fn query_of(order: &ExecOrder) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let tty = order.tty.unwrap_or_default();
    // With a terminal there is one stream of output.
    for (key, wanted) in [("stdin", order.stdin.unwrap_or_default()), ("stdout", true), ("stderr", !tty), ("tty", tty)] {
        query.append_pair(key, if wanted { "true" } else { "false" });
    }
    query.extend_pairs(order.container.iter().map(|container| ("container", container)));
    query.extend_pairs(order.command.iter().map(|word| ("command", word)));
    query.finish()
}

/// Why an API server has not agreed to a WebSocket.
async fn said(answer: Response<kube::client::Body>) -> kube::Error {
    let code = answer.status().as_u16();
    let text = answer.into_body().collect_bytes().await.unwrap_or_default();
    let status = serde_json::from_slice::<kube::core::Status>(&text);
    let unread = || kube::core::Status::failure(&String::from_utf8_lossy(&text), "Unknown").with_code(code);
    kube::Error::Api(Box::new(status.unwrap_or_else(|_| unread())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_has_each_argument_as_it_was_sent() {
        let order = ExecOrder::read("pod=web-1&command=sh&command=-c&command=echo%20%22a%26b%22&tty=true").unwrap();
        assert_eq!(order.command, ["sh", "-c", r#"echo "a&b""#]);
        assert_eq!((order.pod.as_str(), order.tty, order.stdin), ("web-1", Some(true), None));
        for wrong in ["command=ls", "pod=web-1", "pod=web-1&command=ls&tty=yes", "pod=web-1&command=ls&as=root"] {
            assert!(ExecOrder::read(wrong).is_err(), "{wrong}");
        }
    }
}
