//! Laws and hand-worked numbers of models, hardware, tables and steps.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::indexing_slicing)]

#[path = "../common/batches.rs"]
mod batches;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compare.rs"]
mod compare;

mod allocations;
mod compiled;
mod compiled_laws;
mod continuity;
mod datasheets;
mod every_model;
mod gpus_people_have;
mod hardware;
mod host_weights;
mod latency;
mod laws_correction;
mod library;
mod model_aliases;
mod model_errors;
mod model_families;
mod model_kinds;
mod model_methods;
mod model_names;
mod model_parameters;
mod model_quantisation;
mod model_sampling;
mod older_families;
mod public_names;
mod published_configs;
mod speculation;
mod steps;
mod table_provenance;
mod table_texts;
mod tables;
mod unseen_experts;
mod whole_steps;
