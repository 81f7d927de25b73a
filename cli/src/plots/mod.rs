//! Plots of evaluations as SVG files. SVG alone: text in pixels needs fonts that a server may not have.

mod canvas;
mod files;
mod lines;
mod scatter;
pub mod serving;
pub mod steps;

pub use files::Plot;

/// A plot that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Name of its file.
    pub file: String,
    /// Its text.
    pub svg: String,
}

/// The text of a plot, or why it cannot be drawn.
pub type Drawn = Result<String, String>;

/// Plots, and why others are missing.
pub fn sorted_out(drawn: Vec<(String, Drawn)>) -> (Vec<Figure>, Vec<String>) {
    let (mut figures, mut problems) = (Vec::new(), Vec::new());
    for (file, drawn) in drawn {
        match drawn {
            Ok(svg) => figures.push(Figure { file, svg }),
            Err(problem) => problems.push(format!("{file}: not drawn: {problem}")),
        }
    }
    (figures, problems)
}
