//! What a user can say to ridgepoint, each thing described once. An [`Argument`] is a row: the engine's own name, other names, the
//! kind of value, the default, what it needs and excludes, and whether it is modelled. From the rows follow the readers of files and
//! bodies, the flags of the command, the schemas of the server and the tables in the documents. Uses `engine`, `hardware`, `input`.

mod kind;
mod read;

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::engine::Engine;
use crate::hardware::Hardware;

pub use kind::Kind;
pub use read::{ArgumentRows, Given, spelled};

/// Serving engines that an argument belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engines(u8);

impl Engines {
    /// vLLM.
    pub const VLLM: Engines = Engines(1);
    /// SGLang.
    pub const SGLANG: Engines = Engines(2);
    /// TensorRT-LLM.
    pub const TRTLLM: Engines = Engines(4);
    /// All of them, and what is no engine's, such as a load.
    pub const ALL: Engines = Engines(7);

    /// These engines and others.
    #[must_use]
    pub const fn and(self, others: Engines) -> Engines {
        Engines(self.0 | others.0)
    }

    /// The one that an engine is.
    pub fn of(engine: &Engine) -> Engines {
        match engine.name() {
            "sglang" => Engines::SGLANG,
            "trtllm" => Engines::TRTLLM,
            _ => Engines::VLLM,
        }
    }

    /// Returns whether one of these engines is among `others`.
    pub const fn meets(self, others: Engines) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns the names of the engines.
    pub fn names(self) -> Vec<&'static str> {
        let all = [(Engines::VLLM, "vllm"), (Engines::SGLANG, "sglang"), (Engines::TRTLLM, "trtllm")];
        all.into_iter().filter(|(engine, _)| engine.meets(self)).map(|(_, name)| name).collect()
    }
}

/// What an argument changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentSupport {
    /// It is modelled.
    Modelled,
    /// It has no influence on times, and is accepted whatever its value is.
    WithoutInfluence,
    /// It has an influence on times that is small or rare and not modelled: a value that switches something on is noted. The text continues
    /// the name and the value.
    Noted(&'static str),
    /// It has an influence that is not modelled: a value that switches something on is refused. The text says why, as in "is not modelled:
    /// there are no LoRA adapters".
    NotModelled(&'static str),
}

/// The section of help and documents that an argument is listed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Section {
    /// The model and the GPU.
    Server,
    /// Engine arguments that a step depends on.
    Deployment,
    /// Engine arguments of the scheduler and the KV cache.
    Scheduler,
    /// How steps are predicted.
    Prediction,
    /// The requests that clients send.
    Load,
}

impl Section {
    /// Returns the name of the section in documents and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Server => "server",
            Section::Deployment => "deployment",
            Section::Scheduler => "scheduler",
            Section::Prediction => "prediction",
            Section::Load => "load",
        }
    }
}

/// What a default may depend on.
#[derive(Debug, Clone, Copy)]
pub struct ServedOn<'a> {
    /// The engine, with its version.
    pub engine: &'a Engine,
    /// The GPU.
    pub hardware: &'a Hardware,
}

/// A default that the engine chooses by its version or by the GPU; `None` where the field's own default holds.
pub type DefaultRule = fn(&ServedOn<'_>) -> Option<Value>;

/// One thing that a user can say. Rows are made by [`Argument::new`] and the methods after it, in constants.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// The engine's own name, with underscores.
    pub name: &'static str,
    /// Other names of the same setting.
    pub aliases: &'static [&'static str],
    /// Section of help and documents.
    pub section: Section,
    /// What a value is.
    pub kind: Kind,
    /// How messages complete "must be …", where the kind alone does not say enough.
    pub must_be: Option<&'static str>,
    /// The default or the rule that it follows, in words; empty where none is worth a word.
    pub default: &'static str,
    /// The rule that the default follows, if one value does not hold for all engines and GPUs.
    pub rule: Option<DefaultRule>,
    /// What a user reads about it: a sentence without its full stop.
    pub help: &'static str,
    /// Placeholder of the value in help, as `N`.
    pub value_name: &'static str,
    /// Arguments without which it cannot be given, with the reason. One of each list is enough.
    pub needs: &'static [(&'static [&'static str], &'static str)],
    /// Arguments with which it cannot be given, with the reason.
    pub excludes: &'static [(&'static str, &'static str)],
    /// Whether it is modelled.
    pub support: ArgumentSupport,
    /// Values of one that is not modelled which switch nothing on, in addition to false, zero, and an empty text, list or object.
    pub off: &'static [&'static str],
    /// Engines that have it.
    pub engines: Engines,
    /// The field that it sets: its name, unless another engine calls the same thing otherwise.
    pub sets: &'static str,
    /// The object in which vLLM nests it, as `compilation_config`; it may be given at the top level as well.
    pub within: Option<&'static str>,
    /// Whether the command has a flag for it.
    pub is_flag: bool,
    /// Whether a source that lacks it is at fault.
    pub is_required: bool,
}

impl Argument {
    /// Returns a row of a modelled argument of vLLM.
    pub const fn new(name: &'static str, section: Section, help: &'static str, kind: Kind) -> Self {
        Argument {
            name,
            aliases: &[],
            section,
            kind,
            must_be: None,
            default: "",
            rule: None,
            help,
            value_name: kind.value_name(),
            needs: &[],
            excludes: &[],
            support: ArgumentSupport::Modelled,
            off: &[],
            engines: Engines::VLLM,
            sets: name,
            within: None,
            is_flag: true,
            is_required: false,
        }
    }

    /// Returns a row of an argument of vLLM without influence on times.
    pub const fn without_influence(name: &'static str) -> Self {
        let row = Argument::new(name, Section::Server, "has no influence on times", Kind::Any);
        Argument { support: ArgumentSupport::WithoutInfluence, ..row }
    }

    /// Returns a row of an argument of vLLM whose influence is noted. `reason` continues the name and the value.
    pub const fn noted(name: &'static str, reason: &'static str) -> Self {
        let row = Argument::new(name, Section::Server, reason, Kind::Any);
        Argument { support: ArgumentSupport::Noted(reason), ..row }
    }

    /// Returns a row of an argument of vLLM whose influence is not modelled. `reason` continues the name.
    pub const fn not_modelled(name: &'static str, reason: &'static str) -> Self {
        Argument {
            support: ArgumentSupport::NotModelled(reason),
            ..Argument::new(name, Section::Server, reason, Kind::Any)
        }
    }

    /// Sets the other names.
    #[must_use]
    pub const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Sets how messages complete "must be …".
    #[must_use]
    pub const fn must_be(mut self, what: &'static str) -> Self {
        self.must_be = Some(what);
        self
    }

    /// Sets the words for the default or the rule that it follows.
    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// Sets the rule that the default follows.
    #[must_use]
    pub const fn rule(mut self, rule: DefaultRule) -> Self {
        self.rule = Some(rule);
        self
    }

    /// Sets the placeholder of the value in help.
    #[must_use]
    pub const fn value(mut self, value_name: &'static str) -> Self {
        self.value_name = value_name;
        self
    }

    /// Sets what it cannot be given without.
    #[must_use]
    pub const fn needs(mut self, needs: &'static [(&'static [&'static str], &'static str)]) -> Self {
        self.needs = needs;
        self
    }

    /// Sets what it cannot be given with.
    #[must_use]
    pub const fn excludes(mut self, excludes: &'static [(&'static str, &'static str)]) -> Self {
        self.excludes = excludes;
        self
    }

    /// Sets the values that switch nothing on.
    #[must_use]
    pub const fn off(mut self, off: &'static [&'static str]) -> Self {
        self.off = off;
        self
    }

    /// Sets the engines that have it.
    #[must_use]
    pub const fn engines(mut self, engines: Engines) -> Self {
        self.engines = engines;
        self
    }

    /// Sets the field that it fills, where another engine calls the same thing otherwise.
    #[must_use]
    pub const fn sets(mut self, field: &'static str) -> Self {
        self.sets = field;
        self
    }

    /// Sets the object in which vLLM nests it.
    #[must_use]
    pub const fn within(mut self, object: &'static str) -> Self {
        self.within = Some(object);
        self
    }

    /// Makes a source that lacks it a fault.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Leaves it out of the command's flags.
    #[must_use]
    pub const fn no_flag(mut self) -> Self {
        self.is_flag = false;
        self
    }

    /// Returns how messages complete "must be …".
    pub fn expected(&self) -> String {
        self.must_be.map_or_else(|| self.kind.expected(), str::to_owned)
    }

    /// Returns whether a key is one of its names.
    pub fn is_named(&self, key: &str) -> bool {
        self.name == key || self.aliases.contains(&key)
    }

    /// Returns the JSON schema of its values.
    pub fn schema(&self) -> serde_json::Value {
        let mut schema = self.kind.schema();
        if let Some(map) = schema.as_object_mut() {
            let default =
                if self.default.is_empty() { String::new() } else { format!(" Defaults to {}.", self.default) };
            map.insert("description".to_owned(), format!("{}.{default}", self.help).into());
        }
        schema
    }
}

/// Returns the default of a field that follows a rule, and notes it; `None` where no rule holds or the field was given.
#[doc(hidden)]
pub fn ruled_default<T: DeserializeOwned>(
    rows: &[Argument],
    field: &str,
    given: &BTreeSet<String>,
    on: &ServedOn<'_>,
    notes: &mut Vec<String>,
) -> Option<T> {
    let rule = rows.iter().find(|row| row.name == field).filter(|_| !given.contains(field))?.rule?;
    let value = rule(on)?;
    notes.push(format!("{field} = {value} is the default of {}", on.engine));
    T::deserialize(value).ok()
}

/// Declares a struct whose fields are arguments, with the rows that describe them.
///
/// Each field is written once: `name: Type = default, "help", kind, method(..)…;`. It expands to the public field with that help as its
/// documentation, to its value in `Default`, to its row in the static list, and to its part of `from_given`.
#[macro_export]
macro_rules! arguments {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident, $(#[$rows_meta:meta])* $rows:ident of $section:expr;
        $( $(#[$field_meta:meta])*
           $field:ident : $type:ty = $default:expr, $help:literal, $kind:expr $(, $method:ident($($value:expr),*))* ; )*
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $( #[doc = concat!($help, ".")] $(#[$field_meta])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )* }
            }
        }

        $(#[$rows_meta])*
        pub static $rows: &[$crate::arguments::Argument] = &[
            $( $crate::arguments::Argument::new(stringify!($field), $section, $help, $kind)$(.$method($($value),*))*, )*
        ];

        impl $name {
            /// Takes the fields from values that were read; those that were not given have their defaults.
            pub fn from_given(given: &$crate::arguments::Given) -> Self {
                $name { $( $field: given.get(stringify!($field)).unwrap_or_else(|| $default), )* }
            }

            /// Takes the defaults that follow a rule for fields that are not among those `given`. A note says which.
            #[must_use]
            pub fn with_ruled_defaults(
                mut self,
                given: &std::collections::BTreeSet<String>,
                on: &$crate::arguments::ServedOn<'_>,
                notes: &mut Vec<String>,
            ) -> Self {
                $( if let Some(value) =
                    $crate::arguments::ruled_default($rows, stringify!($field), given, on, notes) {
                    self.$field = value;
                } )*
                self
            }
        }
    };
}
