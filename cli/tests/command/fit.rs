//! `ridgepoint fit`: arguments that go together, and what is refused before anything is read.

use crate::cli_support;

use cli_support::{Folder, Run, run};
use ridgepoint::Correction;
use ridgepoint::correction::Level;

fn fit(line: &str) -> Run {
    run(&[&["fit"][..], &line.split_ascii_whitespace().collect::<Vec<_>>()].concat())
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    fit("--serving runs").fails(2, &["--out"]);
    fit("--out mine.toml").fails(2, &["--steps"]);
    fit("--steps a.csv --serving runs --out mine.toml").fails(2, &["--steps", "--serving"]);
    fit("--steps a.csv --level model --out mine.toml").fails(2, &["--model"]);
    fit("--serving runs --model llama-2-7b --out mine.toml").fails(2, &["--level model"]);
    fit("--serving runs --hardware h100 --out mine.toml").fails(2, &["--hardware"]);
    fit("--steps a.csv --enforce-eager --out mine.toml").fails(2, &["--enforce-eager"]);
}

#[test]
fn a_file_that_is_there_is_not_replaced() {
    let folder = Folder::new();
    let there = folder.write("mine.toml", "precious");
    fit(&format!("--serving runs --out {there}")).fails(1, &["mine.toml", "is there already", "--force"]);
    assert_eq!(folder.read("mine.toml"), "precious");
}

#[test]
fn priors_and_models_are_checked_first() {
    let folder = Folder::new();
    let out = folder.path("out.toml");
    let mut other = Correction::neutral();
    other.level = Level::Model { model: "qwen3-32b".to_owned() };
    let other = folder.write("qwen.toml", other.to_toml_string().unwrap());
    fit(&format!("--serving runs --prior auto --out {out}")).fails(1, &["--prior auto", "none, global"]);
    fit(&format!("--serving runs --prior nowhere.toml --out {out}")).fails(1, &["nowhere.toml"]);
    fit(&format!("--serving runs --prior {other} --out {out}")).fails(1, &["is meant for qwen3-32b"]);
    fit(&format!("--serving runs --level model --model no-such --out {out}")).fails(1, &["unknown model 'no-such'"]);
    assert_eq!(folder.names(), ["qwen.toml"]);
}
