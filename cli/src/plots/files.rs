//! `--plot DIR` of the subcommands of `evaluate`: writes a folder of plots.

use std::path::{Path, PathBuf};

use clap::Args;
use ridgepoint::Error;

use super::Figure;
use crate::common::Format;
use crate::outcome::{Failure, Output};
use crate::whole_file::write_whole;

#[derive(Debug, Args)]
pub struct Plot {
    /// Folder to write plots to, as SVG
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

impl Plot {
    /// Makes the folder, so that a fault of it is known before anything is computed.
    ///
    /// # Errors
    /// `ErrorKind::Io`.
    pub fn prepare(&self) -> Result<(), Failure> {
        match &self.plot {
            Some(folder) => std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error).into()),
            None => Ok(()),
        }
    }

    /// Writes the plots of `figures` if --plot was given.
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

/// Written plots.
pub struct Plotted {
    /// The line at the end of a table.
    pub line: String,
    /// The reasons for plots that could not be drawn.
    pub problems: Vec<String>,
}

impl Output {
    /// Adds the line on plots to a table; JSON has none.
    pub fn add_plots(&mut self, plotted: Option<Plotted>, format: Format) {
        let Some(Plotted { line, problems }) = plotted else { return };
        if format == Format::Table {
            self.stdout.push_str(&line);
        }
        self.notes.extend(problems);
    }
}
