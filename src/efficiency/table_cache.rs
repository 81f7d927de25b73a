//! The tables that were read, by GPU and operator.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::error::Result;

use super::family::Family;
use super::gemm_model::GemmModel;
use super::kernel_model::{AllReduceModel, DecodeModel, MoeModel, PrefillModel};
use super::table::Table;

/// Tables of one operator by GPU; `None` for a GPU that has none.
pub type TablesOf<F> = Mutex<BTreeMap<String, Option<Arc<Table<F>>>>>;

/// The tables that were read of one source, by operator.
#[derive(Default)]
pub struct TableCache {
    pub(super) gemm: TablesOf<GemmModel>,
    pub(super) attention_prefill: TablesOf<PrefillModel>,
    pub(super) attention_decode: TablesOf<DecodeModel>,
    pub(super) moe: TablesOf<MoeModel>,
    pub(super) allreduce: TablesOf<AllReduceModel>,
}

/// The built-in tables, which never change, are read once per process: a sweep makes thousands of step models.
pub(super) static BUILT_IN: LazyLock<TableCache> = LazyLock::new(TableCache::default);

impl TableCache {
    /// The table of `gpu`, which `read` reads on first use.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn get<F: Family>(
        &self,
        gpu: &str,
        read: impl FnOnce() -> Result<Option<Table<F>>>,
    ) -> Result<Option<Arc<Table<F>>>> {
        let lock = || F::tables(self).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(gpu) {
            return Ok(known.clone());
        }
        let table = read()?.map(Arc::new);
        lock().insert(gpu.to_owned(), table.clone());
        Ok(table)
    }
}
