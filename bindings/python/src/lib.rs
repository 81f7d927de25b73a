//! The compiled half of the Python package: `ridgepoint._native`. It knows Python and numpy; what a caller sees (dataclasses,
//! loads, docstrings) is written in Python around it, in `python/ridgepoint/`. Columns of numbers cross the border as numpy
//! arrays, structures as JSON under the keys that the command prints. Uses the library's public API alone.

mod catalogue;
mod columns;
mod evaluate;
mod fault;
mod load;
mod server;
mod simulate;
mod steps;

use pyo3::prelude::*;

/// The module as Python loads it.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RidgepointError", module.py().get_type::<fault::RidgepointError>())?;
    module.add_class::<steps::StepModel>()?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(server::read_server, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::evaluate_serving, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::models, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::hardware, module)?)?;
    module.add_function(wrap_pyfunction!(fault::raise_defect, module)?)
}
