//! Reads a GPU's TOML file: every key is known, every number is within decades of a real chip's, and one error lists all
//! problems.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::plausible::{Strictness, check_peaks};
use super::spec::{
    Architecture, Hardware, HostLink, HostLinkKind, Interconnect, InterconnectKind, Network, NetworkKind, PowerLimit,
    SERVER_GPUS,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::input::{FileKind, Keys, Log, normalise, parse_toml, read_text};

const PEAK_KEYS: [(&str, DType); 6] = [
    ("peak_fp32_dense_flop_per_s", DType::Float32),
    ("peak_fp16_dense_flop_per_s", DType::Float16),
    ("peak_bf16_dense_flop_per_s", DType::Bfloat16),
    ("peak_fp8_dense_flop_per_s", DType::Fp8),
    ("peak_int8_dense_flop_per_s", DType::Int8),
    ("peak_fp4_dense_flop_per_s", DType::Fp4),
];

/// Rates of `[power_limit]`.
const SUSTAINED_KEYS: [(&str, DType); 4] = [
    ("sustained_fp16_dense_flop_per_s", DType::Float16),
    ("sustained_bf16_dense_flop_per_s", DType::Bfloat16),
    ("sustained_fp8_dense_flop_per_s", DType::Fp8),
    ("sustained_int8_dense_flop_per_s", DType::Int8),
];

impl Hardware {
    /// Parses the text of a hardware TOML file. `name` becomes the name of the GPU; errors call the text `origin`.
    ///
    /// # Errors
    /// `ErrorKind::Parse` with line and column for text that is not TOML. `ErrorKind::Invalid` with every unknown,
    /// missing, non-positive or non-finite value, with figures decades away from those of any chip unless the file has
    /// `allow_unusual_figures = true`, with a 16-bit peak that the units cannot reach, and with an fp8 peak below the bf16
    /// peak or above four times it.
    pub fn from_toml_str(name: &str, origin: &str, text: &str) -> Result<Hardware> {
        Hardware::from_keys(name, origin, &parse_toml(origin, text)?)
    }

    /// Reads the keys of a hardware TOML file from JSON. `name` becomes the name of the GPU; errors call the value `origin`.
    ///
    /// # Errors
    /// The `ErrorKind::Invalid` of [`Hardware::from_toml_str`].
    pub fn from_keys(name: &str, origin: &str, value: &Value) -> Result<Hardware> {
        let log = Log::default();
        let hardware = read_file(name, Keys::new("", value, &log));
        Ok(log.finish(origin, Some(hardware))?.0)
    }

    /// Reads a hardware TOML file. The GPU gets the file's stem as its name.
    ///
    /// # Errors
    /// `ErrorKind::Io` for a file that can't be read, and those of [`Hardware::from_toml_str`].
    pub fn load(path: impl AsRef<Path>) -> Result<Hardware> {
        let path = path.as_ref();
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        Hardware::from_toml_str(&name, &path.display().to_string(), &read_text(FileKind::Hardware, path)?)
    }
}

/// Reduces a GPU's name to what comparisons use: [`normalise`] without the maker that drivers put in front.
pub(super) fn lookup_key(name: &str) -> String {
    let key = normalise(name);
    key.strip_prefix("nvidia").map(str::to_owned).unwrap_or(key)
}

/// How names of AMD's architectures and GPUs begin.
const AMD: [&str; 5] = ["cdna", "rdna", "gfx", "mi3", "amd"];

/// Reads the whole file. After a problem, which is in the log, a figure that breaks no other rule replaces it.
fn read_file(name: &str, file: Keys<'_>) -> Hardware {
    file.require(&["display_name", "architecture", "datasheet"]);
    let aliases = aliases(&file);
    let display_name = file.text("display_name").unwrap_or_default().to_owned();
    let is_amd =
        file.text("architecture").is_some_and(|name| AMD.iter().any(|maker| name.to_lowercase().starts_with(maker)));
    if is_amd {
        file.problem(
            "architecture",
            format_args!("is one of AMD: only NVIDIA's GPUs are modelled, and cpu has the bare roofline"),
        );
    }
    let architecture = if is_amd { None } else { file.variant("architecture") }.unwrap_or(Architecture::Blackwell);
    let has_datasheet = file.has("datasheet");
    let datasheet = file.section_or_empty("datasheet");
    if architecture != Architecture::Cpu {
        file.require(&["interconnect"]);
    }
    let link = file.section("interconnect");
    let network = file.section("network");
    let host = file.section("host_link");
    let power = file.section("power_limit");
    let strictness = Strictness { is_unusual: file.flag("allow_unusual_figures").unwrap_or(false) };
    file.finish();

    let mut sources = vec![source(&datasheet)];
    let interconnect = link.map(|link| {
        let num_gpus = link.whole("num_gpus", 1..=u32::MAX).unwrap_or(SERVER_GPUS);
        let num_gpus_per_host = link.whole("num_gpus_per_host", 1..=num_gpus).unwrap_or(num_gpus.min(SERVER_GPUS));
        let peer_access = link.flag("peer_access");
        if peer_access.is_some() && link.text("kind") == Some("nvlink") {
            link.problem("peer_access", "is of PCIe alone: GPUs over NVLink always read each other's memory");
        }
        let (kind, unidirectional_bytes_per_s) = read_link(link, strictness, InterconnectKind::Pcie, &mut sources);
        Interconnect { kind, unidirectional_bytes_per_s, num_gpus, num_gpus_per_host, peer_access }
    });
    let network = network.map(|network| {
        let (kind, unidirectional_bytes_per_s) = read_link(network, strictness, NetworkKind::Rdma, &mut sources);
        Network { kind, unidirectional_bytes_per_s }
    });
    let host_link = host.map(|host| {
        let (kind, unidirectional_bytes_per_s) = read_link(host, strictness, HostLinkKind::Pcie, &mut sources);
        HostLink { kind, unidirectional_bytes_per_s }
    });
    let optional = |key: &str| strictness.figure(&datasheet, key);
    let peaks: BTreeMap<DType, f64> =
        PEAK_KEYS.iter().filter_map(|(key, dtype)| Some((*dtype, optional(key)?))).collect();
    let power_limit = power.map(|power| read_power_limit(power, &peaks, strictness, &mut sources));
    // Cards that talk over PCIe reach the host over it too.
    let same = interconnect
        .filter(|link| link.kind == InterconnectKind::Pcie)
        .map(|link| HostLink { kind: HostLinkKind::Pcie, unidirectional_bytes_per_s: link.unidirectional_bytes_per_s });

    datasheet.require(&["sm_count"]);
    let hardware = Hardware {
        name: name.to_owned(),
        aliases,
        display_name,
        architecture,
        sm_count: datasheet.whole("sm_count", 1..=strictness.max_sms()).unwrap_or(u32::MAX),
        l2_bytes: required(strictness, &datasheet, "l2_bytes"),
        boost_clock_hz: required(strictness, &datasheet, "boost_clock_hz"),
        hbm_bytes_per_s: required(strictness, &datasheet, "hbm_bytes_per_s"),
        hbm_capacity_bytes: required(strictness, &datasheet, "hbm_capacity_bytes"),
        ecc_bytes: optional("ecc_bytes"),
        reported_bytes: optional("reported_bytes"),
        board_watt: optional("board_watt"),
        power_limit_watt: None,
        peaks_dense_flop_per_s: peaks,
        interconnect,
        network,
        host_link: host_link.or(same),
        power_limit,
        sources,
        notes: Vec::new(),
    };
    if has_datasheet {
        check(&hardware, &datasheet);
        check_peaks(&hardware, &datasheet, strictness);
    }
    datasheet.finish();
    hardware
}

/// Reads the kind and the rate of a link, in bytes per second. Its source joins `sources`.
fn read_link<K: DeserializeOwned>(
    link: Keys<'_>,
    strictness: Strictness,
    default: K,
    sources: &mut Vec<String>,
) -> (K, f64) {
    link.require(&["kind"]);
    let kind = link.variant("kind").unwrap_or(default);
    let unidirectional_bytes_per_s = required(strictness, &link, "unidirectional_bytes_per_s");
    sources.push(source(&link));
    link.finish();
    (kind, unidirectional_bytes_per_s)
}

/// Reads what the matrix units sustain. Its source joins `sources`.
fn read_power_limit(
    power: Keys<'_>,
    peaks: &BTreeMap<DType, f64>,
    strictness: Strictness,
    sources: &mut Vec<String>,
) -> PowerLimit {
    let mut flop_per_s = BTreeMap::new();
    for (key, dtype) in SUSTAINED_KEYS {
        let Some(rate) = strictness.figure(&power, key) else { continue };
        if peaks.get(&dtype).is_none_or(|peak| rate > *peak) {
            power.problem(key, "is above the datasheet's peak, or has none");
        }
        flop_per_s.insert(dtype, rate);
    }
    if flop_per_s.is_empty() {
        power.problem("sustained_bf16_dense_flop_per_s", "is missing: give the rate of one format at least");
    }
    let bytes_per_s = required(strictness, &power, "bytes_per_s");
    sources.push(source(&power));
    power.finish();
    PowerLimit { flop_per_s, bytes_per_s }
}

fn required(strictness: Strictness, section: &Keys<'_>, key: &str) -> f64 {
    section.require(&[key]);
    strictness.figure(section, key).unwrap_or(f64::MAX)
}

/// Checks that the figures of a datasheet are there together.
fn check(hardware: &Hardware, datasheet: &Keys<'_>) {
    if hardware.ecc_bytes.is_some_and(|bytes| bytes >= hardware.hbm_capacity_bytes) {
        datasheet.problem("ecc_bytes", "must be less than hbm_capacity_bytes");
    }
    if hardware.reported_bytes.is_some_and(|bytes| bytes > hardware.hbm_capacity_bytes) {
        datasheet.problem("reported_bytes", "must be at most hbm_capacity_bytes");
    }
    let (bf16, fp16) = ("peak_bf16_dense_flop_per_s", "peak_fp16_dense_flop_per_s");
    if !datasheet.has(bf16) && !datasheet.has(fp16) {
        datasheet.problem(bf16, format!("and {fp16} are missing: give at least one"));
    }
}

fn source(section: &Keys<'_>) -> String {
    section.require(&["source", "retrieved"]);
    let source = section.text("source").unwrap_or_default();
    let retrieved = section.read("retrieved", "a year and a month, as in \"2026-11\"", |value| {
        value.as_str().filter(|text| is_year_and_month(text))
    });
    format!("{source} (as of {})", retrieved.unwrap_or_default())
}

fn aliases(file: &Keys<'_>) -> Vec<String> {
    let aliases = file.texts("aliases").unwrap_or_default();
    if let Some(alias) = aliases.iter().find(|alias| lookup_key(alias).is_empty()) {
        file.problem("aliases", format!("has '{alias}', which names no GPU"));
    }
    aliases.into_iter().map(str::to_owned).collect()
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
        assert_eq!(parse(text).ok().and_then(|gpu| gpu.ecc_bytes), Some(1.5 * 1_073_741_824.0));
        let all = parse(&text.replace("ecc_bytes = 1_610_612_736", "ecc_bytes = 25_769_803_776"));
        assert!(all.is_err_and(|e| e.to_string().contains("ecc_bytes = 25769803776 must be less than hbm_capacity")));
        let none = parse(&text.replace("ecc_bytes = 1_610_612_736", "ecc_bytes = 0"));
        assert!(none.is_err_and(|e| e.to_string().contains("leave the key out")));
    }
}
