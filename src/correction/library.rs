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
        Err(error) => Err(Error::Parse { origin: "built-in corrections".to_owned(), message: error.to_string() }),
    }
}

/// The correction that `wanted` asks for of a model: `none`, `global`, `auto` (the model's own if there is one, else the global
/// one), or the path of a file.
///
/// # Errors
/// [`Error::InvalidArgument`] where `global` is not built in or no file is there; those of reading one; [`Error::Invalid`] for a file that
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
        "global" => built_in(&Level::Global)?.map(Some).ok_or_else(|| Error::InvalidArgument {
            what: "correction".into(),
            value: "global".into(),
            reason: "is not built in; use none for the calibrated roofline".into(),
        }),
        path if !Path::new(path).is_file() => Err(Error::InvalidArgument {
            what: "correction".into(),
            value: path.into(),
            reason: "must be none, global, auto or the path of a file that `ridgepoint fit` wrote".into(),
        }),
        path => {
            let correction = Correction::load(path)?;
            match &correction.level {
                Level::Model { model: other } if other != model => Err(Error::Invalid {
                    origin: path.to_owned(),
                    problems: vec![format!("is meant for {other} and not for {model}; --correction global would do")],
                }),
                _ => Ok(Some(correction)),
            }
        }
    }
}
