//! The binary `ridgepoint`.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(unix)]
    tidy_up_on_signals();
    ExitCode::from(ridgepoint_cli::run(std::env::args_os()))
}

/// Removes temporary files before SIGINT or SIGTERM ends the process, which shells see as exit codes 130 and 143. Here and not in the
/// library, because signals belong to the process: Python runs the same command.
#[cfg(unix)]
fn tidy_up_on_signals() {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        // A server ends by itself, after the requests that run; a second signal ends it at once.
        if let Some(signal) = signals.forever().find(|_| !stops_server()) {
            ridgepoint_cli::remove_unfinished();
            // Ends the process by the signal, so that a shell's loop ends too; not if it is the first of a container.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            std::process::exit(128 + signal);
        }
    });
}

/// Whether a server runs, and now hears of the signal.
#[cfg(unix)]
fn stops_server() -> bool {
    #[cfg(feature = "serve")]
    return ridgepoint_cli::stop_server();
    #[cfg(not(feature = "serve"))]
    false
}
