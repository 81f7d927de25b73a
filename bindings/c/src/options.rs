//! Options other than model and GPU.

use std::ffi::c_char;
use std::mem::size_of;

use crate::status::Failure;
use crate::text::optional;

/// Options other than model and GPU. Set struct_size to sizeof(RidgepointOptions) and all other fields to NULL (`= {0}` does), then
/// set the fields that should differ. All texts are UTF-8, end with a zero byte, and are only read during the call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RidgepointOptions {
    /// sizeof(RidgepointOptions), so that options can be added without breaking callers compiled against fewer.
    pub struct_size: usize,
    /// A JSON object with vLLM's engine arguments, such as {"tensor_parallel_size": 4, "max_num_seqs": 128}. Arguments left
    /// out have vLLM's defaults, all of them with NULL. Keys: tensor_parallel_size, pipeline_parallel_size, data_parallel_size,
    /// enable_expert_parallel, max_num_seqs, max_num_batched_tokens, max_model_len, gpu_memory_utilization,
    /// cpu_offload_gb, kv_cache_dtype, block_size, enforce_eager, cudagraph_mode, cudagraph_capture_sizes, max_cudagraph_capture_size,
    /// attention_backend, disable_custom_all_reduce, generation_config, override_generation_config. Any other key is an error.
    pub deployment_json: *const c_char,
    /// Correction fitted to measured engine runs: "none", "global", "auto" (the model's own correction if there is one, else
    /// the global one) or the path of a file that `ridgepoint fit` wrote. NULL: "auto", or "none" with ideal efficiency.
    pub correction: *const c_char,
    /// "tables" for calibrated efficiency, "ideal" for the textbook roofline. NULL: "tables".
    pub efficiency: *const c_char,
    /// Folder whose models/, hardware/ and bench_data/ take precedence over the built-in ones. NULL: none.
    pub data_dir: *const c_char,
    /// The text of a Hugging Face config.json; the name of the model then is only its label. NULL: the model is looked up.
    pub model_config_json: *const c_char,
    /// The text of the hf_quant_config.json that belongs to model_config_json, or NULL.
    pub model_quant_config_json: *const c_char,
    /// The text of the generation_config.json that belongs to model_config_json, or NULL.
    pub model_generation_config_json: *const c_char,
    /// The text of a GPU's TOML file; the name of the GPU then is only its label. NULL: the GPU is looked up.
    pub hardware_toml: *const c_char,
    /// The text of a file of measured KV transfers, which `ridgepoint ingest --output-transfers` writes. NULL: a copy takes 20 us, and its
    /// bytes at 85 % of the link between GPU and host.
    pub kv_transfers_json: *const c_char,
}

/// The parsed options.
#[derive(Debug, Default)]
pub(crate) struct Choices<'a> {
    pub(crate) deployment: Option<&'a str>,
    pub(crate) correction: Option<&'a str>,
    pub(crate) efficiency: Option<&'a str>,
    pub(crate) data_dir: Option<&'a str>,
    pub(crate) model_config: Option<&'a str>,
    pub(crate) model_quant_config: Option<&'a str>,
    pub(crate) model_generation_config: Option<&'a str>,
    pub(crate) hardware_toml: Option<&'a str>,
    pub(crate) kv_transfers: Option<&'a str>,
}

impl<'a> Choices<'a> {
    /// # Safety
    /// `options` is NULL or has `struct_size` bytes, and its texts are NULL or end with a zero byte and live for `'a`.
    pub(crate) unsafe fn read(options: *const RidgepointOptions) -> Result<Self, Failure> {
        if options.is_null() {
            return Ok(Choices::default());
        }
        // SAFETY: the caller's struct has at least its size, which comes first in all versions.
        let given_bytes = unsafe { options.cast::<usize>().read_unaligned() };
        let known_bytes = size_of::<RidgepointOptions>();
        if given_bytes < size_of::<usize>() || !given_bytes.is_multiple_of(size_of::<usize>()) || given_bytes > 4096 {
            return Err(Failure::argument(format!(
                "options: struct_size = {given_bytes} must be sizeof(RidgepointOptions), {known_bytes} for this library"
            )));
        }
        let nothing = std::ptr::null();
        let mut known = RidgepointOptions {
            struct_size: 0,
            deployment_json: nothing,
            correction: nothing,
            efficiency: nothing,
            data_dir: nothing,
            model_config_json: nothing,
            model_quant_config_json: nothing,
            model_generation_config_json: nothing,
            hardware_toml: nothing,
            kv_transfers_json: nothing,
        };
        // SAFETY: both sides have as many bytes, and any bytes but those of NULL are the caller's pointers.
        unsafe {
            let to = (&raw mut known).cast::<u8>();
            std::ptr::copy_nonoverlapping(options.cast::<u8>(), to, given_bytes.min(known_bytes));
        }
        for offset in known_bytes..given_bytes {
            // SAFETY: within the struct, by its own size.
            if unsafe { options.cast::<u8>().add(offset).read() } != 0 {
                return Err(Failure::argument(format!(
                    "options: struct_size = {given_bytes}, and something is set that version {} does not know (it knows {known_bytes} bytes); use a newer library",
                    env!("CARGO_PKG_VERSION")
                )));
            }
        }
        // SAFETY: as the caller promises of all texts.
        unsafe {
            Ok(Choices {
                deployment: optional("options.deployment_json", known.deployment_json)?,
                correction: optional("options.correction", known.correction)?,
                efficiency: optional("options.efficiency", known.efficiency)?,
                data_dir: optional("options.data_dir", known.data_dir)?,
                model_config: optional("options.model_config_json", known.model_config_json)?,
                model_quant_config: optional("options.model_quant_config_json", known.model_quant_config_json)?,
                model_generation_config: optional(
                    "options.model_generation_config_json",
                    known.model_generation_config_json,
                )?,
                hardware_toml: optional("options.hardware_toml", known.hardware_toml)?,
                kv_transfers: optional("options.kv_transfers_json", known.kv_transfers_json)?,
            })
        }
    }
}
