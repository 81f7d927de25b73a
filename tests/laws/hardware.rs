//! GPU files: the names that find them, how they are read, and what is refused.

use ridgepoint::{DType, Error, ErrorKind, Hardware};
use std::path::Path;

use ridgepoint::hardware::builtin_names;

const REL_SAME_FIGURE: f64 = 1e-12;

fn assert_rel(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(got.is_finite() && ((got - want) / want).abs() <= tolerance, "{what}: got {got:e}, want {want:e}");
}

const TOY: &str = r#"
display_name = "Toy"
aliases = ["toy one"]
architecture = "hopper"
[datasheet]
sm_count = 10
l2_bytes = 1048576
boost_clock_hz = 3e9
hbm_bytes_per_s = 1e12
hbm_capacity_bytes = 1073741824
peak_bf16_dense_flop_per_s = 100e12
peak_fp8_dense_flop_per_s = 200e12
source = "made up"
retrieved = "2026-11"
[interconnect]
kind = "pcie"
unidirectional_bytes_per_s = 32e9
source = "made up"
retrieved = "2026-11"
"#;

fn toy(from: &str, to: &str) -> Result<Hardware, Error> {
    assert!(TOY.contains(from), "the toy has no `{from}`");
    Hardware::from_toml_str("toy", "toy.toml", &TOY.replace(from, to))
}

fn problems_of(result: Result<Hardware, Error>) -> Vec<String> {
    match result {
        Err(error) if error.kind() == ErrorKind::Invalid => {
            assert_eq!(error.location().unwrap().path, "toy.toml");
            error.problems().to_vec()
        }
        other => panic!("expected ErrorKind::Invalid, got {other:?}"),
    }
}

fn near_of(name: &str) -> Vec<String> {
    let error = Hardware::find(name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownHardware, "{error}");
    let text = error.to_string();
    let near = text.split_once("(did you mean ").map_or("", |(_, near)| near.trim_end_matches("?)"));
    near.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_file_in_the_folder_is_built_in() {
    let mut stems: Vec<String> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("hardware"))
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    stems.sort();
    assert_eq!(builtin_names(), stems);
    assert!(stems.len() >= 12);
}

#[test]
fn a_missing_peak_names_the_gpu_and_what_it_has() {
    let error = Hardware::find("A100").unwrap().peak_dense_flop_per_s(DType::Fp8).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("A100") && message.contains("fp8") && message.contains("bfloat16"), "{message}");
    assert!(error.kind() != ErrorKind::MissingTable);
}

#[test]
fn every_usual_name_finds_its_gpu() {
    let cases = [
        ("h100_sxm", "h100 H100 h100_sxm H100-SXM H100-SXM5 h100-80gb"),
        ("h100_pcie", "h100_pcie H100-PCIe"),
        ("h100_nvl", "H100-NVL"),
        ("h200_sxm", "h200 H200 H200-SXM h200_sxm"),
        ("a100_sxm", "a100 A100 A100-80GB A100-SXM A100-SXM4-80GB A100_SXM4 a100-80"),
        ("a100_sxm_40gb", "A100-40GB A100-SXM4-40GB a100_sxm_40gb"),
        ("a10", "A10"),
        ("l40s", "L40S l40s"),
        ("l4", "L4"),
        ("rtx_4090", "rtx4090 4090 RTX-4090 rtx_4090 GeForce-RTX-4090"),
        ("rtx_pro_6000", "rtxpro6000 RTX_PRO_6000"),
        ("rtx_pro_6000_server", "RTX-PRO-6000-Server rtx_pro_6000_blackwell_server"),
        ("b200_sxm", "B200 b200 B200-SXM nvidia-b200"),
        ("b300_sxm", "B300 b300 B300-SXM"),
        ("gb200", "GB200 gb200-nvl72"),
        ("gb300", "GB300 GB300-NVL72"),
        ("rtx_5090", "5090 RTX5090 GeForce-RTX-5090"),
        ("rtx_3090", "3090 rtx-3090"),
        ("rtx_a6000", "A6000 RTX-A6000"),
        ("rtx_6000_ada", "6000-Ada RTX-6000-Ada"),
        ("h20", "H20 h20-96gb"),
        ("h200_nvl", "H200-NVL"),
        ("gb10", "GB10 DGX-Spark"),
        ("a100_pcie", "A100-PCIe A100-PCIe-80GB"),
        ("a100_pcie_40gb", "A100-PCIE-40GB"),
        ("v100_sxm", "V100 V100-SXM2 V100-32GB"),
        ("v100_sxm_16gb", "V100-16GB"),
        ("t4", "T4 Tesla-T4"),
    ];
    for (want, names) in cases {
        for name in names.split(' ') {
            assert_eq!(&Hardware::find(name).unwrap().name, want, "{name}");
        }
    }
}

#[test]
fn the_names_that_the_driver_reports_are_found() {
    let cases = [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H100 NVL", "h100_nvl"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100_sxm_40gb"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000"),
        ("RTX PRO 6000", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_server"),
        ("NVIDIA B200", "b200_sxm"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GeForce RTX 5090", "rtx_5090"),
        ("NVIDIA GeForce RTX 3090", "rtx_3090"),
        ("NVIDIA RTX A6000", "rtx_a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H200 NVL", "h200_nvl"),
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100_pcie_40gb"),
        ("Tesla V100-SXM2-32GB", "v100_sxm"),
        ("Tesla V100-SXM2-16GB", "v100_sxm_16gb"),
        ("Tesla T4", "t4"),
    ];
    for (name, want) in cases {
        assert_eq!(&Hardware::find(name).unwrap().name, want, "{name}");
    }
}

#[test]
fn a_name_of_several_editions_says_which_is_meant() {
    let notes = |name: &str| Hardware::find(name).unwrap().notes;
    for name in ["RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell"] {
        let notes = notes(name);
        assert!(
            notes.iter().any(|note| note.contains("Workstation Edition") && note.contains("rtx_pro_6000_server")),
            "{notes:?}"
        );
    }
    for name in ["rtx_pro_6000", "RTX PRO 6000 Workstation", "RTX PRO 6000 Server", "rtx_pro_6000_server", "h100"] {
        assert!(!notes(name).iter().any(|note| note.contains("several cards")), "{name}");
    }
}

#[test]
fn no_name_or_alias_belongs_to_two_gpus() {
    for owner in builtin_names() {
        let aliases = Hardware::builtin(owner).unwrap().aliases;
        let display_name = Hardware::builtin(owner).unwrap().display_name.to_owned();
        for name in aliases.iter().map(String::as_str).chain([owner]) {
            assert_eq!(Hardware::find(name).map(|gpu| gpu.name.to_owned()).ok().as_deref(), Some(owner), "{name}");
        }
        assert!(display_name.starts_with("NVIDIA "), "{display_name}");
    }
}

#[test]
fn an_unknown_name_gives_near_matches() {
    assert_eq!(near_of("h10_sxm").first().map(String::as_str), Some("h100_sxm"));
    assert!(near_of("NVIDIA RTX PRO 6000 Blackwell Max-Q").contains(&"rtx_pro_6000".to_owned()));
    assert!(near_of("A100-SXM-60GB").contains(&"a100_sxm".to_owned()));
    assert!(near_of("abacus").is_empty());
    assert!(near_of("").is_empty());
    assert!(near_of("nvidia").len() <= 3);
    assert!(
        matches!(Hardware::builtin("H100"), Err(error) if error.kind() == ErrorKind::UnknownHardware),
        "builtin takes exact names only"
    );
}

#[test]
fn a_directory_of_that_name_does_not_hide_a_gpu() {
    assert!(matches!(Hardware::find("src"), Err(error) if error.kind() == ErrorKind::UnknownHardware));
}

#[test]
fn a_file_is_read_as_written() {
    let gpu = Hardware::from_toml_str("toy", "toy.toml", TOY).unwrap();
    assert_eq!((gpu.name.as_str(), gpu.display_name.as_str(), gpu.sm_count), ("toy", "Toy", 10));
    assert_eq!(gpu.peaks_dense_flop_per_s.keys().copied().collect::<Vec<_>>(), [DType::Bfloat16, DType::Fp8]);
    assert_rel(gpu.l2_bytes, 1_048_576.0, REL_SAME_FIGURE, "whole numbers are numbers");
    assert_rel(gpu.boost_clock_hz, 3e9, REL_SAME_FIGURE, "boost_clock_hz");
    assert_eq!(gpu.sources[0], "made up (as of 2026-11)");
}

#[test]
fn numbers_that_cannot_be_are_refused_by_key_and_value() {
    for (value, shown) in
        [("0", "= 0 "), ("-1e12", "= -1"), ("nan", "= \"nan\" "), ("inf", "= \"inf\" "), ("\"1e12\"", "= \"")]
    {
        let problems = problems_of(toy("hbm_bytes_per_s = 1e12", &format!("hbm_bytes_per_s = {value}")));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("datasheet.hbm_bytes_per_s ") && problems[0].contains(shown), "{problems:?}");
    }
    for value in ["0", "-3", "1.5", "5000000000"] {
        let problems = problems_of(toy("sm_count = 10", &format!("sm_count = {value}")));
        assert!(
            problems[0].starts_with("datasheet.sm_count ") && problems[0].contains("a whole number from 1"),
            "{problems:?}"
        );
    }
    let problems = problems_of(toy("bytes_per_s = 32e9", "bytes_per_s = 0.0"));
    assert!(problems[0].starts_with("interconnect.unidirectional_bytes_per_s "), "{problems:?}");
    let problems = problems_of(toy("peak_fp8_dense_flop_per_s = 200e12", "peak_fp8_dense_flop_per_s = 0"));
    assert!(problems.len() == 1 && problems[0].contains("leave the key out"), "{problems:?}");
}

#[test]
fn an_unknown_key_is_refused_with_a_suggestion() {
    let problems = problems_of(toy("sm_count = 10", "sm_count = 10\nhbm_byte_per_s = 1"));
    assert!(
        problems[0].contains("datasheet.hbm_byte_per_s") && problems[0].contains("hbm_bytes_per_s?"),
        "{problems:?}"
    );
    let problems = problems_of(toy("display_name", "name = \"toy\"\ndisplay_name"));
    assert!(problems.len() == 1 && problems[0].starts_with("name is not a known key"), "{problems:?}");
}

#[test]
fn every_problem_of_a_file_is_reported_at_once() {
    let text = TOY
        .replace("l2_bytes = 1048576\n", "")
        .replace("\"hopper\"", "\"kepler\"")
        .replace("kind = \"pcie\"", "kind = \"pcie\"\nwidth = 16")
        .replace("= 1e12", "= -1");
    let problems = problems_of(Hardware::from_toml_str("toy", "toy.toml", &text));
    assert_eq!(problems.len(), 4, "{problems:?}");
    for part in ["datasheet.l2_bytes is missing", "ampere", "interconnect.width", "datasheet.hbm_bytes_per_s"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
    let problems = problems_of(Hardware::from_toml_str("toy", "toy.toml", ""));
    assert_eq!(problems.len(), 4, "an empty file lacks four keys: {problems:?}");
}

#[test]
fn what_the_power_allows_is_below_the_peaks() {
    let limited = |rates: &str| {
        let text = format!("{TOY}[power_limit]\n{rates}\nsource = \"made up\"\nretrieved = \"2026-11\"\n");
        Hardware::from_toml_str("toy", "toy.toml", &text)
    };
    let gpu = limited("sustained_bf16_dense_flop_per_s = 70e12\nbytes_per_s = 4e12").unwrap();
    let limit = gpu.power_limit.unwrap();
    assert_eq!((limit.flop_per_s[&DType::Bfloat16], limit.bytes_per_s, limit.flop_per_s.len()), (70e12, 4e12, 1));
    for (rates, said) in [
        ("sustained_bf16_dense_flop_per_s = 101e12\nbytes_per_s = 4e12", "above the datasheet's peak"),
        ("sustained_int8_dense_flop_per_s = 50e12\nbytes_per_s = 4e12", "or has none"),
        ("bytes_per_s = 4e12", "give the rate of one format at least"),
        ("sustained_bf16_dense_flop_per_s = 70e12", "bytes_per_s is missing"),
        ("sustained_bf16_dense_flop_per_s = 70\nbytes_per_s = 4e12", "must be from 1e11"),
    ] {
        let problems = problems_of(limited(rates));
        assert!(problems.iter().any(|problem| problem.contains(said)), "{rates}: {problems:?}");
    }
}

#[test]
fn a_file_without_any_16_bit_peak_is_refused() {
    let problems = problems_of(toy("peak_bf16_dense_flop_per_s = 100e12\n", ""));
    assert!(problems.len() == 1 && problems[0].contains("peak_fp16_dense_flop_per_s"), "{problems:?}");
}

#[test]
fn an_fp8_peak_outside_one_to_four_times_bf16_is_refused() {
    for (fp8, is_right) in [("99e12", false), ("100e12", true), ("400e12", true), ("401e12", false)] {
        let result = toy("flop_per_s = 200e12", &format!("flop_per_s = {fp8}"));
        assert_eq!(result.is_ok(), is_right, "{fp8}: {result:?}");
        if !is_right {
            assert!(problems_of(result)[0].contains("are both dense peaks?"));
        }
    }
}

#[test]
fn sources_and_aliases_must_say_something() {
    assert!(problems_of(toy("\"toy one\"", "\"NVIDIA\""))[0].contains("names no GPU"));
    assert!(problems_of(toy("[\"toy one\"]", "\"toy one\""))[0].contains("a list of texts"));
    assert!(problems_of(toy("source = \"made up\"", "source = \" \"")).len() == 2);
    for month in ["2026", "2026-13", "26-11", "11/2026"] {
        assert!(problems_of(toy("\"2026-11\"", &format!("\"{month}\"")))[0].contains("a year and a month"), "{month}");
    }
    assert!(toy("aliases = [\"toy one\"]\n", "").is_ok(), "aliases may be left out");
}

#[test]
fn a_syntax_error_names_line_and_column() {
    let error = toy("sm_count = 10", "sm_count = = 10").unwrap_err();
    assert!(error.kind() == ErrorKind::Parse, "{error:?}");
    let message = error.to_string();
    assert!(message.starts_with("toy.toml: line 6 column 12: "), "{message}");
    let twice = toy("sm_count = 10", "sm_count = 10\nsm_count = 11").unwrap_err().to_string();
    assert!(twice.starts_with("toy.toml: line 7 column "), "{twice}");
}

#[test]
fn a_path_that_cannot_be_read_is_an_io_error_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent.toml");
    for result in [Hardware::load(&path), Hardware::find(path.to_str().unwrap())] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        assert_eq!(error.location().unwrap().path, path.display().to_string());
    }
    let missing = folder.path().join("absent");
    assert!(matches!(Hardware::find_in(Some(&missing), "h100"), Err(error) if error.kind() == ErrorKind::Io));
}

#[test]
fn a_path_to_a_file_is_loaded_and_named_after_it() {
    let folder = tempfile::tempdir().unwrap();
    for file_name in ["my_gpu.toml", "h200.conf"] {
        let path = folder.path().join(file_name);
        std::fs::write(&path, TOY).unwrap();
        let gpu = Hardware::find(path.to_str().unwrap()).unwrap();
        assert_eq!(gpu.display_name, "Toy");
        assert_eq!(gpu.name, file_name.split('.').next().unwrap());
    }
}

#[test]
fn the_data_directory_comes_before_what_is_built_in() {
    let data = tempfile::tempdir().unwrap();
    let find = |name: &str| Hardware::find_in(Some(data.path()), name);
    assert_eq!(&find("h100").unwrap().name, "h100_sxm", "a data directory need not have hardware/");

    let folder = data.path().join("hardware");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("h100_sxm.toml"), TOY).unwrap();
    std::fs::write(folder.join("README.md"), "not a GPU").unwrap();
    assert_eq!(&find("H100-SXM").unwrap().display_name, "Toy", "a file replaces its namesake");
    assert_eq!(&find("toy-one").unwrap().name, "h100_sxm", "its aliases count");
    assert_eq!(&find("H200").unwrap().name, "h200_sxm", "the others remain");
    assert_eq!(&find("H100-SXM5").unwrap().display_name, "Toy", "the replaced file's aliases lead to the new one");

    std::fs::write(folder.join("mine.toml"), TOY.replace("toy one", "A100")).unwrap();
    assert_eq!(&find("a100").unwrap().name, "mine", "an alias there wins over a built-in one");

    std::fs::write(folder.join("other.toml"), TOY).unwrap();
    let error = find("toy one").unwrap_err();
    assert!(error.to_string().ends_with("(did you mean h100_sxm, other?)"), "{error:?}");

    std::fs::write(folder.join("broken.toml"), "display_name").unwrap();
    let message = find("l40s").unwrap_err().to_string();
    assert!(message.contains("broken.toml: line 1"), "{message}");
}
