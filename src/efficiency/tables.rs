//! The table files of a GPU: embedded ones, or those of a data directory, read when first asked for.
//! Uses `table`, `curve::Match`, `hardware`, `error`.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use include_dir::{Dir, include_dir};

use super::curve::Match;
use super::family::{Family, Key, chip};
use super::kernel_model::Chip;
use super::table::{Header, Series, parse_table};
use super::table_lines::{Lines, SeriesText};
use crate::error::{Error, Result};
use crate::hardware::{Architecture, Hardware};

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/bench_data");

/// GPUs whose tables a chip of an architecture may borrow, nearest first.
fn lenders(architecture: Architecture) -> &'static [&'static str] {
    match architecture {
        Architecture::Ampere | Architecture::Ada => &["a100_sxm", "h100_sxm", "h200_sxm"],
        Architecture::Hopper => &["h100_sxm", "h200_sxm", "a100_sxm"],
        Architecture::Blackwell | Architecture::BlackwellConsumer => &["h200_sxm", "h100_sxm", "a100_sxm"],
    }
}

/// Where a series stands, the chip that it was read for and what of it was: folder, operator, name, bits of the chip's rates,
/// bits of the coordinates that it was wanted near.
type Place = (String, &'static str, String, [u64; 4], Vec<u64>);
/// A series of some kernel family.
type AnySeries = Arc<dyn Any + Send + Sync>;

/// One operator's table of one GPU.
struct File {
    origin: String,
    text: Cow<'static, str>,
    header: Header,
    lines: Lines,
}

impl File {
    fn is_built_in(&self) -> bool {
        matches!(self.text, Cow::Borrowed(_))
    }
}

/// What was read already.
#[derive(Default)]
struct Shelf {
    files: Mutex<BTreeMap<(String, &'static str), Arc<File>>>,
    series: Mutex<BTreeMap<Place, AnySeries>>,
}

/// The embedded tables, which never change, are read once per process: a sweep makes thousands of step models.
static BUILT_IN: LazyLock<Shelf> = LazyLock::new(Shelf::default);

/// The tables that one GPU can draw on: its own, then those of its lenders.
pub struct Tables {
    hardware: Hardware,
    data_dir: Option<PathBuf>,
    folders: Vec<String>,
    gemm: Vec<OnceLock<Option<Arc<File>>>>,
    attention_prefill: Vec<OnceLock<Option<Arc<File>>>>,
    attention_decode: Vec<OnceLock<Option<Arc<File>>>>,
    moe: Vec<OnceLock<Option<Arc<File>>>>,
    allreduce: Vec<OnceLock<Option<Arc<File>>>>,
    /// What was read of a data directory.
    read: Shelf,
}

/// A series found in some GPU's table.
pub struct Found<F: Family> {
    /// The series, read once and shared.
    pub series: Arc<Series<F>>,
    /// GPU it was measured on.
    pub folder: String,
    /// That GPU is another one.
    pub is_borrowed: bool,
}

impl<F: Family> Found<F> {
    /// How the series relates to what was asked; `is_exact` says that it was measured for this very kernel.
    pub fn matched(&self, is_exact: bool) -> Match {
        match (self.is_borrowed, is_exact) {
            (true, _) => Match::OtherGpu,
            (false, true) => Match::Exact,
            (false, false) => Match::Similar,
        }
    }
}

impl Tables {
    /// The tables of `hardware`: files under `data_dir/bench_data/<gpu>/` where they exist, else the embedded ones.
    /// Nothing is read yet.
    pub fn new(hardware: &Hardware, data_dir: Option<&Path>) -> Self {
        let mut folders = vec![hardware.name().to_owned()];
        let others = lenders(hardware.architecture()).iter().filter(|name| **name != hardware.name());
        folders.extend(others.map(|name| (*name).to_owned()));
        let cells = || (0..folders.len()).map(|_| OnceLock::new()).collect();
        Tables {
            hardware: hardware.clone(),
            data_dir: data_dir.map(Path::to_path_buf),
            gemm: cells(),
            attention_prefill: cells(),
            attention_decode: cells(),
            moe: cells(),
            allreduce: cells(),
            read: Shelf::default(),
            folders,
        }
    }

    /// Whether the GPU itself has a table of this operator.
    ///
    /// # Errors
    /// Those of reading the file's header.
    pub fn has_own<F: Family>(&self) -> Result<bool> {
        Ok(self.file::<F>(0)?.is_some())
    }

    /// Header of the GPU's own table of this operator.
    ///
    /// # Errors
    /// Those of reading the file's header.
    pub fn own_header<F: Family>(&self) -> Result<Option<&Header>> {
        Ok(self.file::<F>(0)?.map(|file| &file.header))
    }

    /// The series nearest to what is asked, by `distance` (smaller is nearer, infinite is unusable); a GPU's own series come
    /// before any other's.
    ///
    /// # Errors
    /// Those of reading a table file; `ErrorKind::MissingTable` where no GPU has a usable series.
    pub fn nearest<F: Family>(&self, distance: impl Fn(&F::Key) -> f64) -> Result<(Found<F>, f64)> {
        Ok(self.nearest_few(distance, 1)?.remove(0))
    }

    /// The series of exactly this key.
    ///
    /// # Errors
    /// As [`Tables::nearest`].
    pub fn of_key<F: Family>(&self, key: &F::Key) -> Result<Found<F>> {
        Ok(self.nearest::<F>(is_key::<F>(key))?.0)
    }

    /// [`Tables::of_key`] for a look-up at these coordinates on the first axes: of a built-in table only the lines around
    /// them are read, a GPU's GEMMs being some fifty thousand cells of which a model needs a thousand. A table of a data
    /// directory is read, and thereby checked, as a whole; a test checks those that are built in.
    ///
    /// # Errors
    /// As [`Tables::nearest`].
    pub fn of_key_near<F: Family>(&self, key: &F::Key, near: &[f64]) -> Result<Found<F>> {
        Ok(self.few_near(is_key::<F>(key), 1, Some(near))?.remove(0).0)
    }

    /// Like [`Tables::nearest`], up to `count` series of one GPU, nearest first.
    ///
    /// # Errors
    /// As [`Tables::nearest`].
    pub fn nearest_few<F: Family>(
        &self,
        distance: impl Fn(&F::Key) -> f64,
        count: usize,
    ) -> Result<Vec<(Found<F>, f64)>> {
        self.few_near(distance, count, None)
    }

    fn few_near<F: Family>(
        &self,
        distance: impl Fn(&F::Key) -> f64,
        count: usize,
        near: Option<&[f64]>,
    ) -> Result<Vec<(Found<F>, f64)>> {
        for (i, folder) in self.folders.iter().enumerate() {
            let Some(file) = self.file::<F>(i)? else { continue };
            let mut ranked: Vec<(f64, F::Key)> = file
                .header
                .series
                .keys()
                .filter_map(|name| F::Key::parse(name))
                .map(|key| (distance(&key), key))
                .filter(|(d, _)| d.is_finite())
                .collect();
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut found = Vec::new();
            for (d, key) in ranked.into_iter().take(count) {
                let lender;
                let measured_on = if i == 0 {
                    &self.hardware
                } else {
                    lender = Hardware::find_in(self.data_dir.as_deref(), folder)?;
                    &lender
                };
                let chip = chip(measured_on, F::compute_dtype(&key))?;
                if let Some(series) = self.series::<F>((i, file), &key, &chip, near)? {
                    found.push((Found { series, folder: folder.clone(), is_borrowed: i > 0 }, d));
                }
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Err(Error::missing_table(
            self.hardware.name().to_owned(),
            F::OPERATOR.to_owned(),
            format!(
                "looked in bench_data/ of {}; make one with `ridgepoint calibrate`, or use --efficiency ideal",
                self.folders.join(", ")
            ),
        ))
    }

    /// A series of a file, read when first asked for.
    fn series<F: Family>(
        &self,
        (folder, file): (usize, &File),
        key: &F::Key,
        chip: &Chip,
        near: Option<&[f64]>,
    ) -> Result<Option<Arc<Series<F>>>> {
        let (shelf, near) = if file.is_built_in() { (&*BUILT_IN, near) } else { (&self.read, None) };
        let near_bits = near.unwrap_or(&[]).iter().map(|value| value.to_bits()).collect();
        let rates =
            [chip.peak_flop_per_s, chip.hbm_bytes_per_s, chip.link_bytes_per_s, chip.sm_count].map(f64::to_bits);
        let place = (self.folders[folder].clone(), F::OPERATOR, key.name(), rates, near_bits);
        let known = shelf.series.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if let Some(series) = known.and_then(|series| series.downcast::<Series<F>>().ok()) {
            return Ok(Some(series));
        }
        let File { origin, text, header, lines } = file;
        let parsed = SeriesText { origin, text, header, lines }.series::<F>(key, chip, near)?.map(Arc::new);
        if let Some(series) = &parsed {
            shelf.series.lock().unwrap_or_else(PoisonError::into_inner).insert(place, series.clone());
        }
        Ok(parsed)
    }

    fn file<F: Family>(&self, folder: usize) -> Result<Option<&File>> {
        let cells = match F::OPERATOR {
            "gemm" => &self.gemm,
            "attention_prefill" => &self.attention_prefill,
            "attention_decode" => &self.attention_decode,
            "moe" => &self.moe,
            _ => &self.allreduce,
        };
        let cell = &cells[folder];
        if let Some(file) = cell.get() {
            return Ok(file.as_deref());
        }
        let loaded = self.load::<F>(&self.folders[folder])?;
        Ok(cell.get_or_init(|| loaded).as_deref())
    }

    fn load<F: Family>(&self, folder: &str) -> Result<Option<Arc<File>>> {
        let relative = format!("{folder}/{}.csv", F::OPERATOR);
        let path = self.data_dir.as_ref().map(|dir| dir.join("bench_data").join(&relative));
        if let Some(path) = path
            && path.try_exists().map_err(|e| Error::io(&path, e))?
        {
            let mut text = std::fs::read_to_string(&path).map_err(|e| Error::io(&path, e))?;
            // The byte order mark that some editors put in front.
            if text.starts_with('\u{feff}') {
                text.remove(0);
            }
            return read::<F>(folder, path.display().to_string(), Cow::Owned(text)).map(Some);
        }
        let place = (folder.to_owned(), F::OPERATOR);
        let known = BUILT_IN.files.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(text) = EMBEDDED.get_file(&relative).and_then(|file| file.contents_utf8()) else { return Ok(None) };
        let file = read::<F>(folder, format!("built-in bench_data/{relative}"), Cow::Borrowed(text))?;
        BUILT_IN.files.lock().unwrap_or_else(PoisonError::into_inner).insert(place, file.clone());
        Ok(Some(file))
    }
}

fn is_key<F: Family>(key: &F::Key) -> impl Fn(&F::Key) -> f64 {
    move |candidate| if candidate == key { 0.0 } else { f64::INFINITY }
}

fn read<F: Family>(folder: &str, origin: String, text: Cow<'static, str>) -> Result<Arc<File>> {
    let (header, lines) = parse_table::<F>(&origin, &text)?;
    if header.hardware != folder {
        let message = format!("table header: hardware '{}', expected '{folder}' as in its folder", header.hardware);
        return Err(Error::parse(origin, message));
    }
    Ok(Arc::new(File { origin, text, header, lines }))
}

#[cfg(test)]
mod tests {
    use super::super::curve::GemmCurve;
    use super::super::family::GemmKind;
    use super::super::kernel_model::{AllReduceModel, DecodeModel, GemmModel, GemmShape, MoeModel, PrefillModel};
    use super::*;

    #[test]
    fn lines_around_a_matrix_give_the_times_of_the_whole_series() {
        // A knot of both axes, between knots, beyond them on either side.
        let matrices = [(4096.0, 4096.0), (5120.0, 3000.0), (151_936.0, 896.0), (17.0, 200_000.0)];
        for (gpu, kind) in [("h100", GemmKind::Bfloat16), ("h200", GemmKind::Fp8Block), ("b200", GemmKind::Fp8)] {
            let hardware = Hardware::find(gpu).unwrap();
            let chip = chip(&hardware, GemmModel::compute_dtype(&kind)).unwrap();
            let tables = Tables::new(&hardware, None);
            let whole = tables.of_key::<GemmModel>(&kind).unwrap();
            for (n, k) in matrices {
                let near = tables.of_key_near::<GemmModel>(&kind, &[n, k]).unwrap();
                assert!(near.series.grid.len() < whole.series.grid.len(), "{gpu} {n} × {k}");
                let shape = GemmShape { m: 1.0, n, k, weight_bytes: 1.0, activation_bytes: 1.0 };
                let time = |found: &Found<GemmModel>, m: f64| {
                    GemmCurve::new(&found.series, shape, chip, found.matched(true)).time(m)
                };
                for m in [1.0, 7.0, 64.0, 333.0, 1e6] {
                    assert_eq!(time(&near, m), time(&whole, m), "{gpu} {n} × {k}, {m} rows");
                }
            }
        }
    }

    #[test]
    fn every_built_in_series_can_be_read() {
        fn read_all<F: Family>() {
            for folder in ["a100_sxm", "h100_sxm", "h200_sxm"] {
                let tables = Tables::new(&Hardware::find(folder).unwrap(), None);
                let header = tables.own_header::<F>().unwrap().unwrap();
                for key in header.series.keys().filter_map(|name| F::Key::parse(name)) {
                    assert!(!tables.of_key::<F>(&key).unwrap().is_borrowed, "{folder} {key:?}");
                }
            }
        }
        read_all::<GemmModel>();
        read_all::<PrefillModel>();
        read_all::<DecodeModel>();
        read_all::<MoeModel>();
        read_all::<AllReduceModel>();
    }
}
