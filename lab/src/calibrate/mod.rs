//! Building efficiency tables from kernel measurements, and scoring them on measurements.
//! Uses `measurements`, `efficiency`, `hardware`; predicting needs none of it.

pub mod beyond;
pub mod build;
pub mod cross_validate;
pub mod family;
pub mod features;
pub mod fill;
pub mod fit;
pub mod operators;
pub mod repeated;
pub mod rows;
pub mod score;
pub mod trees;
