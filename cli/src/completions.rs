//! `ridgepoint completions`: a script that completes subcommands, flags and their values.

use clap::{Args, Command};

use crate::outcome::{Outcome, Report};
use crate::text::Page;

/// The arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Writes the script.
pub fn run(args: &Completions, command: &mut Command) -> Outcome<String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "ridgepoint", &mut script);
    Outcome::of(String::from_utf8_lossy(&script).into_owned())
}

impl Report for String {
    fn lay_out(&self, page: &mut Page) {
        page.line(self.trim_end());
    }
}
