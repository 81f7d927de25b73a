//! Which waiting requests a step of prompts takes, and how much of each: `PrefillAdder` (`managers/schedule_policy.py`, 0.5.9). It knows
//! numbers of tokens alone.

/// Output tokens beyond which admission keeps no KV cache (`CLIP_MAX_NEW_TOKENS`).
pub const MOST_NEW_TOKENS: u32 = 4096;
/// Tokens of each request that are kept free where all end at their length (`IGNORE_EOS_RESERVE_TOKENS`).
const RESERVED_TOKENS: f64 = 1.0;

/// The lengths of a request, tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestLengths {
    /// Prompt.
    pub prompt: u32,
    /// The most that it may generate.
    pub max_new: u32,
    /// Generated so far.
    pub output: u32,
    /// It ends at `max_new` alone.
    pub ignore_eos: bool,
}

/// A waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Its lengths.
    pub lengths: RequestLengths,
    /// Tokens to compute: those that are not in the cache.
    pub extend: u32,
    /// Tokens of its cached prefix that nobody uses, so that they could be evicted until it does.
    pub newly_locked: u32,
}

/// What becomes of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Tokens that are computed in this step; 0 if it is not admitted.
    pub tokens: u32,
    /// Why the step admits no further request; `None` if it may.
    pub stop: Option<Stop>,
}

/// Why no further request is admitted in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Too little KV cache: nothing is admitted until a request ends.
    NoToken,
    /// The step is as large as it may be.
    Other,
}

/// The budgets of a step of prompts, tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefillAdder {
    page: u32,
    /// Free KV cache, cached tokens that nobody uses included.
    free: f64,
    /// Of it what this step takes, and what the running and the admitted requests will still write.
    taken: f64,
    to_come: f64,
    rem_input: i64,
    rem_chunk: Option<i64>,
    new_token_ratio: f64,
    running: Vec<RequestLengths>,
    admitted: Vec<RequestLengths>,
    /// Tokens to come and held of each request that is counted to its end, by tokens to come.
    to_the_end: Option<Vec<(f64, f64)>>,
}

impl PrefillAdder {
    /// Budgets beside running requests, of which `decodes` are in the same step.
    pub fn new(
        (page, free): (u32, u64),
        running: Vec<RequestLengths>,
        new_token_ratio: f64,
        (max_prefill_tokens, chunk): (u32, Option<u32>),
        decodes: u32,
    ) -> Self {
        let left = |of: &RequestLengths| {
            let left = i64::from(of.max_new) - i64::from(of.output);
            left.min(MOST_NEW_TOKENS.into()) as f64 * new_token_ratio
        };
        PrefillAdder {
            page,
            free: free as f64,
            taken: f64::from(decodes),
            to_come: running.iter().map(left).sum(),
            rem_input: i64::from(max_prefill_tokens) - i64::from(decodes),
            rem_chunk: chunk.map(|chunk| i64::from(chunk) - i64::from(decodes)),
            new_token_ratio,
            running,
            admitted: Vec::new(),
            to_the_end: None,
        }
    }

    /// Number of admitted requests.
    pub fn num_admitted(&self) -> usize {
        self.admitted.len()
    }

    fn rem_total(&self) -> f64 {
        self.free - self.taken - self.to_come
    }

    fn rem_cur(&self) -> f64 {
        self.free - self.taken
    }

    fn pages(&self, tokens: u32) -> i64 {
        i64::from(tokens.div_ceil(self.page)) * i64::from(self.page)
    }

    fn take(&mut self, lengths: RequestLengths, tokens: u32, is_whole: bool) {
        let pages = self.pages(tokens);
        self.taken += pages as f64;
        self.to_come += if is_whole { f64::from(lengths.max_new.min(MOST_NEW_TOKENS)) } else { 0.0 };
        self.rem_input -= pages;
        self.rem_chunk = self.rem_chunk.map(|left| left - pages);
        self.admitted.push(lengths);
    }

    fn stop(&self) -> Option<Stop> {
        if self.rem_total() <= 0.0 || self.rem_cur() <= 0.0 {
            Some(Stop::NoToken)
        } else if self.rem_input <= 0 || self.rem_chunk.is_some_and(|left| left <= 0) {
            Some(Stop::Other)
        } else {
            None
        }
    }

    /// The tokens of the request that is computed in chunks, of which `extend` are left. It is always taken.
    pub fn add_chunked(&mut self, lengths: RequestLengths, extend: u32) -> u32 {
        let chunk = self.rem_chunk.unwrap_or(i64::MAX);
        let room = chunk.min(self.rem_total() as i64);
        let room = if room <= 0 { chunk } else { room };
        let tokens = u32::try_from(room).unwrap_or(u32::MAX).min(extend);
        self.take(lengths, tokens, tokens == extend);
        tokens
    }

    /// Tries the next waiting request. `is_caching` says whether prompts share their prefixes.
    pub fn add(&mut self, candidate: Candidate, is_caching: bool) -> Admission {
        let Candidate { lengths, extend, newly_locked } = candidate;
        let none = |stop| Admission { tokens: 0, stop: Some(stop) };
        if lengths.ignore_eos && !is_caching {
            return self.add_to_the_end(lengths, extend);
        }
        let pages = self.pages(extend);
        let to_come = lengths.max_new.saturating_sub(lengths.output).min(MOST_NEW_TOKENS);
        let total = f64::from(extend) + f64::from(to_come);
        if total >= self.rem_total() {
            return none(Stop::NoToken);
        }
        if pages >= self.rem_input && !self.admitted.is_empty() {
            return none(Stop::Other);
        }
        if total >= self.rem_total() - f64::from(newly_locked) {
            return none(Stop::NoToken);
        }
        let tokens = match self.rem_chunk {
            Some(left) if pages > left => {
                let whole_pages = left.max(0) / i64::from(self.page) * i64::from(self.page);
                u32::try_from(whole_pages).unwrap_or(0)
            }
            _ => extend,
        };
        if tokens == 0 {
            return none(Stop::Other);
        }
        self.free -= f64::from(newly_locked);
        let is_whole = self.rem_chunk.is_none_or(|left| pages <= left);
        self.take(lengths, tokens, is_whole);
        Admission { tokens, stop: self.stop() }
    }

    /// A request whose end is known, without a prefix cache: it is admitted if all fit until each has ended.
    fn add_to_the_end(&mut self, lengths: RequestLengths, extend: u32) -> Admission {
        let none = |stop| Admission { tokens: 0, stop: Some(stop) };
        let pages = self.pages(extend) as f64;
        if pages > self.rem_cur().min(self.rem_total()) {
            return none(Stop::NoToken);
        }
        self.count_to_the_end(lengths);
        let states = self.to_the_end.as_deref().unwrap_or_default();
        let (room, mut freed) = (self.rem_cur() - pages, 0.0);
        for (at, (left, held)) in states.iter().enumerate() {
            let count = (states.len() - at) as f64;
            if room + freed - left * count <= RESERVED_TOKENS * count {
                return none(Stop::NoToken);
            }
            freed += held;
        }
        let tokens = match self.rem_chunk {
            Some(left) if i64::from(extend) > left => u32::try_from(left).unwrap_or(0),
            _ => extend,
        };
        if tokens == 0 {
            return none(Stop::Other);
        }
        self.take(lengths, tokens, tokens == extend);
        Admission { tokens, stop: self.stop() }
    }

    /// Adds a request to the list by which free tokens are followed until all requests have ended. The first call also adds the running
    /// and the admitted ones, sorted by the tokens to come. A later request goes before the first with at least as many to come, or, if
    /// there is none, before the last.
    fn count_to_the_end(&mut self, lengths: RequestLengths) {
        let ratio = self.new_token_ratio;
        let state = |of: &RequestLengths| {
            let ratio = if of.ignore_eos { 1.0 } else { ratio };
            let left = f64::from(of.max_new) * ratio - f64::from(of.output);
            (left > 0.0).then(|| (left, f64::from(of.prompt) + f64::from(of.output)))
        };
        match &mut self.to_the_end {
            Some(states) => {
                if let Some(own) = state(&lengths) {
                    let found = states.iter().position(|(left, _)| own.0 <= *left);
                    states.insert(found.unwrap_or(states.len().saturating_sub(1)), own);
                }
            }
            None => {
                let all = std::iter::once(&lengths).chain(&self.running).chain(&self.admitted);
                let mut states: Vec<(f64, f64)> = all.filter_map(state).collect();
                states.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.to_the_end = Some(states);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn lengths(of: &Value) -> RequestLengths {
        let number = |key: &str| u32::try_from(of[key].as_u64().unwrap()).unwrap();
        RequestLengths {
            prompt: number("prompt"),
            max_new: number("max_new"),
            output: number("output"),
            ignore_eos: of["ignore_eos"].as_bool().unwrap(),
        }
    }

    /// What SGLang's own class decided in a round, and what is decided here.
    fn compare(case: &Value) -> [Vec<(u64, String)>; 2] {
        let number = |of: &Value| u32::try_from(of.as_u64().unwrap()).unwrap();
        let running = case["running"].as_array().unwrap().iter().map(lengths).collect();
        let mut adder = PrefillAdder::new(
            (number(&case["page"]), case["free"].as_u64().unwrap()),
            running,
            case["ratio"].as_f64().unwrap(),
            (number(&case["max_prefill"]), case["chunk"].as_u64().map(|chunk| u32::try_from(chunk).unwrap())),
            case["decodes"].as_u64().map_or(0, |decodes| u32::try_from(decodes).unwrap()),
        );
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let chunked = &case["chunked"];
        if !chunked.is_null() {
            let tokens = adder.add_chunked(lengths(&chunked["lengths"]), number(&chunked["extend"]));
            theirs.push((chunked["tokens"].as_u64().unwrap(), "CHUNKED".to_owned()));
            ours.push((u64::from(tokens), "CHUNKED".to_owned()));
        }
        for (waiting, decision) in case["waiting"].as_array().unwrap().iter().zip(case["decisions"].as_array().unwrap())
        {
            let candidate = Candidate {
                lengths: lengths(&waiting["lengths"]),
                extend: number(&waiting["extend"]),
                newly_locked: number(&waiting["newly_locked"]),
            };
            let Admission { tokens, stop } = adder.add(candidate, case["caching"].as_bool().unwrap());
            let name = match stop {
                None => "CONTINUE",
                Some(Stop::NoToken) => "NO_TOKEN",
                Some(Stop::Other) => "OTHER",
            };
            theirs.push((decision[0].as_u64().unwrap(), decision[1].as_str().unwrap().to_owned()));
            ours.push((u64::from(tokens), name.to_owned()));
        }
        [theirs, ours]
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "the check that runs it shows how much was compared")]
    fn decisions_are_those_of_sglangs_own_class() {
        let Ok(path) = std::env::var("SGLANG_CASES") else { return };
        let (mut cases, mut decisions) = (0, 0);
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let [theirs, ours] = compare(&case);
            assert_eq!(ours, theirs, "{case}");
            (cases, decisions) = (cases + 1, decisions + theirs.len());
        }
        println!("{cases} rounds, {decisions} decisions");
    }
}
