//! Traces of engine steps as cases, the split into rows to judge and rows to learn from, and the comparison of windows of steps.

pub mod between;
pub mod case;
mod from_tokens;
pub mod judge;
pub mod read;
pub mod reconstruct;
pub mod split;
#[cfg(test)]
mod tests;
pub mod window;
