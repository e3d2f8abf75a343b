//! Requests that Services of an app must answer before the app counts as ready (`drover.io/serving-http`). They are sent through the API
//! server of the member, so that no way to its pods is needed.
//!
//! Asked once all objects are ready and the time that the app asks for is over, until all are answered; then never again for this
//! version, just as that time is waited for only once. A question runs beside the worker, because the answer of an app may take long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use drover_members::Member;
use drover_members::serving::Expectation;
use tokio::time::timeout;
use uuid::Uuid;

use super::Worker;
use super::binding_state::BindingState;

/// How long an app may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause before the next attempt.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// What was asked, and answered last.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<Answer>>);

#[derive(Debug, Default)]
struct Answer {
    under_way: bool,
    /// The last answer and its time; an error says why the app does not serve.
    last: Option<(Result<(), String>, Instant)>,
}

impl Asked {
    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BindingState {
    /// Whether all requests that the app names are answered.
    pub fn answers(&self) -> bool {
        let is_answered = |asked: &Asked| matches!(asked.answer().last, Some((Ok(()), _)));
        self.expectations.is_empty() || self.asked.as_ref().is_some_and(is_answered)
    }

    /// Why the app does not serve, as its last answer says.
    pub fn silence(&self) -> String {
        match self.asked.as_ref().map(|asked| asked.answer().last.clone()) {
            Some(Some((Err(why), _))) => why,
            _ => "not answered yet".to_owned(),
        }
    }
}

impl Worker {
    /// Asks the app, unless that is under way or done, or it is too early.
    pub(super) fn ask(&mut self, member: &Arc<Member>, id: Uuid) {
        let bound = &self.bindings[&id];
        let is_time = bound.ready_since.is_some_and(|since| since.elapsed() >= bound.serving_after);
        if !bound.warms_up() || !is_time || !bound.objects_are_ready(&self.view) || bound.answers() {
            return;
        }
        let expectations = bound.expectations.clone();
        let asked = self.bound(id).asked.get_or_insert_default().clone();
        {
            let mut answer = asked.answer();
            if answer.under_way || answer.last.as_ref().is_some_and(|(_, at)| at.elapsed() < AGAIN) {
                return;
            }
            answer.under_way = true;
        }
        let (app, key, member) = (self.app.clone(), self.key.clone(), Arc::clone(member));
        tokio::spawn(async move {
            let last = Some((all_answer(&member, &expectations).await, Instant::now()));
            *asked.answer() = Answer { under_way: false, last };
            app.wake(&key, id);
        });
    }
}

async fn all_answer(member: &Member, expectations: &[Expectation]) -> Result<(), String> {
    for asked in expectations {
        let Expectation { service, port, path, .. } = asked;
        let why = match timeout(ANSWER, member.ask_service(asked)).await {
            Ok(Ok(status)) if status < 400 => continue,
            Ok(Ok(status)) => format!("answers {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("does not answer within {} s", ANSWER.as_secs()),
        };
        return Err(format!("Service {service}, port {port}, {path}: {why}"));
    }
    Ok(())
}
