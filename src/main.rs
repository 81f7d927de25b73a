//! The `ridgepoint` command: parses arguments, calls the library, prints.

mod cli;
mod report;

fn main() -> std::process::ExitCode {
    cli::run()
}
