//! Which GPUs there are and how a name finds one: a file of the user's, then the user's data directory, then what is
//! built in; within each the file's name first, then the aliases in the files. Uses `catalog` and `error`.

use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use super::parse::Entry;
use super::spec::Hardware;
use crate::error::{Error, Result};
use crate::input;

static BUILTIN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/hardware");
const MAX_SUGGESTIONS: usize = 3;

/// Names of the built-in GPUs, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = builtin_files().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

/// Further names under which [`Hardware::find`] knows the built-in GPU `name`, as its file lists them.
///
/// # Errors
/// `ErrorKind::UnknownHardware` where no built-in GPU is called so.
pub fn builtin_aliases(name: &str) -> Result<Vec<String>> {
    Ok(builtin_entry(name)?.aliases)
}

impl Hardware {
    /// The built-in GPU whose file has exactly this name, such as `h100_sxm`. [`Hardware::find`] is more lenient.
    ///
    /// # Errors
    /// `ErrorKind::UnknownHardware` with near matches.
    pub fn builtin(name: &str) -> Result<Hardware> {
        Ok(builtin_entry(name)?.hardware)
    }

    /// The GPU that people call `name_or_path`. A file that exists, or any path that ends in `.toml`, is read;
    /// else a built-in GPU is looked for by name and alias, in which case, separators and a leading `NVIDIA` do not
    /// matter.
    ///
    /// ```
    /// use ridgepoint::Hardware;
    /// assert_eq!(Hardware::find("A100-40GB")?.name(), "a100_sxm_40gb");
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ErrorKind::UnknownHardware` with near matches where no name or more than one fits, and those of
    /// [`Hardware::load`].
    pub fn find(name_or_path: &str) -> Result<Hardware> {
        Hardware::find_in(None, name_or_path)
    }

    /// As [`Hardware::find`], with the files `<data_dir>/hardware/*.toml` asked before the built-in ones. A file there
    /// replaces the built-in one of the same name, under that one's aliases too, and its own aliases win over built-in
    /// ones.
    ///
    /// # Errors
    /// Those of [`Hardware::find`]; also where `data_dir` can't be read or a file in it is at fault, as that file might
    /// be the one that is meant.
    pub fn find_in(data_dir: Option<&Path>, name_or_path: &str) -> Result<Hardware> {
        let path = Path::new(name_or_path);
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")) || path.is_file() {
            return Hardware::load(path);
        }
        let own = data_dir.map_or_else(|| Ok(Vec::new()), entries_in)?;
        let mut builtin = builtin_entries()?;
        for entry in &mut builtin {
            if let Some(replacement) = own.iter().find(|o| o.hardware.name == entry.hardware.name) {
                entry.hardware = replacement.hardware.clone();
            }
        }

        let wanted = lookup_key(name_or_path);
        for layer in [&own, &builtin] {
            match matches(layer, &wanted).as_slice() {
                [] => {}
                [entry] => return Ok(entry.hardware.clone()),
                several => {
                    let near = several.iter().map(|entry| entry.hardware.name.clone()).collect();
                    return Err(Error::unknown_hardware(name_or_path, near));
                }
            }
        }
        Err(unknown(name_or_path, own.iter().chain(&builtin)))
    }
}

/// What names are compared by: [`input::normalise`], less the maker that drivers put in front.
pub(super) fn lookup_key(name: &str) -> String {
    let key = input::normalise(name);
    key.strip_prefix("nvidia").map(str::to_owned).unwrap_or(key)
}

/// Entries that have this name; only if there is none, those that have it as an alias.
fn matches<'a>(entries: &'a [Entry], wanted: &str) -> Vec<&'a Entry> {
    let named: Vec<&Entry> = entries.iter().filter(|e| lookup_key(&e.hardware.name) == wanted).collect();
    if !named.is_empty() {
        return named;
    }
    entries.iter().filter(|e| e.aliases.iter().any(|alias| lookup_key(alias) == wanted)).collect()
}

/// The owners of the closest names and aliases, then, as those may all be one GPU's, of the closest names alone.
fn unknown<'a>(name: &str, entries: impl Iterator<Item = &'a Entry> + Clone) -> Error {
    let wanted = lookup_key(name);
    let names = entries.clone().map(|e| e.hardware.name.as_str());
    let aliases = entries.clone().flat_map(|e| e.aliases.iter().map(String::as_str));
    let closest = input::near_matches(&wanted, names.clone().chain(aliases));
    let closest_names = input::near_matches(&wanted, names);
    let mut near: Vec<String> = Vec::new();
    for candidate in closest.iter().chain(&closest_names) {
        let owner = entries.clone().find(|e| e.hardware.name == *candidate || e.aliases.contains(candidate));
        if let Some(owner) = owner.map(|e| &e.hardware.name).filter(|owner| !near.contains(owner)) {
            near.push(owner.clone());
        }
    }
    near.truncate(MAX_SUGGESTIONS);
    Error::unknown_hardware(name, near)
}

fn builtin_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTIN.files().filter_map(|file| {
        let is_toml = file.path().extension().is_some_and(|e| e == "toml");
        is_toml.then(|| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?))).flatten()
    })
}

fn builtin_entry(name: &str) -> Result<Entry> {
    match builtin_files().find(|(stem, _)| *stem == name) {
        Some((stem, text)) => parse_builtin(stem, text),
        None => Err(unknown(name, builtin_entries()?.iter())),
    }
}

fn builtin_entries() -> Result<Vec<Entry>> {
    builtin_files().map(|(name, text)| parse_builtin(name, text)).collect()
}

fn parse_builtin(name: &str, text: &str) -> Result<Entry> {
    Entry::parse(name, &format!("hardware/{name}.toml (built in)"), text)
}

/// The files of `data_dir/hardware`, sorted by name; none where the directory has no such folder.
fn entries_in(data_dir: &Path) -> Result<Vec<Entry>> {
    std::fs::metadata(data_dir).map_err(|e| Error::io(data_dir, e))?;
    let folder = data_dir.join("hardware");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|files| files.map(|file| Ok(file?.path())).collect())
        .map_err(|e| Error::io(&folder, e))?;
    paths.retain(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("toml")));
    paths.sort();
    paths.iter().map(|path| Entry::load(path)).collect()
}
