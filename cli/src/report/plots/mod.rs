//! Plots of evaluations, each a whole SVG text with a stable file name: drawn by plotters, written by `cli`. SVG alone: text in
//! pixels needs fonts that a server may not have. Prints and writes nothing.

mod bars;
mod canvas;
mod lines;
mod scatter;
pub mod serving;
pub mod steps;

/// A plot that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Name of its file.
    pub file: String,
    /// Its text.
    pub svg: String,
}

/// What can't be drawn, and why.
pub type Drawn = Result<String, String>;
