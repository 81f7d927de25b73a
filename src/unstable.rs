//! Unstable: any name in this module may change or go in any release, without a word in the changelog. The laboratory, the replay
//! and the command of this repository use these names; what other programs should use is public elsewhere.

pub use crate::step_model::StepRequests;

/// How close kernels come to the roofline: tables, curves and kernel models.
pub mod efficiency {
    pub use crate::efficiency::kernel_time::is_within_another;
    pub use crate::efficiency::line_values::split as split_values;
    pub use crate::efficiency::tables::{SeriesMatch, if_any};
    pub use crate::efficiency::{Tables, Timer};
    pub use crate::engine::ENGINES;

    /// Measured curves of kernels.
    pub mod curve {
        pub use crate::efficiency::collective_curve::CollectiveCurve;
        pub use crate::efficiency::curve::{
            DecodeCurve, GemmCurve, MoeCurve, PrefillCurve, expert_layer_distance, fallback_weight, mean_attention,
        };
        pub use crate::efficiency::residual_curve::SourcedTime;
    }
    /// Families of kernels and the keys of their series.
    pub mod family {
        pub use crate::efficiency::family::{
            ALL_REDUCE, BATCHED_GEMM, DECODE, EXCHANGE, FAMILIES, GEMM, KernelFamily, MOE, PREFILL, STATE,
        };
        pub use crate::efficiency::keys::{
            AllReduceKind, AttentionKey, BatchedGemmKey, HeadSize, Key, MoeKey, Routing, StateKey,
        };
        pub use crate::efficiency::series_key::{CallShape, OfSeries, SeriesKey};
    }
    /// Interpolation on a grid.
    pub mod grid {
        pub use crate::efficiency::grid::{Grid, MAX_AXES};
    }
    /// Kernel models.
    pub mod kernel_model {
        pub use crate::efficiency::batched_gemm::BatchedGemmModel;
        pub use crate::efficiency::chip::Chip;
        pub use crate::efficiency::collective_model::{AllReduceModel, ExchangeModel};
        pub use crate::efficiency::gemm_model::{GEMM_TILES, GemmModel};
        pub use crate::efficiency::kernel_model::{DecodeModel, MoeModel, PrefillModel, QUERY_TILE};
        pub use crate::efficiency::state_model::StateModel;
    }
    /// Attention of a batch of prefill chunks and decodes.
    pub mod mixed {
        pub use crate::efficiency::mixed::time_us;
    }
    /// Efficiency tables as text.
    pub mod table {
        pub use crate::efficiency::series::{Header, Series, SeriesHeader};
        pub use crate::efficiency::table::Table;
        pub use crate::efficiency::table_text::{SeriesDraft, write_table};
    }
}
/// Helpers of messages.
pub mod error {
    pub use crate::error::{cut, each_once};
}
/// Ranges of a datasheet's figures.
pub mod hardware {
    pub use crate::hardware::plausible::{MAX_SMS, check_16_bit_peak, limits};
}
/// Sampling parameters.
pub mod model {
    pub use crate::model::sampling::{TOP_K, is_top_k};
}
