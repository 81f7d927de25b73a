//! The binary `ridgepoint`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(ridgepoint_cli::run(std::env::args_os()))
}
