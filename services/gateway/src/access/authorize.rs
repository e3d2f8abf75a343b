//! What happens to a request between the guard, which knows its sender, and the service that answers it: rate, role, record, and what the
//! sender sees of the answer.

use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use drover_api::access::{AuditEntry, Role};
use drover_service::{Identity, Principal, Problem, ProblemDocument, codes, request_id, telemetry, to_its_end};
use drover_store::Store;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::repeated::{Found, Keyed};
use super::rules::{self, At, Need, Owner, Shown};
use super::visible::View;
use super::{Access, forbidden};

/// Who asks, for the history of revisions.
const USER: HeaderName = HeaderName::from_static("drover-user");
/// Projects of which apps may be moved for this request, as a JSON list; without it, of all.
const MOVABLE_PROJECTS: HeaderName = HeaderName::from_static("drover-movable-projects");

/// Bodies that are read here: of an order for a plan, and of answers that are not shown as they are.
const BODY: usize = 1 << 20;
const ANSWER: usize = 64 << 20;

/// The middleware of every public route but those that sign in.
pub async fn authorize(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let Some(principal) = request.extensions().get::<Principal>().cloned() else { return next.run(request).await };
    let path = request.uri().path().to_owned();
    if let Err(problem) = access.0.limit.count(&principal) {
        return problem.into_response();
    }
    if !path.starts_with("/v2/") {
        return access.page(&principal, request, next).await;
    }
    let writes = !request.method().is_safe();
    let allowed = access.allowed(&principal, &path, &mut request).await;
    if !writes && allowed.is_ok() {
        return access.answer(&principal, allowed, request, next).await;
    }
    let entry = entry(&principal, &path, &request);
    if let (Ok(_), Some(store), true) = (&allowed, access.0.store.clone(), Keyed::has_key(&request)) {
        // Who sent a key will ask again, so the request is carried out even if its sender hangs up.
        return to_its_end(async move { access.once(store, &principal, allowed, entry, request, next).await }).await;
    }
    match access.0.audit.begin(entry).await {
        Ok(entry) => access.recorded(&principal, allowed, entry, request, next).await,
        Err(problem) => problem.into_response(),
    }
}

impl Access {
    /// What the route needs, if the sender has it.
    async fn allowed(&self, principal: &Principal, path: &str, request: &mut Request) -> Result<Need, Problem> {
        let Some(mut need) = rules::need(request.method(), path) else {
            let unknown = || codes::NOT_FOUND.problem(format!("404 page not found: there is nothing at {path}"));
            let need = Need { role: Role::Admin, at: At::Everywhere };
            return if principal.may(Role::Admin, None) { Ok(need) } else { Err(unknown()) };
        };
        let accepts = request.headers().get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if rules::is_file(path, accepts) {
            need.role = need.role.max(Role::Deployer);
        }
        match need.at {
            At::Project => {
                let project = rules::project(path).unwrap_or_default();
                if !principal.may(Role::Viewer, Some(&project)) {
                    return Err(codes::NOT_FOUND.problem(format!("There is no project {project}")));
                }
                if !principal.may(need.role, Some(&project)) {
                    return Err(forbidden(principal, need.role, Some(&project)));
                }
            }
            At::Everywhere if !principal.may(need.role, None) => return Err(forbidden(principal, need.role, None)),
            At::Everywhere => {}
            At::Shown(_) | At::Owner(_) if !principal.may_somewhere(need.role) => {
                return Err(if principal.grants.is_empty() { no_role(principal) } else { forbidden(principal, need.role, None) });
            }
            At::Shown(_) => {}
            // Who has the highest role that this can need has it everywhere.
            At::Owner(_) if principal.may(Role::Operator, None) => {}
            At::Owner(owner) => {
                let body = if owner == Owner::PlanWish { keep_body(request).await? } else { Bytes::new() };
                self.permits(principal, need.role, owner, path, &body).await?;
            }
        }
        Ok(need)
    }

    /// A page: what it shows is left out where it is made, by the view that it finds in the request.
    async fn page(&self, principal: &Principal, mut request: Request, next: Next) -> Response {
        if !principal.may_somewhere(Role::Viewer) {
            return no_role(principal).into_response();
        }
        match self.view(principal).await {
            Ok(view) => {
                request.extensions_mut().insert(view);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        }
    }

    /// As [`Access::answer`], with the outcome in the audit log.
    async fn recorded(
        &self,
        principal: &Principal,
        allowed: Result<Need, Problem>,
        entry: AuditEntry,
        request: Request,
        next: Next,
    ) -> Response {
        let answer = self.answer(principal, allowed, request, next).await;
        self.end(entry, answer).await
    }

    async fn end(&self, entry: AuditEntry, answer: Response) -> Response {
        let (answer, code) = code(answer).await;
        self.0.audit.end(AuditEntry { status: Some(answer.status().as_u16()), code, ..entry }).await;
        answer
    }

    /// As [`Access::recorded`], unless the request was carried out before. Its key is looked up while it is recorded.
    async fn once(
        &self,
        store: Store,
        principal: &Principal,
        allowed: Result<Need, Problem>,
        entry: AuditEntry,
        mut request: Request,
        next: Next,
    ) -> Response {
        let found = async { Keyed::of(principal, &mut request).await?.begin(store).await };
        match tokio::join!(self.0.audit.begin(entry), found) {
            (Ok(entry), Ok(Found::New(attempt))) => attempt.end(self.recorded(principal, allowed, entry, request, next).await).await,
            (Ok(entry), Ok(Found::Answered(answer))) => self.end(entry, answer).await,
            (Ok(entry), Err(problem)) => self.end(entry, problem.into_response()).await,
            // Nothing is carried out without a record.
            (Err(problem), Ok(Found::New(attempt))) => attempt.end(problem.into_response()).await,
            (Err(problem), _) => problem.into_response(),
        }
    }

    /// Passes the request on, and returns what the sender sees of the answer.
    async fn answer(&self, principal: &Principal, allowed: Result<Need, Problem>, mut request: Request, next: Next) -> Response {
        let need = match allowed {
            Ok(need) => need,
            Err(problem) => return problem.into_response(),
        };
        let path = request.uri().path().to_owned();
        tell(principal, rules::project(&path).as_deref(), request.headers_mut());
        if principal.projects().is_none() {
            return next.run(request).await;
        }
        // An answer that is read here must not be compressed.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let view = match self.view(principal).await {
            Ok(view) => view,
            Err(problem) => return problem.into_response(),
        };
        let shown = match need.at {
            At::Shown(shown) => shown,
            At::Project | At::Everywhere | At::Owner(_) => Shown::Same,
        };
        seen(view, shown, &path, next.run(request).await).await
    }
}

/// Tells the services who asks, and what may be moved for it. Whatever the sender says of either is dropped, except that holders of the API
/// token, who share it, may say a name.
fn tell(principal: &Principal, project: Option<&str>, headers: &mut HeaderMap) {
    headers.remove(MOVABLE_PROJECTS);
    if matches!(principal.identity, Identity::Token(_) | Identity::User(_)) {
        headers.remove(USER);
        if let Ok(name) = HeaderValue::from_str(&principal.name) {
            headers.insert(USER, name);
        }
    }
    let mover = match project {
        Some(_) => principal.may(Role::Mover, project),
        None => principal.may_somewhere(Role::Mover),
    };
    if let (false, Some(projects)) = (mover, principal.projects()) {
        let own: Vec<&str> = projects.into_iter().filter(|project| principal.may(Role::Deployer, Some(project))).collect();
        if let Ok(own) = HeaderValue::try_from(serde_json::json!(own).to_string()) {
            headers.insert(MOVABLE_PROJECTS, own);
        }
    }
}

/// What the view shows of an answer.
async fn seen(view: View, shown: Shown, path: &str, answer: Response) -> Response {
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    if kind.starts_with("text/event-stream") {
        return events(view, answer);
    }
    if !kind.starts_with("application/json") && !kind.starts_with("application/problem+json") {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let body = match to_bytes(body, ANSWER).await {
        Ok(body) => body,
        Err(error) => return Problem::internal(error).into_response(),
    };
    if body.is_empty() {
        return Response::from_parts(parts, Body::empty());
    }
    let Ok(value) = serde_json::from_slice::<Value>(&body) else {
        return Problem::internal(format!("an answer of {path} is not JSON")).into_response();
    };
    let shown = if parts.status.is_success() { shown } else { Shown::Same };
    let Some(value) = view.of(shown, value) else {
        return codes::NOT_FOUND.problem(format!("There is nothing of your projects at {path}")).into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    match serde_json::to_vec(&value) {
        Ok(body) => Response::from_parts(parts, Body::from(body)),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A stream of events, each as the view shows it.
fn events(view: View, answer: Response) -> Response {
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let mut left = Vec::new();
    let lines = body.into_data_stream().map(move |chunk| {
        left.extend_from_slice(&chunk?);
        // Whole lines only; what follows belongs to the next chunk.
        let whole = left.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = left.drain(..whole).collect();
        let shown = String::from_utf8_lossy(&lines).split_inclusive('\n').map(|line| event_line(&view, line)).collect::<String>();
        Ok::<_, axum::Error>(Bytes::from(shown))
    });
    Response::from_parts(parts, Body::from_stream(lines))
}

fn event_line(view: &View, line: &str) -> String {
    let Some(data) = line.strip_prefix("data:") else { return line.to_owned() };
    match serde_json::from_str::<Value>(data) {
        Ok(value) => format!("data: {}\n", view.without_others(value)),
        Err(_) => "data: {}\n".to_owned(),
    }
}

async fn keep_body(request: &mut Request) -> Result<Bytes, Problem> {
    let body = to_bytes(std::mem::take(request.body_mut()), BODY).await;
    let body = body.map_err(|_| codes::TOO_LARGE.problem(format!("The body is larger than the {BODY} bytes that this path takes")))?;
    *request.body_mut() = Body::from(body.clone());
    Ok(body)
}

fn no_role(principal: &Principal) -> Problem {
    codes::FORBIDDEN.problem(format!(
        "{} has signed in and has no role yet; an admin gives one by `drover role grant`, to the user or to one of the groups",
        principal.name
    ))
}

fn entry(principal: &Principal, path: &str, request: &Request) -> AuditEntry {
    let text = |text: &str| text.chars().take(1000).collect::<String>().replace('\0', "");
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip().to_string());
    AuditEntry {
        id: 0,
        at: String::new(),
        who: text(&principal.name),
        via: principal.identity.via().to_owned(),
        method: request.method().to_string(),
        path: text(path),
        project: rules::project(path).map(|project| text(&project)),
        from: from.unwrap_or_default(),
        trace: telemetry::traceparent().and_then(|parent| parent.split('-').nth(1).map(str::to_owned)),
        request: request_id(),
        status: None,
        code: None,
    }
}

/// The error code of an answer, which is returned as it was.
async fn code(answer: Response) -> (Response, Option<String>) {
    let is_problem = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
    if !is_problem || answer.status() == StatusCode::OK {
        return (answer, None);
    }
    let (parts, body) = answer.into_parts();
    let body = to_bytes(body, ANSWER).await.unwrap_or_default();
    let code = ProblemDocument::read(parts.status.as_u16(), &body).code;
    (Response::from_parts(parts, Body::from(body)), Some(code).filter(|code| !code.is_empty()))
}

#[cfg(test)]
mod tests {
    use drover_api::access::RoleGrant;

    use super::*;

    fn told(role: Role, projects: Option<&[&str]>) -> HeaderMap {
        let grants = vec![RoleGrant { role, projects: projects.map(|names| names.iter().map(|name| (*name).to_owned()).collect()) }];
        let principal = Principal { name: "ci".into(), identity: Identity::Token(uuid::Uuid::nil()), grants };
        let mut headers = HeaderMap::new();
        headers.insert(USER, HeaderValue::from_static("somebody else"));
        headers.insert(MOVABLE_PROJECTS, HeaderValue::from_static("[\"blog\"]"));
        tell(&principal, Some("shop"), &mut headers);
        headers
    }

    #[test]
    fn services_hear_who_asks_and_whose_apps_may_be_moved_from_the_gateway_only() {
        let deployer = told(Role::Deployer, Some(&["shop", "side"]));
        assert_eq!((&deployer[USER], &deployer[MOVABLE_PROJECTS]), (&"ci".parse().unwrap(), &r#"["shop","side"]"#.parse().unwrap()));
        assert!(told(Role::Mover, Some(&["shop"])).get(MOVABLE_PROJECTS).is_none(), "a mover may have others' apps moved");
        assert!(told(Role::Deployer, None).get(MOVABLE_PROJECTS).is_none(), "nobody else's apps are left");
    }

    #[test]
    fn events_name_no_app_of_another_project() {
        let mut view = View::new(Some(["shop".to_owned()].into()));
        view.learn(
            &serde_json::json!({"items": [{"project": "blog", "compositeApp": "weblog", "version": "v1", "dig": "weblog", "app": "web"}]}),
        );
        assert_eq!(
            event_line(&view, "data: {\"message\":\"moving weblog/web\"}\n"),
            "data: {\"message\":\"moving another project's app\"}\n"
        );
        assert_eq!(event_line(&view, ": keep-alive\n"), ": keep-alive\n");
    }
}
