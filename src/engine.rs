//! The serving engine whose kernels are launched and looked up.

use std::fmt::{Display, Formatter};

use serde::{Serialize, Serializer};

/// Engines whose kernels were measured.
pub const ENGINES: [&str; 3] = ["vllm", "sglang", "trtllm"];

/// A serving engine and its minor version: patch releases share their kernels.
///
/// ```
/// use ridgepoint::Engine;
/// assert_eq!(Engine::default().to_string(), "vllm");
/// assert_eq!(Engine::parse("sglang", Some("0.5.14")), Engine::parse("sglang-0.5", None));
/// assert_eq!(Engine::parse("lmdeploy", None), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Engine {
    name: String,
    /// Major and minor version; `None` takes the newest that was measured on a GPU.
    version: Option<(u32, u32)>,
}

impl Default for Engine {
    /// vLLM, in the newest version that was measured on the GPU.
    fn default() -> Self {
        Engine { name: "vllm".to_owned(), version: None }
    }
}

/// The version of an engine that names none.
const NEWEST: (u32, u32) = (u32::MAX, 0);

/// The measured version nearest to vLLM 0.15.1, whose runs the built-in corrections were fitted to.
const FITTED: (u32, u32) = (0, 14);

impl Engine {
    /// The engine that the built-in corrections were fitted with, and that runs of an unstated version are judged by.
    pub fn fitted() -> Self {
        Engine { version: Some(FITTED), ..Engine::default() }
    }

    /// The engine of a name, `vllm`, `sglang`, `trtllm` or one of these with its version as in `vllm-0.14`, and a version; `None` for
    /// any other.
    pub fn parse(name: &str, version: Option<&str>) -> Option<Self> {
        let lower = name.to_lowercase();
        let (name, own) = lower.split_once('-').map_or((lower.as_str(), None), |(name, own)| (name, Some(own)));
        let name = ENGINES.into_iter().find(|known| *known == name)?.to_owned();
        let version = match version.or(own) {
            Some(version) => Some(minor(version)?),
            None => None,
        };
        Some(Engine { name, version })
    }

    /// Its name without a version: `vllm`, `sglang` or `trtllm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is vLLM.
    pub fn is_vllm(&self) -> bool {
        self.name == "vllm"
    }

    /// Whether it is SGLang.
    pub fn is_sglang(&self) -> bool {
        self.name == "sglang"
    }

    /// Whether it is TensorRT-LLM.
    pub fn is_trtllm(&self) -> bool {
        self.name == "trtllm"
    }

    /// Whether it names its version.
    pub(crate) fn has_version(&self) -> bool {
        self.version.is_some()
    }

    /// Its version as arguments give it, `0.24`; `None` if it names none.
    pub fn version(&self) -> Option<String> {
        self.version.map(|(major, minor)| format!("{major}.{minor}"))
    }

    /// The version of vLLM by which steps are laid out: the newest for vLLM without one, and that of [`Engine::fitted`] for other engines.
    pub fn vllm_version(&self) -> (u32, u32) {
        if self.is_vllm() { self.version.unwrap_or(NEWEST) } else { FITTED }
    }

    /// Whether it is the same engine, of whatever version.
    pub(crate) fn has_name_of(&self, other: &Engine) -> bool {
        self.name == other.name
    }

    /// Whether these kernels are of this engine, and of this version if it has one.
    pub(crate) fn is_served_by(&self, kernels: &Engine) -> bool {
        self.name == kernels.name && self.version.is_none_or(|version| Some(version) == kernels.version)
    }

    /// Whether `kernels` are of another engine, or of vLLM where just one of the two versions is before `version`.
    pub(crate) fn differs_across(&self, kernels: &Engine, version: (u32, u32)) -> bool {
        let has = |engine: &Engine| engine.version.unwrap_or(NEWEST) >= version;
        self.name != kernels.name || (self.is_vllm() && has(self) != has(kernels))
    }

    /// Distance of another engine's kernels: versions of the same engine come first, then other engines in the order of [`ENGINES`].
    pub(crate) fn distance(&self, other: &Engine) -> f64 {
        let (wanted, has) = (self.version.unwrap_or(NEWEST), other.version.unwrap_or_default());
        if self.name != other.name {
            let place = ENGINES.iter().position(|name| *name == other.name).unwrap_or(ENGINES.len());
            return 10.0 + place as f64;
        }
        let place = |(major, minor): (u32, u32)| 1000.0 * f64::from(major) + f64::from(minor);
        let steps = (place(wanted) - place(has)).abs();
        steps / (1.0 + steps)
    }
}

/// The first two numbers of a version; `None` for a text that has none.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.');
    let major = parts.next()?.parse().ok()?;
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    Some((major, parts.next().map_or(Ok(0), |part| digits(part).parse()).ok()?))
}

impl Display for Engine {
    /// The name in `bench_data/` and in series of attention: `vllm-0.14`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.version {
            Some((major, minor)) => write!(f, "{}-{major}.{minor}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_version_comes_first_and_other_engines_last() {
        let engine = |name| Engine::parse(name, None).unwrap();
        let nearest = |wanted: &Engine| {
            let mut folders = ["trtllm-1.3", "sglang-0.5", "vllm-0.24", "vllm-0.14"].map(engine);
            folders.sort_by(|a, b| wanted.distance(a).total_cmp(&wanted.distance(b)));
            folders.map(|folder| folder.to_string())
        };
        assert_eq!(nearest(&Engine::fitted()), ["vllm-0.14", "vllm-0.24", "sglang-0.5", "trtllm-1.3"]);
        assert_eq!(nearest(&engine("vllm-0.20"))[..2], ["vllm-0.24", "vllm-0.14"]);
        assert_eq!(nearest(&engine("vllm"))[0], "vllm-0.24", "without a version the newest");
        assert_eq!(nearest(&engine("vllm-1.0"))[..2], ["vllm-0.24", "vllm-0.14"], "a later major version");
        assert_eq!(nearest(&engine("trtllm"))[..2], ["trtllm-1.3", "vllm-0.24"].map(str::to_owned)[..]);
        let parted = |a: &'static str, b: &'static str| engine(a).differs_across(&engine(b), (0, 16));
        assert!(parted("vllm-0.14", "vllm-0.24") && parted("vllm", "vllm-0.15"));
        assert!(!parted("vllm-0.16", "vllm-0.24") && !parted("vllm-0.14", "vllm-0.15"));
        assert!(parted("vllm-0.14", "sglang-0.5") && !parted("sglang-0.5", "sglang-0.4"));
        assert_eq!(Engine::parse("TRTLLM", Some("1.3.0rc20")), Some(engine("trtllm-1.3")));
        assert_eq!(Engine::parse("vllm", Some("v0.17.0")), Some(engine("vllm-0.17")));
        assert_eq!(Engine::parse("vllm", Some("latest")), None);
    }
}
