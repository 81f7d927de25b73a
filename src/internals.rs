//! The parts of the core that the laboratory, the command and the bindings use beyond the public face. They may change in any
//! release.

/// The release, and a hash of the models, GPUs, tables and corrections that are built in: equal inputs give equal predictions where
/// this is equal.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RIDGEPOINT_DATA_HASH"));

pub mod cold_start {
    pub use crate::cold_start::*;
}
pub mod correction {
    pub use crate::correction::{
        Basis, Correction, CorrectionInfo, FittedRange, HostTimes, Level, NUM_TERMS, Queues, SDS_OF_90_PCT, Scatter,
        Source, Term, builtin_corrections, interval_factor,
    };
}
pub mod dtype {
    pub use crate::dtype::{MatmulFormat, WeightFormat};
}
pub mod efficiency {
    pub use crate::efficiency::kernel_time::is_within_another;
    pub use crate::efficiency::tables::{Found, if_any};
    pub use crate::efficiency::{Bound, EfficiencyMode, Provenance, Tables, Timer};
    pub use crate::engine::ENGINES;
    pub mod curve {
        pub use crate::efficiency::collective_curve::CollectiveCurve;
        pub use crate::efficiency::curve::{
            DecodeCurve, GemmCurve, MoeCurve, PrefillCurve, Timed, expert_layer_distance, mean_attention,
            stand_in_weight,
        };
    }
    pub mod family {
        pub use crate::efficiency::family::{
            ALL_REDUCE, BATCHED_GEMM, DECODE, EXCHANGE, FAMILIES, GEMM, KernelFamily, MOE, PREFILL, STATE,
        };
        pub use crate::efficiency::keys::{
            AllReduceKind, AttentionKey, BatchedGemmKey, HeadSize, Key, MoeKey, Routing, StateKey,
        };
        pub use crate::efficiency::series_key::{CallShape, OfSeries, SeriesKey};
    }
    pub mod grid {
        pub use crate::efficiency::grid::{Grid, MAX_AXES};
    }
    pub mod kernel_model {
        pub use crate::efficiency::batched_gemm::BatchedGemmModel;
        pub use crate::efficiency::chip::Chip;
        pub use crate::efficiency::collective_model::{AllReduceModel, ExchangeModel};
        pub use crate::efficiency::gemm_model::{GEMM_TILES, GemmModel};
        pub use crate::efficiency::kernel_model::{DecodeModel, MoeModel, PrefillModel, QUERY_TILE};
        pub use crate::efficiency::state_model::StateModel;
    }
    pub mod mixed {
        pub use crate::efficiency::mixed::time_us;
    }
    pub mod table {
        pub use crate::efficiency::series::{Header, Series, SeriesHeader};
        pub use crate::efficiency::table::Table;
        pub use crate::efficiency::table_text::{SeriesDraft, write_table};
    }
}
pub mod error {
    pub use crate::error::{cut, each_once};
}
pub mod hardware {
    pub use crate::hardware::spec::{
        Architecture, HostLink, HostLinkKind, Interconnect, InterconnectKind, Network, NetworkKind,
    };
}
pub mod input {
    pub use crate::input::*;
}
pub mod kv_capacity {
    pub use crate::kv_capacity::activation::{forward_bytes, sampling_bytes};
    pub use crate::kv_capacity::device::{OVERHEAD_BYTES, device_memory_bytes};
}
pub mod latency {
    pub use crate::correction::Queues;
    pub use crate::latency::changed_steps::ChangedSteps;
    pub use crate::latency::file::FittedBlackBox;
    pub use crate::latency::kv_transfer::{KvTransfers, TransferLink};
}
pub mod model {
    pub use crate::model::builtin::{BuiltinModel, builtin_models};
    pub use crate::model::sampling::SamplingParams;
    pub use crate::model::shape::{
        Attention, DenseFfn, GqaAttention, LayerGroup, MlaAttention, Moe, Recurrence, StateMixer, Window,
    };
}
pub mod physics {
    pub use crate::physics::cuda_graph::{Captures, CudaGraphs};
    pub use crate::physics::experts::Experts;
    pub use crate::physics::operator::{Kernel, Operator};
    pub use crate::physics::operator_id::{OperatorId, OperatorKind};
    pub use crate::physics::plan::StepPlan;
    pub use crate::physics::state_shape::{StateHeads, StateKernel, StateShape};
    pub use crate::physics::*;
}
pub mod step_model {
    pub use crate::step_model::StepRequests;
}
pub mod step_report {
    pub use crate::step_report::{StepReport, Subject};
}
#[cfg(feature = "replay")]
pub mod replay {
    pub use crate::replay::block_lives::BlockStats;
    pub use crate::replay::cold::{ColdSteps, HeldGroup, HeldReport, HeldRequests};
    pub use crate::replay::config::MAX_GPU_BLOCKS;
    pub use crate::replay::distribution::Distribution;
    pub use crate::replay::kv_metrics::{
        Hits, HostCost, KvMetrics, KvWatch, PrefixCacheBalance, PrefixCachePrices, PrefixGroup, WatchedReplay,
    };
    pub use crate::replay::metrics::StageMetrics;
    pub use crate::replay::noise::NoisySteps;
    pub use crate::replay::observe::{KvEvent, SubmittedEvent, TransferEvent};
    pub use crate::replay::offload::{DiskCounters, KvDisk, LoadOrCompute, OffloadCounters, TransferCounters};
    pub use crate::replay::record::EngineCounters;
    pub use crate::replay::spread::{Factors, Intervals, Spread, SpreadSampler, TTFT_TAIL_REMARK};
    pub mod export {
        pub use crate::replay::export::{
            BenchRun, OtlpTrace, PerfettoTrace, TokenMeta, TokenSteps, TokenTimes, write_requests_csv, write_vllm_bench,
        };
    }
}
#[cfg(feature = "replay")]
pub mod server_config {
    pub use crate::server_config::disk::KvDiskTier;
    pub use crate::server_config::offload::{KvOffloading, KvOffloadingSize};
    pub use crate::server_config::read::NOT_MODELLED;
    pub use crate::server_config::transfers::KvTransfersSource;
}
#[cfg(feature = "replay")]
pub mod workload {
    pub use crate::workload::kept_contents::KeptContents;
    pub use crate::workload::lengths::NormalLengths;
    pub use crate::workload::lengths::lockstep;
    pub use crate::workload::limits::{MAX_DURATION_S, MAX_RATE_PER_S, MAX_REQUESTS, MAX_TOKENS, check_memory};
    pub use crate::workload::load::OpenedLoad;
    pub use crate::workload::prompts::Prompts;
    pub use crate::workload::request::Content;
    pub use crate::workload::request_source::RequestSource;
    pub use crate::workload::sessions::{
        GeneratedSessions, Session, SessionList, SessionLoad, SessionShape, SessionStarts, Turn,
    };
    pub use crate::workload::share::ReplicaShare;
    pub use crate::workload::staged::StageLoad;
    pub use crate::workload::stoppable::Stoppable;
    pub use crate::workload::summary::Summary;
}
pub mod units {
    pub use crate::units::{GIB, NS_PER_MS, NS_PER_S, NS_PER_US, US_PER_MS, US_PER_S, duration, si, time_us};
    #[cfg(feature = "replay")]
    pub use crate::units::{ns_to_ms, ns_to_us};
}
