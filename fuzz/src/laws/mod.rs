//! Laws that hold for every case: of steps, of replays, of sweeps.

pub mod replay;
pub mod step;
pub mod sweep;
