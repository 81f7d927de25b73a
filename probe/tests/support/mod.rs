//! Servers for tests.

pub mod mock;
pub mod planted;
pub mod tls;
