//! Request lists in csv or jsonl: one request per row, columns by name or, in published traces, by role.

use std::sync::Arc;

use ridgepoint::Result;
use ridgepoint::model::{OwnSampling, SamplingParams};
use ridgepoint::units::{NS_PER_MS, NS_PER_S, NS_PER_US};
use ridgepoint::unstable::model::{TOP_K, is_top_k};

use super::WorkloadRequest;
use super::hash_blocks::HashBlocks;
use super::limits::{MAX_STAGES, MAX_TOKENS};
use super::list_remarks::ListRemarks;
use super::request::Segment;
use super::roles::role_of;
use super::rows::{Rows, time_ns, tokens};
use super::seed::mixed;
use super::trace_clock::TraceClock;
use crate::input::{Columns, Head, Row, RowReader};

/// The columns. The ids, and the sums and ratios in Vidur's files, have no influence on the load.
pub(super) const COLUMNS: Columns = Columns {
    required: "input_len,output_len",
    optional: "arrival,prefix_group,prefix_len,priority,stage,temperature,top_p,top_k,min_p,repetition_penalty,presence_penalty,\
               frequency_penalty,hash_ids,block_size,num_cached_tokens,experiment,id,request_id,num_total_tokens,pd_ratio",
    aliases: &[
        ("arrival_s", "arrival"),
        ("arrival_time", "arrival"),
        ("arrived_at", "arrival"),
        ("arrival_ms", "arrival"),
        ("arrival_us", "arrival"),
        ("arrival_ns", "arrival"),
        ("input_tokens", "input_len"),
        ("prompt_len", "input_len"),
        ("prompt_tokens", "input_len"),
        ("num_prefill_tokens", "input_len"),
        ("output_tokens", "output_len"),
        ("num_decode_tokens", "output_len"),
    ],
    has_others: true,
    by_role: Some(role_of),
};

/// Returns whether a file begins with the columns of a request list: one of them is the arrival, by a name of its own.
pub(super) fn is_list(head: &Head) -> bool {
    head.has("arrival") || COLUMNS.aliases.iter().any(|(alias, column)| *column == "arrival" && head.has(alias))
}

/// Reads all requests. Without arrivals all of them have time 0.
pub(super) fn read(mut reader: RowReader<'_>) -> Result<Rows> {
    let (mut rows, mut remarks) = (Rows::default(), ListRemarks::default());
    while let Some(row) = reader.next_row()? {
        if !remarks.takes(&row, true)? {
            continue;
        }
        let is_timed = row.has("arrival");
        if rows.requests.is_empty() {
            rows.lacks_arrivals = !is_timed;
        } else if rows.lacks_arrivals == is_timed {
            return Err(row.bad("arrival", "a time in every row, or in none"));
        }
        let arrival_ns = if is_timed { remarks.arrival_ns(&row)? } else { 0 };
        if !remarks.has_trace_clock() {
            rows.check_order(&row, "arrival", arrival_ns)?;
        }
        rows.requests.push(with_content(&row, request(&row, arrival_ns)?, &mut remarks)?);
    }
    let mut was_sorted = true;
    if remarks.has_trace_clock() {
        let mut times_ns: Vec<&mut u64> = rows.requests.iter_mut().map(|request| &mut request.arrival_ns).collect();
        TraceClock::from_earliest(reader.origin(), &mut times_ns)?;
        was_sorted = rows.requests.is_sorted_by_key(|request| request.arrival_ns);
        rows.requests.sort_by_key(|request| request.arrival_ns);
    }
    rows.notes = remarks.notes(was_sorted);
    Ok(rows)
}

/// Adds what a prompt shares: by the hashes of its blocks, by its group, or as many tokens as a capture found in the cache.
fn with_content(row: &Row<'_>, request: WorkloadRequest, remarks: &mut ListRemarks) -> Result<WorkloadRequest> {
    let num_prompt_tokens = request.num_prompt_tokens;
    if let Some(HashBlocks { segments, is_misfit }) = HashBlocks::read(row, num_prompt_tokens)? {
        remarks.misfits += usize::from(is_misfit);
        return Ok(WorkloadRequest { content: Some(segments.into()), ..request });
    }
    let content = shared_prefix(row, num_prompt_tokens)?.map(|segment| Arc::from([segment]));
    let cached = row.optional("num_cached_tokens", |row, column| row.whole(column, 0..=num_prompt_tokens))?;
    let num_cached_tokens = cached.unwrap_or(0);
    remarks.cached += usize::from(num_cached_tokens > 0);
    Ok(WorkloadRequest { content, num_cached_tokens, ..request })
}

/// Reads the arrival in the unit that the name of its column has.
pub(super) fn arrival_ns(row: &Row<'_>) -> Result<u64> {
    let ns_per_unit = match row.name("arrival") {
        "arrival_ms" => NS_PER_MS,
        "arrival_us" => NS_PER_US,
        "arrival_ns" => 1,
        _ => NS_PER_S,
    };
    time_ns(row, "arrival", ns_per_unit)
}

/// Reads a request without what it shares.
pub(super) fn request(row: &Row<'_>, arrival_ns: u64) -> Result<WorkloadRequest> {
    let priority = format_args!("a whole number from {} to {}, lower ones first", i32::MIN, i32::MAX);
    let priority = row.optional("priority", |row, of| row.read(of, priority, |cell| cell.parse().ok()))?;
    let stage = row.optional("stage", |row, column| row.whole(column, 0..=MAX_STAGES - 1))?;
    Ok(WorkloadRequest {
        priority: priority.unwrap_or(0),
        stage: stage.unwrap_or(0),
        sampling: sampling(row)?,
        ..WorkloadRequest::new(arrival_ns, tokens(row, "input_len")?, tokens(row, "output_len")?)
    })
}

/// Reads the sampling parameters that a request sets itself.
fn sampling(row: &Row<'_>) -> Result<OwnSampling> {
    let number = |column, range| row.optional(column, |row, column| row.number(column, range));
    let to_top_k = |text: &str| text.parse().ok().filter(|k| is_top_k(*k));
    let top_k = || row.optional("top_k", |row, column| row.read(column, TOP_K, to_top_k));
    let [presence, frequency] = OwnSampling::PENALTIES.map(|column| number(column, OwnSampling::PENALTY_RANGE));
    Ok(OwnSampling::from(&SamplingParams::read_each(number, top_k)?).with_penalties([presence?, frequency?]))
}

/// Reads the prefix that a request shares with its group: `prefix_len` tokens, or the whole prompt without a length.
pub(super) fn shared_prefix(row: &Row<'_>, num_prompt_tokens: u32) -> Result<Option<Segment>> {
    let length = row.optional("prefix_len", |row, column| row.whole(column, 0..=MAX_TOKENS))?;
    let num_tokens = length.unwrap_or(num_prompt_tokens);
    match row.text("prefix_group") {
        None if length.is_some() => {
            Err(row.bad("prefix_len", "nothing, or a prefix_group: which requests share the prefix?"))
        }
        Some(_) if num_tokens > num_prompt_tokens => {
            Err(row.bad("prefix_len", format!("at most the length of the prompt, {num_prompt_tokens}")))
        }
        group => Ok(group.map(|group| Segment { id: id_of(&group), num_tokens }).filter(|_| num_tokens > 0)),
    }
}

/// Hashes the name of a group.
pub(super) fn id_of(name: &str) -> u64 {
    name.bytes().fold(mixed(name.len() as u64), |id, byte| mixed(id ^ u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use ridgepoint::input::{FileKind, Input};

    use super::*;

    fn csv(text: &str) -> Result<Rows> {
        read(RowReader::csv(Input::new(FileKind::Requests, "requests.csv", text.as_bytes())?, COLUMNS)?)
    }

    fn jsonl(text: &str) -> Result<Rows> {
        read(RowReader::jsonl(Input::new(FileKind::Requests, "requests.jsonl", text.as_bytes())?, COLUMNS))
    }

    fn figures(rows: &Rows) -> Vec<(u64, u32, u32)> {
        rows.requests.iter().map(|r| (r.arrival_ns, r.num_prompt_tokens, r.num_output_tokens)).collect()
    }

    #[test]
    fn both_kinds_of_list_say_the_same() {
        let text = "# a comment\narrival,input_len,output_len,priority,stage\n0,100,10,,\n1.5, 200 ,20,-3,1\n";
        let from_csv = csv(text).unwrap();
        let from_json = jsonl(
            "{\"arrival\": 0, \"input_len\": 100, \"output_len\": 10}\n\
             {\"arrival\": 1.5, \"input_len\": 200, \"output_len\": 20, \"priority\": -3, \"stage\": 1}\n",
        )
        .unwrap();
        assert_eq!(from_csv.requests, from_json.requests);
        assert_eq!(figures(&from_csv), [(0, 100, 10), (1_500_000_000, 200, 20)]);
        assert_eq!((from_csv.requests[1].priority, from_csv.requests[1].stage), (-3, 1));
    }

    #[test]
    fn vidur_files_are_lists() {
        let rows = csv("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,370,40\n4.25,400,110\n").unwrap();
        assert_eq!(figures(&rows), [(0, 370, 40), (4_250_000_000, 400, 110)]);
    }

    #[test]
    fn units_of_arrivals_are_in_the_name_of_the_column() {
        for (column, value) in
            [("arrival_s", "0.0025"), ("arrival_ms", "2.5"), ("arrival_us", "2500"), ("arrival_ns", "2500000")]
        {
            let rows = csv(&format!("{column},prompt_len,output_tokens\n{value},1,1\n")).unwrap();
            assert_eq!(rows.requests[0].arrival_ns, 2_500_000, "{column}");
        }
    }

    #[test]
    fn groups_share_their_prefix_or_their_whole_prompt() {
        let text = "arrival,input_len,output_len,prefix_group,prefix_len\n\
                    0,100,1,a,60\n0,80,1,a,60\n0,90,1,b,\n0,70,1,,\n0,70,1,a,0\n";
        let rows = csv(text).unwrap();
        let content: Vec<Option<Segment>> =
            rows.requests.iter().map(|r| r.content.as_ref().map(|content| content[0])).collect();
        assert_eq!(content[0], content[1]);
        assert_eq!(content[0].map(|segment| segment.num_tokens), Some(60));
        assert_eq!(content[2].map(|segment| segment.num_tokens), Some(90));
        assert_ne!(content[0].map(|segment| segment.id), content[2].map(|segment| segment.id));
        assert_eq!((content[3], content[4]), (None, None));
        let numbers = jsonl("{\"arrival\":0,\"input_len\":5,\"output_len\":1,\"prefix_group\":7}").unwrap();
        let texts = jsonl("{\"arrival\":0,\"input_len\":5,\"output_len\":1,\"prefix_group\":\"7\"}").unwrap();
        assert_eq!(numbers.requests, texts.requests);
    }

    #[test]
    fn bad_rows_name_row_column_value_and_what_is_allowed() {
        let header = "arrival,input_len,output_len,stage,priority,prefix_group,prefix_len\n";
        for (rows, expected) in [
            (
                "2,1,1,,,,\n1.5,1,1,,,,\n",
                "row 2: column 'arrival': found 1.5, expected at least that of the row above, 2 s",
            ),
            ("-1,1,1,,,,\n", "row 1: column 'arrival': found -1, expected a number from 0"),
            ("nan,1,1,,,,\n", "row 1: column 'arrival': found nan"),
            (",1,1,,,,\n", "row 1: column 'arrival': found nothing"),
            ("0,0,1,,,,\n", "row 1: column 'input_len': found 0, expected a whole number from 1 to 10000000"),
            ("0,1,1.5,,,,\n", "row 1: column 'output_len': found 1.5"),
            ("0,1,1,1000,,,\n", "row 1: column 'stage': found 1000, expected a whole number from 0 to 999"),
            ("0,1,1,,high,,\n", "row 1: column 'priority': found high"),
            ("0,5,1,,,g,6\n", "row 1: column 'prefix_len': found 6, expected at most the length of the prompt, 5"),
            ("0,5,1,,,,5\n", "row 1: column 'prefix_len': found 5, expected nothing, or a prefix_group"),
            ("0,5,1\n", "line 2: has 3 cells, the header has 7"),
        ] {
            let error = csv(&format!("{header}{rows}")).unwrap_err().to_string();
            assert!(error.starts_with("requests.csv: ") && error.contains(expected), "{error}");
        }
    }
}
