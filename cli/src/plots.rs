//! `--plot DIR` of the subcommands of `evaluate`: a folder with figures. Uses `report::plots`, `whole_file`.

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::Error;

use super::args::Format;
use super::output::{Failure, Output};
use super::whole_file::write_whole;
use crate::report::plots::Figure;

#[derive(Debug, Args)]
pub struct Plot {
    /// Folder to write plots to, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

impl Plot {
    /// Makes the folder, so that one that can't be made is known before anything is computed.
    ///
    /// # Errors
    /// `ErrorKind::Io`.
    pub fn prepare(&self) -> Result<(), Failure> {
        match &self.plot {
            Some(folder) => std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error).into()),
            None => Ok(()),
        }
    }

    /// Writes the plots that `figures` draws, if any are asked for; remarks say what was written and what could not be drawn.
    ///
    /// # Errors
    /// `ErrorKind::Io`.
    pub fn write(&self, figures: impl FnOnce() -> (Vec<Figure>, Vec<String>)) -> Result<Option<Plotted>, Failure> {
        let Some(folder) = &self.plot else { return Ok(None) };
        let (figures, problems) = figures();
        for figure in &figures {
            write_whole(&folder.join(Path::new(&figure.file)), &figure.svg)?;
        }
        Ok(Some(Plotted { line: format!("plots: {} files in {}\n", figures.len(), folder.display()), problems }))
    }
}

/// What became of the plots.
pub struct Plotted {
    /// For the end of a table.
    pub line: String,
    /// Plots that could not be drawn, and why.
    pub problems: Vec<String>,
}

impl Output {
    /// Says which plots there are: at the end of a table, not in JSON.
    pub fn add_plots(&mut self, plotted: Option<Plotted>, format: Format) {
        let Some(Plotted { line, problems }) = plotted else { return };
        if format == Format::Table {
            self.stdout.push_str(&line);
        }
        self.notes.extend(problems);
    }
}
