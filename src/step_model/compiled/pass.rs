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
    use pulp::{Arch, Scalar, Scalar128b, Scalar256b, Scalar512b, WithSimd};

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

    /// By each number of lanes that CPUs have, and by those of this one.
    fn by_all_lanes<Op: WithSimd + Copy>(op: Op) -> [Op::Output; 5] {
        [
            Scalar.vectorize(op),
            Scalar128b.vectorize(op),
            Scalar256b.vectorize(op),
            Scalar512b.vectorize(op),
            Arch::new().dispatch(op),
        ]
    }

    fn sums<B: Batch>(batch: B, windows: &[Window]) -> BatchSums {
        let [one_lane, others @ ..] = by_all_lanes(Sums { batch, windows });
        assert_eq!(others, [one_lane; 4]);
        one_lane
    }

    #[derive(Clone, Copy)]
    struct Sums<'a, B> {
        batch: B,
        windows: &'a [Window],
    }

    impl<B: Batch> WithSimd for Sums<'_, B> {
        type Output = BatchSums;

        fn with_simd<S: Simd>(self, simd: S) -> BatchSums {
            let mut chunks = None;
            let decodes = pass(simd, self.batch, self.windows, &mut chunks);
            decodes.and(chunks.as_ref())
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
        assert_eq!(by_all_lanes(Plain(&requests[..])), [Some(5000 << 24); 5]);
        assert_eq!(by_all_lanes(Plain(&[Request::decode((1 << 24) + 1); 64][..])), [None; 5]);
    }

    #[derive(Clone, Copy)]
    struct Plain<B>(B);

    impl<B: Batch> WithSimd for Plain<B> {
        type Output = Option<u64>;

        fn with_simd<S: Simd>(self, simd: S) -> Option<u64> {
            self.0.plain_computed_tokens(simd)
        }
    }

    /// Where the lanes of some CPU, the bytes of flags or blocks are full, and one beside.
    const LENGTHS: [usize; 32] = [
        0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025,
        1032, 2047, 2048, 2049, 2052,
    ];

    #[test]
    fn a_run_of_any_length_is_plain_but_for_what_is_odd_in_it() {
        // 255 is a flag of other languages; the second is the longest that is plain.
        let plain = [(1, 2u8), (1 << 24, 255), ((1 << 24) - 1, 1)];
        let odd =
            [(9, 1, 0u8), (9, 0, 1), (9, 2, 1), (9, u32::MAX, 1), (0, 1, 1), ((1 << 24) + 1, 1, 1), (u32::MAX, 1, 1)];
        for length in LENGTHS {
            let (mut computed, flags): (Vec<u32>, Vec<u8>) = (0..length).map(|at| plain[at % 3]).unzip();
            let tokens = computed.iter().map(|tokens| u64::from(*tokens)).sum();
            let (mut scheduled, mut flags) = (vec![1; length], flags);
            let columns = RequestColumns::new(&computed, &scheduled).unwrap().with_sample_bytes(&flags).unwrap();
            let slice: Vec<Request> = columns.iter().collect();
            assert_eq!(by_all_lanes(Plain(columns)), [Some(tokens); 5], "{length}");
            assert_eq!(by_all_lanes(Plain(&slice[..])), [Some(tokens); 5], "{length}");
            for at in [0, 1, 7, length / 2, length.saturating_sub(8), length.saturating_sub(1)] {
                for (odd_computed, odd_scheduled, odd_flag) in odd.into_iter().filter(|_| at < length) {
                    let usual = (computed[at], scheduled[at], flags[at]);
                    (computed[at], scheduled[at], flags[at]) = (odd_computed, odd_scheduled, odd_flag);
                    let columns =
                        RequestColumns::new(&computed, &scheduled).unwrap().with_sample_bytes(&flags).unwrap();
                    let slice: Vec<Request> = columns.iter().collect();
                    assert_eq!(by_all_lanes(Plain(columns)), [None; 5], "{odd_computed} at {at} of {length}");
                    assert_eq!(by_all_lanes(Plain(&slice[..])), [None; 5], "{odd_computed} at {at} of {length}");
                    let windows = [Window::Full, Window::Sliding(4096)];
                    let expected = one_by_one(&slice, &windows);
                    assert_eq!((sums(columns, &windows), sums(&slice[..], &windows)), (expected, expected));
                    (computed[at], scheduled[at], flags[at]) = usual;
                }
            }
        }
    }

    #[test]
    fn windows_of_any_size_show_decodes_what_the_formula_says() {
        let sizes = [0, 1, 2, 3, 100, 1 << 24, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, 1 << 40, u64::MAX];
        for length in LENGTHS {
            let computed: Vec<u32> = (0..length).map(|at| [1 << 24, 1, 2, 99, 100, 101][at % 6]).collect();
            let slice: Vec<Request> = computed.iter().map(|tokens| Request::decode(*tokens)).collect();
            let scheduled = vec![1; length];
            let columns = RequestColumns::new(&computed, &scheduled).unwrap();
            for window in sizes.into_iter().flat_map(|size| [Window::Sliding(size), Window::Chunked(size)]) {
                let expected = one_by_one(&slice, &[window]);
                assert_eq!(sums(&slice[..], &[window]), expected, "{length} under {window:?}");
                assert_eq!(sums(columns, &[window]), expected, "{length} under {window:?}");
            }
        }
    }
}
