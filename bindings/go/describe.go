package ridgepoint

/*
#include "ridgepoint.h"
*/
import "C"

import (
	"encoding/json"
	"runtime"
)

// Step is a predicted step. Times in microseconds.
type Step struct {
	StepTimeUs   float64 `json:"step_time_us"`
	LowerUs      float64 `json:"lower_us"` // from here to UpperUs: the 90 % interval
	UpperUs      float64 `json:"upper_us"`
	BoundUs      float64 `json:"bound_us"` // the roofline's
	TotalFlops   float64 `json:"total_flops"`
	TotalBytes   float64 `json:"total_bytes"`
	MFU          float64 `json:"mfu"`
	MBU          float64 `json:"mbu"`
	PaddedTokens uint64  `json:"padded_tokens"`
	GraphMode    string  `json:"graph_mode"`
	Operators    []Operator
	Warnings     []string
}

// Operator is one operator's part of a step, all calls together.
type Operator struct {
	Name       string
	Group      *string // nil for what a correction adds
	Count      uint64
	Flops      float64
	Bytes      float64
	Bound      string  // "compute", "memory", "power", "network", "latency"
	TimeUs     float64 `json:"time_us"`
	BoundUs    float64 `json:"bound_us"`
	Efficiency float64
	Share      float64
	Provenance string
}

// Breakdown predicts a step with its operators. Unlike [Model.StepTimeUs] it refuses batches that no engine runs: a step without requests, a
// request that schedules nothing or is longer than the model's limit.
func (m *Model) Breakdown(numComputedTokens, numScheduledTokens []uint32, samples []bool) (*Step, error) {
	text, err := m.BreakdownJSON(numComputedTokens, numScheduledTokens, samples)
	if err != nil {
		return nil, err
	}
	step := new(Step)
	if err := json.Unmarshal(text, step); err != nil {
		return nil, &Error{Internal, err.Error()}
	}
	return step, nil
}

// BreakdownJSON is the complete [Model.Breakdown], under the keys of `ridgepoint predict-step --format json`.
func (m *Model) BreakdownJSON(numComputedTokens, numScheduledTokens []uint32, samples []bool) (json.RawMessage, error) {
	h, err := m.open()
	if err != nil {
		return nil, err
	}
	n := len(numComputedTokens)
	if len(numScheduledTokens) != n || (samples != nil && len(samples) != n) {
		return nil, unequal(n, len(numScheduledTokens), len(samples))
	}
	computed, scheduled, flags := pointers(numComputedTokens, numScheduledTokens, samples)
	var out, text *C.char
	status := C.ridgepoint_step_json(h.c, computed, scheduled, flags, C.size_t(n), &out, &text)
	runtime.KeepAlive(h)
	return taken(out, failed(status, text))
}

// DescriptionJSON returns the model's inputs: model, hardware, deployment, correction, host, notes.
func (m *Model) DescriptionJSON() (json.RawMessage, error) {
	h, err := m.open()
	if err != nil {
		return nil, err
	}
	var out, text *C.char
	status := C.ridgepoint_model_json(h.c, &out, &text)
	runtime.KeepAlive(h)
	return taken(out, failed(status, text))
}

// Catalogue has the names of the built-in models and GPUs.
func Catalogue() (models, hardware []string, err error) {
	var out, text *C.char
	status := C.ridgepoint_catalogue_json(&out, &text)
	listed, err := taken(out, failed(status, text))
	if err != nil {
		return nil, nil, err
	}
	var names struct{ Models, Hardware []string }
	if err := json.Unmarshal(listed, &names); err != nil {
		return nil, nil, &Error{Internal, err.Error()}
	}
	return names.Models, names.Hardware, nil
}

// taken copies a text of the library and frees it.
func taken(text *C.char, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	defer C.ridgepoint_string_free(text)
	return json.RawMessage(C.GoString(text)), nil
}
