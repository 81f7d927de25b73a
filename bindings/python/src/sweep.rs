//! `sweep`: a grid of servers and loads, one shard of it, and shards put together. Rows cross the border as lines of JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pyo3::prelude::*;
use ridgepoint::Error;
use ridgepoint::input::parse_toml;
use ridgepoint_lab::prediction::{Prediction, prediction_arguments};
use ridgepoint_lab::sweep::{Grid, GridLimits, NamedRows, Row, RowFile, Shard, Sweep as GridSweep};

use crate::fault::{RidgepointError, caught, detached, from_json, raised, to_json};
use crate::steps::check_data_dir;

/// A run looks so often for signals that end it.
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(50);

/// A grid that is ready to run, or one shard of it.
#[pyclass(module = "ridgepoint._native", frozen)]
pub struct Sweep {
    sweep: GridSweep,
    /// Ends the replays once it is set.
    stop: Arc<AtomicBool>,
}

#[pymethods]
impl Sweep {
    #[new]
    #[pyo3(signature = (origin, toml, keys, prediction, data_dir, shard, /))]
    fn new(
        py: Python<'_>,
        origin: &str,
        toml: Option<&str>,
        keys: &str,
        prediction: &str,
        data_dir: Option<PathBuf>,
        shard: Option<(u32, u32)>,
    ) -> PyResult<Self> {
        let keys = if toml.is_none() { from_json("grid", keys)? } else { serde_json::Value::Null };
        let prediction = from_json("prediction", prediction)?;
        let given = prediction_arguments().read_all("prediction", &prediction).map_err(raised)?;
        detached(py, || {
            check_data_dir(data_dir.as_deref())?;
            let options = Prediction::options(&given, data_dir.as_deref());
            let keys = toml.map_or(Ok(keys), |text| parse_toml(origin, text)).map_err(raised)?;
            let limits = GridLimits { engine: options.engine.clone(), ..GridLimits::default() };
            let grid = Grid::from_keys(origin, &keys, limits).map_err(raised)?;
            let stop = Arc::new(AtomicBool::new(false));
            let sweep = GridSweep::new(grid, options).map_err(raised)?.stopped_by(Arc::clone(&stop));
            let sweep = match shard {
                None => sweep,
                Some((number, of)) => {
                    let impossible = || RidgepointError::new_err(format!("shard {number} of {of}: there is none"));
                    sweep.of_shard(Shard::new(number, of).ok_or_else(impossible)?)
                }
            };
            Ok(Sweep { sweep, stop })
        })
    }

    /// The number of configurations that are run.
    fn num_configurations(&self) -> usize {
        self.sweep.num_configurations()
    }

    /// Runs the configurations. Signals, such as that of Ctrl+C, end the run.
    #[pyo3(signature = (threads, max_memory_gib, /))]
    fn run(&self, py: Python<'_>, threads: usize, max_memory_gib: f64) -> PyResult<String> {
        let Sweep { sweep, stop } = self;
        let stopped = |_: &Row| match stop.load(Ordering::Relaxed) {
            true => Err(Error::invalid("sweep", vec!["was stopped".to_owned()])),
            false => Ok(()),
        };
        stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let (done, mut finished) = channel();
            scope.spawn(move || {
                let rows = caught(|| {
                    sweep.check_memory(threads, max_memory_gib).map_err(raised)?;
                    lines(&sweep.run(threads, &[], &stopped).map_err(raised)?)
                });
                // Nobody waits after a signal.
                drop(done.send(rows));
            });
            loop {
                let waited = py.detach(move || (finished.recv_timeout(LOOK_FOR_SIGNALS), finished));
                finished = waited.1;
                match waited.0 {
                    Ok(rows) => return rows,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(RidgepointError::new_err("the sweep was stopped"));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if let Err(signal) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    py.detach(move || drop(finished.recv()));
                    return Err(signal);
                }
            }
        })
    }

    /// Puts the rows of named parts together: those of the whole grid, in order.
    #[pyo3(signature = (parts, /))]
    fn merge(&self, py: Python<'_>, parts: Vec<(String, String)>) -> PyResult<String> {
        detached(py, || {
            let part =
                |(name, text): &(String, String)| PyResult::Ok(NamedRows { name: name.into(), rows: rows(text)? });
            let parts = parts.iter().map(part).collect::<PyResult<_>>()?;
            let merged = self.sweep.merged(parts).map_err(raised)?;
            merged.check_whole(self.sweep.grid()).map_err(raised)?;
            let whole: Vec<Row> = merged.known().into_iter().flatten().collect();
            lines(&whole)
        })
    }
}

/// The content of a file of rows in the format that its name ends with.
#[pyfunction]
#[pyo3(signature = (path, lines, /))]
pub fn sweep_file(py: Python<'_>, path: PathBuf, lines: &str) -> PyResult<Vec<u8>> {
    detached(py, || {
        let mut content = Vec::new();
        let rows = rows(lines)?;
        let file = RowFile::new(Path::new(&path)).map_err(raised)?;
        file.write(&mut content, &rows).map_err(|error| raised(Error::io(&path, error)))?;
        Ok(content)
    })
}

fn lines(rows: &[Row]) -> PyResult<String> {
    rows.iter().map(|row| Ok(to_json(row)? + "\n")).collect()
}

fn rows(lines: &str) -> PyResult<Vec<Row>> {
    lines.lines().map(|line| from_json("row", line)).collect()
}
