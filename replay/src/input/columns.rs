//! The columns that a kind of file may have, and where one file has them.

use ridgepoint::input::{MAX_PROBLEMS, check, did_you_mean, other_names};
use ridgepoint::unstable::error::cut;
use ridgepoint::{Location, Result};
use serde_json::{Map, Value};

/// The columns of a kind of file.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// Columns that every file has, as a header: `stage,metric,value_ms`.
    pub required: &'static str,
    /// Columns that a file may have, written the same.
    pub optional: &'static str,
    /// Other names, as pairs of alias and column.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Whether a file may have other columns too, which are not read.
    pub has_others: bool,
    /// Returns the column that a name means which is neither a column nor an alias. The first such name in a file counts, and none does if
    /// the file has the column by a name of its own.
    pub by_role: Option<fn(&str) -> Option<&'static str>>,
}

impl Columns {
    /// Columns that every file has, and no others.
    pub const fn exactly(required: &'static str) -> Self {
        Columns { required, optional: "", aliases: &[], has_others: false, by_role: None }
    }

    /// The same columns in files that may have others too; [`Header::others`] names those.
    #[must_use]
    pub const fn among_others(self) -> Self {
        Columns { has_others: true, ..self }
    }

    /// Returns the columns that every file has.
    pub fn required(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.required.split(',')
    }

    /// Finds the columns among the names in a header.
    ///
    /// # Errors
    /// All problems: names that are unknown or appear twice, required columns that are missing.
    pub fn find<'n>(&self, at: impl Into<Location>, names: impl IntoIterator<Item = &'n str>) -> Result<Header> {
        let mut header = Header::default();
        let (mut problems, mut strangers) = (Vec::new(), Vec::new());
        for (position, name) in names.into_iter().map(str::trim).enumerate() {
            let Some(column) = self.column(name) else {
                strangers.push((position, name));
                continue;
            };
            match header.name(column) {
                Some(earlier) if earlier == name => problems.push(format!("column '{name}' appears twice: keep one")),
                Some(earlier) => problems.push(format!("columns '{earlier}' and '{name}' mean the same: keep one")),
                None => header.found.push(FoundColumn { column, name: name.to_owned(), position, is_by_role: false }),
            }
        }
        for (position, name) in strangers {
            let column = self.by_role.and_then(|role_of| role_of(name));
            match column.filter(|column| header.name(column).is_none()) {
                Some(column) => {
                    header.found.push(FoundColumn { column, name: name.to_owned(), position, is_by_role: true });
                }
                None => header.others.push(name.to_owned()),
            }
        }
        for column in self.required().filter(|column| header.name(column).is_none()) {
            problems.push(format!("column '{column}' is missing{}", other_names(self.aliases, column)));
        }
        if !self.has_others || !problems.is_empty() {
            problems.splice(0..0, self.unknown(header.others()));
        }
        if !problems.is_empty() {
            problems.push(self.listed());
        }
        check(at, problems)?;
        Ok(header)
    }

    /// The problems of names that no column has.
    fn unknown(&self, names: &[String]) -> Vec<String> {
        let mut unknown = Vec::new();
        for name in names {
            let is_shown = unknown.len() < MAX_PROBLEMS;
            let hint = if is_shown { did_you_mean(name, self.all()) } else { None };
            // Where other columns are allowed, only names close to a known one are problems.
            if hint.is_some() || !self.has_others {
                let hint = hint.map_or(String::new(), |hint| format!(": {hint}"));
                unknown.push(format!("column '{}' is not known{hint}", cut(name)));
            }
        }
        unknown
    }

    /// The columns by their own names.
    fn own(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.required().chain(self.optional.split(','))
    }

    fn all(&self) -> impl Iterator<Item = &'static str> {
        self.own().chain(self.aliases.iter().map(|(alias, _)| *alias))
    }

    fn column(&self, name: &str) -> Option<&'static str> {
        let own = self.own().find(|column| *column == name && !name.is_empty());
        own.or_else(|| self.aliases.iter().find(|(alias, _)| *alias == name).map(|(_, column)| *column))
    }

    fn listed(&self) -> String {
        let required = self.required.replace(',', ", ");
        if self.optional.is_empty() {
            return format!("the columns are {required}");
        }
        format!("the columns are {required} and, optionally, {}", self.optional.replace(',', ", "))
    }
}

/// The columns that a file has.
#[derive(Debug, Clone, Default)]
pub struct Header {
    pub(super) found: Vec<FoundColumn>,
    others: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct FoundColumn {
    pub(super) column: &'static str,
    pub(super) name: String,
    pub(super) position: usize,
    /// The name is neither the column's nor an alias: it says what the column is.
    pub(super) is_by_role: bool,
}

impl Header {
    /// Returns the names of columns that are not read.
    pub fn others(&self) -> &[String] {
        &self.others
    }

    /// Returns the position of a column, from 0.
    pub fn position(&self, column: &str) -> Option<usize> {
        self.find(column).map(|found| found.position)
    }

    /// Returns the name that the file has for a column.
    pub fn name(&self, column: &str) -> Option<&str> {
        self.find(column).map(|found| found.name.as_str())
    }

    pub(super) fn find(&self, column: &str) -> Option<&FoundColumn> {
        self.found.iter().find(|found| found.column == column)
    }

    /// Returns whether an object has exactly these columns, and those that are not read, as keys.
    pub(super) fn has_keys_of(&self, object: &Map<String, Value>) -> bool {
        object.len() == self.found.len() + self.others.len()
            && self.found.iter().all(|found| object.contains_key(&found.name))
            && self.others.iter().all(|name| object.contains_key(name))
    }
}
