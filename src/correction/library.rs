//! The corrections that are built in (`corrections/*.toml`). Uses `fitted`, `file`.

use std::sync::LazyLock;

use include_dir::{Dir, include_dir};

use super::fitted::Correction;
use crate::error::{Error, Result};
use crate::input::embedded;

static FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/corrections");

static BUILTIN: LazyLock<Result<Vec<Correction>>> = LazyLock::new(|| {
    let read = |(name, text): (&str, &str)| {
        let correction = Correction::from_toml_str(&format!("corrections/{name}.toml"), text)?;
        Ok(Correction { name: name.to_owned(), ..correction })
    };
    embedded(&FILES, "toml").into_iter().map(read).collect()
});

/// The corrections that are built in, by name: `global`, and models by their short names.
///
/// # Errors
/// Those of reading the files.
pub fn builtin_corrections() -> Result<&'static [Correction]> {
    BUILTIN.as_deref().map_err(|error| Error::parse("built-in corrections", error.to_string()))
}

impl Correction {
    /// Whether it is one of those that are built in.
    pub fn is_builtin(&self) -> bool {
        builtin_corrections().is_ok_and(|builtin| builtin.contains(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_says_what_it_was_fitted_on() {
        for correction in builtin_corrections().unwrap() {
            let Correction { name, source, .. } = correction;
            assert!(source.converged && source.rows > 1 && source.rows_sha256.len() == 64, "{name}: {source:?}");
            assert!(!source.models.is_empty() && !source.hardware.is_empty() && !source.data.is_empty(), "{name}");
            assert!(!source.engine_versions.is_empty() && !source.split.is_empty(), "{name}: {source:?}");
        }
    }
}
