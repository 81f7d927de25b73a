//! Reading a GPU's TOML file: every key known, every number finite and above zero, all problems in one error.
//! Uses `dtype`, `error`, and `catalog` for suggestions.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::spec::{Architecture, Hardware, Interconnect, InterconnectKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::input;

const FILE_KEYS: [&str; 5] = ["display_name", "aliases", "architecture", "datasheet", "interconnect"];
const DATASHEET_KEYS: [&str; 8] = [
    "sm_count",
    "l2_bytes",
    "boost_clock_hz",
    "hbm_bytes_per_s",
    "hbm_capacity_bytes",
    "ecc_bytes",
    "source",
    "retrieved",
];
const INTERCONNECT_KEYS: [&str; 4] = ["kind", "unidirectional_bytes_per_s", "source", "retrieved"];
const PEAK_KEYS: [(&str, DType); 6] = [
    ("peak_fp32_dense_flop_per_s", DType::Float32),
    ("peak_fp16_dense_flop_per_s", DType::Float16),
    ("peak_bf16_dense_flop_per_s", DType::Bfloat16),
    ("peak_fp8_dense_flop_per_s", DType::Fp8),
    ("peak_int8_dense_flop_per_s", DType::Int8),
    ("peak_fp4_dense_flop_per_s", DType::Fp4),
];
/// Halving the operand width doubles the rate, and GPUs that halve the rate of 32-bit accumulation for 16-bit operands
/// only reach four times; more than that is a peak with sparsity.
const MAX_FP8_TO_BF16: f64 = 4.0;

/// A GPU and the further names it goes by.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) hardware: Hardware,
    pub(super) aliases: Vec<String>,
}

impl Hardware {
    /// Reads the text of a hardware TOML file. `name` is what the GPU is called from then on (a file's stem), `origin`
    /// is what errors call the text (its path).
    ///
    /// # Errors
    /// `ErrorKind::Parse` with line and column where the text is not TOML; `ErrorKind::Invalid` listing every unknown,
    /// missing, non-positive or non-finite value, and an fp8 peak below the bf16 peak or above four times it.
    pub fn from_toml_str(name: &str, origin: &str, text: &str) -> Result<Hardware> {
        Ok(Entry::parse(name, origin, text)?.hardware)
    }

    /// Reads a hardware TOML file; the GPU's name is the file's stem.
    ///
    /// # Errors
    /// `ErrorKind::Io` where it can't be read, and those of [`Hardware::from_toml_str`].
    pub fn load(path: impl AsRef<Path>) -> Result<Hardware> {
        Ok(Entry::load(path.as_ref())?.hardware)
    }
}

impl Entry {
    pub(super) fn load(path: &Path) -> Result<Entry> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        Entry::parse(&name, &path.display().to_string(), &text)
    }

    pub(super) fn parse(name: &str, origin: &str, text: &str) -> Result<Entry> {
        let table: Table = text.parse().map_err(|e| syntax_error(origin, text, &e))?;
        let mut problems = Vec::new();
        let entry = read_file(name, &table, &mut problems);
        match entry {
            Some(entry) if problems.is_empty() => Ok(entry),
            _ => Err(Error::invalid(origin, problems)),
        }
    }
}

fn syntax_error(origin: &str, text: &str, error: &toml::de::Error) -> Error {
    let place = error.span().and_then(|span| text.get(..span.start)).map_or(String::new(), |before| {
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        format!("line {}, column {}: ", before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    });
    Error::parse(origin, format!("{place}{}", error.message()))
}

/// `None` means that something required is missing or unusable; `problems` then says what.
fn read_file(name: &str, table: &Table, problems: &mut Vec<String>) -> Option<Entry> {
    let mut file = Section { prefix: "", table, problems };
    file.deny_unknown(&FILE_KEYS);
    let display_name = file.text("display_name");
    let aliases = file.aliases();
    let architecture = file.variant::<Architecture>("architecture");
    let datasheet = file.table("datasheet");
    let link = file.table("interconnect");

    let datasheet = datasheet.and_then(|table| read_datasheet(table, problems));
    let link = link.and_then(|table| read_interconnect(table, problems));
    let (datasheet, (interconnect, link_source)) = (datasheet?, link?);
    let hardware = Hardware {
        name: name.to_owned(),
        display_name: display_name?,
        architecture: architecture?,
        sm_count: datasheet.sm_count,
        l2_bytes: datasheet.l2_bytes,
        boost_clock_hz: datasheet.boost_clock_hz,
        hbm_bytes_per_s: datasheet.hbm_bytes_per_s,
        hbm_capacity_bytes: datasheet.hbm_capacity_bytes,
        ecc_bytes: datasheet.ecc_bytes,
        peaks_dense_flop_per_s: datasheet.peaks_dense_flop_per_s,
        interconnect,
        sources: vec![datasheet.source, link_source],
    };
    Some(Entry { hardware, aliases })
}

struct Datasheet {
    sm_count: u32,
    l2_bytes: f64,
    boost_clock_hz: f64,
    hbm_bytes_per_s: f64,
    hbm_capacity_bytes: f64,
    ecc_bytes: Option<f64>,
    peaks_dense_flop_per_s: BTreeMap<DType, f64>,
    source: String,
}

fn read_datasheet(table: &Table, problems: &mut Vec<String>) -> Option<Datasheet> {
    let mut section = Section { prefix: "datasheet.", table, problems };
    let known: Vec<&str> = DATASHEET_KEYS.into_iter().chain(PEAK_KEYS.map(|(key, _)| key)).collect();
    section.deny_unknown(&known);
    let sm_count = section.count("sm_count");
    let l2_bytes = section.number("l2_bytes");
    let boost_clock_hz = section.number("boost_clock_hz");
    let hbm_bytes_per_s = section.number("hbm_bytes_per_s");
    let hbm_capacity_bytes = section.number("hbm_capacity_bytes");
    let ecc_bytes = section.ecc_bytes(hbm_capacity_bytes);
    let source = section.source();
    let peaks = section.peaks();
    Some(Datasheet {
        sm_count: sm_count?,
        l2_bytes: l2_bytes?,
        boost_clock_hz: boost_clock_hz?,
        hbm_bytes_per_s: hbm_bytes_per_s?,
        hbm_capacity_bytes: hbm_capacity_bytes?,
        ecc_bytes,
        peaks_dense_flop_per_s: peaks,
        source: source?,
    })
}

fn read_interconnect(table: &Table, problems: &mut Vec<String>) -> Option<(Interconnect, String)> {
    let mut section = Section { prefix: "interconnect.", table, problems };
    section.deny_unknown(&INTERCONNECT_KEYS);
    let kind = section.variant::<InterconnectKind>("kind");
    let rate = section.number("unidirectional_bytes_per_s");
    let source = section.source();
    Some((Interconnect { kind: kind?, unidirectional_bytes_per_s: rate? }, source?))
}

/// One table of the file; what is wrong with it goes to `problems`.
struct Section<'t, 'p> {
    prefix: &'static str,
    table: &'t Table,
    problems: &'p mut Vec<String>,
}

impl<'t> Section<'t, '_> {
    fn problem(&mut self, key: &str, what: impl Display) {
        self.problems.push(format!("{}{key} {what}", self.prefix));
    }

    fn deny_unknown(&mut self, known: &[&str]) {
        for key in self.table.keys().filter(|key| !known.contains(&key.as_str())) {
            let near = input::near_matches(key, known.iter().copied());
            let hint = if near.is_empty() { known.join(", ") } else { near.join(", ") };
            self.problem(key, format_args!("is not a known key: did you mean one of {hint}?"));
        }
    }

    fn required(&mut self, key: &str) -> Option<&'t Value> {
        let value = self.table.get(key);
        if value.is_none() {
            self.problem(key, "is missing");
        }
        value
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.required(key)?;
        match value.as_str().map(str::trim) {
            Some(text) if !text.is_empty() => Some(text.to_owned()),
            _ => {
                self.problem(key, format_args!("= {value} must be a text that is not empty"));
                None
            }
        }
    }

    fn table(&mut self, key: &str) -> Option<&'t Table> {
        let value = self.required(key)?;
        if value.as_table().is_none() {
            self.problem(key, format_args!("= {value} must be a table, [{key}]"));
        }
        value.as_table()
    }

    fn variant<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.required(key)?;
        match T::deserialize(value.clone()) {
            Ok(variant) => Some(variant),
            Err(error) => {
                self.problem(key, format_args!("= {value}: {}", error.message()));
                None
            }
        }
    }

    fn count(&mut self, key: &str) -> Option<u32> {
        let value = self.required(key)?;
        match value.as_integer().and_then(|n| u32::try_from(n).ok()) {
            Some(count) if count > 0 => Some(count),
            _ => {
                self.problem(key, format_args!("= {value} must be a whole number of at least 1"));
                None
            }
        }
    }

    fn number(&mut self, key: &str) -> Option<f64> {
        let value = self.required(key)?;
        self.positive(key, value, "must be a finite number above zero")
    }

    fn positive(&mut self, key: &str, value: &Value, expected: &str) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "sizes and rates lie far below 2^53")]
        let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        match number {
            Some(number) if number.is_finite() && number > 0.0 => Some(number),
            _ => {
                self.problem(key, format_args!("= {value} {expected}"));
                None
            }
        }
    }

    fn ecc_bytes(&mut self, capacity_bytes: Option<f64>) -> Option<f64> {
        let value = self.table.get("ecc_bytes")?;
        let expected = "must be a finite number above zero; leave the key out where error correction costs no memory";
        let bytes = self.positive("ecc_bytes", value, expected)?;
        if capacity_bytes.is_some_and(|capacity| bytes >= capacity) {
            self.problem("ecc_bytes", format_args!("= {value} must be less than hbm_capacity_bytes"));
        }
        Some(bytes)
    }

    fn peaks(&mut self) -> BTreeMap<DType, f64> {
        let mut peaks = BTreeMap::new();
        let mut given = false;
        for (key, dtype) in PEAK_KEYS {
            let Some(value) = self.table.get(key) else { continue };
            given |= matches!(dtype, DType::Bfloat16 | DType::Float16);
            let expected = "must be a finite number above zero; leave the key out where the chip has no such unit";
            if let Some(peak) = self.positive(key, value, expected) {
                peaks.insert(dtype, peak);
            }
        }
        if !given {
            self.problem("peak_bf16_dense_flop_per_s", "and peak_fp16_dense_flop_per_s are missing: give at least one");
        }
        if let (Some(fp8), Some(bf16)) = (peaks.get(&DType::Fp8), peaks.get(&DType::Bfloat16))
            && (fp8 < bf16 || *fp8 > MAX_FP8_TO_BF16 * bf16)
        {
            self.problem(
                "peak_fp8_dense_flop_per_s",
                format_args!(
                    "= {fp8:e} must be one to {MAX_FP8_TO_BF16} times peak_bf16_dense_flop_per_s = {bf16:e}: \
                     are both dense peaks?"
                ),
            );
        }
        peaks
    }

    fn source(&mut self) -> Option<String> {
        let (source, retrieved) = (self.text("source"), self.text("retrieved"));
        let retrieved = retrieved?;
        if !is_year_and_month(&retrieved) {
            self.problem("retrieved", format_args!("= \"{retrieved}\" must be a year and a month, as in \"2026-11\""));
            return None;
        }
        Some(format!("{} (as of {retrieved})", source?))
    }

    fn aliases(&mut self) -> Vec<String> {
        let Some(value) = self.table.get("aliases") else { return Vec::new() };
        let aliases = Vec::<String>::deserialize(value.clone()).unwrap_or_default();
        if aliases.is_empty() && value.as_array().is_none_or(|array| !array.is_empty()) {
            self.problem("aliases", format_args!("= {value} must be a list of names"));
        }
        for alias in aliases.iter().filter(|alias| super::catalogue::lookup_key(alias).is_empty()) {
            self.problem("aliases", format_args!("has '{alias}', which names no GPU"));
        }
        aliases
    }
}

fn is_year_and_month(text: &str) -> bool {
    let digits = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('-').is_some_and(|(year, month)| {
        digits(year, 4) && digits(month, 2) && month.parse::<u8>().is_ok_and(|month| (1..=12).contains(&month))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_correction_takes_less_than_all_of_the_memory() {
        let text = include_str!("../../hardware/l4.toml");
        let parse = |text: &str| Hardware::from_toml_str("l4", "l4.toml", text);
        assert_eq!(parse(text).ok().and_then(|gpu| gpu.ecc_bytes()), Some(1.5 * 1_073_741_824.0));
        let all = parse(&text.replace("ecc_bytes = 1_610_612_736", "ecc_bytes = 25_769_803_776"));
        assert!(all.is_err_and(|e| e.to_string().contains("ecc_bytes = 25769803776 must be less than hbm_capacity")));
        let none = parse(&text.replace("ecc_bytes = 1_610_612_736", "ecc_bytes = 0"));
        assert!(none.is_err_and(|e| e.to_string().contains("leave the key out")));
    }
}
