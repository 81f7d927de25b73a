//! The keys that decode attention reads again: for the drafts of a request, and for requests that share a prefix.

use crate::efficiency::Timer;
use crate::efficiency::shared_reads::SharedReads;
use crate::hardware::Hardware;
use crate::model::Window;
use crate::physics::attention::kv_bytes_per_token;
use crate::physics::{BatchSums, Kernel, MAX_WINDOWS, Operator, StepPlan};
use crate::units::real;

/// Rows of queries that one tile of a decode kernel holds. FlashAttention packs the query heads of a KV head, and the tokens of a
/// verification, into tiles of 64 or 128 rows; FlashMLA into tiles of 64.
///
/// # Source
/// FlashAttention 3, `PackGQA` (`hopper/tile_size.h`); FlashMLA, `BLOCK_SIZE_M` (`csrc/sm90/decode`).
const TILE_ROWS: u64 = 64;

/// By the plan's windows, the query heads of a rank that share a KV head; 0 where every token reads keys of its own.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DraftReads {
    heads_of_kv: [u64; MAX_WINDOWS],
}

impl DraftReads {
    pub(super) fn new(plan: &StepPlan, timers: &[(Operator, Timer)]) -> Self {
        let mut reads = DraftReads::default();
        for (place, window) in reads.heads_of_kv.iter_mut().zip(&plan.windows) {
            let found = timers.iter().find_map(|(operator, _)| match operator.kernel {
                Kernel::AttentionDecode { heads, .. } if heads.window == *window => Some(heads),
                _ => None,
            });
            // The indexer picks other tokens for each query.
            *place = match found {
                Some(heads) if !matches!(window, Window::Picked(_)) => heads.num_heads / heads.num_kv_heads.max(1),
                _ => 0,
            };
        }
        reads
    }

    /// Keeps the keys that kernels read, one time for each tile of a request's queries.
    #[cold]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count is a count")]
    pub(super) fn leave_out(&self, sums: &mut BatchSums) {
        let drafts = real(sums.num_draft_tokens) / real(sums.num_decodes.max(1));
        for (window, heads) in sums.windows.iter_mut().zip(self.heads_of_kv).filter(|(_, heads)| *heads > 0) {
            let tiles = |tokens: f64| (real(heads) * tokens / real(TILE_ROWS)).ceil().max(1.0);
            // Tiles beyond those of a plain decode, of the most that the drafts could add.
            let again = ((tiles(1.0 + drafts) / tiles(1.0) - 1.0) / drafts).min(1.0);
            window.decode_kv_tokens -= (real(window.draft_kv_tokens) * (1.0 - again)) as u64;
            window.draft_kv_tokens = 0;
        }
    }
}

/// Repeated reads of decode attention by the plan's windows.
pub(super) fn shared_reads(
    plan: &StepPlan,
    timers: &[(Operator, Timer)],
    hardware: &Hardware,
) -> Vec<Option<SharedReads>> {
    let full = timers.iter().find_map(|(operator, _)| match operator.kernel {
        Kernel::AttentionDecode { heads, .. } if heads.window == Window::Full => {
            Some(SharedReads::new(hardware.l2_bytes, kv_bytes_per_token(&heads)))
        }
        _ => None,
    });
    plan.windows.iter().map(|window| full.filter(|_| *window == Window::Full)).collect()
}
