//! Checks of `--data-dir`: tables must lie where predictions read them.

use std::path::Path;

use ridgepoint::input::files_in;
use ridgepoint_lab::hardware_report::operators;

use crate::outcome::Failure;

/// A file that only a checkout of ridgepoint has. Its tables lie in folders of engines and are built in.
const OF_A_CHECKOUT: &str = "bench_data/exclusions.toml";

/// Refuses csv files below `bench_data/` that nothing would read.
///
/// # Errors
/// The first such file, or a folder that can't be read.
pub fn refuse_unread_tables(data_dir: &Path) -> Result<(), Failure> {
    let operators = operators();
    let is_checkout = data_dir.join(OF_A_CHECKOUT).is_file();
    for gpu in folders(&data_dir.join("bench_data")) {
        let is_gpu = ridgepoint_replay::find_hardware(Some(data_dir), &gpu).is_ok_and(|found| found.name == gpu);
        let is_read = |path: &Path| is_gpu && operators.iter().any(|name| path.ends_with(format!("{name}.csv")));
        let mut unread = files_in(Some(data_dir), &format!("bench_data/{gpu}"), "csv")?;
        unread.retain(|path| !is_read(path));
        let nested_folders = folders(&data_dir.join("bench_data").join(&gpu));
        for nested in nested_folders.into_iter().filter(|_| !is_checkout) {
            unread.extend(files_in(Some(data_dir), &format!("bench_data/{gpu}/{nested}"), "csv")?);
        }
        if let Some(path) = unread.first() {
            return Err(Failure::input(format!(
                "{}: no prediction reads this table; tables lie at bench_data/<gpu>/<operator>.csv, with a GPU of \
                 `ridgepoint hardware` by its first name and one of {}",
                path.display(),
                operators.join(", ")
            )));
        }
    }
    Ok(())
}

/// The names of the folders in a folder, in order; none if it cannot be read.
fn folders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_is_a_data_dir_whose_own_tables_are_built_in() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(folders(&checkout.join("bench_data/h100_sxm")).len() > 1);
        assert!(refuse_unread_tables(&checkout).is_ok());
    }
}
