//! What a correction's file holds, and everything that makes one a bad file.

#![allow(clippy::float_cmp)]

use super::*;
use crate::physics::BatchSums;

/// A correction whose every number is distinct.
fn full() -> Correction {
    let mut correction = Correction::neutral();
    for (index, term) in Term::ALL.into_iter().enumerate() {
        let step = 1.0 + index as f64;
        correction.coefficients[index] = term.neutral() + 0.123_456_78 / step;
        correction.identified[index] = index % 3 == 0;
        for other in 0..NUM_TERMS {
            let correlation = if other == index { 1.0 } else { -0.4 / (step + other as f64 + 1.0) };
            let sd = |index: usize| 0.017_654_321 * (1.0 + index as f64);
            correction.covariance[index][other] = correlation * sd(index) * sd(other);
        }
    }
    correction.level = Level::Model { model: "llama-2-7b".to_owned() };
    correction.host.queueing_us = 4_321.987_6;
    correction.range = FittedRange::of([BatchSums { num_tokens: 7, num_decodes: 7, ..BatchSums::default() }]);
    correction.scatter = Scatter { step: 0.023_456_7, ttft: 0.087_654_3 };
    correction.source = Source {
        data: "two runs".to_owned(),
        split: "first 60 % of each run".to_owned(),
        hardware: vec!["h100_sxm".to_owned()],
        models: vec!["llama-2-7b".to_owned()],
        engine_versions: vec!["0.15.1".to_owned()],
        rows: 42,
        rows_sha256: "ab".repeat(32),
        converged: true,
        steps_hold_scheduling: true,
    };
    correction
}

fn is_near(found: f64, wanted: f64, relative: f64) -> bool {
    (found - wanted).abs() <= relative * wanted.abs()
}

#[test]
fn a_file_gives_back_what_went_in_to_five_digits() {
    let written = full();
    let text = written.to_toml_string().unwrap();
    let read = Correction::from_toml_str("mine.toml", &text).unwrap();
    assert_eq!((read.name.as_str(), &read.level, &read.source), ("mine.toml", &written.level, &written.source));
    assert_eq!(read.identified, written.identified);
    for row in 0..NUM_TERMS {
        let (found, wanted) = (read.coefficients[row], written.coefficients[row]);
        assert!(is_near(found, wanted, 5e-5), "{row}: {found} for {wanted}");
        for column in 0..NUM_TERMS {
            // Two standard deviations and a correlation, each to half a unit of the fifth digit.
            let (found, wanted) = (read.covariance[row][column], written.covariance[row][column]);
            assert!(is_near(found, wanted, 1.6e-4), "{row}, {column}: {found} for {wanted}");
        }
    }
    assert!(is_near(read.host.queueing_us, 4_321.987_6, 5e-5) && read.host.queueing_us != 4_321.987_6);
    assert!(is_near(read.scatter.step, 0.023_456_7, 5e-5) && is_near(read.scatter.ttft, 0.087_654_3, 5e-5));
    // What was read is what is written: a second turn changes nothing.
    assert_eq!(read.to_toml_string().unwrap(), text);
}

#[test]
fn the_neutral_correction_is_a_file_too() {
    let text = Correction::neutral().to_toml_string().unwrap();
    let read = Correction::from_toml_str("none", &text).unwrap();
    assert_eq!(read.coefficients, Term::ALL.map(Term::neutral));
    assert_eq!(read.covariance[0][0], 0.05f64.powi(2));
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut correction = Correction::neutral();
    correction.covariance[0][0] = 1e200 * 1e200;
    assert!(correction.to_toml_string().unwrap_err().to_string().contains("projections.sd = inf must be from 0 to 5"));
    correction = Correction::neutral();
    correction.coefficients[Term::Steps.index()] = 1e308;
    correction.host.queueing_us = f64::NAN;
    let message = correction.to_toml_string().unwrap_err().to_string();
    assert!(message.contains("step_us.value") && message.contains("host.queueing_us = NaN"), "{message}");
}

fn problems(text: &str) -> Vec<String> {
    match Correction::from_toml_str("bad.toml", text) {
        Err(error) if error.location().is_some_and(|place| place.path == "bad.toml") => error.problems().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// The neutral file with one table of a coefficient changed.
fn with(term: Term, change: impl Fn(&mut toml::Table)) -> String {
    changed(|file| change(file["coefficients"][term.name()].as_table_mut().unwrap()))
}

fn changed(change: impl Fn(&mut toml::Table)) -> String {
    let mut file: toml::Table = Correction::neutral().to_toml_string().unwrap().parse().unwrap();
    change(&mut file);
    toml::to_string(&file).unwrap()
}

fn set(term: Term, key: &str, value: f64) -> String {
    with(term, |of| drop(of.insert(key.to_owned(), value.into())))
}

#[test]
fn values_outside_their_bounds_are_named_with_what_is_allowed() {
    for (text, said) in [
        (set(Term::Experts, "value", 5.0), "coefficients.experts.value = 5 must be from 0.3 to 3"),
        (set(Term::Experts, "value", 0.29), "coefficients.experts.value = 0.29 must be from 0.3 to 3"),
        (set(Term::Experts, "value", f64::NAN), "coefficients.experts.value = NaN must be from 0.3 to 3"),
        (set(Term::PromptTokens, "value", -0.5), "coefficients.prompt_token_us.value = -0.5 must be from 0 to 1000000"),
        (set(Term::PromptTokens, "value", f64::INFINITY), "coefficients.prompt_token_us.value = inf must be"),
        (set(Term::PromptTokens, "value", 1e15), "coefficients.prompt_token_us.value = 1000000000000000 must be"),
        (set(Term::PromptTokens, "sd", -1.0), "coefficients.prompt_token_us.sd = -1 must be from 0 to 100"),
        (set(Term::PromptTokens, "sd", f64::NAN), "coefficients.prompt_token_us.sd = NaN must be from 0 to 100"),
        (set(Term::PromptTokens, "sd", 1e5), "coefficients.prompt_token_us.sd = 100000 must be from 0 to 100"),
        (set(Term::PromptTokens, "sd", 1e200), "coefficients.prompt_token_us.sd = 1000"),
    ] {
        let problems = problems(&text);
        assert!(problems.len() == 1 && problems[0].starts_with(said), "{said}: {problems:?}");
    }
    for (section, key, value) in [
        ("host", "scheduling_us", f64::NAN),
        ("host", "preemption_us", -1.0),
        ("host", "output_token_us", 1e18),
        ("host", "queueing_us_per_token", f64::INFINITY),
        ("scatter", "step", 3.1),
        ("scatter", "ttft", f64::NAN),
    ] {
        let text = changed(|file| {
            file[section].as_table_mut().unwrap().insert(key.to_owned(), value.into());
        });
        let problems = problems(&text);
        let said = format!("{section}.{key} = {value} must be");
        assert!(problems.len() == 1 && problems[0].starts_with(&said), "{said}: {problems:?}");
    }
}

#[test]
fn correlations_have_a_row_per_coefficient_and_stay_within_one() {
    let with = |rows: Vec<Vec<f64>>| {
        changed(|file| {
            file.insert("correlations".to_owned(), rows.clone().into());
        })
    };
    let good: Vec<Vec<f64>> = (1..NUM_TERMS).map(|row| vec![0.0; row]).collect();
    let mut two = good.clone();
    two[2][1] = 2.0;
    two[4][0] = f64::NAN;
    assert_eq!(
        problems(&with(two)),
        ["correlations[2][1] = 2 must be from -1 to 1", "correlations[4][0] = NaN must be from -1 to 1"]
    );
    let mut ragged = good.clone();
    ragged[3].push(0.5);
    let [problem] = &problems(&with(ragged))[..] else { panic!("one problem") };
    assert!(problem.contains("rows of [1, 2, 3, 5,") && problem.contains("must have [1, 2, 3, 4,"), "{problem}");
    let [problem] = &problems(&with(Vec::new()))[..] else { panic!("one problem") };
    assert!(problem.contains("rows of [] numbers"), "{problem}");
}

#[test]
fn a_level_is_global_alone_or_a_model() {
    let with = |level: &str, model: Option<&str>| {
        changed(|file| {
            file.insert("level".to_owned(), level.into());
            if let Some(model) = model {
                file.insert("model".to_owned(), model.into());
            }
        })
    };
    let said = |level: &str, model| problems(&with(level, model)).remove(0);
    assert!(said("galaxy", None).starts_with("level = 'galaxy' with no model"));
    assert!(said("model", None).starts_with("level = 'model' with no model"));
    assert!(said("global", Some("llama-2-7b")).starts_with("level = 'global' with model = 'llama-2-7b'"));
    let own = Correction::from_toml_str("own.toml", &with("model", Some("llama-2-7b"))).unwrap();
    assert_eq!(own.level, Level::Model { model: "llama-2-7b".to_owned() });
}

#[test]
fn every_problem_is_listed_at_once() {
    let text = changed(|file| {
        file.insert("level".to_owned(), "galaxy".into());
        file["host"].as_table_mut().unwrap().insert("queueing_us".to_owned(), (-1.0).into());
        file["scatter"].as_table_mut().unwrap().insert("step".to_owned(), (-0.1).into());
        file["correlations"][0][0] = 2.0.into();
        let coefficients = file["coefficients"].as_table_mut().unwrap();
        let renamed = coefficients.remove("prompt_token_us").unwrap();
        coefficients.insert("tokens_us".to_owned(), renamed);
        coefficients["projections"]["value"] = 5.0.into();
        coefficients["step_us"]["value"] = (-3.0).into();
    });
    let problems = problems(&text);
    let said = [
        "level = 'galaxy'",
        "coefficients.tokens_us is not known; there are projections",
        "coefficients.projections.value = 5",
        "coefficients.step_us.value = -3",
        "coefficients.prompt_token_us is missing",
        "correlations[0][0] = 2",
        "host.queueing_us = -1",
        "scatter.step = -0.1",
    ];
    assert_eq!(problems.len(), said.len(), "{problems:?}");
    for (problem, said) in problems.iter().zip(said) {
        assert!(problem.starts_with(said), "'{said}' is not in {problem}");
    }
}

#[test]
fn other_keys_and_torn_files_are_refused_by_name() {
    let refused = |text: &str| match Correction::from_toml_str("bad.toml", text) {
        Err(error) if error.location().unwrap().path == "bad.toml" => error.to_string(),
        other => panic!("{other:?}"),
    };
    for section in ["host", "scatter", "source"] {
        let text = changed(|file| {
            file[section].as_table_mut().unwrap().insert("colour".to_owned(), 1.0.into());
        });
        assert!(refused(&text).contains("colour"), "{section}");
    }
    assert!(refused(&with(Term::Steps, |of| drop(of.insert("colour".to_owned(), 1.0.into())))).contains("colour"));
    assert!(refused(&with(Term::Steps, |of| drop(of.remove("sd")))).contains("sd"));
    let whole = Correction::neutral().to_toml_string().unwrap();
    assert!(!refused(&whole[..whole.len() / 2]).is_empty() && refused("").contains("level"));
}
