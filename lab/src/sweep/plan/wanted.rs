//! What a plan is asked besides servers, loads and limits: `[plan]` of its file.

use std::collections::BTreeMap;

use ridgepoint::input::{Keys, NumberRange};
use serde_json::Value;

/// Most GPUs of a deployment where `gpus` does not say.
pub const MOST_GPUS: u64 = 1_024;
/// Deployments that are listed where `top` does not say.
const TOP: usize = 3;

const TOGETHER: &str = "together";
const APART: &str = "apart";

/// One value for all GPUs, or one for each that is named.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PerGpu<T> {
    All(T),
    Each(BTreeMap<String, T>),
}

impl<T: Copy> PerGpu<T> {
    /// The value of a GPU, by its own name.
    pub(super) fn of(&self, gpu: &str) -> Option<T> {
        match self {
            PerGpu::All(value) => Some(*value),
            PerGpu::Each(values) => values.get(gpu).copied(),
        }
    }

    /// The values by the GPUs' own names, as `name_of` finds them.
    pub(super) fn named(self, mut name_of: impl FnMut(&str) -> Option<String>) -> Self {
        match self {
            PerGpu::All(value) => PerGpu::All(value),
            PerGpu::Each(values) => {
                PerGpu::Each(values.into_iter().filter_map(|(name, value)| Some((name_of(&name)?, value))).collect())
            }
        }
    }
}

/// What a plan is asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    /// GPUs that there are, or that may be bought.
    pub(super) gpus: PerGpu<u64>,
    /// Price of a GPU, per hour in any currency; `None` ranks by the number of GPUs.
    pub(super) price_per_gpu_hour: Option<PerGpu<f64>>,
    /// The load may grow by this share.
    pub(super) growth: f64,
    /// Whether each replica may compute its own prompts, and whether others may.
    pub(super) together: bool,
    /// See above.
    pub(super) apart: bool,
    /// Deployments to list.
    pub(super) top: usize,
}

/// Reads `[plan]`.
pub(super) fn read(keys: &Keys<'_>) -> Wanted {
    let gpus = per_gpu(keys, "gpus", "a whole number of at least 1, or one for each GPU as in { h200 = 4 }", |value| {
        value.as_u64().filter(|gpus| *gpus > 0)
    });
    let price = per_gpu(
        keys,
        "price_per_gpu_hour",
        "a price of at least 0, or one for each GPU as in { h200 = 3.5 }",
        |value| value.as_f64().filter(|price| (0.0..=1e9).contains(price)),
    );
    let pools = keys.read("pools", "together, apart, or a list of both", |value| {
        let named: Vec<&str> = match value {
            Value::Array(several) => several.iter().map(Value::as_str).collect::<Option<_>>()?,
            one => vec![one.as_str()?],
        };
        let is_known = !named.is_empty() && named.iter().all(|name| [TOGETHER, APART].contains(name));
        is_known.then(|| (named.contains(&TOGETHER), named.contains(&APART)))
    });
    let (together, apart) = pools.unwrap_or((true, false));
    Wanted {
        gpus: gpus.unwrap_or(PerGpu::All(MOST_GPUS)),
        price_per_gpu_hour: price,
        together,
        apart,
        growth: keys.number("growth", NumberRange::from_zero(100.0, "as a share of the load")).unwrap_or(0.0),
        top: keys.whole("top", 1..=100).unwrap_or(TOP),
    }
}

fn per_gpu<T>(keys: &Keys<'_>, key: &str, expected: &str, one: impl Fn(&Value) -> Option<T>) -> Option<PerGpu<T>> {
    keys.read(key, expected, |value| match value {
        Value::Object(each) if each.is_empty() => None,
        Value::Object(each) => {
            let values = each.iter().map(|(gpu, value)| Some((gpu.clone(), one(value)?)));
            values.collect::<Option<BTreeMap<_, _>>>().map(PerGpu::Each)
        }
        _ => one(value).map(PerGpu::All),
    })
}
