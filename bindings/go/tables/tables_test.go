package tables

import (
	"errors"
	"math"
	"strings"
	"testing"

	"ridgepoint/latency"
)

// A file with round numbers. Steps of decodes take 100 µs for 1 or 2 of them, 200 for 3 or 4; tokens with chunks take 1 µs each,
// sampled ones 2. A decode attention takes 10 µs per key for 1 decode and 20 for 3, a chunk attention 100 per prompt token for 1
// token and 200 for 3. Both have two calls, and a correction doubles them.
const export = `{
  "version": 5, "ridgepoint_version": "0.1.0", "model": "m", "hardware": "h", "deployment": {}, "efficiency": "tables",
  "correction": {"name": null, "level": "none"},
  "host": {"queueing_us": 3000, "queueing_us_per_token": 2, "output_token_us": 2500.4, "scheduling_us": 1000, "preemption_us": 99.5,
    "scheduling_us_per_running": 0, "scheduling_us_per_waiting": 25, "resume_us": 0},
  "windows": ["full"], "max_decodes": 8, "request_us": 3, "chunk_us": 11, "prompt_token_us": 0,
  "launches": {"captured_tokens": 6, "decodes_us": [0, 700], "chunks_us": [45, 900]}, "query_tile_tokens": 128,
  "row_cells": {"dense_rows": 4, "tiled_rows": 8, "rows_per_tile": 2, "rows_per_wide_cell": 1000},
  "by_decodes": [
    {"us": 0, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 100, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 100, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 200, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 200, "us_per_row": 0, "bound_us": 5000, "bound_us_per_row": 0}, {"us": 300, "us_per_row": 10, "bound_us": 0, "bound_us_per_row": 0}],
  "by_tokens": [
    {"us": 0, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 1, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 2, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 3, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 4, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 5, "us_per_row": 1, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 7, "us_per_row": 1, "bound_us": 0, "bound_us_per_row": 0}, {"us": 9, "us_per_row": 1, "bound_us": 0, "bound_us_per_row": 0}],
  "by_decodes_beside_chunks": [], "by_chunk_tokens": [], "by_chunk_context_tokens": [], "by_chunk_kv_tokens": [],
  "by_sampled": [
    {"us": 0, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 2, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 4, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 6, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0},
    {"us": 8, "us_per_row": 0, "bound_us": 0, "bound_us_per_row": 0}, {"us": 10, "us_per_row": 2, "bound_us": 0, "bound_us_per_row": 0}],
  "decode_knots": [1, 3, 9],
  "decode_attention": [{"window_index": 0, "calls": 2, "weight": 4, "launch_us": 10, "blocks_per_sm": 0.25,
    "call_us": {"axis": {"low": 1, "high": 4, "knots_per_octave": 2},
      "values": [[10, 15, 20, 30, 40], [20, 30, 40, 60, 80], [20, 30, 40, 60, 80]]},
    "bound": {"us_per_pair": 0, "us_per_kv_token": 1, "us_per_query_token": 0}}],
  "chunk_attention": [{"window_index": 0, "calls": 2, "weight": 4, "launch_us": 10, "blocks_per_sm": 0.5, "splits_per_key": 0, "prompt_us": [0, 200, 300],
    "fast": {"launch_us": 0, "tile_us": 0, "tile_us_per_key": 0, "heads_per_sm": 0, "kv_heads_per_sm": 0, "group": 1,
      "kv_bytes_per_token": 0, "query_bytes_per_token": 0, "memory_us_per_byte": 0, "ramp_bytes": 0, "overlap": [1, 1, 1],
      "prompts": {"low": 1, "high": 4, "knots_per_octave": 2}, "fewest_prompts": 1, "windowed": false, "window": 0, "reads_cache": true,
      "residuals": {"axis": {"low": 1, "high": 4, "knots_per_octave": 2},
        "values": [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]}},
    "bound": {"us_per_pair": 0, "us_per_kv_token": 1, "us_per_query_token": 0}, "beside": 0}],
  "kv_transfers": {"gpu_to_cpu": {"latency_us": 20, "bytes_per_s": 50e9}, "cpu_to_gpu": {"latency_us": 30, "bytes_per_s": 40e9},
    "cpu_to_disk": {"latency_us": 100, "bytes_per_s": 5e9}, "disk_to_cpu": {"latency_us": 100, "bytes_per_s": 7e9}, "contention": 0.5}
}`

func parsed(t *testing.T) *Model {
	t.Helper()
	m, err := Parse("export", []byte(export))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTimesByHand(t *testing.T) {
	m := parsed(t)
	for _, test := range []struct {
		name                string
		computed, scheduled []uint32
		samples             []bool
		us                  float64
	}{
		{"nothing", nil, nil, nil, 0},
		{"nothing is scheduled", []uint32{5}, []uint32{0}, nil, 0},
		// 5 keys, 2.5 each: halfway between 25 for 1 decode and 50 for 3; 2 sampled, 2 requests.
		{"two decodes", []uint32{1, 2}, []uint32{1, 1}, nil, 100 + 4 + 6 + 4*37.5},
		{"one of them samples nothing", []uint32{1, 2}, []uint32{1, 1}, []bool{true, false}, 100 + 2 + 6 + 4*37.5},
		{"three decodes and one idle", []uint32{1, 1, 9, 1}, []uint32{1, 1, 0, 1}, nil, 200 + 6 + 9 + 4*40},
		// 16 µs of attention's bound, compared with 5000.
		{"four decodes at the roofline", []uint32{1, 1, 1, 1}, []uint32{1, 1, 1, 1}, nil, 5016},
		{"six decodes share a cell with five", []uint32{1, 1, 1, 1, 1, 1}, []uint32{1, 1, 1, 1, 1, 1}, nil, 310 + 12 + 18 + 4*40},
		{"a chunk", []uint32{0}, []uint32{2}, nil, 2 + 2 + 3 + 11 + 4*300},
		{"a chunk that samples nothing", []uint32{0}, []uint32{2}, []bool{false}, 2 + 3 + 11 + 4*300},
		// Beyond their launches the decode takes 10 µs and the chunk 290: it adds 280 if all of the decode runs concurrently with it, and does with half.
		{"a chunk with a decode", []uint32{0, 1}, []uint32{2, 1}, nil, 3 + 4 + 6 + 11 + 4*20 + 4*(280+290)/2},
		{"two chunks", []uint32{0, 1}, []uint32{2, 3}, nil, 5 + 4 + 6 + 22 + 4*6},
		{"a chunk beyond the graphs waits for its launches", []uint32{0}, []uint32{7}, nil, 900},
	} {
		us, err := m.StepTimeUs(test.computed, test.scheduled, test.samples)
		if err != nil || math.Abs(us-test.us) > 1e-9 {
			t.Errorf("%s: %v us, expected %v; %v", test.name, us, test.us, err)
		}
	}
	for name, batch := range map[string][2][]uint32{
		"a long context":   {{9}, {1}},
		"nine decodes":     {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}},
		"a thousand token": {{0}, {1009}},
	} {
		if us, err := m.StepTimeUs(batch[0], batch[1], nil); !errors.Is(err, ErrBeyond) {
			t.Errorf("%s: %v us, %v", name, us, err)
		}
	}
}

func TestWindowsByHand(t *testing.T) {
	for _, test := range []struct {
		window    string
		keys      uint64
		pairs     float64
		isRefused bool
		earlier   uint64
	}{
		{`"full"`, 13, 13 + 12 + 11 + 10, false, 9},
		// Four queries after nine tokens see three each, and the first sees two earlier ones.
		{`{"sliding": 3}`, 6, 4 * 3, false, 2},
		// Positions 9 to 12 in chunks of four see 2, 3, 4 and 1.
		{`{"chunked": 4}`, 5, 2 + 3 + 4 + 1, false, 1},
		{`"half"`, 0, 0, true, 0}, {`{"sliding": 0}`, 0, 0, true, 0}, {`{"sliding": -1}`, 0, 0, true, 0}, {`null`, 0, 0, true, 0},
	} {
		var w window
		if err := w.UnmarshalJSON([]byte(test.window)); (err != nil) != test.isRefused {
			t.Errorf("%s: %v", test.window, err)
		}
		if test.isRefused {
			continue
		}
		if keys, pairs := 4+w.cachedKeys(9), w.pairs(4, 9); keys != test.keys || pairs != test.pairs || w.cachedKeys(9) != test.earlier {
			t.Errorf("%s: %d keys, %v pairs", test.window, keys, pairs)
		}
	}
}

func TestTheFiveMethods(t *testing.T) {
	m := parsed(t)
	batch := []*latency.Request{{NumComputedTokens: 1, NumScheduledTokens: 1}, {NumComputedTokens: 2, NumScheduledTokens: 1}}
	got := []int64{m.StepTime(batch), m.QueueingTime(&latency.Request{NumScheduledTokens: 10}), m.OutputTokenProcessingTime(),
		m.SchedulingProcessingTime(), m.PreemptionProcessingTime()}
	for i, expected := range []int64{260, 3020, 2500, 1000, 100} {
		if got[i] != expected {
			t.Errorf("method %d: %d, expected %d", i, got[i], expected)
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.StepTime(batch) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	if m.Err() != nil || m.ModelName()+m.HardwareName()+m.RidgepointVersion() != "mh0.1.0" {
		t.Errorf("%v %s", m.Err(), m.ModelName())
	}
	if us := m.StepTime([]*latency.Request{{NumScheduledTokens: -1}}); us != latency.NoAnswer || m.Err() == nil {
		t.Errorf("%d, %v", us, m.Err())
	}
	if _, err := m.StepTimeUs([]uint32{1}, nil, nil); err == nil || !strings.Contains(err.Error(), "unequal") {
		t.Error(err)
	}
}

func TestCopiesOfKVBlocks(t *testing.T) {
	var m latency.KVModel = parsed(t)
	// 30 µs and 4 MB at 40 GB/s; 20 µs and 4 MB at 50 GB/s; 100 µs and 35 MB at 7 GB/s.
	for _, test := range []struct {
		direction latency.TransferDirection
		bytes, us int64
	}{{latency.CPUToGPU, 4_000_000, 130}, {latency.GPUToCPU, 4_000_000, 100}, {latency.DiskToCPU, 35_000_000, 5100}, {latency.CPUToDisk, 0, 100},
		{latency.CPUToGPU, -1, latency.NoAnswer}, {4, 1, latency.NoAnswer}, {-1, 1, latency.NoAnswer}} {
		if us := m.KVTransferTime(test.direction, test.bytes); us != test.us {
			t.Errorf("%+v takes %d µs", test, us)
		}
	}
	if share := m.KVContention(); share != 0.5 {
		t.Errorf("contention %v", share)
	}
	at := strings.Index(export, `"kv_transfers"`)
	without, err := Parse("export", []byte(export[:at]+`"kv_transfers": null}`))
	if err != nil {
		t.Fatal(err)
	}
	if us := without.KVTransferTime(latency.CPUToGPU, 1); us != latency.NoAnswer || !errors.Is(without.Err(), ErrNoLink) {
		t.Errorf("%d, %v", us, without.Err())
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for _, test := range []struct{ from, to, words string }{
		{`"version": 5`, `"version": 1`, "version = 1: this package reads version 5; write the file again with `ridgepoint export`"},
		{`"version": 5`, `"version": 6, "more": []`, "version = 6"},
		{`"version": 5`, `"vision": 2`, "version = 0"},
		{`"model": "m"`, `"model": "m", "modle": "m"`, "modle"},
		{`"request_us": 3, `, ``, "request_us is missing"},
		{`"host": {"queueing_us": 3000, `, `"host": {`, "host.queueing_us is missing"},
		{`"us": 100, "us_per_row": 0, `, `"us": 100, `, "by_decodes[1].us_per_row is missing"},
		{`"bound": {"us_per_pair": 0, `, `"bound": {`, "decode_attention[0].bound.us_per_pair is missing"},
		{`"request_us": 3`, `"request_us": null`, "request_us is missing"},
		{`"request_us": 3`, `"request_us": NaN`, "invalid character"},
		{`"request_us": 3`, `"request_us": 1e999`, "request_us"},
		{`[[10, 15,`, `[[1e99, 15,`, "values"},
		{`[[10, 15,`, `[[null, 15,`, "decode_attention[0].call_us.values has a null"},
		{`"decode_knots": [1, 3, 9]`, `"decode_knots": [1, 1, 9]`, "decode_knots[1] = 1 must be greater than 1"},
		{`"max_decodes": 8`, `"max_decodes": 9`, "decode_knots must go from 1 to above max_decodes = 9"},
		{`"decode_knots": [1, 3, 9]`, `"decode_knots": [1, 9]`, "decode_attention[0].call_us.values has 3 rows: it must have 2"},
		{`[20, 30, 40, 60, 80]]`, `[20, 30]]`, "decode_attention[0].call_us.values[2] has 2 values: it must have one for each of the 5 knots"},
		{`"high": 4`, `"high": 3`, "decode_attention[0].call_us.axis"},
		{`"window_index": 0`, `"window_index": 1`, "decode_attention[0].window_index = 1 must be one of the 1 windows"},
		{`"beside": 0`, `"beside": 1`, "chunk_attention[0].beside = 1"},
		{`"rows_per_tile": 2`, `"rows_per_tile": 0`, "row_cells"},
		{`"windows": ["full"]`, `"windows": ["half"]`, "windows"},
		{`"contention": 0.5}` + "\n}", `"contention": 0.5}`, "export"},
		{`"contention": 0.5}` + "\n}", `"contention": 0.5}` + "\n} {}", "after top-level value"},
		{`"contention": 0.5`, `"contention": 2`, "kv_transfers.contention = 2 must be above 0 and at most 1"},
		{`"latency_us": 30, `, ``, "kv_transfers.cpu_to_gpu.latency_us is missing"},
		{`"bytes_per_s": 40e9`, `"bytes_per_s": 0`, "kv_transfers: link 1"},
	} {
		text := strings.Replace(export, test.from, test.to, 1)
		if text == export {
			t.Fatalf("%s is not in the export", test.from)
		}
		if _, err := Parse("export", []byte(text)); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %v", test.to, err)
		}
	}
	if _, err := Load("nowhere.json"); err == nil || !strings.Contains(err.Error(), "nowhere.json") {
		t.Error(err)
	}
}

func TestAModelWithoutTablesSaysSo(t *testing.T) {
	for _, m := range []*Model{nil, new(Model)} {
		if us := m.StepTime([]*latency.Request{{NumScheduledTokens: 1}}); us != latency.NoAnswer || !errors.Is(m.Err(), ErrEmpty) {
			t.Errorf("%d, %v", us, m.Err())
		}
		if _, err := m.StepTimeUs(nil, nil, nil); !errors.Is(err, ErrEmpty) || !errors.Is(m.Err(), ErrEmpty) {
			t.Errorf("%v, %v", err, m.Err())
		}
		if m.QueueingTime(&latency.Request{}) != -1 || m.QueueingTime(nil) != -1 || m.OutputTokenProcessingTime() != -1 ||
			m.SchedulingProcessingTime() != -1 || m.PreemptionProcessingTime() != -1 || m.KVTransferTime(latency.CPUToGPU, 1) != -1 {
			t.Error("a model without tables answers")
		}
	}
}
