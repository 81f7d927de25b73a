//! The tables that answer for a GPU: built-in ones or those of a data directory, its own before those of other GPUs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::hardware::{Architecture, Hardware, InterconnectKind, SERVER_GPUS};
use crate::input::{FileKind, read_text};

use super::chip::Chip;
use super::fallback_gpus::{fallback_gpus, is_same_chip};
use super::family::{FAMILIES, KernelFamily};
use super::newest_version::engine_on;
use super::packed::PackedTable;
use super::provenance::Provenance;
use super::series::{Header, Series, SeriesHeader};
use super::series_key::{OfSeries, SeriesKey};
use super::table::Table;

/// The tables that were read, by GPU, folder and operator; `None` for a file that is not there.
type TableCache = Mutex<BTreeMap<(String, Folder, &'static str), Option<Arc<Table>>>>;

/// The built-in tables, which never change, are read once per process: a sweep makes thousands of step models.
static BUILT_IN: TableCache = Mutex::new(BTreeMap::new());

/// The kernels whose tables are in a folder of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Folder {
    /// One's own, of whatever was measured.
    Own,
    /// Kernels of an engine, built in.
    BuiltIn(Engine),
    /// Kernels of a library that all engines call, built in.
    Library,
}

/// A table and the engine whose kernels it holds; `None` for one's own and for a library's.
type OfEngine = (Option<Engine>, Arc<Table>);

/// A table that may answer.
struct Candidate<'a> {
    gpu: &'a String,
    engine: Option<Engine>,
    table: Arc<Table>,
    /// Least distance of its series.
    distance: f64,
}

/// Distance that the next engine's series have on top of their own. It is less than that of any other kernel.
const NEXT_ENGINE: f64 = 1e-3;

/// Distance that series of another GPU of the same chip have on top. It is less than the distance between an engine and another version
/// of it.
const SAME_CHIP: f64 = 2e-3;

/// Within this distance a kernel has the same format and about the same sizes.
const NEAR: f64 = 1.0;

/// Distance that kernels have on top if they are known to differ, as vLLM replaced its own or another engine has them. It is more than
/// that of any stand-in of the right engine.
const REPLACED: f64 = 2000.0;

/// The tables that one GPU can draw on: its own, then those of its fallback GPUs.
pub struct Tables {
    hardware: Hardware,
    engine: Engine,
    data_dir: Option<PathBuf>,
    gpus: Vec<String>,
    /// Tables of the data directory.
    read: TableCache,
}

/// A series found in some GPU's table.
pub struct SeriesMatch<K> {
    /// Kernel that it was measured for.
    pub key: K,
    /// The series, read once and shared.
    pub series: Arc<Series>,
    /// GPU it was measured on.
    pub gpu: String,
    /// Engine whose kernel it is; `None` for one's own tables.
    pub engine: Option<Engine>,
    /// The version of the wanted engine that has a nearer kernel, which the wanted version is known not to launch.
    pub nearer_in: Option<Engine>,
    /// That GPU is another one.
    pub is_fallback: bool,
    /// Link between that GPU and others of its kind.
    pub link: Option<InterconnectKind>,
    /// Distance of the series from the kernel that was looked for.
    pub distance: f64,
}

impl<K> SeriesMatch<K> {
    /// Provenance of the series' times at its knots; `is_exact` if it was measured for this kernel and no similar one.
    pub fn at_best(&self, is_exact: bool) -> Provenance {
        match (self.is_fallback, is_exact) {
            (true, _) => Provenance::Borrowed,
            (false, true) => Provenance::Measured,
            (false, false) => Provenance::Clamped,
        }
    }
}

impl Tables {
    /// The tables of `hardware` with kernels of `engine` before those of others: files under `data_dir/bench_data/<gpu>/` where
    /// they exist, else the built-in ones. Nothing is read yet.
    pub fn new(hardware: &Hardware, engine: &Engine, data_dir: Option<&Path>) -> Self {
        let mut gpus = vec![hardware.name.clone()];
        let others = fallback_gpus(hardware).iter().filter(|name| **name != hardware.name);
        gpus.extend(others.map(|name| (*name).to_owned()));
        let data_dir = data_dir.map(Path::to_path_buf);
        let engine = engine_on(engine, hardware);
        Tables { hardware: hardware.clone(), engine, data_dir, gpus, read: TableCache::default() }
    }

    /// The tables of `gpu` alone, borrowed for `hardware`.
    pub fn borrowed(hardware: &Hardware, gpu: &Hardware, engine: &Engine, data_dir: Option<&Path>) -> Self {
        Tables { gpus: vec![gpu.name.clone()], ..Tables::new(hardware, engine, data_dir) }
    }

    /// The architecture of the GPU that they are for.
    pub fn architecture(&self) -> Architecture {
        self.hardware.architecture
    }

    /// The engine whose kernels come first.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether these are the tables of another GPU.
    pub fn are_borrowed(&self) -> bool {
        !self.gpus.contains(&self.hardware.name)
    }

    /// Whether nothing was measured on the chip, nor on any fallback.
    ///
    /// # Errors
    /// Those of reading a table's header.
    pub fn are_empty(&self) -> Result<bool> {
        if self.gpus.len() > 1 {
            return Ok(false);
        }
        for family in FAMILIES {
            if !self.own_tables(family)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Headers of this operator's tables, with the engine of each; `None` for a table of the data directory. The nearest engine comes
    /// first. The tables are those of this GPU, or of the one that is borrowed from.
    ///
    /// # Errors
    /// Those of reading the files' headers.
    pub fn own_tables(&self, family: &'static KernelFamily) -> Result<Vec<(Option<Engine>, Arc<Header>)>> {
        let first = self.gpus.first().unwrap_or(&self.hardware.name);
        let tables = self.tables(family, first)?.into_iter();
        Ok(tables.map(|(engine, table)| (engine, table.header.clone())).collect())
    }

    /// The series of exactly this key, which need not answer away from the coordinates `around` of its first axes.
    ///
    /// # Errors
    /// As [`Tables::nearest`].
    pub fn of_key<K: OfSeries>(
        &self,
        family: &'static KernelFamily,
        key: &K,
        around: &[f64],
    ) -> Result<SeriesMatch<K>> {
        let is_key = |candidate: &K| if candidate == key { 0.0 } else { f64::INFINITY };
        Ok(self.nearest(family, is_key, 1, around)?.remove(0))
    }

    /// The series nearest to a kernel by `distance_of` (smaller is nearer, infinite is unusable): up to
    /// `count` of one GPU, at least one, nearest first. A GPU's own series come before any other's. They need not answer away
    /// from the coordinates `around` of their first axes.
    ///
    /// # Errors
    /// Those of reading a table file; [`ErrorKind::MissingTable`](crate::ErrorKind) where no GPU has a usable series.
    pub fn nearest<K: OfSeries>(
        &self,
        family: &'static KernelFamily,
        distance_of: impl Fn(&K) -> f64,
        count: usize,
        around: &[f64],
    ) -> Result<Vec<SeriesMatch<K>>> {
        for gpu in self.gpus_by_link(family)? {
            let distance = |engine: &Option<Engine>, series: &SeriesKey, about: &SeriesHeader| {
                let Some(key) = K::of(series) else { return f64::INFINITY };
                let is_parted = |version| engine.as_ref().is_some_and(|of| self.engine.differs_across(of, version));
                let stand_in = about.stand_in_distance.filter(|_| self.is_other_engine(engine, series));
                let replaced = if series.replaced_in().is_some_and(is_parted) { REPLACED } else { 0.0 };
                distance_of(key) + stand_in.unwrap_or(0.0) + replaced
            };
            let least_of = |engine: &Option<Engine>, table: &Table| {
                let series = table.keys.iter().zip(table.header.series.values());
                series.map(|(key, about)| distance(engine, key, about)).fold(f64::INFINITY, f64::min)
            };
            let mut candidates = self.candidates(family, gpu, least_of)?;
            candidates.retain(|of| of.distance.is_finite());
            // Series of one table: kernels of two engines are not averaged.
            let best = candidates.iter().min_by(|a, b| a.distance.total_cmp(&b.distance));
            let Some(best @ Candidate { gpu, engine, table, .. }) = best else { continue };
            let least =
                |of: &Candidate| of.table.keys.iter().filter_map(K::of).map(&distance_of).fold(f64::INFINITY, f64::min);
            let versions =
                candidates.iter().filter(|of| of.engine.as_ref().is_some_and(|of| self.engine.has_name_of(of)));
            let nearer = versions.filter(|of| least(of) < least(best)).min_by(|a, b| least(a).total_cmp(&least(b)));
            let nearer_in = nearer.and_then(|of| of.engine.clone());
            let series = table.keys.iter().zip(table.header.series.values());
            let ranked = series.map(|(key, about)| (distance(engine, key, about), key));
            let mut ranked: Vec<(f64, &SeriesKey)> = ranked.filter(|(distance, _)| distance.is_finite()).collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            let is_fallback = **gpu != self.hardware.name;
            let measured_on =
                if is_fallback { Cow::Owned(self.gpu_named(gpu)?) } else { Cow::Borrowed(&self.hardware) };
            let mut found = Vec::new();
            for (distance, of) in ranked.into_iter().take(count) {
                let chip = Chip::new(&measured_on, of.compute_dtype())?;
                if let (Some(series), Some(key)) = (table.series(of, &chip, around)?, K::of(of).cloned()) {
                    let (gpu, engine, nearer_in) = ((*gpu).clone(), engine.clone(), nearer_in.clone());
                    let link = measured_on.interconnect.map(|link| link.kind);
                    found.push(SeriesMatch { key, series, gpu, engine, nearer_in, is_fallback, link, distance });
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let hint = format!(
            "looked in bench_data/ of {}; calibrate one from measurements, or use ideal efficiency",
            self.gpus.join(", ")
        );
        Err(Error::missing_table(&self.hardware.name, family.operator, hint))
    }

    /// The tables of a GPU, by the least distance of their series. Where the wanted engine has none that is near and engines' kernels differ
    /// much, those that it has on another GPU of the same chip are compared with them: on a GB200, SGLang's experts by the tables of vLLM have a
    /// median error of 10 %, and by SGLang's of a B200 one of 3 %.
    fn candidates<'a>(
        &'a self,
        family: &'static KernelFamily,
        gpu: &'a String,
        least_of: impl Fn(&Option<Engine>, &Table) -> f64,
    ) -> Result<Vec<Candidate<'a>>> {
        let is_wanted = |engine: &Option<Engine>| engine.as_ref().is_none_or(|of| self.engine.has_name_of(of));
        let mut candidates = Vec::new();
        for (place, (engine, table)) in self.tables(family, gpu)?.into_iter().enumerate() {
            let distance = least_of(&engine, &table) + NEXT_ENGINE * place as f64;
            candidates.push(Candidate { gpu, engine, table, distance });
        }
        let is_near = |of: &Candidate| is_wanted(&of.engine) && of.distance < NEAR;
        let Some(other_engine) = family.other_engine else { return Ok(candidates) };
        if candidates.is_empty() || candidates.iter().any(is_near) || *gpu != self.hardware.name {
            return Ok(candidates);
        }
        candidates.iter_mut().filter(|of| !is_wanted(&of.engine)).for_each(|of| of.distance += other_engine);
        for gpu in self.gpus.iter().filter(|of| **of != self.hardware.name) {
            if !is_same_chip(&self.hardware, &self.gpu_named(gpu)?) {
                continue;
            }
            for (engine, table) in self.tables(family, gpu)?.into_iter().filter(|(engine, _)| is_wanted(engine)) {
                let distance = least_of(&engine, &table) + SAME_CHIP;
                candidates.push(Candidate { gpu, engine, table, distance });
            }
        }
        Ok(candidates)
    }

    /// Whether a kernel is that of another engine: the one that its key names, or the one of its table.
    fn is_other_engine(&self, of_table: &Option<Engine>, key: &SeriesKey) -> bool {
        let of = key.engine().or_else(|| of_table.clone());
        of.is_some_and(|of| !self.engine.has_name_of(&of))
    }

    fn gpu_named(&self, name: &str) -> Result<Hardware> {
        Hardware::find_in(self.data_dir.as_deref(), name)
    }

    /// GPUs whose tables are used, nearest first. Of the fallbacks for a rack's collectives, racks are nearer.
    fn gpus_by_link(&self, family: &KernelFamily) -> Result<Vec<&String>> {
        let is_rack = |gpu: &Hardware| gpu.interconnect.is_some_and(|link| link.num_gpus > SERVER_GPUS);
        let mut gpus: Vec<(bool, &String)> = Vec::new();
        for gpu in &self.gpus {
            let is_sorted = family.is_collective && is_rack(&self.hardware) && *gpu != self.hardware.name;
            gpus.push((is_sorted && !is_rack(&self.gpu_named(gpu)?), gpu));
        }
        gpus.sort_by_key(|(is_farther, _)| *is_farther);
        Ok(gpus.into_iter().map(|(_, gpu)| gpu).collect())
    }

    /// The tables of a GPU: one's own alone, else those of every engine, nearest first.
    fn tables(&self, family: &'static KernelFamily, gpu: &str) -> Result<Vec<OfEngine>> {
        if let Some(dir) = &self.data_dir {
            let path = dir.join("bench_data").join(gpu).join(format!("{}.csv", family.operator));
            if let Some(table) = cached(&self.read, family, gpu, Folder::Own, || read_file(family, gpu, &path))? {
                return Ok(vec![(None, table)]);
            }
        }
        let packed = PackedTable::all().filter(|table| table.gpu == gpu && table.operator == family.operator);
        if family.library.is_some() {
            let Some(packed) = packed.last() else { return Ok(Vec::new()) };
            let table = cached(&BUILT_IN, family, gpu, Folder::Library, || Table::packed(family, packed).map(Some))?;
            return Ok(table.map(|table| (None, table)).into_iter().collect());
        }
        let mut engines: Vec<(Engine, &'static PackedTable)> =
            packed.filter_map(|table| Some((Engine::parse(table.engine, None)?, table))).collect();
        engines.sort_by(|a, b| self.engine.distance(&a.0).total_cmp(&self.engine.distance(&b.0)));
        let mut tables = Vec::new();
        for (engine, packed) in engines {
            let folder = Folder::BuiltIn(engine.clone());
            let table = cached(&BUILT_IN, family, gpu, folder, || Table::packed(family, packed).map(Some))?;
            tables.extend(table.map(|table| (Some(engine), table)));
        }
        Ok(tables)
    }
}

/// `None` where no GPU has a usable series.
pub fn if_any<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::MissingTable => Ok(None),
        found => found.map(Some),
    }
}

/// The table of `gpu` in a folder, which `read` reads on first use.
fn cached(
    cache: &TableCache,
    family: &KernelFamily,
    gpu: &str,
    folder: Folder,
    read: impl FnOnce() -> Result<Option<Table>>,
) -> Result<Option<Arc<Table>>> {
    let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    let place = (gpu.to_owned(), folder, family.operator);
    if let Some(known) = lock().get(&place).cloned() {
        return Ok(known);
    }
    let table = read()?.map(Arc::new);
    lock().insert(place, table.clone());
    Ok(table)
}

/// The table of a data directory; `None` if it has none.
fn read_file(family: &'static KernelFamily, gpu: &str, path: &Path) -> Result<Option<Table>> {
    if !path.try_exists().map_err(|e| Error::io(path, e))? {
        return Ok(None);
    }
    let text = read_text(FileKind::EfficiencyTable, path)?;
    Table::parse(family, gpu, &path.display().to_string(), text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::MatmulFormat;
    use crate::efficiency::family::GEMM;

    #[test]
    fn every_built_in_series_can_be_read() {
        for family in FAMILIES {
            let mut read = 0;
            for packed in PackedTable::all().filter(|table| table.operator == family.operator) {
                let hardware = Hardware::find(packed.gpu).unwrap();
                let table = Table::packed(family, packed).unwrap();
                for key in &table.keys {
                    let chip = Chip::new(&hardware, key.compute_dtype()).unwrap();
                    assert!(table.series(key, &chip, &[]).unwrap().is_some(), "{} {key:?}", packed.path());
                    read += 1;
                }
            }
            assert!(read > 0, "{}", family.operator);
        }
    }

    #[test]
    fn a_part_of_a_series_answers_as_the_whole_does_around_its_matrix() {
        for folder in ["a100_sxm", "h100_sxm", "h200_sxm"] {
            let tables = Tables::new(&Hardware::find(folder).unwrap(), &Engine::default(), None);
            for key in [MatmulFormat::Bfloat16, MatmulFormat::Fp8, MatmulFormat::Fp8Block] {
                let whole = tables.of_key(&GEMM, &key, &[]).unwrap().series.grid.clone();
                let mut smallest = whole.num_cells();
                for matrix in [[4096.0, 4096.0], [6144.0, 4096.0], [3.0, 1e6], [1e6, 100.0], [129_280.0, 7168.0]] {
                    let part = tables.of_key(&GEMM, &key, &matrix).unwrap().series.grid.clone();
                    smallest = smallest.min(part.num_cells());
                    let ((of_whole, exact), (of_part, same)) = (whole.slice(&matrix), part.slice(&matrix));
                    assert_eq!((of_whole.values, exact), (of_part.values, same), "{folder} {key:?} {matrix:?}");
                }
                assert!(smallest <= 4 * whole.axes[2].len(), "{folder} {key:?}: {smallest} cells");
            }
        }
    }
}
