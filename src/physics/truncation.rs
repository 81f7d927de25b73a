//! How logits are truncated by top-p and top-k: a sort, a search or rejection, by the engine and its version.
//!
//! What they launch is known from their sources. How long a block of threads takes for a row was measured on an H100 with logits that
//! fall as those of language models do (`bench_data/measured/h100_sxm/2026-11-26`, `truncation.csv`); a search and rejection take
//! three to five times as long over random ones, which truncate little.

use crate::engine::Engine;
use crate::model::SamplerWork;

use super::operator::Kernel;
use super::operator_id::OperatorKind::{self, *};
use super::rows::Rows;
use super::template::Template;

/// How an engine truncates logits.
///
/// # Source
/// `vllm/v1/sample/ops/topk_topp_sampler.py` of vLLM 0.11.2 to 0.32.0; SGLang 0.5.9, `Sampler._sample_from_probs`
/// (`python/sglang/srt/layers/sampler.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// Every row is sorted: up to 0.16.
    Sort,
    /// A Triton kernel searches each row for its cut; fewer than [`MANY_SAMPLED`](super::rows::MANY_SAMPLED) rows are sorted: from
    /// 0.17 to 0.20.
    Search,
    /// FlashInfer draws from the probabilities until the token lies within the cut: from 0.21 on, where
    /// `VLLM_USE_FLASHINFER_SAMPLER` is on by default for GPUs of compute capability 7.5 to 12.1.
    Rejection,
    /// FlashInfer draws until the token lies within both cuts: SGLang. TensorRT-LLM, whose server truncates nothing unless asked, is
    /// taken to sample as it does.
    JointRejection,
}

/// Bytes per logit of sorting all rows of logits with their indices.
///
/// # Formula
/// `8 + (4 + 4 · 24) + (8 + 16) + 24`: pairs of index and row written; a histogram of the keys and four passes of 8 bits over keys of
/// 4 and pairs of 8 bytes; a histogram and one pass over the pairs by row; logits gathered in that order, values and 64-bit indices
/// written. This is PyTorch's sort of 2 to 127 rows. From 128 rows on each row is sorted by itself, in five passes that read the keys
/// twice, which moves 5 % less and is not modelled separately.
///
/// # Source
/// PyTorch 2.9, `segmented_sort_pairs_by_full_sort` in `aten/src/ATen/native/cuda/Sort.cu`; CUB, `DispatchRadixSort` (Onesweep).
pub(super) const SORT_BYTES_PER_LOGIT: f64 = 8.0 + (4.0 + 4.0 * 24.0) + (8.0 + 16.0) + 24.0;

/// Launches of the sort: two radix sorts with a histogram, a scan and their passes each, a kernel before and one behind.
const SORT_LAUNCHES: u64 = 11;

/// Bytes per logit of the running sum of the sorted probabilities, read and written.
const CUMSUM_BYTES_PER_LOGIT: f64 = 8.0;

/// Bytes per logit of the scatter of sorted logits to their places, with its copy: two launches.
const SCATTER_BYTES_PER_LOGIT: f64 = 24.0;

/// Bytes per logit of the other kernels of top-p.
///
/// # Formula
/// `8 + 5 + 9 + 24`: softmax of the sorted logits, comparison with 1 − p, masked fill, and the scatter back.
const TOP_P_MASK_BYTES_PER_LOGIT: f64 = 8.0 + 5.0 + 9.0 + SCATTER_BYTES_PER_LOGIT;

/// Launches of those kernels: softmax, 1 − p, comparison, the last one kept, fill, copy, scatter.
const TOP_P_MASK_LAUNCHES: u64 = 7;

/// Bytes per logit of top-k with top-p, whose sorted logits it compares and fills.
const TOP_K_MASK_BYTES_PER_LOGIT: f64 = 5.0 + 9.0;

/// Launches of top-k with top-p: the place of the k-th logit, its gather, comparison, fill.
const TOP_K_MASK_LAUNCHES: u64 = 4;

/// Bytes per logit of top-k alone.
///
/// # Formula
/// `4 · 4 + 4 + 5 + 9`: a selection of the k-th logit in four passes of 8 bits and one that gathers, comparison, masked fill.
///
/// # Source
/// vLLM, `apply_top_k_only`; PyTorch, `mbtopk` in `aten/src/ATen/native/cuda/TensorTopK.cu`.
const TOP_K_ALONE_BYTES_PER_LOGIT: f64 = 4.0 * 4.0 + 4.0 + TOP_K_MASK_BYTES_PER_LOGIT;

/// Launches of top-k alone: four passes of two kernels, the gather, and those of the mask.
const TOP_K_ALONE_LAUNCHES: u64 = 9 + TOP_K_MASK_LAUNCHES;

/// Values that a block of threads of PyTorch's running sum takes at once.
///
/// # Source
/// PyTorch 2.9, `tensor_kernel_scan_innermost_dim_impl` in `aten/src/ATen/native/cuda/ScanUtils.cuh`.
const SCAN_TILE: u64 = 1024;

/// Values of a row that a block of threads reduces while the running sum takes one tile. On an H100, PyTorch's softmax of 128,256 logits
/// takes 33 µs and its argmax 27 µs.
pub(super) const REDUCTION_TILE: u64 = 5350;

/// Values that a block of threads of the search takes at once.
///
/// # Source
/// vLLM 0.19.0, `BLOCK_SIZE_TRUNC` in `vllm/v1/sample/ops/topk_topp_triton.py`, whose sweeps over whole rows take twice as many.
const SEARCH_BLOCK: u64 = 4096;

/// Values that it takes in the time of a tile. Measured: 125 µs for top-k of 128,256 logits, 155 with top-p, 205 to 250 for top-p.
const SEARCH_TILE: u64 = 2900;

/// Values that a block of threads of rejection takes in the time of a tile. Measured: 49 µs for 16 rows of 128,256 probabilities, 61 to 86
/// for 64.
const REJECTION_TILE: u64 = 9200;

/// Steps of a search for a cut. Each leaves a third of the range (assumed: neighbours among a row's largest values lie some 1/243 of
/// it apart).
const SEARCH_STEPS: u64 = 5;

/// Share of a row in which the search for top-p alone sweeps, as a divisor: values above the cut of a bell curve with p = 0.9,
/// 0.85 deviations above its mean.
const SEARCHED_DIVISOR: u64 = 5;

/// Bytes per logit of a search: the sweep that collects candidates, and the mask, which reads and writes.
const SEARCH_TOP_K_BYTES_PER_LOGIT: f64 = 4.0 + 8.0;

/// The same for top-p alone, whose candidates need the sum of all exponentials first.
const SEARCH_TOP_P_BYTES_PER_LOGIT: f64 = 4.0 + 4.0 + 8.0;

/// Values that a block visits in a row of `vocab` logits to find the cut and mask what is below.
///
/// # Formula
/// `2·V + 4096·(s + [top_p]·(2 + 2·s))` with `s` steps for top-k, whose candidates fill a tile at most: a sweep a step, two for their
/// probabilities, two a step of top-p. For top-p alone `3·V + 2·s·V/5`.
///
/// # Source
/// vLLM 0.19.0, `_topk_topp_kernel` in `vllm/v1/sample/ops/topk_topp_triton.py`.
fn searched_values(vocab: u64, top_p: bool, top_k: bool) -> u64 {
    if top_k {
        let blocks = SEARCH_STEPS + if top_p { 2 + 2 * SEARCH_STEPS } else { 0 };
        return 2 * vocab + SEARCH_BLOCK * blocks;
    }
    3 * vocab + 2 * SEARCH_STEPS * vocab / SEARCHED_DIVISOR
}

/// Rounds of rejection until the slowest row has its token: a row needs a second one with probability 1 − p.
const ROUNDS: u64 = 2;

/// Values that a block visits in a round, in halves of a row: on average half of it to draw, all of it to sum what is likelier.
const ROUND_HALVES: u64 = 3;

/// Bytes per logit of masking all but the k largest. Each is read once, kept in shared memory and written, which is 8; blocks of threads that
/// wait for each other make it as long as 20: 82 µs for 64 rows of 128,256, 260 for 256.
///
/// # Source
/// FlashInfer 0.6.12, `RadixTopKMaskLogitsKernel_MultiCTA` in `include/flashinfer/topk.cuh`, timed on an H100.
const TOP_K_REJECTION_BYTES_PER_LOGIT: f64 = 20.0;

/// Bytes per logit around rejection.
///
/// # Formula
/// `(b + 4) + 8 + 8`: cast to 32 bits, division by the temperature in place, softmax.
///
/// # Source
/// vLLM 0.24.0, `flashinfer_sample`.
pub(super) fn drawn_bytes_per_logit(logit_bytes: f64) -> f64 {
    logit_bytes + 20.0
}

/// Launches behind [`drawn_bytes_per_logit`], and of the gather of hidden states before the LM head.
pub(super) const DRAWN_LAUNCHES: u64 = 4;

impl Truncation {
    /// The truncation of the version of `engine`.
    pub fn of(engine: &Engine) -> Self {
        if !engine.is_vllm() {
            return Truncation::JointRejection;
        }
        match engine.vllm_version() {
            version if version < (0, 17) => Truncation::Sort,
            version if version < (0, 21) => Truncation::Search,
            _ => Truncation::Rejection,
        }
    }

    /// Whether the kernel that truncates also draws the token.
    pub fn draws(self) -> bool {
        matches!(self, Truncation::Rejection | Truncation::JointRejection)
    }

    /// The kernels that truncate rows of `vocab` logits.
    pub(super) fn templates(self, work: SamplerWork, vocab: u64) -> Vec<Template> {
        let (top_p, top_k) = (work.has_top_p(), work.has_top_k());
        if !top_p && !top_k {
            return Vec::new();
        }
        let bytes = |bytes_per_logit: f64| bytes_per_logit * vocab as f64;
        match self {
            Truncation::Sort => sorted(top_p, top_k, vocab, Rows::Sampled),
            Truncation::Search => {
                let mut list = sorted(top_p, top_k, vocab, Rows::FewSampled);
                let per_logit = if top_k { SEARCH_TOP_K_BYTES_PER_LOGIT } else { SEARCH_TOP_P_BYTES_PER_LOGIT };
                let kernel =
                    Kernel::RowScan { launches: 1, row: searched_values(vocab, top_p, top_k), tile: SEARCH_TILE };
                list.push(Template::streaming(TruncationSearch, Rows::ManySampled, bytes(per_logit), kernel));
                list
            }
            Truncation::Rejection | Truncation::JointRejection => {
                let masks_first = top_p && top_k && self == Truncation::Rejection;
                let reduction = Kernel::RowScan { launches: 1, row: vocab, tile: REDUCTION_TILE };
                let mask = Template::streaming(TopK, Rows::Sampled, bytes(TOP_K_REJECTION_BYTES_PER_LOGIT), reduction);
                let visited = ROUNDS * ROUND_HALVES * vocab / 2;
                let kernel = Kernel::RowScan { launches: 1, row: visited, tile: REJECTION_TILE };
                let draw = Template::streaming(RejectionSampling, Rows::Sampled, 4.0 * visited as f64, kernel);
                masks_first.then_some(mask).into_iter().chain([draw]).collect()
            }
        }
    }
}

/// The kernels that sort `rows`, or select from them for top-k alone.
fn sorted(top_p: bool, top_k: bool, vocab: u64, rows: Rows) -> Vec<Template> {
    let row = |kind: OperatorKind, bytes_per_logit: f64, kernel: Kernel| {
        Template::streaming(kind, rows, bytes_per_logit * vocab as f64, kernel)
    };
    let mut list = Vec::new();
    // If a search serves many rows, few rows are sorted for top-k too.
    let sorts_for_top_k = rows == Rows::FewSampled;
    if top_p || sorts_for_top_k {
        list.push(row(TopPSort, SORT_BYTES_PER_LOGIT, Kernel::Sort { launches: SORT_LAUNCHES }));
    }
    if top_p {
        list.push(row(
            TopPCumsum,
            CUMSUM_BYTES_PER_LOGIT,
            Kernel::RowScan { launches: 1, row: vocab, tile: SCAN_TILE },
        ));
        let softmax = Kernel::RowScan { launches: TOP_P_MASK_LAUNCHES, row: vocab, tile: REDUCTION_TILE };
        list.push(row(TopPMask, TOP_P_MASK_BYTES_PER_LOGIT, softmax));
    }
    if top_k {
        let (bytes, launches) = match (top_p, sorts_for_top_k) {
            (true, _) => (TOP_K_MASK_BYTES_PER_LOGIT, TOP_K_MASK_LAUNCHES),
            (false, true) => (TOP_K_MASK_BYTES_PER_LOGIT + SCATTER_BYTES_PER_LOGIT, TOP_K_MASK_LAUNCHES + 2),
            (false, false) => (TOP_K_ALONE_BYTES_PER_LOGIT, TOP_K_ALONE_LAUNCHES),
        };
        // Without an order, the k-th logit is selected within a block of threads.
        let kernel = match top_p || sorts_for_top_k {
            true => Kernel::Elementwise { launches },
            false => Kernel::RowScan { launches, row: vocab, tile: REDUCTION_TILE },
        };
        list.push(row(TopK, bytes, kernel));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SamplingParams;
    use crate::physics::rows::MANY_SAMPLED;
    use crate::physics::template::KernelTemplate;

    /// Names, rows, bytes per logit and kernels of 81,920 logits, 20 wide tiles, under a version of vLLM.
    fn kernels(version: &str, top_p: Option<f64>, top_k: Option<i64>) -> Vec<(&'static str, Rows, f64, Kernel)> {
        let engine = Engine::parse("vllm", Some(version)).unwrap();
        let sampling = SamplingParams { top_p, top_k, ..SamplingParams::default() };
        let list = Truncation::of(&engine).templates(sampling.work(), 81_920);
        let one = list.iter().map(|template| match template.kernel {
            KernelTemplate::Streaming { rows, bytes_per_row, kernel } => {
                (template.kind.name(), rows, bytes_per_row / 81_920.0, kernel)
            }
            _ => panic!("{template:?} moves more than bytes"),
        });
        one.collect()
    }

    fn named(list: &[(&'static str, Rows, f64, Kernel)]) -> Vec<&'static str> {
        list.iter().map(|kernel| kernel.0).collect()
    }

    const P: Option<f64> = Some(0.95);
    const K: Option<i64> = Some(40);

    #[test]
    fn the_version_decides_between_sort_search_and_rejection() {
        let of = |version| Truncation::of(&Engine::parse("vllm", version).unwrap());
        assert_eq!([Some("0.12.0"), Some("0.16.0")].map(of), [Truncation::Sort; 2]);
        assert_eq!([Some("0.17.0"), Some("0.20.2")].map(of), [Truncation::Search; 2]);
        assert_eq!([Some("0.21.0"), Some("0.32.0"), None].map(of), [Truncation::Rejection; 3]);
        assert_eq!(Truncation::of(&Engine::parse("sglang", Some("0.5")).unwrap()), Truncation::JointRejection);
        assert_eq!(Truncation::of(&Engine::fitted()), Truncation::Sort);
    }

    #[test]
    fn a_search_sweeps_twice_over_rows_and_then_over_candidates() {
        let list = kernels("0.19.0", P, K);
        assert_eq!(named(&list), ["top_p_sort", "top_p_cumsum", "top_p_mask", "top_k", "truncation_search"]);
        assert!(list[..4].iter().all(|kernel| kernel.1 == Rows::FewSampled) && MANY_SAMPLED == 8);
        // 2 · 20 tiles, 5 for top-k, 2 + 10 for top-p.
        let search = |blocks: u64| Kernel::RowScan { launches: 1, row: blocks * 4096, tile: SEARCH_TILE };
        assert_eq!(list[4], ("truncation_search", Rows::ManySampled, 12.0, search(57)));
        let top_k = kernels("0.19.0", None, K);
        assert_eq!((top_k[0].0, top_k[1].2), ("top_p_sort", 14.0 + 24.0), "few rows are sorted for top-k alone");
        assert_eq!(top_k[2].3, search(45));
        // Three sweeps, and ten over a fifth of the row.
        let top_p = kernels("0.19.0", P, None);
        assert_eq!((top_p[3].2, top_p[3].3), (16.0, search(100)));
    }

    #[test]
    fn rejection_reads_rows_three_times() {
        let draw = |list: &[(&'static str, Rows, f64, Kernel)]| *list.last().unwrap();
        let visits = Kernel::RowScan { launches: 1, row: 3 * 81_920, tile: REJECTION_TILE };
        let expected = ("rejection_sampling", Rows::Sampled, 12.0, visits);
        assert_eq!(draw(&kernels("0.24.0", P, None)), expected);
        let both = kernels("0.24.0", P, K);
        assert_eq!((named(&both), draw(&both)), (vec!["top_k", "rejection_sampling"], expected));
        assert_eq!((both[0].2, both[0].3), (20.0, Kernel::RowScan { launches: 1, row: 81_920, tile: REDUCTION_TILE }));
        let sampling = SamplingParams { top_p: P, top_k: K, ..SamplingParams::default() };
        assert_eq!(
            Truncation::JointRejection.templates(sampling.work(), 81_920).len(),
            1,
            "SGLang masks nothing first"
        );
        assert_eq!(named(&kernels("0.24.0", None, K)), ["rejection_sampling"]);
        assert_eq!(named(&kernels("0.24.0", None, None)), Vec::<&str>::new());
    }
}
