//! One pass over a batch: what its decodes sum to, and its prompt chunks one by one. Uses `request`, `physics`.
//!
//! Nearly all requests of nearly all steps are decodes, and need no more than a sum. Four requests are twelve words: groups
//! of them are summed word by word and checked once to hold nothing but decodes; any other group is gone through again one
//! request at a time.

use wide::u32x4;

use crate::model::Window;
use crate::physics::window::visible_tokens;
use crate::physics::{BatchSums, MAX_WINDOWS};
use crate::request::{Request, RequestColumns};

/// Requests that are summed in one go.
const FOUR: usize = 4;

/// Fours between two checks: few enough that 32 bits hold their sums.
const BLOCK: usize = 32;

/// Requests of columns between two checks.
const COLUMN_GROUP: usize = 64;

/// Bits that a cache's length less one must not have to be summed in 32 bits.
const LONG: u32 = !((1 << 24) - 1);

/// Sums over decodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::step_model) struct Decodes {
    pub(super) num_requests: u64,
    /// Those that sample a token.
    pub(super) num_sampled: u64,
    /// Keys that they see under each kind of window, their own included.
    pub(super) kv_tokens: [u64; MAX_WINDOWS],
}

impl Decodes {
    /// As a run under a full window, which must be the only one.
    pub(in crate::step_model) fn run(&self) -> Run {
        Run {
            num_requests: self.num_requests as usize,
            num_sampled: self.num_sampled,
            computed_tokens: self.kv_tokens[0] - self.num_requests,
        }
    }

    /// Together with the sums of prompt chunks.
    pub(in crate::step_model) fn and(&self, chunks: Option<&BatchSums>) -> BatchSums {
        let mut sums = chunks.copied().unwrap_or_default();
        sums.num_tokens += self.num_requests;
        sums.num_decodes += self.num_requests;
        sums.num_sampled += self.num_sampled;
        for (window, kv_tokens) in sums.windows.iter_mut().zip(self.kv_tokens) {
            window.decode_kv_tokens = kv_tokens;
        }
        sums
    }
}

/// Decodes from the beginning of a batch on.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::step_model) struct Run {
    /// Their number: as many requests from the first on are decodes for sure.
    pub(in crate::step_model) num_requests: usize,
    pub(in crate::step_model) num_sampled: u64,
    pub(in crate::step_model) computed_tokens: u64,
}

impl Run {
    /// Goes through `requests` up to where something else than short decodes comes.
    #[inline]
    pub(in crate::step_model) fn of(requests: &[Request]) -> Run {
        let mut run = Run::default();
        // Prompt chunks often come first: no need to find out at the end of a block.
        if !requests.first().is_some_and(Request::is_decode) {
            return run;
        }
        let (fours, rest) = requests.as_chunks::<FOUR>();
        for block in fours.chunks(BLOCK) {
            let sums = Words::of(block);
            if !sums.are_decodes() {
                run.add_each(block);
                return run;
            }
            run.add(block.len(), &sums);
        }
        for request in rest {
            if !request.is_decode() {
                break;
            }
            run.num_requests += 1;
            run.num_sampled += u64::from(request.samples);
            run.computed_tokens += u64::from(request.num_computed_tokens);
        }
        run
    }

    /// As many of `fours` as are decodes from the first on.
    #[cold]
    fn add_each(&mut self, fours: &[[Request; FOUR]]) {
        for four in fours {
            let sums = Words::of(std::slice::from_ref(four));
            if !sums.are_decodes() {
                break;
            }
            self.add(1, &sums);
        }
    }

    #[inline]
    fn add(&mut self, num_fours: usize, sums: &Words) {
        let (computed_tokens, num_sampled) = sums.totals();
        self.num_requests += FOUR * num_fours;
        self.computed_tokens += computed_tokens;
        self.num_sampled += num_sampled;
    }
}

/// Sums the rest of `requests` after a `run` of decodes: decodes as a result, prompt chunks into `chunks`. Requests that
/// schedule nothing are left out.
pub(in crate::step_model) fn pass(
    requests: &[Request],
    mut run: Run,
    windows: &[Window],
    chunks: &mut Option<BatchSums>,
) -> Decodes {
    let mut total = Tally::new(windows, chunks);
    let mut rest = requests;
    // Where chunks keep coming, looking for runs between them costs more than they save.
    let mut one_by_one = FOUR;
    loop {
        total.num_decodes += run.num_requests as u64;
        total.num_sampled += run.num_sampled;
        total.computed_tokens += run.computed_tokens;
        rest = rest.get(run.num_requests..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        let (group, after) = rest.split_at(rest.len().min(one_by_one));
        one_by_one = (2 * one_by_one).min(FOUR * BLOCK);
        group.iter().for_each(|request| total.add(*request));
        rest = after;
        run = Run::of(rest);
    }
    total.decodes(requests.iter().copied())
}

/// Decodes under a full window, and where prompt chunks are added up.
struct Tally<'a> {
    windows: &'a [Window],
    num_decodes: u64,
    num_sampled: u64,
    computed_tokens: u64,
    chunks: &'a mut Option<BatchSums>,
}

impl<'a> Tally<'a> {
    fn new(windows: &'a [Window], chunks: &'a mut Option<BatchSums>) -> Self {
        Tally { windows, num_decodes: 0, num_sampled: 0, computed_tokens: 0, chunks }
    }

    #[inline]
    fn add(&mut self, request: Request) {
        if request.is_decode() {
            self.num_decodes += 1;
            self.num_sampled += u64::from(request.samples);
            self.computed_tokens += u64::from(request.num_computed_tokens);
        } else if request.num_scheduled_tokens > 0 {
            self.chunks.get_or_insert_default().add_request(&request, self.windows);
        }
    }

    #[inline]
    fn decodes(&self, requests: impl Iterator<Item = Request> + Clone) -> Decodes {
        let full = self.computed_tokens + self.num_decodes;
        let mut decodes =
            Decodes { num_requests: self.num_decodes, num_sampled: self.num_sampled, kv_tokens: [full, 0, 0, 0] };
        if !matches!(self.windows, [Window::Full]) {
            for (sum, window) in decodes.kv_tokens.iter_mut().zip(self.windows) {
                *sum = match window {
                    Window::Full => full,
                    other => seen_by_decodes(*other, requests.clone()),
                };
            }
        }
        decodes
    }
}

/// Keys that decodes see under a window that does not show them all.
fn seen_by_decodes(window: Window, requests: impl Iterator<Item = Request>) -> u64 {
    let decodes = requests.filter(Request::is_decode);
    match window {
        Window::Chunked(tokens) if tokens.is_power_of_two() => decodes
            .map(|request| u64::from(request.num_computed_tokens) & (tokens - 1))
            .map(|earlier| earlier + 1)
            .sum(),
        _ => decodes.map(|request| visible_tokens(window, 1, request.num_computed_tokens)).sum(),
    }
}

/// The words of several times four requests, by their place among twelve: their sums, and all bits that they would not have
/// if all were decodes.
#[derive(Clone, Copy)]
struct Words {
    sums: [u32x4; 3],
    seen: [u32x4; 3],
}

impl Words {
    #[inline]
    fn of(fours: &[[Request; FOUR]]) -> Words {
        // Where a decode has a 1, less 1 in the other two words: anything left over is no decode.
        const ONES: [[u32; 4]; 3] = [[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]];
        let mut sums = [u32x4::splat(0); 3];
        let mut seen = [u32x4::splat(0); 3];
        for four in fours {
            let (words, _) = bytemuck::must_cast_slice::<Request, u32>(four).as_chunks::<4>();
            let [first, second, third] = words else { continue };
            for (place, words) in [first, second, third].into_iter().enumerate() {
                let vector = u32x4::new(*words);
                sums[place] += vector;
                seen[place] |= vector - u32x4::new(ONES[place]);
            }
        }
        Words { sums, seen }
    }

    /// Whether all are decodes with caches short enough to have been summed in 32 bits.
    #[inline]
    fn are_decodes(&self) -> bool {
        const FORBIDDEN: [[u32; 4]; 3] = [[LONG, !0, 0, LONG], [!0, 0, LONG, !0], [0, LONG, !0, 0]];
        let [a, b, c] = FORBIDDEN.map(u32x4::new);
        let found = (self.seen[0] & a) | (self.seen[1] & b) | (self.seen[2] & c);
        let [low, high]: [u64; 2] = bytemuck::must_cast(found);
        low | high == 0
    }

    /// Computed tokens, and requests that sample.
    #[inline]
    fn totals(&self) -> (u64, u64) {
        let [a, b, c] = self.sums.map(|vector| vector.to_array().map(u64::from));
        let samples = a[2] + b[1] + c[0] + c[3];
        // The flag is the first byte of its word, whichever end of the word that is.
        let samples = if cfg!(target_endian = "big") { samples >> 24 } else { samples };
        (a[0] + a[3] + b[2] + c[1], samples)
    }
}

/// [`pass`] over columns.
#[inline]
pub(in crate::step_model) fn pass_columns(
    columns: &RequestColumns<'_>,
    windows: &[Window],
    chunks: &mut Option<BatchSums>,
) -> Decodes {
    let mut pass = Tally::new(windows, chunks);
    let (computed, scheduled, samples) = columns.parts();
    let groups = computed.chunks(COLUMN_GROUP).zip(scheduled.chunks(COLUMN_GROUP));
    for (index, (computed, scheduled)) in groups.enumerate() {
        let mut seen = 0;
        let mut sum = 0u32;
        for (computed, scheduled) in computed.iter().zip(scheduled) {
            seen |= (computed.wrapping_sub(1) & LONG) | scheduled.wrapping_sub(1);
            sum = sum.wrapping_add(*computed);
        }
        let samples =
            samples.and_then(|samples| samples.get(index * COLUMN_GROUP..index * COLUMN_GROUP + computed.len()));
        if seen == 0 {
            pass.num_decodes += computed.len() as u64;
            pass.computed_tokens += u64::from(sum);
            pass.num_sampled += match samples {
                None => computed.len() as u64,
                Some(samples) => samples.iter().map(|byte| u64::from(*byte != 0)).sum(),
            };
        } else {
            for (at, (computed, scheduled)) in computed.iter().zip(scheduled).enumerate() {
                let samples = samples.and_then(|samples| samples.get(at)).is_none_or(|byte| *byte != 0);
                pass.add(Request::new(*computed, *scheduled, samples));
            }
        }
    }
    pass.decodes(columns.iter())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOWS: [Window; 3] = [Window::Sliding(100), Window::Full, Window::Chunked(64)];

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let decode = (1u32..200_000, any::<bool>()).prop_map(|(computed, samples)| Request::new(computed, 1, samples));
        let any = (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(c, q, s)| Request::new(c, q, s));
        let one = prop_oneof![
            60 => decode,
            1 => any,
            1 => Just(Request::new(0, 1, true)),
            1 => Just(Request::new(7, 0, true)),
            1 => Just(Request::decode(u32::MAX)),
        ];
        proptest::collection::vec(one, 0..700)
    }

    fn one_by_one(requests: &[Request], windows: &[Window]) -> BatchSums {
        let mut sums = BatchSums::default();
        requests.iter().for_each(|request| sums.add(&BatchSums::of(request, windows)));
        sums
    }

    fn sums(requests: &[Request], windows: &[Window]) -> BatchSums {
        let mut chunks = None;
        pass(requests, Run::of(requests), windows, &mut chunks).and(chunks.as_ref())
    }

    fn sums_of_columns(columns: &RequestColumns<'_>, windows: &[Window]) -> BatchSums {
        let mut chunks = None;
        pass_columns(columns, windows, &mut chunks).and(chunks.as_ref())
    }

    proptest! {
        #[test]
        fn a_pass_sums_what_adding_one_by_one_does(requests in requests()) {
            for windows in [&WINDOWS[..], &[Window::Full]] {
                let expected = one_by_one(&requests, windows);
                prop_assert_eq!(sums(&requests, windows), expected);
                let computed: Vec<u32> = requests.iter().map(|r| r.num_computed_tokens).collect();
                let scheduled: Vec<u32> = requests.iter().map(|r| r.num_scheduled_tokens).collect();
                let samples: Vec<bool> = requests.iter().map(|r| r.samples).collect();
                let columns = RequestColumns::new(&computed, &scheduled).unwrap();
                let flagged = columns.with_samples(&samples).unwrap();
                prop_assert_eq!(sums_of_columns(&flagged, windows), expected);
                let all: Vec<Request> = columns.iter().collect();
                prop_assert_eq!(sums_of_columns(&columns, windows), one_by_one(&all, windows));
            }
        }
    }

    #[test]
    fn thousands_of_long_decodes_do_not_overflow() {
        let requests = vec![Request::decode((1 << 24) - 1); 5000];
        let mut chunks = None;
        let decodes = pass(&requests, Run::of(&requests), &[Window::Full], &mut chunks);
        assert_eq!((decodes.num_requests, decodes.kv_tokens[0], chunks), (5000, 5000 << 24, None));
    }
}
