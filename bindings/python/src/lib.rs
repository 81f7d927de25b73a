//! `ridgepoint._native`, the compiled half of the Python package. Dataclasses, loads and docstrings are Python code in
//! `python/ridgepoint/`. Columns of numbers are passed as numpy arrays, structures as JSON with the keys of the command.

mod catalogue;
mod columns;
mod command;
mod evaluate;
mod fault;
mod load;
mod server;
mod simulate;
mod steps;
mod sweep;

use pyo3::prelude::*;

/// The Python module.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RidgepointError", module.py().get_type::<fault::RidgepointError>())?;
    module.add_class::<steps::StepModel>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_function(wrap_pyfunction!(sweep::sweep_file, module)?)?;
    module.add_function(wrap_pyfunction!(simulate::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(server::check_arguments, module)?)?;
    module.add_function(wrap_pyfunction!(server::read_server, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate::evaluate_serving, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::models, module)?)?;
    module.add_function(wrap_pyfunction!(catalogue::hardware, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    module.add_function(wrap_pyfunction!(fault::raise_defect, module)?)
}
