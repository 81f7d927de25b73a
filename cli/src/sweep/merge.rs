//! `ridgepoint sweep --merge`: the files of shards read, and what they lack named with the commands that run it.

use std::path::{Path, PathBuf};

use ridgepoint::Error;
use ridgepoint_lab::sweep::{Row, RowFile, Shard, Sweep as GridSweep};

use super::Sweep;
use crate::common::Common;
use crate::outcome::Failure;

/// Commands that a message names.
const MOST_COMMANDS: usize = 4;

/// The rows of the files and of an earlier output, by configuration: all of the grid, but for a dry run.
///
/// # Errors
/// Files that cannot be read, or whose rows do not go together; configurations without a row, with the commands that run them.
pub fn known(
    args: &Sweep,
    common: &Common,
    sweep: &GridSweep,
    files: &[PathBuf],
    earlier: Option<&RowFile>,
) -> Result<Vec<Option<Row>>, Failure> {
    let mut merged_files =
        files.iter().map(|path| RowFile::of_argument("merge", path)).collect::<ridgepoint::Result<Vec<_>>>()?;
    merged_files.extend(earlier.cloned());
    let merged = sweep.merged_files(&merged_files)?;
    if args.dry_run {
        return Ok(merged.known());
    }
    if let Err(error) = merged.check_whole(sweep.grid()) {
        let shards = merged.lost_shards(sweep.grid());
        let command = |(shard, part): &(Shard, Option<usize>)| {
            let out = out(*shard, part.and_then(|part| files.get(part)), files);
            [
                vec![quoted(&args.grid), "--shard".to_owned(), shard.to_string()],
                flags(args, common),
                vec!["--out".to_owned(), quoted(&out)],
            ]
            .concat()
            .join(" ")
        };
        let commands = shards.iter().take(MOST_COMMANDS).map(|lost| format!("\n  ridgepoint sweep {}", command(lost)));
        let more = match shards.len().saturating_sub(MOST_COMMANDS) {
            0 => String::new(),
            more => format!("\n  and {more} more shards"),
        };
        let commands: String = commands.collect();
        return Err(Failure::input(format!("{error}. Run what is missing, and merge again:{commands}{more}")));
    }
    match files.iter().find_map(|path| Some((path, path.metadata().err()?))) {
        Some((path, error)) => Err(Error::io(path, error).into()),
        None => Ok(merged.known()),
    }
}

/// The flags, besides those of outputs, that this run and one of a shard have in common.
fn flags(args: &Sweep, common: &Common) -> Vec<String> {
    let mut flags = args.prediction.typed();
    let data_dir = common.data_dir().map(|path| vec!["--data-dir".to_owned(), quoted(path)]);
    flags.extend(data_dir.unwrap_or_default());
    flags.iter().map(|text| quoted(Path::new(text))).collect()
}

/// The file for a shard: the one that it left unfinished, or a new one with a name like those of the others.
fn out(shard: Shard, unfinished: Option<&PathBuf>, files: &[PathBuf]) -> PathBuf {
    if let Some(path) = unfinished {
        return path.clone();
    }
    let alike = files.iter().find_map(|path| numbered(path, shard.number())).filter(|path| !path.exists());
    let lost = || files.iter().find(|path| !path.exists()).cloned();
    let first = files.first().map_or(Path::new("rows.csv"), |path| path);
    let ending = first.extension().unwrap_or_default();
    let new = format!("shard-{}-of-{}", shard.number(), shard.of());
    alike.or_else(lost).unwrap_or_else(|| first.with_file_name(new).with_extension(ending))
}

/// A path with another number in place of the last one of its name.
fn numbered(path: &Path, number: u32) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_str()?;
    let end = stem.rfind(|of: char| of.is_ascii_digit())? + 1;
    let begin = stem.get(..end)?.trim_end_matches(|of: char| of.is_ascii_digit()).len();
    let (before, after) = (stem.get(..begin)?, stem.get(end..)?);
    let width = if stem.get(begin..)?.starts_with('0') { end - begin } else { 1 };
    let name = format!("{before}{number:0width$}{after}");
    Some(path.with_file_name(name).with_extension(path.extension()?))
}

/// A word of a command line as a shell reads it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |of: char| of.is_ascii_alphanumeric() || "-_./=:,+@%".contains(of);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_shard_gets_the_name_that_it_would_have() {
        for (name, number, expected) in [
            ("out/rows-1.csv", 3, "out/rows-3.csv"),
            ("2.csv", 12, "12.csv"),
            ("a/rows-007-of-12x.jsonl", 3, "a/rows-007-of-3x.jsonl"),
            ("shard0001.json", 10, "shard0010.json"),
        ] {
            assert_eq!(numbered(Path::new(name), number), Some(expected.into()), "{name}");
        }
        assert_eq!(numbered(Path::new("out1/rows.csv"), 3), None);
        let shard = "2/3".parse().unwrap();
        let files = |names: [&str; 2]| names.map(PathBuf::from);
        assert_eq!(out(shard, None, &files(["x/rows-1.csv", "x/rows-3.csv"])), Path::new("x/rows-2.csv"));
        assert_eq!(out(shard, None, &files(["x/no.csv", "x/here.csv"])), Path::new("x/no.csv"));
        assert_eq!(out(shard, None, &[]), Path::new("shard-2-of-3.csv"));
        assert_eq!(out(shard, Some(&"b.csv".into()), &files(["a.csv", "b.csv"])), Path::new("b.csv"));
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in
            [("a/b-1.csv", "a/b-1.csv"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("$x", "'$x'"), ("", "''")]
        {
            assert_eq!(quoted(Path::new(word)), expected);
        }
    }
}
