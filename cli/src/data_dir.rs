//! The folder of one's own GPUs, models and tables: tables at places that nothing reads are refused.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ridgepoint::Hardware;
use ridgepoint::internals::efficiency::family::{Family, FamilyVisitor, for_each_family};

use crate::outcome::Failure;

/// Names of the operators that have tables.
struct Operators(Vec<&'static str>);

impl<F: Family> FamilyVisitor<F> for Operators {
    fn visit(&mut self) -> ridgepoint::Result<()> {
        self.0.push(F::OPERATOR);
        Ok(())
    }
}

/// Refuses csv files below `bench_data/` that nothing would read.
///
/// # Errors
/// The first such file.
pub fn refuse_unread_tables(data_dir: &Path) -> Result<(), Failure> {
    let mut operators = Operators(Vec::new());
    for_each_family(&mut operators)?;
    for folder in entries(&data_dir.join("bench_data")).filter(|folder| folder.is_dir()) {
        let gpu = folder.file_name().unwrap_or_default().to_string_lossy();
        let is_gpu = Hardware::find_in(Some(data_dir), &gpu).is_ok_and(|found| found.name == gpu);
        let is_read = |path: &Path| is_gpu && operators.0.iter().any(|name| path.file_stem() == Some(OsStr::new(name)));
        let nested = entries(&folder).filter(|path| path.is_dir()).flat_map(|path| entries(&path).collect::<Vec<_>>());
        let unread = entries(&folder).filter(|path| !is_read(path)).chain(nested);
        if let Some(path) =
            unread.into_iter().find(|path| path.is_file() && path.extension() == Some(OsStr::new("csv")))
        {
            return Err(Failure::input(format!(
                "{}: no prediction reads this table; tables lie at bench_data/<gpu>/<operator>.csv, with a GPU of \
                 `ridgepoint hardware` by its first name and one of {}",
                path.display(),
                operators.0.join(", ")
            )));
        }
    }
    Ok(())
}

/// The paths in a folder, in order; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter()
}
