//! Flags of arguments: one for each row of the schema, with its names, help, default and kind.

use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use ridgepoint::arguments::{Argument, ArgumentSupport, Engines, Kind, Section};
use ridgepoint_replay::server_config::server_arguments;
use serde_json::{Map, Value};

/// A set of rows that a subcommand has flags for.
pub trait FlagRows {
    /// The rows, in the order of the help.
    fn rows() -> Vec<&'static Argument>;
}

/// The flags of a set of rows: what was given, under the names of the rows.
#[derive(Debug, Clone)]
pub struct Flags<R> {
    /// The values as the command line has them, for the reader of arguments.
    pub given: Map<String, Value>,
    rows: PhantomData<R>,
}

impl<R> Flags<R> {
    /// Flags that another subcommand has under the same names.
    pub fn of(given: Map<String, Value>) -> Self {
        Flags { given, rows: PhantomData }
    }
}

impl<R: FlagRows> clap::Args for Flags<R> {
    fn augment_args(command: Command) -> Command {
        let rows = R::rows();
        rows.iter()
            .enumerate()
            .fold(command, |command, (at, row)| add(command, row, rows.get(..at).unwrap_or_default()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<R: FlagRows> clap::FromArgMatches for Flags<R> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |row: &Argument| Some((row.name.to_owned(), given(row, matches)?));
        let given = R::rows().into_iter().filter_map(value).collect();
        Ok(Flags { given, rows: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The heading of a section in help.
pub const fn heading(section: Section) -> &'static str {
    match section {
        Section::Server => "Server",
        Section::Deployment => "Deployment (vLLM's engine arguments)",
        Section::Scheduler => "Scheduler and KV cache (vLLM's engine arguments)",
        Section::Prediction => "Prediction",
        Section::Load => {
            "Load (one of --profile, --requests, --concurrency, --request-rate; a list without arrivals takes one of the last two)"
        }
    }
}

/// A name of an argument as a flag.
pub fn flag(name: &str) -> String {
    name.replace('_', "-")
}

/// What a user reads of an argument: its meaning, and its default in words.
pub fn with_default(help: &str, default: &str) -> String {
    if default.is_empty() { help.to_owned() } else { format!("{help} [default: {default}]") }
}

/// The heading of a row in help: that of its section, or of the only engine that has it.
fn heading_of(row: &Argument) -> &'static str {
    match row.engines {
        Engines::SGLANG => "SGLang's arguments, with --engine sglang",
        Engines::TRTLLM => "TensorRT-LLM's arguments, with --engine trtllm",
        _ => heading(row.section),
    }
}

/// Adds the flag of a row, and the `--no-` form of a switch. Names that rows before it have stay theirs.
fn add(command: Command, row: &'static Argument, before: &[&'static Argument]) -> Command {
    let is_own = |name: &&&'static str| !name.contains('.') && !before.iter().any(|other| other.is_named(name));
    let mut argument = Arg::new(row.name)
        .long(flag(row.name))
        .help(with_default(row.help, row.default))
        .help_heading(heading_of(row))
        .hide(row.support != ArgumentSupport::Modelled)
        .visible_aliases(row.aliases.iter().filter(is_own).map(|name| flag(name)))
        .conflicts_with_all(row.excludes.iter().map(|(other, _)| *other));
    if row.name.contains('_') {
        argument = argument.alias(row.name);
    }
    if row.is_required && row.engines.meets(Engines::VLLM) {
        argument = argument.required_unless_present_any(match row.name {
            "model" => &["config", "serve_command", "engine_log"][..],
            _ => &["config", "serve_command"],
        });
    }
    argument = argument.ignore_case(matches!(row.kind, Kind::Name(_)));
    let mut command = command;
    for (alternatives, _) in row.needs {
        let group = format!("{} needs {}", row.name, alternatives.join(" or "));
        command = command.group(ArgGroup::new(group.clone()).args(*alternatives).multiple(true));
        argument = argument.requires(group);
    }
    if matches!(row.kind, Kind::Switch) {
        let opposite = format!("no_{}", row.name);
        let switch = argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(clap::builder::BoolishValueParser::new())
            .hide_possible_values(true)
            .overrides_with(opposite.clone());
        let off = Arg::new(opposite.clone())
            .long(flag(&opposite))
            .alias(opposite)
            .help(format!("The opposite of --{}", flag(row.name)))
            .help_heading(heading_of(row))
            .hide(row.section != Section::Scheduler)
            .action(ArgAction::SetTrue)
            .overrides_with(row.name);
        return command.arg(switch).arg(off);
    }
    if row.support != ArgumentSupport::Modelled {
        // They may be switches or have values.
        let any = argument.alias(flag(&format!("no_{}", row.name))).num_args(0..).default_missing_value("true");
        return command.arg(any.action(ArgAction::Set).value_parser(parser(row)));
    }
    let several = if matches!(row.kind, Kind::Wholes) { argument.num_args(1..) } else { argument };
    command.arg(several.value_name(row.value_name).allow_negative_numbers(true).value_parser(parser(row)))
}

/// Spells vLLM's short flags, such as `-tp 2` and `-dp=2`, with two dashes. They are the ones of several letters, which clap has no
/// word for; letters that are no other name of an argument stay as they are.
pub fn with_two_dashes(arguments: &[OsString]) -> Vec<OsString> {
    let server = server_arguments();
    let spelled = |argument: &OsString| {
        let text = argument.to_str()?.strip_prefix('-')?;
        let name = text.split('=').next().filter(|name| name.len() > 1)?;
        let is_short = server.iter().any(|row| row.is_flag && row.aliases.contains(&name));
        is_short.then(|| OsString::from(format!("--{text}")))
    };
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (flags, rest) = arguments.split_at(end);
    flags.iter().map(|flag| spelled(flag).unwrap_or_else(|| flag.clone())).chain(rest.iter().cloned()).collect()
}

/// Reads the text of a flag. The type of a parser distinguishes files from names.
fn parser(row: &'static Argument) -> ValueParser {
    match row.kind {
        Kind::File => value_parser!(PathBuf),
        Kind::Name(names) => PossibleValuesParser::new(names.iter().copied()).map(Value::from).into(),
        // What no file can give instead is judged here, but for numbers beyond their limit, which are bad input.
        kind if row.section == Section::Load || matches!(kind, Kind::Own(_)) => ValueParser::from(move |text: &str| {
            let value = kind.read_text(text)?;
            let is_beyond = text.parse::<f64>().is_ok_and(|number| number > 0.0 && number.is_finite());
            let is_possible = kind.value_of(&value).is_some() || is_beyond;
            is_possible.then_some(value).ok_or_else(|| format!("must be {}", row.expected()))
        }),
        kind => {
            ValueParser::from(move |text: &str| kind.read_text(text).map_err(|_| format!("must be {}", row.expected())))
        }
    }
}

/// The value of a row's flag.
fn given(row: &Argument, matches: &ArgMatches) -> Option<Value> {
    match row.kind {
        Kind::Switch => {
            let is_off = matches.get_flag(&format!("no_{}", row.name));
            matches.get_one::<bool>(row.name).map(|on| Value::Bool(*on)).or(is_off.then_some(Value::Bool(false)))
        }
        Kind::File => matches.get_one::<PathBuf>(row.name).map(|path| path.display().to_string().into()),
        Kind::Wholes => {
            let texts: Vec<&str> = matches.get_many::<Value>(row.name)?.filter_map(Value::as_str).collect();
            Some(texts.join(",").into())
        }
        _ => matches.get_one::<Value>(row.name).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use serde_json::json;

    use super::*;

    /// Rows of the server that a subcommand may have.
    struct Server;

    impl FlagRows for Server {
        fn rows() -> Vec<&'static Argument> {
            server_arguments().iter().filter(|row| row.is_flag).collect()
        }
    }

    fn read(line: &str) -> Result<Map<String, Value>, clap::Error> {
        let command = Flags::<Server>::augment_args(
            Command::new("test").args(["config", "serve_command", "engine_log"].map(|name| Arg::new(name).long(name))),
        );
        let line = ["test", "--config", "server.yaml"].into_iter().chain(line.split_whitespace());
        let line: Vec<OsString> = line.map(OsString::from).collect();
        let matches = command.try_get_matches_from(with_two_dashes(&line))?;
        Ok(Flags::<Server>::from_arg_matches(&matches)?.given)
    }

    #[test]
    fn a_flag_is_spelled_as_the_engine_spells_it() {
        let expected = json!({"tensor_parallel_size": 2, "enforce_eager": false, "max_model_len": "32k"});
        for line in [
            "--tensor-parallel-size 2 --no-enforce-eager --max-model-len 32k",
            "--tp 2 --enforce-eager=false --max_model_len=32k",
            "--tensor_parallel_size=2 --enforce-eager --no-enforce-eager --max-model-len 32k",
            "-tp 2 --no-enforce-eager --max-model-len 32k",
            "-tp=2 --no-enforce-eager --max-model-len 32k",
        ] {
            assert_eq!(Value::Object(read(line).expect(line)), expected, "{line}");
        }
        assert!(read("-tq 2").is_err());
        assert!(read("-- -tp 2").is_err());
        assert!(read("--tensor-parallel-size two").is_err());
        assert!(read("--scheduling-policy lifo").is_err());
        assert_eq!(
            Value::Object(read("--cudagraph-capture-sizes 1,2 4").unwrap()),
            json!({"cudagraph_capture_sizes": "1,2,4"})
        );
    }
}
