//! The corrections that are built in (`corrections/*.toml`), and which one answers for a model. Uses `fitted`, `file`.

use std::path::Path;
use std::sync::LazyLock;

use include_dir::{Dir, include_dir};

use super::fitted::{Correction, Level};
use crate::error::{Error, Result};

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/corrections");

static BUILTIN: LazyLock<Result<Vec<Correction>>> = LazyLock::new(|| {
    let mut corrections = Vec::new();
    for file in FILES.files().filter(|file| file.path().extension().is_some_and(|e| e == "toml")) {
        let (Some(name), Some(text)) = (file.path().file_stem().and_then(|name| name.to_str()), file.contents_utf8())
        else {
            continue;
        };
        corrections.push(Correction {
            name: name.to_owned(),
            ..Correction::from_toml_str(&format!("corrections/{name}.toml"), text)?
        });
    }
    corrections.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(corrections)
});

/// The corrections that are built in, by name: `global`, and models by their short names.
///
/// # Errors
/// Those of reading the files.
pub fn builtin_corrections() -> Result<&'static [Correction]> {
    match &*BUILTIN {
        Ok(corrections) => Ok(corrections),
        Err(error) => Err(Error::parse("built-in corrections", error.to_string())),
    }
}

/// The correction that `wanted` asks for of a model: `none`, `global`, `auto` (the model's own if there is one, else the global
/// one), or the path of a file.
///
/// # Errors
/// `ErrorKind::InvalidArgument` where `global` is not built in or no file is there; those of reading one; `ErrorKind::Invalid` for a file that
/// is meant for another model.
pub fn find_correction(wanted: &str, model: &str) -> Result<Option<Correction>> {
    let built_in = |level: &Level| -> Result<Option<Correction>> {
        Ok(builtin_corrections()?.iter().find(|correction| correction.level == *level).cloned())
    };
    let own = Level::Model { model: model.to_owned() };
    match wanted {
        "none" => Ok(None),
        "auto" => match built_in(&own)? {
            Some(correction) => Ok(Some(correction)),
            None => built_in(&Level::Global),
        },
        "global" => built_in(&Level::Global)?.map(Some).ok_or_else(|| {
            Error::invalid_argument("correction", "global", "is not built in; use none for the calibrated roofline")
        }),
        path if !Path::new(path).is_file() => Err(Error::invalid_argument(
            "correction",
            path,
            "must be none, global, auto or the path of a file that `ridgepoint fit` wrote",
        )),
        path => {
            let correction = Correction::load(path)?;
            match &correction.level {
                Level::Model { model: other } if other != model => Err(Error::invalid(
                    path,
                    vec![format!("is meant for {other} and not for {model}; --correction global would do")],
                )),
                _ => Ok(Some(correction)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHOUT_ITS_OWN: &str = "no-such-model";

    fn written(level: &Level) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let correction = Correction { level: level.clone(), ..Correction::neutral() };
        std::fs::write(dir.path().join("mine.toml"), correction.to_toml_string().unwrap()).unwrap();
        dir
    }

    #[test]
    fn names_find_what_is_built_in() {
        assert_eq!(find_correction("none", "llama-2-7b").unwrap(), None);
        let global = find_correction("global", "llama-2-7b").unwrap().unwrap();
        assert_eq!((global.name.as_str(), &global.level), ("global", &Level::Global));
        assert_eq!(find_correction("auto", WITHOUT_ITS_OWN).unwrap().as_ref(), Some(&global));
        for own in builtin_corrections().unwrap() {
            let Level::Model { model } = &own.level else { continue };
            assert_eq!((&own.name, find_correction("auto", model).unwrap().as_ref()), (model, Some(own)));
            assert_eq!(find_correction("global", model).unwrap().as_ref(), Some(&global));
        }
    }

    #[test]
    fn what_is_built_in_says_what_it_was_fitted_on() {
        for correction in builtin_corrections().unwrap() {
            let Correction { name, source, .. } = correction;
            assert!(source.converged && source.rows > 1 && source.rows_sha256.len() == 64, "{name}: {source:?}");
            assert!(!source.models.is_empty() && !source.hardware.is_empty() && !source.data.is_empty(), "{name}");
            assert!(!source.engine_versions.is_empty() && !source.split.is_empty(), "{name}: {source:?}");
        }
    }

    #[test]
    fn a_path_is_read_where_it_is_meant_for_the_model() {
        let dir = written(&Level::Global);
        let path = dir.path().join("mine.toml").display().to_string();
        let any = find_correction(&path, WITHOUT_ITS_OWN).unwrap().unwrap();
        assert_eq!((any.name, any.coefficients), (path, Correction::neutral().coefficients));

        let dir = written(&Level::Model { model: "yi-34b".to_owned() });
        let path = dir.path().join("mine.toml").display().to_string();
        assert!(find_correction(&path, "yi-34b").unwrap().is_some());
        let refused = find_correction(&path, "llama-2-7b").unwrap_err().to_string();
        for said in ["mine.toml", "is meant for yi-34b and not for llama-2-7b", "--correction global"] {
            assert!(refused.contains(said), "'{said}' is not in: {refused}");
        }
    }

    #[test]
    fn a_path_where_nothing_is_says_what_there_could_be() {
        let dir = tempfile::tempdir().unwrap();
        for wanted in [dir.path().join("mine.toml").display().to_string(), dir.path().display().to_string()] {
            match find_correction(&wanted, "llama-2-7b") {
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.contains(&wanted), "{message}");
                    assert!(message.contains("none, global, auto or the path of a file"), "{message}");
                }
                Ok(found) => panic!("{found:?}"),
            }
        }
    }
}
