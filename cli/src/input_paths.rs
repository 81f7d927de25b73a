//! The values on a command line that name no output: a run may read them, so it must not replace them.

use std::any::TypeId;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// Arguments that name no input: paths that are written (so are those that begin with `output`), and `data_dir`. A path in any other
/// argument is read.
const NOT_READ: [&str; 6] = ["out", "markdown", "trace", "plot", "training_tables", "data_dir"];
/// A value of an argument that names no output.
#[derive(Debug)]
pub struct NamedPath {
    /// The value as typed.
    pub value: PathBuf,
    /// Whether it is a path, and not a name that may be one.
    pub is_path: bool,
}

/// The values of the arguments of the command that name no output.
pub fn named(command: &Command, matches: &ArgMatches) -> Vec<NamedPath> {
    let mut found = Vec::new();
    for argument in command.get_arguments() {
        let (id, is_path) =
            (argument.get_id().as_str(), argument.get_value_parser().type_id() == TypeId::of::<PathBuf>());
        let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        if is_typed
            && !(NOT_READ.contains(&id) || id.starts_with("output_"))
            && let Ok(Some(values)) = matches.try_get_raw(id)
        {
            found.extend(values.map(|value| NamedPath { value: value.into(), is_path }));
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        found.extend(named(command, matches));
    }
    found
}
