//! What results look like: tables for people, JSON for programs. Turns values of the library and of `cli` into text and
//! serialisable structs; prints nothing. Numbers are shown by `ridgepoint::internals::units`.

pub mod calibration_table;
pub mod evaluation_table;
pub mod explain;
pub mod fit_steps_table;
pub mod fit_table;
pub mod hardware;
pub mod ingest_table;
pub mod models;
pub mod plots;
pub mod replay;
pub mod replay_json;
pub mod replay_table;
pub mod step_table;
pub mod steps_table;
pub mod sweep_json;
pub mod sweep_table;
pub mod text;
