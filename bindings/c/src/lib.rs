//! ridgepoint behind a C interface.
