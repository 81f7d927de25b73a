//! Sessions of a list, with the requests of their turns.
#![expect(clippy::cast_possible_truncation, reason = "a list has at most MAX_REQUESTS")]

use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint::input::check;

use super::super::fixed_list::check_request;
use super::super::limits::{self, MAX_TIME_NS};
use super::super::request::{Content, Segment};
use super::super::seed::mixed;
use super::super::starts::Starts;
use super::super::{Summary, WorkloadRequest};
use super::{Script, SessionLoad, SessionTurn};

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The request. Its `arrival_ns` is the start of the session, or the earliest time at which a later turn is sent. Its prompt is
    /// the whole of what is sent, with the turns before.
    pub request: WorkloadRequest,
    /// Time from the end of the turn before, ns: the client thinks, or a tool runs. It counts for nothing in a first turn.
    pub think_ns: u64,
}

/// Requests that continue each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// The turns, at least one.
    pub turns: Vec<Turn>,
}

impl Session {
    pub(in super::super) fn start_ns(&self) -> u64 {
        self.turns.first().map_or(0, |turn| turn.request.arrival_ns)
    }
}

/// Sessions that start at their times. Clones share the list.
///
/// ```
/// use ridgepoint_replay::workload::{Session, SessionList, Turn, Workload, WorkloadRequest};
///
/// let turn = |prompt, think_ns| Turn { request: WorkloadRequest::new(0, prompt, 10), think_ns };
/// let list = SessionList::new(vec![Session { turns: vec![turn(100, 0), turn(150, 2_000)] }])?;
/// let mut load = list.workload();
/// assert_eq!(load.next_request().map(|first| first.num_prompt_tokens), Some(100));
/// assert_eq!(load.next_arrival_ns(), None, "the second turn waits for the first");
/// load.finished(5_000, 0, 0);
/// assert_eq!(load.next_arrival_ns(), Some(7_000));
/// # Ok::<(), ridgepoint::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionList {
    sessions: Arc<[Session]>,
}

impl SessionList {
    /// Returns a list of these sessions.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with all problems: no sessions, a session without turns, starts that decrease, a think time or earliest
    /// time beyond 10⁹ s, more than 10⁸ turns, and those of the requests as in [`FixedList::new`](super::super::FixedList::new).
    pub fn new(sessions: Vec<Session>) -> Result<Self> {
        let mut problems = Vec::new();
        if sessions.is_empty() {
            problems.push("there are no sessions".to_owned());
        }
        limits::check_most_requests(&mut problems, "turns of all sessions", num_turns(&sessions));
        let mut latest_ns = 0;
        for (index, session) in sessions.iter().enumerate() {
            if session.turns.is_empty() {
                problems.push(format!("session {index} has no turns"));
                continue;
            }
            let start_ns = session.start_ns();
            if start_ns < latest_ns {
                problems.push(format!(
                    "session {index}: arrival_ns = {start_ns} must be at least {latest_ns}, when the one before it starts"
                ));
            }
            latest_ns = latest_ns.max(start_ns);
            for (turn, Turn { request, think_ns }) in session.turns.iter().enumerate() {
                let name = format!("session {index}, turn {turn}");
                for (key, time_ns) in [("arrival_ns", request.arrival_ns), ("think_ns", *think_ns)] {
                    if time_ns > MAX_TIME_NS {
                        problems.push(format!("{name}: {key} = {time_ns} must be at most {MAX_TIME_NS}"));
                    }
                }
                check_request(&mut problems, &name, request);
            }
        }
        check("session list", problems)?;
        Ok(SessionList { sessions: sessions.into() })
    }

    /// Returns the sessions, in order of start.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Returns the sessions as a load.
    pub fn workload(&self) -> SessionLoad {
        let listed = ListedSessions { sessions: Arc::clone(&self.sessions), started: 0, starts: None };
        SessionLoad::new(Box::new(listed), self.num_requests())
    }

    /// Returns the sessions as a load whose sessions start otherwise than the list says.
    pub(in super::super) fn started(&self, starts: Starts) -> SessionLoad {
        let listed = ListedSessions { sessions: Arc::clone(&self.sessions), started: 0, starts: Some(starts) };
        SessionLoad::new(Box::new(listed), self.num_requests())
    }

    /// Returns the number of turns of all sessions.
    pub fn num_requests(&self) -> u64 {
        num_turns(&self.sessions)
    }

    /// Returns the summary of the list.
    pub fn summary(&self) -> Summary {
        let requests = self.sessions.iter().flat_map(|session| &session.turns).map(|turn| &turn.request);
        Summary { sessions: Some(self.sessions.len()), ..Summary::of(requests) }
    }
}

fn num_turns(sessions: &[Session]) -> u64 {
    sessions.iter().map(|session| session.turns.len() as u64).sum()
}

struct ListedSessions {
    sessions: Arc<[Session]>,
    started: usize,
    /// When they start, if not at their own times.
    starts: Option<Starts>,
}

impl ListedSessions {
    fn turn(&self, place: SessionTurn) -> Option<&Turn> {
        self.sessions.get(place.session as usize)?.turns.get(place.turn as usize)
    }
}

impl Script for ListedSessions {
    fn next_start_ns(&self) -> Option<u64> {
        let session = self.sessions.get(self.started)?;
        self.starts.as_ref().map_or_else(|| Some(session.start_ns()), Starts::next_ns)
    }

    fn start(&mut self) -> Option<SessionTurn> {
        let place = SessionTurn { session: self.started as u32, turn: 0, context_tokens: 0 };
        if let Some(starts) = &mut self.starts {
            starts.start()?;
        }
        self.started += 1;
        Some(place)
    }

    fn request(&self, place: SessionTurn) -> Option<WorkloadRequest> {
        Some(self.turn(place)?.request.clone())
    }

    fn next(&self, place: SessionTurn, now_ns: u64) -> Option<(u64, SessionTurn)> {
        let place = SessionTurn { turn: place.turn + 1, ..place };
        let Turn { request, think_ns } = self.turn(place)?;
        Some((now_ns.saturating_add(*think_ns).max(request.arrival_ns), place))
    }

    fn ended(&mut self, now_ns: u64) {
        if let Some(starts) = &mut self.starts {
            starts.ended(now_ns);
        }
    }
}

/// Returns the content of each turn of a session, and the number of turns that drop a part of the text before them.
///
/// `lengths` are tokens of prompt and output, `prefix` is what other sessions share, and `name` identifies the session. A prompt
/// that is at least as long as all of the turn before, begins with it. A shorter one that is as long as the prompt before, begins with
/// that prompt: its output was dropped, as is done with reasoning. A still shorter one begins with the prefix alone.
pub(in super::super) fn grown(prefix: Option<Segment>, name: u64, lengths: &[(u32, u32)]) -> (Vec<Content>, usize) {
    let prefix_tokens = prefix.map_or(0, |prefix| prefix.num_tokens);
    let mut text: Vec<Segment> = prefix.into_iter().collect();
    let (mut last_prompt, mut total, mut dropping) = (prefix_tokens, prefix_tokens, 0);
    let mut contents = Vec::with_capacity(lengths.len());
    for (turn, (prompt, output)) in (0u64..).zip(lengths) {
        let kept = match *prompt {
            prompt if prompt >= total => total,
            prompt if prompt >= last_prompt => last_prompt,
            prompt => prompt.min(prefix_tokens),
        };
        dropping += usize::from(kept < total);
        if turn == 0 || kept < total {
            cut(&mut text, kept);
            text.push(Segment { id: mixed(name ^ mixed(turn)), num_tokens: 0 });
        }
        (last_prompt, total) = (*prompt, prompt.saturating_add(*output));
        if let Some(own) = text.last_mut() {
            own.num_tokens = own.num_tokens.saturating_add(total - kept);
        }
        contents.push(text.as_slice().into());
    }
    (contents, dropping)
}

/// Keeps the first `tokens` tokens of a text.
fn cut(text: &mut Vec<Segment>, tokens: u32) {
    let mut left = tokens;
    for segment in text.iter_mut() {
        segment.num_tokens = segment.num_tokens.min(left);
        left -= segment.num_tokens;
    }
    text.retain(|segment| segment.num_tokens > 0);
}
