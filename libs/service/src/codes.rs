//! The registry of error codes: each has one line here and one page `docs/errors/<code>.md`.
//!
//! To add a code, add a line to the table below and its page (what happened, why, what to do, an example). The page is compiled in, so
//! a code without a page does not build; a test finds pages without a code. A released code is never renamed or given another
//! meaning.

use http::StatusCode;

use crate::Problem;

/// An error code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Name on the wire.
    pub name: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Summary in a few words.
    pub title: &'static str,
    /// Text of its page, in Markdown.
    pub page: &'static str,
}

impl Code {
    /// A problem with this code; `detail` is shown to the client.
    pub fn problem(self, detail: impl Into<String>) -> Problem {
        Problem::new(self, detail)
    }

    /// HTTP status.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("the table holds valid statuses, see the test")
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The code of this name.
pub fn find(name: &str) -> Option<Code> {
    ALL.iter().copied().find(|code| code.name == name)
}

macro_rules! codes {
    ($($constant:ident $name:literal $status:literal $title:literal;)*) => {
        $(#[doc = concat!($title, " (", $status, ").")]
        pub const $constant: Code = Code {
            name: $name,
            status: $status,
            title: $title,
            page: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/", $name, ".md")),
        };)*
        /// Every code.
        pub const ALL: &[Code] = &[$($constant),*];
    };
}

codes! {
    // the request
    EMPTY_BODY "empty_body" 400 "Empty body";
    MALFORMED_JSON "malformed_json" 422 "The body is not valid JSON for this request";
    MALFORMED_UPLOAD "malformed_upload" 422 "The upload cannot be read";
    TOO_COMPLEX "too_complex" 422 "The input expands to too much";
    INVALID "invalid" 400 "The request breaks a rule";
    MISMATCHED_NAME "mismatched_name" 400 "Mismatched name in PUT request";
    UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" 415 "Unsupported content type";
    NOT_ACCEPTABLE "not_acceptable" 406 "No representation of the requested type";
    TOO_LARGE "too_large" 413 "The body is too large";
    METHOD_NOT_ALLOWED "method_not_allowed" 405 "This path does not support this method";
    UNAUTHORIZED "unauthorized" 401 "A valid bearer token is needed";
    FORBIDDEN "forbidden" 403 "Not allowed";
    NOT_GRANTED "not_granted" 403 "The logical cloud does not allow these objects";
    ORIGIN_REFUSED "origin_refused" 403 "The request was sent by a page of another site";
    HOST_NOT_ALLOWED "host_not_allowed" 421 "This service is not known by this name";
    RATE_LIMITED "rate_limited" 429 "Too many requests";
    TOO_MANY_PROGRAMS "too_many_programs" 429 "Too many programs run at once";
    TIMEOUT "timeout" 504 "The request took too long";
    INTERNAL "internal" 500 "Something failed inside Drover";
    NOT_YET "not_yet" 501 "Not implemented in this version";
    // documents
    NOT_FOUND "not_found" 404 "Not found";
    ALREADY_EXISTS "already_exists" 409 "Already exists";
    PARENT_NOT_FOUND "parent_not_found" 404 "The parent does not exist";
    HAS_CHILDREN "has_children" 409 "Other resources live below this one";
    HAS_REFERENCES "has_references" 409 "Other resources refer to this one";
    REFERENCE_NOT_FOUND "reference_not_found" 409 "A resource that this one refers to does not exist";
    PRECONDITION_FAILED "precondition_failed" 412 "The resource has changed since it was read";
    WRONG_STATE "wrong_state" 409 "Not possible in the current state";
    IDEMPOTENCY_KEY_REUSED "idempotency_key_reused" 422 "The idempotency key belongs to another request";
    IDEMPOTENCY_KEY_IN_USE "idempotency_key_in_use" 409 "The request with this idempotency key is still being carried out";
    ANSWER_NOT_KEPT "answer_not_kept" 409 "The request was carried out, and its answer is not kept";
    // operations
    BUSY "busy" 409 "Another operation holds this deployment intent group";
    PAST_THE_PIVOT "past_the_pivot" 409 "The operation can no longer be undone";
    VICTIM_BUSY "victim_busy" 409 "An application that was to move is busy";
    DESTINATION_NOT_READY "destination_not_ready" 409 "A moved application did not become ready";
    COPY_NOT_STOPPED "copy_not_stopped" 409 "An application that must not run twice did not stop";
    TRAFFIC_NOT_ANSWERED "traffic_not_answered" 409 "The new copy does not answer its routes";
    TRAFFIC_NOT_SHIFTED "traffic_not_shifted" 409 "The data path did not follow";
    TRAFFIC_ERROR_BUDGET "traffic_error_budget" 409 "Too many requests to the new copy failed";
    ROOM_LOST "room_lost" 409 "Other pods took the freed room";
    DEADLINE "deadline" 409 "The operation ran out of time";
    CANCELLED "cancelled" 409 "The operation was cancelled";
    HOOK_FAILED "hook_failed" 409 "A hook of the chart failed";
    TEST_FAILED "test_failed" 409 "A test of the chart failed";
    PREFLIGHT_FAILED "preflight_failed" 409 "The cluster would refuse these objects";
    SHARED_OBJECT_DIFFERS "shared_object_differs" 409 "Two applications contain different versions of a shared object";
    ACCOUNT_REFUSED "account_refused" 409 "The account of the logical cloud may not write this";
    APPLY_FAILED "apply_failed" 409 "The cluster refused an object";
    NOT_READY "not_ready" 409 "The application did not become ready";
    // deciding
    NO_ROOM "no_room" 409 "No allowed cluster has room";
    CAPACITY_UNKNOWN "capacity_unknown" 503 "The capacity of the allowed clusters is not known at present";
    PLAN_INFEASIBLE "plan_infeasible" 409 "No plan makes the room";
    PLAN_NOT_PROPOSED "plan_not_proposed" 409 "The plan is no longer open";
    WORLD_CHANGED "world_changed" 409 "The plan is out of date";
    LEDGER_CONFLICT "ledger_conflict" 409 "The ledger differs from what was assumed";
    STALE_FENCE "stale_fence" 409 "A newer writer has taken over";
    VOLUME_APP "volume_app" 409 "The volumes of an application cannot be taken along";
    CALL_GRAPH_INVALID "call_graph_invalid" 400 "The call graph is not valid";
    EXPRESSION_INVALID "expression_invalid" 400 "The expression does not compile";
    // applications
    RENDER_FAILED "render_failed" 422 "The application does not render";
    HELM_UNAVAILABLE "helm_unavailable" 503 "Helm cannot be run";
    CONTROLLER_FAILED "controller_failed" 502 "A controller does not answer as it should";
    CONTROLLER_REFUSED "controller_refused" 409 "A controller refuses the request";
    UNKNOWN_KIND "unknown_kind" 422 "A manifest has a kind that the cluster does not know";
    NAME_NOT_DNS "name_not_dns" 400 "The name is not a DNS label";
    // clusters
    UNKNOWN_CLUSTER "unknown_cluster" 400 "No such cluster or label";
    KUBECONFIG_INVALID "kubeconfig_invalid" 422 "The kubeconfig cannot be used";
    KUBECONFIG_REFUSED "kubeconfig_refused" 422 "The kubeconfig uses something that Drover does not support";
    CLUSTER_UNREACHABLE "cluster_unreachable" 503 "The cluster does not answer";
    CLUSTER_UNAUTHORIZED "cluster_unauthorized" 409 "The cluster refuses the credential";
    INVITATION_REFUSED "invitation_refused" 403 "The invitation cannot be used";
    LINK_REFUSED "link_refused" 403 "The certificate of the agent is not accepted";
    CLAIMS_LEFT "claims_left" 409 "Applications still have room in this cluster";
    // services and the database
    PEER_UNAVAILABLE "peer_unavailable" 503 "Another Drover service does not answer";
    STORE_UNAVAILABLE "store_unavailable" 503 "The database does not answer";
    STORE_FULL "store_full" 507 "The database has no space left";
    BUSY_SERVER "busy_server" 503 "The service has too much to do";
    // the data path of routes, and the request path of the autoscaler (both have their own copy of these)
    NO_ROUTE "no_route" 404 "There is no route for this host";
    QUEUE_FULL "queue_full" 503 "Too many requests are waiting";
    NO_POD_IN_TIME "no_pod_in_time" 503 "No pod had room in time";
    APP_BROKE_OFF "app_broke_off" 502 "The app closed the connection without a complete answer";
    APP_UNREACHABLE "app_unreachable" 503 "The app cannot be reached";
}
