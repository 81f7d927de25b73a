// Package ridgepoint predicts the time of one step of an LLM serving engine: a calibrated roofline for mixed batches of prefill chunks
// and decodes. It calls the C library of the same name (cgo).
//
// [Model] satisfies [latency.Model], the five-method interface of a serving simulator; [latency.Adapt] makes it take a simulator's
// own requests. A model never changes, so any number of goroutines may use one at once. Step times take no lock and allocate
// nothing. [Model.KVTransferTime] is a sixth delay: copies of KV blocks between GPU and host. Package tables has the five methods of the
// interface, in pure Go, from exported tables.
package ridgepoint

/*
#cgo CFLAGS: -I${SRCDIR}/../c/include
#include <stdlib.h>
#include "ridgepoint.h"
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"ridgepoint/latency"
)

// Request is one request's share of a step.
type Request = latency.Request

// Deployment has vLLM's engine arguments; zero values are vLLM's defaults.
type Deployment struct {
	TensorParallelSize   int     `json:"tensor_parallel_size,omitempty"`
	PipelineParallelSize int     `json:"pipeline_parallel_size,omitempty"`
	DataParallelSize     int     `json:"data_parallel_size,omitempty"`
	EnableExpertParallel bool    `json:"enable_expert_parallel,omitempty"`
	MaxNumSeqs           int     `json:"max_num_seqs,omitempty"`
	MaxNumBatchedTokens  int     `json:"max_num_batched_tokens,omitempty"`
	MaxModelLen          int     `json:"max_model_len,omitempty"`
	GPUMemoryUtilization float64 `json:"gpu_memory_utilization,omitempty"`
	CPUOffloadGB         float64 `json:"cpu_offload_gb,omitempty"` // GiB of each GPU's weights on the host
	KVCacheDtype         string  `json:"kv_cache_dtype,omitempty"` // "bfloat16", "fp8"; empty: vLLM's auto
	BlockSize            int     `json:"block_size,omitempty"`
	EnforceEager         bool    `json:"enforce_eager,omitempty"`
	GenerationConfig     string  `json:"generation_config,omitempty"` // "auto", "vllm"

	// Sampling parameters in place of those, such as {"temperature": 0}: the server's, or those that all requests set themselves.
	OverrideGenerationConfig map[string]float64 `json:"override_generation_config,omitempty"`

	CudagraphMode           string `json:"cudagraph_mode,omitempty"` // "FULL_AND_PIECEWISE", "FULL", "FULL_DECODE_ONLY", "PIECEWISE", "NONE"
	CudagraphCaptureSizes   []int  `json:"cudagraph_capture_sizes,omitempty"`
	MaxCudagraphCaptureSize int    `json:"max_cudagraph_capture_size,omitempty"`
	AttentionBackend        string `json:"attention_backend,omitempty"` // vLLM's name of it
	DisableCustomAllReduce  bool   `json:"disable_custom_all_reduce,omitempty"`
}

// Options are choices other than model and GPU. The zero value has the defaults.
type Options struct {
	Deployment Deployment
	Correction string // "none", "global", "auto" or the path of a file that `ridgepoint fit` wrote; empty: auto
	Efficiency string // "tables" or "ideal"; empty: tables
	DataDir    string // folder whose models/, hardware/ and bench_data/ come before what is built in
	// Texts in place of files: a config.json, the files next to it, a GPU's TOML file. The names of the model and of the GPU are then
	// labels only.
	ModelConfigJSON, ModelQuantConfigJSON, ModelGenerationConfigJSON, HardwareTOML string
	// The text of a file of measured KV transfers, which `ridgepoint ingest --output-transfers` writes; empty: those of the GPU's link.
	KVTransfersJSON string
}

// Model predicts steps of one model on one GPU in one deployment.
type Model struct {
	handle atomic.Pointer[handle]
	faults latency.Faults
}

var (
	_ latency.ColumnModel = (*Model)(nil)
	_ latency.KVModel     = (*Model)(nil)
)

// handle owns the C library's model. Calls keep it alive, so it is freed when the last of them is done.
type handle struct {
	c       *C.RidgepointModel
	address C.uintptr_t // of the same
	// These are the same for all steps.
	outputTokenUs, schedulingUs, preemptionUs int64
}

// Version is the library's version.
func Version() string { return C.GoString(C.ridgepoint_version()) }

// New returns a model. The name of the model is a built-in one ("llama-3.1-8b"), a Hugging Face id or the path of a config.json. The
// name of the hardware is a built-in one ("h100") or the path of a TOML file. options may be nil. Errors are of type [*Error].
func New(model, hardware string, options *Options) (*Model, error) {
	if options == nil {
		options = &Options{}
	}
	deployment, err := json.Marshal(options.Deployment)
	if err != nil {
		return nil, &Error{Status: InvalidInput, Message: fmt.Sprintf("Deployment: %v", err)}
	}
	var texts cTexts
	defer texts.free()
	name, gpu := texts.required("model", model), texts.required("hardware", hardware)
	c := C.RidgepointOptions{
		deployment_json:              texts.optional("Deployment", string(deployment)),
		correction:                   texts.optional("Correction", options.Correction),
		efficiency:                   texts.optional("Efficiency", options.Efficiency),
		data_dir:                     texts.optional("DataDir", options.DataDir),
		model_config_json:            texts.optional("ModelConfigJSON", options.ModelConfigJSON),
		model_quant_config_json:      texts.optional("ModelQuantConfigJSON", options.ModelQuantConfigJSON),
		model_generation_config_json: texts.optional("ModelGenerationConfigJSON", options.ModelGenerationConfigJSON),
		hardware_toml:                texts.optional("HardwareTOML", options.HardwareTOML),
		kv_transfers_json:            texts.optional("KVTransfersJSON", options.KVTransfersJSON),
	}
	c.struct_size = C.size_t(unsafe.Sizeof(c))
	if texts.err != nil {
		return nil, texts.err
	}
	h := new(handle)
	var text *C.char
	status := C.ridgepoint_model_create(name, gpu, &c, &h.c, &text)
	if err := failed(status, text); err != nil {
		return nil, err
	}
	h.address = C.uintptr_t(uintptr(unsafe.Pointer(h.c)))
	runtime.SetFinalizer(h, func(h *handle) { C.ridgepoint_model_free(h.c) })
	if err := h.askDelays(); err != nil {
		return nil, err
	}
	m := new(Model)
	m.handle.Store(h)
	return m, nil
}

func (h *handle) askDelays() error {
	var us C.double
	var text *C.char
	status := C.ridgepoint_output_token_processing_time_us(h.c, &us, &text)
	if err := failed(status, text); err != nil {
		return err
	}
	h.outputTokenUs = latency.Micros(float64(us))
	status = C.ridgepoint_scheduling_processing_time_us(h.c, &us, &text)
	if err := failed(status, text); err != nil {
		return err
	}
	h.schedulingUs = latency.Micros(float64(us))
	status = C.ridgepoint_preemption_processing_time_us(h.c, &us, &text)
	if err := failed(status, text); err != nil {
		return err
	}
	h.preemptionUs = latency.Micros(float64(us))
	return nil
}

// Close releases the model; it may be called again. Running calls of other goroutines finish; later ones fail with [ErrClosed]. The
// garbage collector frees the memory, also of models that are not closed.
func (m *Model) Close() error {
	if m != nil {
		m.handle.Store(nil)
	}
	return nil
}

// Err returns the first error of a method that answered [latency.NoAnswer], or nil. A nil model, which [New] returns with an error,
// has [ErrClosed].
func (m *Model) Err() error {
	if m == nil {
		return closed
	}
	return m.faults.Err()
}

// open returns the handle, or the error of a closed, zero or nil model.
func (m *Model) open() (*handle, error) {
	if m == nil {
		return nil, closed
	}
	if h := m.handle.Load(); h != nil {
		return h, nil
	}
	return nil, closed
}

// note keeps the error if it is the first, and returns [latency.NoAnswer].
func (m *Model) note(err error) int64 {
	if m == nil {
		return latency.NoAnswer
	}
	return m.faults.Note(err)
}

// cTexts are copies of Go's texts for C, freed together.
type cTexts struct {
	all []*C.char
	err error
}

func (t *cTexts) required(what, text string) *C.char {
	if strings.IndexByte(text, 0) >= 0 && t.err == nil {
		t.err = &Error{Status: InvalidArgument, Message: fmt.Sprintf("%s: %q has a zero byte in it", what, text)}
	}
	c := C.CString(text)
	t.all = append(t.all, c)
	return c
}

// optional returns NULL for an empty text.
func (t *cTexts) optional(what, text string) *C.char {
	if text == "" {
		return nil
	}
	return t.required(what, text)
}

func (t *cTexts) free() {
	for _, text := range t.all {
		C.free(unsafe.Pointer(text))
	}
}
