//! ridgepoint for Python.
