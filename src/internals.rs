//! The parts of the core that the laboratory, the command and the bindings use beyond the public face. They may change in any
//! release.

/// The release, and a hash of the models, GPUs, tables and corrections that are built in: equal inputs give equal predictions where
/// this is equal.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RIDGEPOINT_DATA_HASH"));

pub mod correction {
    pub use crate::correction::{
        Basis, Correction, CorrectionInfo, FittedRange, HostTimes, Level, NUM_TERMS, Queues, SDS_OF_90_PCT, Scatter,
        Source, Term, builtin_corrections, interval_factor,
    };
}
pub mod efficiency {
    pub use crate::efficiency::kernel_time::is_within_another;
    pub use crate::efficiency::{Bound, EfficiencyMode, Provenance, Tables, Timer};
    pub use crate::engine::ENGINES;
    pub mod curve {
        pub use crate::efficiency::curve::{
            AllReduceCurve, DecodeCurve, ExchangeCurve, GemmCurve, MoeCurve, PrefillCurve, Timed,
            expert_layer_distance, mean_attention, stand_in_weight,
        };
    }
    pub mod family {
        pub use crate::efficiency::families::{Families, FamilyList, FamilyVisitor, for_each_family};
        pub use crate::efficiency::family::Family;
        pub use crate::efficiency::keys::{AllReduceKind, AttentionKey, HeadSize, Key, MoeKey, Routing, StateKey};
    }
    pub mod grid {
        pub use crate::efficiency::grid::{Grid, MAX_AXES};
    }
    pub mod kernel_model {
        pub use crate::efficiency::chip::Chip;
        pub use crate::efficiency::exchange_model::ExchangeModel;
        pub use crate::efficiency::gemm_model::{GEMM_TILES, GemmModel};
        pub use crate::efficiency::kernel_model::{AllReduceModel, DecodeModel, MoeModel, PrefillModel, QUERY_TILE};
        pub use crate::efficiency::state_model::StateModel;
    }
    pub mod table {
        pub use crate::efficiency::series::{Header, Series, SeriesHeader};
        pub use crate::efficiency::table::Table;
        pub use crate::efficiency::table_text::{SeriesDraft, write_table};
    }
}
pub mod error {
    pub use crate::error::cut;
}
pub mod input {
    pub use crate::input::*;
}
pub mod latency {
    pub use crate::latency::changed_steps::ChangedSteps;
}
pub mod physics {
    pub use crate::physics::cuda_graph::{Captures, CudaGraphs};
    pub use crate::physics::experts::Experts;
    pub use crate::physics::names::{OperatorId, OperatorKind};
    pub use crate::physics::operator::{Kernel, Operator};
    pub use crate::physics::plan::StepPlan;
    pub use crate::physics::state_shape::{StateHeads, StateKernel, StateShape};
}
pub mod step_report {
    pub use crate::step_report::{StepReport, Subject};
}
#[cfg(feature = "replay")]
pub mod replay {
    pub use crate::replay::spread::{Factors, Intervals, Spread, SpreadSampler, TTFT_TAIL_REMARK};
    pub mod export {
        pub use crate::replay::export::{
            BenchRun, OtlpTrace, PerfettoTrace, TokenMeta, TokenSteps, TokenTimes, write_requests_csv, write_vllm_bench,
        };
    }
}
#[cfg(feature = "replay")]
pub mod workload {
    pub use crate::workload::kept_contents::KeptContents;
    pub use crate::workload::limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, check_memory};
    pub use crate::workload::load::LOCKSTEP;
    pub use crate::workload::stoppable::Stoppable;
}
pub mod units {
    pub use crate::units::{GIB, NS_PER_MS, NS_PER_S, NS_PER_US, US_PER_MS, US_PER_S, duration, si, time_us};
    #[cfg(feature = "replay")]
    pub use crate::units::{ns_to_ms, ns_to_us};
}
