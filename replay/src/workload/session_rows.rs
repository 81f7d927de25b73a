//! Sessions from files: request lists with `session_id`, a turn per row, and LLMServingSim's sessions with `sub_requests`.

use std::collections::HashMap;

use ridgepoint::Result;
use ridgepoint::input::{Input, Keys, Log, NumberRange};
use ridgepoint::units::{NS_PER_MS, NS_PER_S};

use super::hash_blocks::HashBlocks;
use super::limits::{MAX_DURATION_S, MAX_TIME_NS, MAX_TOKENS};
use super::list_remarks::ListRemarks;
use super::request::{Segment, WorkloadRequest};
use super::request_list::{self, id_of, request, shared_prefix};
use super::roles::{ns_per_unit, role_of};
use super::rows::time_ns;
use super::seed::mixed;
use super::sessions::{Session, Turn, grown};
use super::trace_clock::TraceClock;
use crate::input::{Columns, Head, Row, RowReader};

/// The columns of a list of turns. An arrival is required in the first turn of a session alone.
pub(super) const COLUMNS: Columns = Columns {
    required: "session_id,input_len,output_len",
    optional: "arrival,turn,think_time_s,prefix_group,prefix_len,priority,stage,temperature,top_p,top_k,min_p,repetition_penalty,\
               presence_penalty,frequency_penalty,hash_ids,block_size,id,request_id,num_total_tokens,pd_ratio",
    ..request_list::COLUMNS
};

/// Names of a turn's number: of the first turn it is 0 or 1.
const FIRST_TURNS: std::ops::RangeInclusive<u32> = 0..=1;

/// The sessions of a file in order of start, and notes for users.
#[derive(Debug, Default)]
pub(super) struct SessionRows {
    pub(super) sessions: Vec<Session>,
    pub(super) notes: Vec<String>,
    /// Whether the file does not say when they start; all starts are 0 then.
    pub(super) lacks_arrivals: bool,
}

/// Returns whether a file begins with the columns of a list of turns.
pub(super) fn is_list(head: &Head) -> bool {
    head.names.iter().any(|name| role_of(name) == Some("session_id")) && !is_agentic(head)
}

/// Returns whether a file begins with a session of LLMServingSim.
pub(super) fn is_agentic(head: &Head) -> bool {
    head.is_json() && head.has("sub_requests")
}

/// A session whose rows are being read.
struct Draft {
    session: Session,
    name: u64,
    prefix: Option<Segment>,
    first_turn: u32,
    /// The blocks of each turn by their hashes; empty where no turn has any.
    blocks: Vec<Vec<Segment>>,
}

impl Draft {
    fn add_blocks(&mut self, row: &Row<'_>, num_tokens: u32, remarks: &mut ListRemarks) -> Result<()> {
        if let Some(HashBlocks { segments, is_misfit }) = HashBlocks::read(row, num_tokens)? {
            remarks.misfits += usize::from(is_misfit);
            self.blocks.resize(self.session.turns.len().saturating_sub(1), Vec::new());
            self.blocks.push(segments);
        }
        Ok(())
    }
}

/// Reads a list of turns. Those of AIPerf's traces have the new tokens of each turn alone, to which the turns before are added.
pub(super) fn read(mut reader: RowReader<'_>) -> Result<SessionRows> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut remarks, mut has_arrivals, mut is_delta) = (ListRemarks::default(), false, false);
    while let Some(row) = reader.next_row()? {
        if !remarks.takes(&row, false)? {
            continue;
        }
        let name = match row.text("session_id") {
            Some(name) => name.into_owned(),
            None if !row.is_by_role("session_id") => {
                return Err(row.bad("session_id", "the name of a session"));
            }
            // A request of no session, as in BurstGPT, is a session of its own.
            None => format!("\0{}", row.row_number()),
        };
        match known.get(&name).and_then(|index| drafts.get_mut(*index)) {
            Some(draft) => later_turn(&row, draft, &mut remarks)?,
            None => {
                let is_timed = row.has("arrival");
                if drafts.is_empty() {
                    (has_arrivals, is_delta) = (is_timed, row.name("input_len") == AIPERF_INPUT);
                } else if has_arrivals != is_timed {
                    return Err(row.bad("arrival", "a time in the first turn of every session, or of none"));
                }
                let last_start_ns = drafts.last().map_or(0, |draft| draft.session.start_ns());
                drafts.push(first_turn(&row, &name, last_start_ns, &mut remarks)?);
                known.insert(name, drafts.len() - 1);
            }
        }
    }
    let mut was_sorted = true;
    if remarks.has_trace_clock() {
        let turns = drafts.iter_mut().flat_map(|draft| &mut draft.session.turns);
        let mut times_ns: Vec<&mut u64> =
            turns.map(|turn| &mut turn.request.arrival_ns).filter(|time_ns| **time_ns > 0).collect();
        TraceClock::from_earliest(reader.origin(), &mut times_ns)?;
        was_sorted = drafts.is_sorted_by_key(|draft| draft.session.start_ns());
        drafts.sort_by_key(|draft| draft.session.start_ns());
    }
    let mut dropping = DroppingTurns::default();
    let finished = |mut draft: Draft| {
        if is_delta {
            add_turns_before(&mut draft.session);
        }
        match draft.blocks.is_empty() {
            true => dropping.with_contents(draft.session, draft.prefix, draft.name),
            false => with_blocks(draft, is_delta),
        }
    };
    let sessions = drafts.into_iter().map(finished).collect();
    let delta = is_delta.then(|| {
        format!("{AIPERF_INPUT} of a session's turn counts its new tokens, as in AIPerf's traces: the turns before are added")
    });
    let notes = dropping.note().into_iter().chain(delta).chain(remarks.notes(was_sorted)).collect();
    Ok(SessionRows { sessions, notes, lacks_arrivals: !has_arrivals })
}

/// What AIPerf's traces call the new tokens of a turn.
///
/// # Source
/// AIPerf 0.13: turns of traces are `deltas_without_responses` unless they have messages, and `delay` is in ms.
const AIPERF_INPUT: &str = "input_length";

/// Puts the turns before in front of each turn, with their outputs.
fn add_turns_before(session: &mut Session) {
    let mut before = 0_u32;
    for Turn { request, .. } in &mut session.turns {
        request.num_prompt_tokens = request.num_prompt_tokens.saturating_add(before);
        before = request.num_prompt_tokens.saturating_add(request.num_output_tokens);
    }
}

/// Gives turns the contents that the hashes of their blocks name; what has none is the session's own. With `is_delta` the blocks are those
/// behind the turns before.
fn with_blocks(draft: Draft, is_delta: bool) -> Session {
    let Draft { mut session, name, blocks, .. } = draft;
    let (mut text, mut length) = (Vec::<Segment>::new(), 0_u32);
    let blocks = blocks.into_iter().chain(std::iter::repeat_with(Vec::new));
    for ((turn, blocks), number) in session.turns.iter_mut().zip(blocks).zip(0_u64..) {
        let (prompt, output) = (turn.request.num_prompt_tokens, turn.request.num_output_tokens);
        if !is_delta {
            (text, length) = (Vec::new(), 0);
        }
        length = blocks.iter().fold(length, |length, block| length.saturating_add(block.num_tokens));
        text.extend(blocks);
        let total = prompt.saturating_add(output);
        let num_tokens = total.saturating_sub(length);
        text.push(Segment { id: mixed(name ^ mixed(number)), num_tokens });
        length = total;
        turn.request.content = Some(text.as_slice().into());
    }
    session
}

fn first_turn(row: &Row<'_>, name: &str, last_start_ns: u64, remarks: &mut ListRemarks) -> Result<Draft> {
    let arrival_ns = if row.has("arrival") { remarks.arrival_ns(row)? } else { 0 };
    let request = request(row, arrival_ns)?;
    if request.arrival_ns < last_start_ns && !remarks.has_trace_clock() {
        let last_s = last_start_ns as f64 / NS_PER_S as f64;
        let expected =
            format!("at least that of the session above, {last_s} s: sort the sessions by their first arrival");
        return Err(row.bad("arrival", expected));
    }
    if think_ns(row)? > 0 {
        return Err(
            row.bad("think_time_s", "nothing or 0 in the first turn of a session, which is sent at its arrival")
        );
    }
    let first_turn = row.optional("turn", |row, column| row.whole(column, FIRST_TURNS))?.unwrap_or(0);
    let num_tokens = request.num_prompt_tokens;
    let prefix = shared_prefix(row, num_tokens)?;
    let session = Session { turns: vec![Turn { request, think_ns: 0 }] };
    let mut draft = Draft { session, name: mixed(id_of(name)), prefix, first_turn, blocks: Vec::new() };
    draft.add_blocks(row, num_tokens, remarks)?;
    Ok(draft)
}

fn later_turn(row: &Row<'_>, draft: &mut Draft, remarks: &mut ListRemarks) -> Result<()> {
    let earliest_ns = row.optional("arrival", |row, _| remarks.arrival_ns(row))?.unwrap_or(0);
    let request = request(row, earliest_ns)?;
    let expected = u64::from(draft.first_turn) + draft.session.turns.len() as u64;
    row.optional("turn", |row, column| row.whole(column, expected..=expected))?;
    let num_tokens = request.num_prompt_tokens;
    if shared_prefix(row, num_tokens)?.is_some_and(|prefix| Some(prefix) != draft.prefix) {
        return Err(row.bad("prefix_group", "nothing, or the prefix of the session's first turn"));
    }
    draft.session.turns.push(Turn { request, think_ns: think_ns(row)? });
    draft.add_blocks(row, num_tokens, remarks)
}

/// Reads the time since the turn before: s, unless its name has another unit. AIPerf's `delay` is in ms.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn think_ns(row: &Row<'_>) -> Result<u64> {
    let think_ns = row.optional("think_time_s", |row, column| {
        let name = row.name(column);
        let unit_ns = ns_per_unit(name).unwrap_or(if name == "delay" { NS_PER_MS } else { NS_PER_S }) as f64;
        let range = NumberRange::from_zero(MAX_DURATION_S * (NS_PER_S as f64 / unit_ns), "");
        Ok((row.number(column, range)? * unit_ns).round() as u64)
    })?;
    Ok(think_ns.unwrap_or(0))
}

/// Reads sessions of LLMServingSim: requests of an agent, each of which follows the one before once its tool has run.
///
/// `input_toks` is taken as the whole prompt, as it is in LLMServingSim's single requests. No published text says whether later
/// sub-requests count the new tokens alone. Whole prompts grow by at least what came before, new tokens need not: a note counts the
/// sub-requests that do not grow so.
pub(super) fn llmservingsim(input: Input<'_>) -> Result<SessionRows> {
    let mut reader = RowReader::jsonl(input, Columns::exactly("session_id,arrival_time_ns,sub_requests"));
    let (mut sessions, mut dropping) = (Vec::<Session>::new(), DroppingTurns::default());
    while let Some(row) = reader.next_row()? {
        let start_ns = time_ns(&row, "arrival_time_ns", 1)?;
        if sessions.last().is_some_and(|last| start_ns < last.start_ns()) {
            return Err(row.bad("arrival_time_ns", "at least that of the row above: sort the rows by arrival"));
        }
        let name = row.text("session_id").unwrap_or_default();
        let own = mixed(id_of(&name) ^ mixed(row.row_number() as u64));
        let session = Session { turns: sub_requests(&row, start_ns)? };
        sessions.push(dropping.with_contents(session, None, own));
    }
    let notes = dropping.shrinking().into_iter().chain(dropping.note()).collect();
    Ok(SessionRows { sessions, notes, lacks_arrivals: false })
}

fn sub_requests(row: &Row<'_>, start_ns: u64) -> Result<Vec<Turn>> {
    let objects = row.objects("sub_requests")?;
    if objects.is_empty() {
        return Err(row.bad("sub_requests", "at least one sub-request"));
    }
    let (mut turns, mut tool_ns) = (Vec::with_capacity(objects.len()), 0);
    for (index, object) in objects.into_iter().enumerate() {
        let log = Log::default();
        let keys = Keys::of_map(&format!("sub_requests[{index}]"), object, &log);
        keys.require(&["input_toks", "output_toks"]);
        let [input, output] = ["input_toks", "output_toks"].map(|key| keys.whole(key, 1..=MAX_TOKENS));
        let next_tool_ns = keys.whole("tool_duration_ns", 0..=MAX_TIME_NS);
        keys.finish();
        let ((input, output), _) = log.finish("", input.zip(output)).map_err(|error| {
            let expected = format!("sub-requests that can be: {}", error.problems().join("; "));
            row.bad("sub_requests", expected)
        })?;
        let arrival_ns = if index == 0 { start_ns } else { 0 };
        turns.push(Turn { request: WorkloadRequest::new(arrival_ns, input, output), think_ns: tool_ns });
        tool_ns = next_tool_ns.unwrap_or(0);
    }
    Ok(turns)
}

/// Counts the turns that do not begin with all of the turn before.
#[derive(Default)]
struct DroppingTurns {
    dropping: usize,
    later: usize,
}

impl DroppingTurns {
    /// Gives the turns of a session the contents that follow from their lengths.
    fn with_contents(&mut self, mut session: Session, prefix: Option<Segment>, name: u64) -> Session {
        let length = |turn: &Turn| (turn.request.num_prompt_tokens, turn.request.num_output_tokens);
        let lengths: Vec<(u32, u32)> = session.turns.iter().map(length).collect();
        let (contents, dropping) = grown(prefix, name, &lengths);
        for (turn, content) in session.turns.iter_mut().zip(contents) {
            turn.request.content = Some(content);
        }
        self.dropping += dropping;
        self.later += lengths.len().saturating_sub(1);
        session
    }

    /// A note if the prompts of sub-requests may be meant as new tokens alone.
    fn shrinking(&self) -> Option<String> {
        let DroppingTurns { dropping, later } = self;
        (*dropping > 0).then(|| {
            format!(
                "input_toks is taken as the whole prompt, but {dropping} of {later} later sub-requests have fewer than the sub-request before \
                 with its output: if the file counts new tokens alone, give a list of turns (session_id) with whole prompts instead"
            )
        })
    }

    fn note(&self) -> Option<String> {
        let DroppingTurns { dropping, later } = self;
        (*dropping > 0).then(|| {
            format!(
                "{dropping} of {later} later turns have a prompt that is shorter than the turn before with its output: such a prompt begins \
                 with the prompt before if it is as long, and else shares no more than the prefix of its session"
            )
        })
    }
}

#[cfg(test)]
#[path = "session_rows_tests.rs"]
mod tests;
