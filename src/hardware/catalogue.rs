//! Finds a GPU by name: first a file of the user, then the user's data directory, then the built-in GPUs. Within each, file
//! names come before aliases.

use std::path::Path;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};

use super::parse::lookup_key;
use super::spec::Hardware;
use crate::error::{Error, Result, each_once};
use crate::input::{embedded, files_in, near_matches};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/hardware");

static BUILTIN: LazyLock<Result<Vec<Hardware>>> = LazyLock::new(|| {
    let files = embedded(&FILES, "toml").into_iter();
    files.map(|(name, text)| Hardware::from_toml_str(name, &format!("hardware/{name}.toml (built in)"), text)).collect()
});

/// Returns the names of the built-in GPUs, sorted.
pub fn builtin_names() -> Vec<&'static str> {
    embedded(&FILES, "toml").into_iter().map(|(name, _)| name).collect()
}

impl Hardware {
    /// Returns the built-in GPU with exactly this name, such as `h100_sxm`. [`Hardware::find`] also accepts other spellings.
    ///
    /// # Errors
    /// `ErrorKind::UnknownHardware` with near matches.
    pub fn builtin(name: &str) -> Result<Hardware> {
        let builtin = builtin()?;
        builtin.iter().find(|gpu| gpu.name == name).cloned().ok_or_else(|| unknown(name, builtin.iter()))
    }

    /// Finds a GPU by path, name or alias. An existing file, or any path that ends in `.toml`, is read. Names and aliases
    /// ignore case, separators and a leading `NVIDIA`.
    ///
    /// ```
    /// use ridgepoint::Hardware;
    /// assert_eq!(Hardware::find("A100-40GB")?.name, "a100_sxm_40gb");
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
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml")) || path.is_file() {
            return Ok(Hardware::load(path)?.with_mismatch_notes(builtin()?));
        }
        Hardware::named_in(data_dir, name_or_path)
    }

    /// Finds a GPU like [`Hardware::find_in`] by its name or alias alone: a name that is a path is unknown.
    ///
    /// # Errors
    /// Those of [`Hardware::find_in`] for a name.
    pub fn named_in(data_dir: Option<&Path>, name: &str) -> Result<Hardware> {
        let mut builtin = builtin()?.to_vec();
        let own = data_dir.map_or_else(|| Ok(Vec::new()), own)?;
        let own: Vec<Hardware> = own.into_iter().map(|gpu| gpu.with_mismatch_notes(&builtin)).collect();
        for gpu in &mut builtin {
            if let Some(replacement) = own.iter().find(|own| own.name == gpu.name) {
                *gpu = Hardware { aliases: std::mem::take(&mut gpu.aliases), ..replacement.clone() };
            }
        }
        let key = lookup_key(name);
        for layer in [&own, &builtin] {
            match matches(layer, &key).as_slice() {
                [] => {}
                [gpu] => {
                    let mut gpu = (*gpu).clone();
                    gpu.notes.extend(edition_note(name, &gpu, own.iter().chain(&builtin)));
                    return Ok(gpu);
                }
                several => {
                    let near: Vec<String> = several.iter().map(|gpu| gpu.name.clone()).collect();
                    return Err(Error::unknown_hardware(name, &near));
                }
            }
        }
        Err(unknown(name, own.iter().chain(&builtin)))
    }

    /// Returns the names of the other built-in cards of the same chip, such as `h100_nvl` and `h100_pcie` for `h100_sxm`.
    ///
    /// # Errors
    /// A built-in file that is malformed.
    pub fn other_cards(&self) -> Result<Vec<String>> {
        Ok(siblings(self, builtin()?.iter()).into_iter().map(str::to_owned).collect())
    }
}

/// Returns the GPUs with this name or, without any, those with this alias.
fn matches<'a>(gpus: &'a [Hardware], key: &str) -> Vec<&'a Hardware> {
    let named: Vec<&Hardware> = gpus.iter().filter(|gpu| lookup_key(&gpu.name) == key).collect();
    if !named.is_empty() {
        return named;
    }
    gpus.iter().filter(|gpu| gpu.aliases.iter().any(|alias| lookup_key(alias) == key)).collect()
}

/// Says which edition of a card is meant where the name does not identify one. The exact short name is never in doubt.
fn edition_note<'a>(name: &str, gpu: &Hardware, gpus: impl Iterator<Item = &'a Hardware>) -> Option<String> {
    let (_, edition) = split_edition(&gpu.display_name)?;
    if name == gpu.name || name.to_lowercase().contains(&edition.to_lowercase()) {
        return None;
    }
    let others = siblings(gpu, gpus);
    (!others.is_empty()).then(|| {
        format!(
            "'{name}' is the name of several cards: taken as {} ({}); {} is another, and one that is not listed needs a TOML file",
            gpu.display_name,
            gpu.name,
            others.join(", ")
        )
    })
}

/// Names of the other cards of a GPU's family, each once.
fn siblings<'a>(gpu: &Hardware, gpus: impl Iterator<Item = &'a Hardware>) -> Vec<&'a str> {
    let family = family_of(gpu);
    let others = gpus.filter(|other| other.name != gpu.name && family_of(other) == family);
    each_once(others.map(|other| other.name.as_str()))
}

/// The common name of editions and form factors: the card without its edition, or else maker and chip, as `NVIDIA H100`. The chip is the
/// first word with a digit, so that `NVIDIA GeForce RTX 4090` is no other card of `NVIDIA GeForce RTX 5090`.
fn family_of(gpu: &Hardware) -> &str {
    let name = gpu.display_name.as_str();
    let chip = || {
        let digit = name.find(|letter: char| letter.is_ascii_digit())?;
        let end = name.get(digit..)?.find(' ').map(|len| digit + len)?;
        name.get(..end)
    };
    let chip = || chip().unwrap_or(name);
    split_edition(name).map_or_else(chip, |(family, _)| family)
}

/// The card and the edition of a full name such as `NVIDIA RTX PRO 6000 Blackwell Server Edition 96 GB`.
fn split_edition(display_name: &str) -> Option<(&str, &str)> {
    display_name.split_once(" Edition")?.0.rsplit_once(' ')
}

/// Suggests the owners of the closest names and aliases.
fn unknown<'a>(name: &str, gpus: impl Iterator<Item = &'a Hardware> + Clone) -> Error {
    let names = gpus.clone().flat_map(|gpu| gpu.aliases.iter().chain([&gpu.name])).map(String::as_str);
    let mut near: Vec<String> = Vec::new();
    for close in near_matches(&lookup_key(name), names) {
        let owner = gpus.clone().find(|gpu| gpu.name == close || gpu.aliases.contains(&close));
        near.extend(owner.map(|gpu| gpu.name.clone()).filter(|owner| !near.contains(owner)));
    }
    Error::unknown_hardware(name, &near)
}

fn builtin() -> Result<&'static [Hardware]> {
    BUILTIN.as_deref().map_err(|error| Error::parse("built-in GPUs", error.to_string()))
}

/// Reads the files of `data_dir/hardware`; without such a folder there are none.
fn own(data_dir: &Path) -> Result<Vec<Hardware>> {
    std::fs::metadata(data_dir).map_err(|error| Error::io(data_dir, error))?;
    files_in(Some(data_dir), "hardware", "toml")?.iter().map(Hardware::load).collect()
}
