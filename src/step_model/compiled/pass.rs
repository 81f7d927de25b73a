//! One pass over a batch: what its decodes sum to, and its prompt chunks one by one. Uses `lanes`, `request`, `physics`.

use pulp::Simd;

use super::lanes::Batch;
use crate::model::Window;
use crate::physics::window::visible_tokens;
use crate::physics::{BatchSums, MAX_WINDOWS};
use crate::request::Request;

/// Requests that are looked at together where a batch is not all plain decodes: many, then, where not all of those are, few.
const MANY: usize = 64;
const FEW: usize = 8;

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
            num_requests: self.num_requests,
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

    /// Adds the plain decodes of `batch`, with `computed_tokens` in their caches.
    #[inline(always)]
    pub(in crate::step_model) fn add_plain<S: Simd, B: Batch>(
        &mut self,
        simd: S,
        batch: B,
        computed_tokens: u64,
        windows: &[Window],
    ) {
        let num_requests = batch.len() as u64;
        self.num_requests += num_requests;
        self.num_sampled += num_requests;
        for (kv_tokens, window) in self.kv_tokens.iter_mut().zip(windows) {
            *kv_tokens += num_requests
                + match window {
                    Window::Full => computed_tokens,
                    other => batch.plain_earlier_tokens(simd, *other),
                };
        }
    }

    fn add(&mut self, request: Request, windows: &[Window]) {
        self.num_requests += 1;
        self.num_sampled += u64::from(request.samples);
        for (kv_tokens, window) in self.kv_tokens.iter_mut().zip(windows) {
            *kv_tokens += visible_tokens(*window, 1, request.num_computed_tokens);
        }
    }
}

/// Decodes of a step under a full window.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::step_model) struct Run {
    pub(in crate::step_model) num_requests: u64,
    pub(in crate::step_model) num_sampled: u64,
    pub(in crate::step_model) computed_tokens: u64,
}

impl Run {
    /// Plain decodes: all sample.
    #[inline(always)]
    pub(in crate::step_model) fn plain(num_requests: usize, computed_tokens: u64) -> Self {
        let num_requests = num_requests as u64;
        Run { num_requests, num_sampled: num_requests, computed_tokens }
    }
}

/// Sums a `batch`: decodes as a result, prompt chunks into `chunks`. Requests that schedule nothing are left out.
#[inline(always)]
pub(in crate::step_model) fn pass<S: Simd, B: Batch>(
    simd: S,
    batch: B,
    windows: &[Window],
    chunks: &mut Option<BatchSums>,
) -> Decodes {
    let mut decodes = Decodes::default();
    let mut one = |request: Request, decodes: &mut Decodes| {
        if request.is_decode() {
            decodes.add(request, windows);
        } else if request.num_scheduled_tokens > 0 {
            chunks.get_or_insert_default().add_request(&request, windows);
        }
    };
    let mut rest = batch;
    while rest.len() > 0 {
        let (mut many, after) = rest.split(MANY);
        rest = after;
        if let Some(computed_tokens) = many.plain_computed_tokens(simd) {
            decodes.add_plain(simd, many, computed_tokens, windows);
            continue;
        }
        while many.len() > 0 {
            let (few, after) = many.split(FEW);
            many = after;
            match few.plain_computed_tokens(simd) {
                Some(computed_tokens) => decodes.add_plain(simd, few, computed_tokens, windows),
                None => {
                    (0..few.len()).filter_map(|index| few.get(index)).for_each(|request| one(request, &mut decodes))
                }
            }
        }
    }
    decodes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulp::{Arch, WithSimd};

    use super::*;
    use crate::request::RequestColumns;

    const WINDOWS: [Window; 4] = [Window::Sliding(100), Window::Full, Window::Chunked(64), Window::Chunked(100)];

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

    /// By each kind of lanes that this CPU has.
    fn sums<B: Batch>(batch: B, windows: &[Window]) -> BatchSums {
        let [one_lane, widest] = [Arch::Scalar, Arch::new()].map(|cpu| {
            let mut chunks = None;
            cpu.dispatch(Pass { batch, windows, chunks: &mut chunks }).and(chunks.as_ref())
        });
        assert_eq!(one_lane, widest);
        widest
    }

    struct Pass<'a, B> {
        batch: B,
        windows: &'a [Window],
        chunks: &'a mut Option<BatchSums>,
    }

    impl<B: Batch> WithSimd for Pass<'_, B> {
        type Output = Decodes;

        fn with_simd<S: Simd>(self, simd: S) -> Decodes {
            pass(simd, self.batch, self.windows, self.chunks)
        }
    }

    proptest! {
        #[test]
        fn a_pass_sums_what_adding_one_by_one_does(requests in requests()) {
            for windows in [&WINDOWS[..], &[Window::Full], &[Window::Sliding(1), Window::Chunked(1)]] {
                let expected = one_by_one(&requests, windows);
                prop_assert_eq!(sums(&requests[..], windows), expected);
                let computed: Vec<u32> = requests.iter().map(|r| r.num_computed_tokens).collect();
                let scheduled: Vec<u32> = requests.iter().map(|r| r.num_scheduled_tokens).collect();
                let samples: Vec<bool> = requests.iter().map(|r| r.samples).collect();
                let columns = RequestColumns::new(&computed, &scheduled).unwrap();
                let flagged = columns.with_samples(&samples).unwrap();
                prop_assert_eq!(sums(flagged, windows), expected);
                let all: Vec<Request> = columns.iter().collect();
                prop_assert_eq!(sums(columns, windows), one_by_one(&all, windows));
            }
        }
    }

    #[test]
    fn thousands_of_long_decodes_do_not_overflow() {
        let requests = vec![Request::decode(1 << 24); 5000];
        let found = sums(&requests[..], &[Window::Full, Window::Sliding(1 << 40)]);
        let seen = 5000 * ((1 << 24) + 1);
        assert_eq!((found.num_decodes, found.num_prefills), (5000, 0));
        assert_eq!(found.windows.map(|window| window.decode_kv_tokens), [seen, seen, 0, 0]);
        let plain = pulp::Scalar.vectorize(Plain(&requests));
        assert_eq!((plain, Arch::new().dispatch(Plain(&requests))), (Some(5000 << 24), plain));
        assert_eq!(Arch::new().dispatch(Plain(&[Request::decode((1 << 24) + 1); 64])), None);
    }

    struct Plain<'a>(&'a [Request]);

    impl WithSimd for Plain<'_> {
        type Output = Option<u64>;

        fn with_simd<S: Simd>(self, simd: S) -> Option<u64> {
            self.0.plain_computed_tokens(simd)
        }
    }
}
