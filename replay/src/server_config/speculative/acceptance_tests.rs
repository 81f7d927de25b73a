//! The acceptance that a server's arguments give: its forms and ranges.

use serde_json::{Value, json};

use super::tests::{config_of, file, line_with, refuses};
use super::{GivenAcceptance, RATES_MUST_BE};

#[test]
fn acceptance_is_a_length_or_rates() {
    let acceptance = |engine: &str, values: Value| file(engine, values).unwrap().speculative.unwrap().acceptance;
    let mtp = json!({"method": "mtp", "num_speculative_tokens": 3});
    let with = |key: &str, value: Value| json!({"speculative_config": mtp, key: value});
    let rates = Some(GivenAcceptance::Rates(vec![0.8, 0.6, 0.5]));
    for given in [json!("0.8,0.6,0.5"), json!([0.8, 0.6, 0.5]), json!("[0.8, 0.6, 0.5]"), json!("0.8 0.6 0.5")] {
        assert_eq!(acceptance("vllm", with("acceptance_rates", given)), rates);
    }
    for given in [json!(2.5), json!("2.5")] {
        assert_eq!(acceptance("vllm", with("acceptance-length", given)), Some(GivenAcceptance::Length(2.5)));
    }
    for most in [1, 4] {
        let length = acceptance("vllm", with("acceptance_length", json!(most)));
        assert_eq!(length, Some(GivenAcceptance::Length(f64::from(most))));
    }
    let synthetic = |key: &str, value: Value| {
        let mut config = mtp.as_object().cloned().unwrap();
        config.extend([("rejection_sample_method".to_owned(), json!("synthetic")), (key.to_owned(), value)]);
        json!({"speculative_config": config})
    };
    assert_eq!(acceptance("vllm", synthetic("synthetic_acceptance_rates", json!([0.8, 0.6, 0.5]))), rates);
    let length = acceptance("vllm", synthetic("synthetic_acceptance_length", json!(2)));
    assert_eq!(length, Some(GivenAcceptance::Length(2.0)));
    let sglang = json!({"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4, "acceptance_length": 3.5});
    assert_eq!(acceptance("sglang", sglang), Some(GivenAcceptance::Length(3.5)));
    let trtllm = json!({"speculative_config": {"decoding_type": "MTP"}, "acceptance_rates": 1});
    assert_eq!(acceptance("trtllm", trtllm), Some(GivenAcceptance::Rates(vec![1.0])));
    // A flag replaces what a text says, in whichever form.
    let text = "hardware: h100\nmodel: m\nspec_method: mtp\nacceptance_rates: [0.8]\n";
    let server = line_with(text, json!({"acceptance_length": 1.5})).unwrap();
    assert_eq!(server.speculative.unwrap().acceptance, Some(GivenAcceptance::Length(1.5)));
}

#[test]
fn acceptance_fits_the_drafts() {
    let with = |key: &str, value: Value| {
        let config = json!({"method": "mtp", "num_speculative_tokens": 3});
        file("vllm", json!({"speculative_config": config, key: value}))
    };
    let range = "must be a number from 1 to 4: the drafts of a step, 3, and one more";
    refuses(with("acceptance_length", json!(4.1)), &[&format!("acceptance_length = 4.1 {range}")]);
    let any = "must be a number from 1 to 33, at most one more than the drafted tokens";
    refuses(with("acceptance_length", json!(0.9)), &[&format!("acceptance_length = 0.9 {any}")]);
    let count = "must be 3 shares from 0 to 1, one for each drafted token";
    refuses(with("acceptance_rates", json!("0.8,0.6")), &[&format!("acceptance_rates = \"0.8,0.6\" {count}")]);
    for wrong in ["0.5,0.6,0.4", "1.1,0.6,0.4", "0.8,x,0.4", "0.5,0.4,-0.1", ""] {
        let problem = format!("acceptance_rates = \"{wrong}\" must be {RATES_MUST_BE}");
        refuses(with("acceptance_rates", json!(wrong)), &[&problem]);
    }
    let both = json!({"spec_method": "mtp", "acceptance_length": 1.5, "acceptance_rates": [0.5]});
    let both = file("vllm", both).unwrap_err().to_string();
    assert!(both.contains("acceptance_length = 1.5 cannot be given with acceptance_rates: keep one"), "{both}");
    let differs =
        json!({"acceptance_length": 1.5, "speculative_config": {"method": "mtp", "synthetic_acceptance_length": 1.6}});
    let problem = "acceptance_length = 1.5 and the synthetic acceptance of speculative_config differ: keep one";
    refuses(file("vllm", differs), &[problem]);
    let synthetic = json!({"method": "mtp", "synthetic_acceptance_length": 2.5});
    refuses(
        config_of("vllm", synthetic),
        &[
            "speculative_config.synthetic_acceptance_length = 2.5 must be a number from 1 to 2: the drafts of a step, 1, and one more",
        ],
    );
    for (engine, name) in
        [("vllm", "speculative_config"), ("trtllm", "speculative_config"), ("sglang", "speculative_algorithm")]
    {
        let problem = format!("acceptance_length = 2 needs {name}: nothing is drafted without it");
        refuses(file(engine, json!({"acceptance_length": 2})), &[&problem]);
    }
}
