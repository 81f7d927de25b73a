//! Finds a GPU by name: first a file of the user, then the user's data directory, then the built-in GPUs. Within each, file
//! names come before aliases.

use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

use super::parse::{Entry, lookup_key};
use super::spec::Hardware;
use crate::error::{Error, Result};
use crate::input::near_matches;

static BUILTIN: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/hardware");
/// Returns the names of the built-in GPUs, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = builtin_files().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

/// Returns the other names of the built-in GPU `name`, as its file lists them.
///
/// # Errors
/// `ErrorKind::UnknownHardware` if no built-in GPU has this name.
pub fn builtin_aliases(name: &str) -> Result<Vec<String>> {
    Ok(builtin_entry(name)?.aliases)
}

impl Hardware {
    /// Returns the built-in GPU with exactly this name, such as `h100_sxm`. [`Hardware::find`] also accepts other spellings.
    ///
    /// # Errors
    /// `ErrorKind::UnknownHardware` with near matches.
    pub fn builtin(name: &str) -> Result<Hardware> {
        Ok(builtin_entry(name)?.hardware)
    }

    /// Finds a GPU by path, name or alias. An existing file, or any path that ends in `.toml`, is read. Names and aliases
    /// ignore case, separators and a leading `NVIDIA`.
    ///
    /// ```
    /// use ridgepoint::Hardware;
    /// assert_eq!(Hardware::find("A100-40GB")?.name(), "a100_sxm_40gb");
    /// # Ok::<(), ridgepoint::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ErrorKind::UnknownHardware` with near matches if no name or more than one fits, and those of [`Hardware::load`].
    pub fn find(name_or_path: &str) -> Result<Hardware> {
        Hardware::find_in(None, name_or_path)
    }

    /// Finds a GPU like [`Hardware::find`], but looks at the files `<data_dir>/hardware/*.toml` before the built-in ones. A
    /// file replaces the built-in GPU of the same name, also under its aliases. Its own aliases win over built-in ones.
    ///
    /// # Errors
    /// Those of [`Hardware::find`]. Also any fault of a file in `data_dir`, because that file may be the requested one.
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

        let key = lookup_key(name_or_path);
        for layer in [&own, &builtin] {
            match matches(layer, &key).as_slice() {
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

/// Returns the entries with this name or, without any, those with this alias.
fn matches<'a>(entries: &'a [Entry], key: &str) -> Vec<&'a Entry> {
    let named: Vec<&Entry> = entries.iter().filter(|e| lookup_key(&e.hardware.name) == key).collect();
    if !named.is_empty() {
        return named;
    }
    entries.iter().filter(|e| e.aliases.iter().any(|alias| lookup_key(alias) == key)).collect()
}

/// Suggests the owners of the closest names and aliases, then those of the closest names alone: the former may all belong
/// to one GPU.
fn unknown<'a>(name: &str, entries: impl Iterator<Item = &'a Entry> + Clone) -> Error {
    let names = entries.clone().flat_map(|e| e.aliases.iter().chain([&e.hardware.name])).map(String::as_str);
    let mut near: Vec<String> = Vec::new();
    for close in near_matches(&lookup_key(name), names) {
        let owner = entries.clone().find(|e| e.hardware.name == close || e.aliases.contains(&close));
        near.extend(owner.map(|e| e.hardware.name.clone()).filter(|owner| !near.contains(owner)));
    }
    Error::unknown_hardware(name, near)
}

fn builtin_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTIN.files().filter_map(|file| {
        let is_toml = file.path().extension().is_some_and(|e| e == "toml");
        is_toml.then(|| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?))).flatten()
    })
}

fn builtin_entry(name: &str) -> Result<Entry> {
    let entries = builtin_entries()?;
    entries.iter().find(|e| e.hardware.name == name).cloned().ok_or_else(|| unknown(name, entries.iter()))
}

fn builtin_entries() -> Result<Vec<Entry>> {
    builtin_files().map(|(name, text)| Entry::parse(name, &format!("hardware/{name}.toml (built in)"), text)).collect()
}

/// Reads the files of `data_dir/hardware`, sorted by name; without such a folder there are none.
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
