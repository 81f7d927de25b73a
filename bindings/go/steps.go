package ridgepoint

/*
#include "ridgepoint.h"

// Returns the time, or -1, so that no output pointer into Go's memory is needed. The model is passed as an address, because cgo checks
// every pointer that it is given.
static double step_time_us(uintptr_t model, const uint32_t *num_computed_tokens, const uint32_t *num_scheduled_tokens,
                           const uint8_t *samples, size_t num_requests) {
  double us = -1;
  ridgepoint_step_time_us((const RidgepointModel *)model, num_computed_tokens, num_scheduled_tokens, samples, num_requests,
                          &us, NULL);
  return us;
}
*/
import "C"

import (
	"runtime"
	"unsafe"

	"ridgepoint/latency"
)

// StepTime is the time of one engine step on the GPUs, in whole microseconds ([latency.Micros]); 0 for nothing to do. Requests that
// schedule nothing are ignored. A nil request, a number of tokens that is negative or beyond 32 bits, and a closed model return
// [latency.NoAnswer]; [Model.Err] has the reason.
func (m *Model) StepTime(batch []*Request) int64 {
	columns := latency.GetColumns(len(batch))
	if err := columns.Fill(batch); err != nil {
		columns.Put()
		return m.note(argument("%v", err))
	}
	us, err := m.StepTimeUs(columns.NumComputedTokens, columns.NumScheduledTokens, columns.Samples)
	columns.Put()
	if err != nil {
		return m.note(err)
	}
	return latency.Micros(us)
}

// StepTimeColumns is [Model.StepTime] of requests as columns: request i is the i-th value of each; samples may be nil if all
// requests sample a token.
func (m *Model) StepTimeColumns(numComputedTokens, numScheduledTokens []uint32, samples []bool) (int64, error) {
	us, err := m.StepTimeUs(numComputedTokens, numScheduledTokens, samples)
	if err != nil {
		return latency.NoAnswer, err
	}
	return latency.Micros(us), nil
}

// StepTimeUs is [Model.StepTimeColumns] before rounding, in microseconds.
func (m *Model) StepTimeUs(numComputedTokens, numScheduledTokens []uint32, samples []bool) (float64, error) {
	h, err := m.open()
	if err != nil {
		return 0, err
	}
	n := len(numComputedTokens)
	if len(numScheduledTokens) != n || (samples != nil && len(samples) != n) {
		return 0, unequal(n, len(numScheduledTokens), len(samples))
	}
	computed, scheduled, flags := pointers(numComputedTokens, numScheduledTokens, samples)
	us := float64(C.step_time_us(h.address, computed, scheduled, flags, C.size_t(n)))
	if us < 0 {
		us, err = h.stepTimeUsOrWhyNot(computed, scheduled, flags, n)
	}
	runtime.KeepAlive(h)
	return us, err
}

func (h *handle) stepTimeUsOrWhyNot(computed, scheduled *C.uint32_t, samples *C.uint8_t, n int) (float64, error) {
	var us C.double
	var text *C.char
	status := C.ridgepoint_step_time_us(h.c, computed, scheduled, samples, C.size_t(n), &us, &text)
	return float64(us), failed(status, text)
}

// StepTimesUs fills out with the times of many steps, in microseconds: step i has the requests from offsets[i] up to, but not
// including, offsets[i+1]. There is one offset more than steps; the first is 0, the last the number of requests. An error
// leaves out unchanged.
func (m *Model) StepTimesUs(offsets []int, numComputedTokens, numScheduledTokens []uint32, samples []bool, out []float64) error {
	h, err := m.open()
	if err != nil {
		return err
	}
	n := len(numComputedTokens)
	if len(numScheduledTokens) != n || (samples != nil && len(samples) != n) {
		return unequal(n, len(numScheduledTokens), len(samples))
	}
	if len(offsets) != len(out)+1 {
		return argument("%d offsets for %d steps: there must be one more", len(offsets), len(out))
	}
	computed, scheduled, flags := pointers(numComputedTokens, numScheduledTokens, samples)
	var text *C.char
	status := C.ridgepoint_step_times_us(h.c, (*C.size_t)(unsafe.Pointer(&offsets[0])), C.size_t(len(out)), computed, scheduled,
		flags, C.size_t(n), (*C.double)(unsafe.SliceData(out)), &text)
	runtime.KeepAlive(h)
	return failed(status, text)
}

func pointers(computed, scheduled []uint32, samples []bool) (*C.uint32_t, *C.uint32_t, *C.uint8_t) {
	return (*C.uint32_t)(unsafe.SliceData(computed)), (*C.uint32_t)(unsafe.SliceData(scheduled)),
		(*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(samples)))
}

func unequal(computed, scheduled, samples int) error {
	return argument("columns of unequal length: %d values of numComputedTokens, %d of numScheduledTokens, %d of samples (nil for all)",
		computed, scheduled, samples)
}

// QueueingTime is the time from a request's sending until the engine can schedule it. The request is the prompt as it arrives:
// nothing computed, all of it to schedule.
func (m *Model) QueueingTime(request *Request) int64 {
	h, err := m.open()
	if err != nil {
		return m.note(err)
	}
	if request == nil {
		return m.note(argument("request is nil"))
	}
	tokens, err := latency.Tokens("NumScheduledTokens", request.NumScheduledTokens)
	if err != nil {
		return m.note(argument("%v", err))
	}
	var us C.double
	var text *C.char
	status := C.ridgepoint_queueing_time_us(h.c, C.uint32_t(tokens), &us, &text)
	runtime.KeepAlive(h)
	if err := failed(status, text); err != nil {
		return m.note(err)
	}
	return latency.Micros(float64(us))
}

// OutputTokenProcessingTime is the time from the end of the step that sampled a token until the client has it.
func (m *Model) OutputTokenProcessingTime() int64 {
	return m.delay(func(h *handle) int64 { return h.outputTokenUs })
}

// SchedulingProcessingTime is the time of the engine's own thread per step.
func (m *Model) SchedulingProcessingTime() int64 {
	return m.delay(func(h *handle) int64 { return h.schedulingUs })
}

// PreemptionProcessingTime is the time of the engine's own thread per request that is preempted.
func (m *Model) PreemptionProcessingTime() int64 {
	return m.delay(func(h *handle) int64 { return h.preemptionUs })
}

// These are the C library's numbers of the directions: an index that is not 0 does not compile.
var (
	_ = [1]struct{}{}[latency.GPUToCPU-C.RIDGEPOINT_TRANSFER_DIRECTION_GPU_TO_CPU]
	_ = [1]struct{}{}[latency.CPUToGPU-C.RIDGEPOINT_TRANSFER_DIRECTION_CPU_TO_GPU]
	_ = [1]struct{}{}[latency.CPUToDisk-C.RIDGEPOINT_TRANSFER_DIRECTION_CPU_TO_DISK]
	_ = [1]struct{}{}[latency.DiskToCPU-C.RIDGEPOINT_TRANSFER_DIRECTION_DISK_TO_CPU]
)

// TransferDirection is [latency.TransferDirection].
type TransferDirection = latency.TransferDirection

// Directions of copies, those of package latency.
const (
	GPUToCPU  = latency.GPUToCPU
	CPUToGPU  = latency.CPUToGPU
	CPUToDisk = latency.CPUToDisk
	DiskToCPU = latency.DiskToCPU
)

// KVTransferTime is the time to copy so many bytes of KV blocks between the GPU and host memory, or host memory and a disk, while nothing else is copied, in whole
// microseconds. The copy runs concurrently with the steps, and a request that loads its blocks waits for it. A GPU whose link to the host is not known,
// a negative number of bytes and an unknown direction return [latency.NoAnswer]; [Model.Err] has the reason.
func (m *Model) KVTransferTime(direction TransferDirection, bytes int64) int64 {
	us, err := m.KVTransferTimeUs(direction, bytes)
	if err != nil {
		return m.note(err)
	}
	return latency.Micros(us)
}

// KVTransferTimeUs is [Model.KVTransferTime] before rounding, in microseconds.
func (m *Model) KVTransferTimeUs(direction TransferDirection, bytes int64) (float64, error) {
	h, err := m.open()
	if err != nil {
		return 0, err
	}
	if bytes < 0 {
		return 0, argument("bytes = %d must be at least 0", bytes)
	}
	if direction < GPUToCPU || direction > DiskToCPU {
		return 0, argument("direction = %d must be GPUToCPU, CPUToGPU, CPUToDisk or DiskToCPU", direction)
	}
	var us C.double
	var text *C.char
	status := C.ridgepoint_kv_transfer_time_us(h.c, C.int(direction), C.uint64_t(bytes), &us, &text)
	runtime.KeepAlive(h)
	return float64(us), failed(status, text)
}

// KVContention is the share of its speed that a direction of copies keeps while the other one copies too: that of
// [Options.KVTransfersJSON], or else 1. A closed model returns 0; [Model.Err] has the reason.
func (m *Model) KVContention() float64 {
	h, err := m.open()
	if err != nil {
		m.note(err)
		return 0
	}
	var share C.double
	var text *C.char
	status := C.ridgepoint_kv_contention(h.c, &share, &text)
	runtime.KeepAlive(h)
	if err := failed(status, text); err != nil {
		m.note(err)
	}
	return float64(share)
}

func (m *Model) delay(of func(*handle) int64) int64 {
	h, err := m.open()
	if err != nil {
		return m.note(err)
	}
	return of(h)
}
