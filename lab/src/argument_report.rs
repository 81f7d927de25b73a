//! The arguments that ridgepoint knows, as the command lists them and the server describes them.

use ridgepoint::arguments::{Argument, ArgumentSupport, Section};
use ridgepoint_replay::server_config::server_arguments;
use ridgepoint_replay::workload::load_arguments;
use serde::Serialize;
use serde_json::Value;

use crate::prediction::prediction_arguments;

/// The result of `arguments`.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArgumentReport {
    /// Those of servers, predictions and loads, section by section.
    pub arguments: Vec<ArgumentEntry>,
}

/// An argument.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArgumentEntry {
    /// The engine's own name, with underscores.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// `server`, `deployment`, `scheduler`, `prediction` or `load`.
    pub section: Section,
    /// Engines that have it.
    pub engines: Vec<&'static str>,
    /// `modelled`, `without_influence` (accepted whatever its value is) or `not_modelled` (refused if its value switches something on).
    pub support: &'static str,
    /// What it is, or why it is not modelled.
    pub help: &'static str,
    /// JSON schema of its values.
    pub schema: Value,
    /// What a value must be, in words.
    pub must_be: String,
    /// What stands for a value in help.
    pub value_name: &'static str,
    /// The default or the rule that it follows, in words; empty where none is worth a word.
    pub default: &'static str,
    /// Arguments without which it cannot be given.
    pub needs: Vec<NeededArguments>,
    /// Arguments with which it cannot be given.
    pub excludes: Vec<ExcludedArgument>,
    /// The object in which the engine nests it. It may be given at the top level as well.
    pub within: Option<&'static str>,
    /// Whether a server cannot be described without it.
    pub is_required: bool,
    /// Its flag; absent if the command has none.
    pub flag: Option<String>,
}

/// Arguments of which one must be given, too.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NeededArguments {
    /// Their names.
    pub one_of: &'static [&'static str],
    /// The reason; empty if it is plain.
    pub reason: &'static str,
}

/// An argument that cannot be given, too.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExcludedArgument {
    /// Its name.
    pub name: &'static str,
    /// The reason.
    pub reason: &'static str,
}

impl ArgumentReport {
    /// Lists all arguments, those of a section together and in the order of their rows.
    pub fn list() -> Self {
        let (server, prediction, load) = (server_arguments(), prediction_arguments(), load_arguments());
        let mut rows: Vec<&Argument> = server.iter().chain(prediction.iter()).chain(load.iter()).collect();
        rows.sort_by_key(|row| row.section);
        ArgumentReport { arguments: rows.into_iter().map(ArgumentEntry::new).collect() }
    }
}

impl ArgumentEntry {
    fn new(row: &Argument) -> Self {
        let support = match row.support {
            ArgumentSupport::Modelled => "modelled",
            ArgumentSupport::WithoutInfluence => "without_influence",
            ArgumentSupport::Noted(_) => "noted",
            ArgumentSupport::NotModelled(_) => "not_modelled",
        };
        ArgumentEntry {
            name: row.name,
            aliases: row.aliases,
            section: row.section,
            engines: row.engines.names(),
            support,
            help: row.help,
            schema: row.schema(),
            must_be: row.expected(),
            value_name: row.value_name,
            default: row.default,
            needs: row.needs.iter().map(|(one_of, reason)| NeededArguments { one_of, reason }).collect(),
            excludes: row.excludes.iter().map(|(name, reason)| ExcludedArgument { name, reason }).collect(),
            within: row.within,
            is_required: row.is_required,
            flag: row.is_flag.then(|| format!("--{}", row.name.replace('_', "-"))),
        }
    }
}
