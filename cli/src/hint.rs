//! The way out of a library error in terms of the command: the library names settings, the command adds flags and lists.

use std::path::Path;

use clap::error::ContextKind;
use ridgepoint::arguments::ArgumentSupport;
use ridgepoint::{Error, ErrorKind};
use ridgepoint_lab::evaluate::report::Skipped;
use ridgepoint_replay::server_config::NOT_MODELLED;

/// Folders of the measurements that RIDGEPOINT_DATA points at.
const DATA: [&str; 5] = ["kernels", "serving", "steps", "closed_loop", "models"];

/// The answer to an unknown flag that stands for something that is not modelled.
pub fn not_modelled(error: &clap::Error) -> Option<String> {
    if error.kind() != clap::error::ErrorKind::UnknownArgument {
        return None;
    }
    let given = error.get(ContextKind::InvalidArg)?.to_string();
    let flag = given.split(['=', ' ']).next()?;
    let key = flag.trim_start_matches('-').replace('-', "_");
    let row = NOT_MODELLED.iter().find(|row| row.name == key)?;
    let ArgumentSupport::NotModelled(answer) = row.support else { return None };
    Some(format!("{flag} {answer} (README, Support and limits)"))
}

/// The error's text with its hint.
pub fn explained(error: &Error) -> String {
    let hint = hint(error).map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{error}{hint}")
}

/// Runs that cannot be used, with the reasons and their hints.
pub fn skipped(refused: Vec<(String, Error)>) -> Vec<Skipped> {
    refused.into_iter().map(|(id, error)| Skipped { id, reason: explained(&error) }).collect()
}

fn hint(error: &Error) -> Option<String> {
    let place = error.location();
    match error.kind() {
        ErrorKind::UnknownModel => {
            let way_out = "`ridgepoint models` lists the built-in ones; the path of its config.json works too, with --as-family if its model_type \
                           is new";
            Some(way_out.to_owned())
        }
        ErrorKind::UnknownHardware => {
            Some("`ridgepoint hardware` lists the built-in ones, a path to a TOML file works too".to_owned())
        }
        ErrorKind::InvalidArgument => {
            let key = place?.key.as_ref()?;
            let is_setting = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            is_setting.then(|| format!("see --{}", key.replace('_', "-")))
        }
        // A run without labels; the key has their names.
        ErrorKind::Invalid if place?.path == "labels" => {
            let flags = place?.key.as_ref()?.replace('_', "-").replace(", ", ", --");
            Some(format!("add --{flags}"))
        }
        // `$RIDGEPOINT_DATA/serving` with the variable unset.
        ErrorKind::Io if is_data(&place?.path) => {
            Some("set RIDGEPOINT_DATA to the folder of the measurements (docs/accuracy.md)".to_owned())
        }
        _ => None,
    }
}

fn is_data(path: &str) -> bool {
    let top = path.strip_prefix('/').and_then(|path| path.split('/').next());
    top.is_some_and(|top| DATA.contains(&top)) && !Path::new(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_flag_or_the_list() {
        let unknown = Error::unknown_model("no-such", &[]);
        assert!(explained(&unknown).contains("unknown model 'no-such'; `ridgepoint models` lists"));
        let argument = Error::invalid_argument("cpu_offload_gb", "-1", "must be at least 0");
        assert!(explained(&argument).ends_with("; see --cpu-offload-gb"));
        let missing = Error::io("/serving/x", std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(explained(&missing).contains("set RIDGEPOINT_DATA"));
        let other = Error::io("serving/x", std::io::Error::from(std::io::ErrorKind::NotFound));
        assert!(!explained(&other).contains("RIDGEPOINT_DATA"));
    }
}
