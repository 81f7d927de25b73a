package tables

import (
	"errors"
	"math"
	"strings"
	"testing"

	"ridgepoint/latency"
)

// An export with round numbers: decodes alone take 100 µs up to 2 and 200 up to 4, then 50 each; tokens with chunks 1 µs each.
const export = `{
  "version": 1, "model": "m", "hardware": "h", "deployment": {}, "correction": {"name": null, "level": "none"}, "coefficients": {},
  "host": {"queueing_us": 3000, "queueing_us_per_token": 2, "output_token_us": 2500.4, "scheduling_us": 1000, "preemption_us": 99.5},
  "decode_only": {"at": [2, 4, 8], "time_us": [100, 200, 400], "padded_up_to": 4},
  "with_chunks": {"at": [1, 1000], "time_us": [1, 1000], "padded_up_to": 0},
  "sampled": {"at": [1], "time_us": [7], "padded_up_to": 0},
  "decode_attention": {"rows": [1, 3], "columns": [0, 100], "time_us": [[10, 20], [30, 80]]},
  "chunk_attention": {"rows": [100], "columns": [0, 200], "time_us": [[40, 60]]},
  "further_chunk_attention": {"rows": [100], "columns": [0], "time_us": [[5]]},
  "saved_beside_decodes_us": 15,
  "prices": {"step_us": 1000, "step_with_chunks_us": 500, "request_us": 3, "token_us": 0.5, "chunk_us": 11, "sampled_us": 2},
  "error": {"decode_only": {"batches": 1, "median_ape_pct": 0.1, "p90_ape_pct": 0.2, "max_ape_pct": 0.3},
            "with_chunks": {"batches": 1, "median_ape_pct": 1, "p90_ape_pct": 2, "max_ape_pct": 3}}
}`

func parsed(t *testing.T) *Model {
	t.Helper()
	m, err := Parse("export", []byte(export))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStepsByHand(t *testing.T) {
	m := parsed(t)
	for _, test := range []struct {
		name                string
		computed, scheduled []uint32
		samples             []bool
		us                  float64
	}{
		{"nothing", nil, nil, nil, 0},
		{"nothing is scheduled", []uint32{5}, []uint32{0}, nil, 0},
		// Price 1000 + 2·3 + 2·0.5 + 2·2; attention between rows 1 and 3 and columns 0 and 100 is (15 + 55)/2; graph of 2.
		{"two decodes of 50", []uint32{20, 80}, []uint32{1, 1}, nil, 1011 + 35 + 100},
		// Padded to 4. Attention of row 3 at column 100.
		{"three decodes and one idle", []uint32{100, 100, 9, 100}, []uint32{1, 1, 0, 1}, nil, 1016.5 + 80 + 200},
		// 50 each beyond 4; attention goes on: rows by 15 a step at column 0, by 30 at 100.
		{"six decodes of 100", []uint32{100, 100, 100, 100, 100, 100}, []uint32{1, 1, 1, 1, 1, 1}, nil, 1033 + 170 + 300},
		// Price 1000 + 500 + 3 + 50 + 11; pairs 100·100 + 5000, so c = 150 - 50 = 100: 50; 100 tokens.
		{"a chunk that samples nothing", []uint32{100}, []uint32{100}, []bool{false}, 1564 + 50 + 100},
		// As above with the sampled token's 2 + 7, and a decode: 3 + 0.5 + 2 + attention 10 + 1 token; 15 are saved.
		{"a chunk beside a decode", []uint32{100, 1}, []uint32{100, 1}, nil, 1564 + 50 - 15 + 101 + 2 + 7 + 3 + 0.5 + 2 + 10.1},
		// Two chunks of 100 at 0: 40 + 5; 200 tokens, both sampled.
		{"two chunks", []uint32{0, 0}, []uint32{100, 100}, nil, 1000 + 500 + 6 + 100 + 22 + 4 + 45 + 200 + 7},
	} {
		us, err := m.StepTimeUs(test.computed, test.scheduled, test.samples)
		if err != nil || math.Abs(us-test.us) > 1e-9 {
			t.Errorf("%s: %v us, expected %v; %v", test.name, us, test.us, err)
		}
	}
}

func TestTheFiveMethods(t *testing.T) {
	m := parsed(t)
	batch := []*latency.Request{{NumComputedTokens: 20, NumScheduledTokens: 1}, {NumComputedTokens: 80, NumScheduledTokens: 1}}
	got := []int64{m.StepTime(batch), m.QueueingTime(&latency.Request{NumScheduledTokens: 10}), m.OutputTokenProcessingTime(),
		m.SchedulingProcessingTime(), m.PreemptionProcessingTime()}
	for i, expected := range []int64{1146, 3020, 2500, 1000, 100} {
		if got[i] != expected {
			t.Errorf("method %d: %d, expected %d", i, got[i], expected)
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.StepTime(batch) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	if m.Err() != nil || m.ExportError().WithChunks.MaxApePct != 3 || m.ModelName()+m.HardwareName() != "mh" {
		t.Errorf("%v %+v", m.Err(), m.ExportError())
	}
	if us := m.StepTime([]*latency.Request{{NumScheduledTokens: -1}}); us != latency.NoAnswer || m.Err() == nil {
		t.Errorf("%d, %v", us, m.Err())
	}
	if _, err := m.StepTimeUs([]uint32{1}, nil, nil); err == nil || !strings.Contains(err.Error(), "unequal") {
		t.Error(err)
	}
}

func TestFilesThatAreNoneAreRefused(t *testing.T) {
	for _, test := range []struct{ from, to, words string }{
		{`"version": 1`, `"version": 2`, "version = 2"},
		{`"version": 1`, `"vision": 1`, "vision"},
		{`"step_us": 1000, `, ``, "prices.step_us is missing"},
		{`"host": {"queueing_us": 3000, `, `"host": {`, "host.queueing_us is missing"},
		{`"step_us": 1000`, `"step_us": -1`, "prices.step_us = -1"},
		{`"step_us": 1000`, `"step_us": NaN`, "export"},
		{`"step_us": 1000`, `"step_us": 1e999`, "export"},
		{`"at": [2, 4, 8]`, `"at": [2, 2, 8]`, "decode_only.at[1] = 2 must be greater than 2"},
		{`"time_us": [100, 200, 400]`, `"time_us": [100, 200]`, "decode_only.time_us has 2 values"},
		{`"time_us": [7]`, `"time_us": [-7]`, "sampled.time_us[0] = -7"},
		{`"rows": [1, 3]`, `"rows": []`, "decode_attention.rows is empty"},
		{`[[10, 20], [30, 80]]`, `[[10, 20], [30]]`, "decode_attention.time_us[1] has 1 values"},
		{`"max_ape_pct": 3}}`, `"max_ape_pct": 3}`, "export"},
		{`"max_ape_pct": 3}}` + "\n}", `"max_ape_pct": 3}}` + "\n} {}", "something follows"},
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
			m.SchedulingProcessingTime() != -1 || m.PreemptionProcessingTime() != -1 {
			t.Error("a model without tables answers")
		}
	}
}
