//! Remarks on a user's GPU compared with the built-in ones: measured kernels are found by a GPU's name, whatever its figures are.

use serde_json::Value;

use super::spec::Hardware;

/// Keys that are no figures.
const NAMES: [&str; 5] = ["name", "aliases", "display_name", "sources", "notes"];

impl Hardware {
    /// The same GPU with a note if it has the name of a built-in one but other figures, or its figures under another name.
    pub(super) fn with_mismatch_notes(mut self, builtin: &[Hardware]) -> Hardware {
        if let Some(twin) = builtin.iter().find(|gpu| gpu.name == self.name) {
            let differing = differing(&self, twin);
            if !differing.is_empty() {
                self.notes.push(format!(
                    "{} takes the measured kernels of the built-in GPU of this name, which has other figures: {}",
                    self.name,
                    differing.join(", ")
                ));
            }
        } else if let Some(twin) = builtin.iter().find(|gpu| differing(&self, gpu).is_empty()) {
            self.notes.push(format!(
                "{} has the figures of {}, but kernels are found by name: a file {}.toml takes those measured on it",
                self.name, twin.name, twin.name
            ));
        }
        self
    }
}

/// Figures of `gpu` that differ from the built-in ones, as in `sm_count 130 instead of 132`; those of several parts by their key alone.
fn differing(gpu: &Hardware, builtin: &Hardware) -> Vec<String> {
    let figures = |gpu: &Hardware| serde_json::to_value(gpu).unwrap_or_default();
    let (Value::Object(own), Value::Object(builtin)) = (figures(gpu), figures(builtin)) else { return Vec::new() };
    let differing =
        own.iter().filter(|(key, value)| !NAMES.contains(&key.as_str()) && builtin.get(*key) != Some(value));
    let described = differing.map(|(key, value)| match (value, builtin.get(key)) {
        (Value::Number(new), Some(Value::Number(old))) => format!("{key} {new} instead of {old}"),
        _ => key.clone(),
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_figures_and_changed_names_are_reported() {
        let builtin = [Hardware::find("h100").unwrap(), Hardware::find("h200").unwrap()];
        let notes = |gpu: Hardware| gpu.with_mismatch_notes(&builtin).notes;
        let h200 = || Hardware { notes: Vec::new(), ..builtin[1].clone() };
        assert!(notes(h200()).is_empty());
        assert_eq!(
            notes(Hardware { hbm_bytes_per_s: 2.4e12, interconnect: None, ..h200() }),
            ["h200_sxm takes the measured kernels of the built-in GPU of this name, which has other figures: \
              hbm_bytes_per_s 2400000000000.0 instead of 4800000000000.0, interconnect"]
        );
        assert_eq!(
            notes(Hardware { name: "mine".to_owned(), ..h200() }),
            [
                "mine has the figures of h200_sxm, but kernels are found by name: a file h200_sxm.toml takes those measured on it"
            ]
        );
        assert!(notes(Hardware { name: "mine".to_owned(), hbm_bytes_per_s: 2.4e12, ..h200() }).is_empty());
    }
}
