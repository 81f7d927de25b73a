//! Reads a JSON of GPUs with the four figures that papers print. They replace those of the known GPU of the same name.

use std::path::Path;

use ridgepoint::input::{FileKind, Keys, Log, NumberRange, did_you_mean, parse_json, read_text};
use ridgepoint::units::{GIB, GIGA, TERA};
use ridgepoint::unstable::hardware::{MAX_SMS, check_16_bit_peak, limits};
use ridgepoint::{DType, Error, ErrorKind, Hardware, Result};
use serde_json::{Map, Value};

/// Keys that the TOML file of a GPU needs.
const TOML_KEYS: &str = "display_name, architecture, datasheet.{sm_count, l2_bytes, boost_clock_hz, hbm_bytes_per_s, \
                         hbm_capacity_bytes, peak_bf16_dense_flop_per_s, source, retrieved} and interconnect.{kind, \
                         unidirectional_bytes_per_s, source, retrieved}; interconnect.num_gpus and network.{kind, \
                         unidirectional_bytes_per_s, source, retrieved} say what is beyond a server";

/// Key of each figure, the same key of a TOML file, and the size of its unit there.
const FIGURES: [(&str, &str, f64, &str); 3] = [
    ("memory_bandwidth_gb_s", "hbm_bytes_per_s", GIGA, "GB/s"),
    ("compute_tflops_fp16", "peak_fp16_dense_flop_per_s", TERA, "TFLOP/s"),
    ("memory_gb", "hbm_capacity_bytes", GIB, "GB"),
];

/// Finds a GPU like [`Hardware::find_in`], and also in a JSON of GPUs by name, each with at most four figures:
/// `memory_bandwidth_gb_s`, `compute_tflops_fp16` (dense, also that of bf16), `memory_gb` and `sm_count`. They replace those of the GPU
/// of that name. `FILE.json#NAME` chooses one of several.
///
/// # Errors
/// Those of [`Hardware::find_in`], and of [`hardware_from_json`] for a path that ends in `.json`.
pub fn find_hardware(data_dir: Option<&Path>, name_or_path: &str) -> Result<Hardware> {
    let path = Path::new(name_or_path);
    let (json, gpu) = match name_or_path.rsplit_once('#').filter(|_| !path.is_file()) {
        Some((file, gpu)) => (Path::new(file), Some(gpu)),
        None => (path, None),
    };
    if !json.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
        return Hardware::find_in(data_dir, name_or_path);
    }
    hardware_from_json(data_dir, &json.display().to_string(), &read_text(FileKind::Hardware, json)?, gpu)
}

/// Parses a JSON of GPUs as [`find_hardware`] describes it, and returns the GPU `wanted`, or the only one. The known GPUs are those that
/// [`Hardware::named_in`] finds.
///
/// # Errors
/// `ErrorKind::Parse` for text that is not JSON. `ErrorKind::Invalid` for a file of several GPUs without a choice, a choice that it
/// lacks, a GPU that is not known by its name, and all faults of its figures. Also any fault of a file in `data_dir`.
pub fn hardware_from_json(data_dir: Option<&Path>, origin: &str, text: &str, wanted: Option<&str>) -> Result<Hardware> {
    let value = parse_json(origin, text)?;
    let invalid = |problem: String| Error::invalid(origin, vec![problem]);
    let gpus = value.as_object().filter(|gpus| gpus.values().all(Value::is_object) && !gpus.is_empty());
    let gpus = gpus.ok_or_else(|| {
        invalid("must be an object of GPUs by name, as in {\"H100\": {\"memory_bandwidth_gb_s\": 3350}}".to_owned())
    })?;
    let (name, figures) = choose(gpus, origin, wanted).map_err(invalid)?;
    let base = Hardware::named_in(data_dir, name).map_err(|error| match error.kind() {
        ErrorKind::UnknownHardware => invalid(format!(
            "{}: its other figures would be those of a known GPU of this name. Describe it in a TOML file instead, with {TOML_KEYS}",
            error.problems().join("; ")
        )),
        _ => error,
    })?;
    let log = Log::default();
    let hardware = over(base, Keys::new(name, figures, &log));
    Ok(log.finish(origin, Some(hardware))?.0)
}

/// The GPU that is asked for, or the only one.
fn choose<'a>(
    gpus: &'a Map<String, Value>,
    origin: &str,
    wanted: Option<&str>,
) -> std::result::Result<(&'a str, &'a Value), String> {
    let names: Vec<&str> = gpus.keys().map(String::as_str).collect();
    let listed = names.join(", ");
    let found = match wanted {
        Some(name) => gpus.get_key_value(name).ok_or_else(|| {
            let hint = did_you_mean(name, names.iter().copied()).map_or(String::new(), |hint| format!(": {hint}"));
            format!("has no GPU '{name}' but {listed}{hint}")
        }),
        None => gpus.iter().next().filter(|_| gpus.len() == 1).ok_or_else(|| {
            format!("has the GPUs {listed}: choose one, as in {origin}#{}", names.first().copied().unwrap_or_default())
        }),
    };
    found.map(|(name, figures)| (name.as_str(), figures))
}

/// Puts the figures over those of `gpu`. A note has those that differ.
fn over(mut gpu: Hardware, figures: Keys<'_>) -> Hardware {
    let mut differing = Vec::new();
    let mut differs = |key: &str, new: f64, old: Option<f64>, unit: f64| {
        if old.is_none_or(|old| (new - old).abs() > old * f64::EPSILON * 4.0) {
            let of_base = old.map_or_else(|| "none".to_owned(), |old| (old / unit).to_string());
            differing.push(format!("{key} {} instead of {of_base}", new / unit));
        }
    };
    for (key, toml_key, unit, unit_name) in FIGURES {
        let (min, max, _) = limits(toml_key);
        let range = NumberRange::between(min / unit, max / unit, unit_name);
        let Some(new) = figures.number(key, range).map(|number| number * unit) else { continue };
        let old = match toml_key {
            "hbm_bytes_per_s" => Some(std::mem::replace(&mut gpu.hbm_bytes_per_s, new)),
            "hbm_capacity_bytes" => Some(std::mem::replace(&mut gpu.hbm_capacity_bytes, new)),
            _ => {
                // The power limit was measured on another chip.
                gpu.power_limit = None;
                // Both formats run on the same units, if the chip has any for bf16.
                if let Some(bf16) = gpu.peaks_dense_flop_per_s.get_mut(&DType::Bfloat16) {
                    *bf16 = new;
                }
                gpu.peaks_dense_flop_per_s.insert(DType::Float16, new)
            }
        };
        differs(key, new, old, unit);
    }
    if let Some(sm_count) = figures.whole("sm_count", 1..=MAX_SMS) {
        differs("sm_count", f64::from(sm_count), Some(f64::from(gpu.sm_count)), 1.0);
        gpu.sm_count = sm_count;
    }
    if !FIGURES.iter().any(|(key, ..)| figures.has(key)) && !figures.has("sm_count") {
        figures.problem(
            "memory_bandwidth_gb_s",
            "and compute_tflops_fp16, memory_gb and sm_count are missing: give at least one",
        );
    }
    check_16_bit_peak(&gpu, &figures, "compute_tflops_fp16", "");
    figures.finish();
    if !differing.is_empty() {
        let differing = differing.join(", ");
        gpu.notes.push(format!("{} with {differing}; its other figures are unchanged", gpu.name));
    }
    gpu
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h100(figures: &str) -> Result<Hardware> {
        hardware_from_json(None, "own.json", &format!("{{\"H100\": {{{figures}}}}}"), None)
    }

    #[test]
    fn each_figure_replaces_one_of_the_known_gpu() {
        let built_in = Hardware::find("h100").unwrap();
        let own =
            h100(r#""memory_bandwidth_gb_s": 3000, "compute_tflops_fp16": 900.5, "memory_gb": 64, "sm_count": 130"#)
                .unwrap();
        assert_eq!((own.hbm_bytes_per_s, own.hbm_capacity_bytes, own.sm_count), (3e12, 64.0 * 1_073_741_824.0, 130));
        assert_eq!(
            [DType::Float16, DType::Bfloat16, DType::Fp8].map(|of| own.peaks_dense_flop_per_s.get(&of).copied()),
            [Some(900.5e12), Some(900.5e12), Some(1978.9e12)]
        );
        assert_eq!(
            (&own.name, own.l2_bytes, own.interconnect),
            (&built_in.name, built_in.l2_bytes, built_in.interconnect)
        );
        let note = "h100_sxm with memory_bandwidth_gb_s 3000 instead of 3350, compute_tflops_fp16 900.5 instead of 989.4, \
                    memory_gb 64 instead of 80, sm_count 130 instead of 132; its other figures are unchanged";
        assert_eq!(own.notes, [note]);
        assert_eq!(h100(r#""memory_bandwidth_gb_s": 3350, "memory_gb": 80"#).unwrap(), built_in);
    }

    #[test]
    fn figures_of_no_chip_are_refused() {
        for (figures, said) in [
            (
                r#""memory_bandwidth_gb_s": 3.35"#,
                "H100.memory_bandwidth_gb_s = 3.35 must be a number from 1e1 to 1e6 GB/s",
            ),
            (r#""compute_tflops_fp16": 1979"#, "H100.compute_tflops_fp16 = 1979 is more than all SMs reach"),
            (r#""memory_gb": "80""#, "H100.memory_gb = \"80\" must be a number"),
            (r#""sm_count": 0"#, "H100.sm_count = 0 must be a whole number from 1 to 10000"),
            (r#""memory_gbs": 80"#, "H100.memory_gbs is not a known key: did you mean memory_gb"),
            ("", "give at least one"),
        ] {
            let error = h100(figures).unwrap_err().to_string();
            assert!(error.starts_with("own.json: ") && error.contains(said), "{error}");
        }
        for text in ["[]", "{}", r#"{"memory_gb": 80}"#] {
            let error = hardware_from_json(None, "own.json", text, None).unwrap_err().to_string();
            assert!(error.contains("an object of GPUs by name"), "{error}");
        }
    }
}
