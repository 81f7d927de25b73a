//! The name of the correction behind a prediction, for outputs. Uses `fitted`.

use std::fmt;

use serde::Serialize;

use super::fitted::{Correction, Level};

/// The name of the correction behind a prediction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CorrectionInfo {
    /// `global`, a model's short name, or the path of a file; `None` for the roofline alone.
    pub name: Option<String>,
    /// `global`, `model` or `none`.
    pub level: &'static str,
}

impl CorrectionInfo {
    /// The name of a correction, or of none.
    pub fn of(correction: Option<&Correction>) -> Self {
        let level = match correction.map(|correction| &correction.level) {
            None => "none",
            Some(Level::Global) => "global",
            Some(Level::Model { .. }) => "model",
        };
        CorrectionInfo { name: correction.map(|correction| correction.name.clone()), level }
    }
}

/// `none`, `global`, `llama-3.1-70b (this model's own)`, `mine.toml (for any model)`.
impl fmt::Display for CorrectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_deref(), self.level) {
            (None, level) => f.write_str(level),
            (Some(name), level) if name == level => f.write_str(name),
            (Some(name), "global") => write!(f, "{name} (for any model)"),
            (Some(name), _) => write!(f, "{name} (this model's own)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_named_with_its_level() {
        let said = |correction: Option<&Correction>| {
            let used = CorrectionInfo::of(correction);
            (serde_json::to_string(&used).expect("JSON"), used.to_string())
        };
        assert_eq!(said(None), (r#"{"name":null,"level":"none"}"#.to_owned(), "none".to_owned()));
        let mut correction = Correction { name: "global".to_owned(), ..Correction::neutral() };
        assert_eq!(said(Some(&correction)), (r#"{"name":"global","level":"global"}"#.to_owned(), "global".to_owned()));
        correction.name = "mine.toml".to_owned();
        assert_eq!(said(Some(&correction)).1, "mine.toml (for any model)");
        correction.level = Level::Model { model: "llama-2-7b".to_owned() };
        assert_eq!(said(Some(&correction)).0, r#"{"name":"mine.toml","level":"model"}"#);
        assert_eq!(said(Some(&correction)).1, "mine.toml (this model's own)");
    }
}
