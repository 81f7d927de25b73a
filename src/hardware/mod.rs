//! GPUs: datasheet peaks and sizes, read from `hardware/*.toml` (embedded) or a file of the user's, and found by the
//! names people use. An absent key means that the chip lacks it, never zero. Uses `dtype`, `error`, `catalog`.

mod spec;

pub use spec::{Architecture, Hardware, Interconnect, InterconnectKind};
