package ridgepoint

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"ridgepoint/tables"
)

// The ridgepoint command beside the library: RIDGEPOINT_BIN says where it is.
func command(t *testing.T, stdin string, arguments ...string) []byte {
	t.Helper()
	path := os.Getenv("RIDGEPOINT_BIN")
	if path == "" {
		t.Skip("RIDGEPOINT_BIN is not set: test.sh builds the command and sets it")
	}
	run := exec.Command(path, arguments...)
	run.Stdin, run.Stderr = strings.NewReader(stdin), os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%s %v: %v", path, arguments, err)
	}
	return out
}

func TestABreakdownIsWhatTheCommandSays(t *testing.T) {
	const batch = `{"requests": [{"num_computed_tokens": 2048, "num_scheduled_tokens": 1}, {"num_computed_tokens": 700,
		"num_scheduled_tokens": 1}, {"num_computed_tokens": 1024, "num_scheduled_tokens": 512, "samples": false}]}`
	said := command(t, batch, "predict-step", "--model", "llama-3.1-70b", "--hardware", "h100", "--tensor-parallel-size", "4",
		"--max-num-seqs", "128", "--correction", "global", "--batch", "-", "--format", "json")
	m, err := New("llama-3.1-70b", "h100", &Options{Correction: "global", Deployment: Deployment{TensorParallelSize: 4, MaxNumSeqs: 128}})
	if err != nil {
		t.Fatal(err)
	}
	breakdown, err := m.BreakdownJSON([]uint32{2048, 700, 1024}, []uint32{1, 1, 512}, []bool{true, true, false})
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs map[string]any
	if err := json.Unmarshal(breakdown, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said, &theirs); err != nil {
		t.Fatal(err)
	}
	for key := range theirs {
		if !reflect.DeepEqual(ours[key], theirs[key]) {
			t.Errorf("%s: %v, and the command says %v", key, ours[key], theirs[key])
		}
	}
	if len(ours) != len(theirs) || len(theirs) < 20 {
		t.Errorf("%d keys, the command has %d", len(ours), len(theirs))
	}
}

// setups are what exports are judged on.
var setups = []struct {
	model, hardware string
	tensorParallel  int
}{{"llama-3.1-8b", "h100", 1}, {"llama-3.1-70b", "h200", 4}}

// randomBatch is what engines run: decodes alone, or chunks with or without decodes; sizes and lengths spread evenly over their
// logarithm within the default limits, as the export's own batches.
func randomBatch(random *rand.Rand, withChunks bool) []*Request {
	logUniform := func(from, to float64) int {
		return int(math.Round(math.Exp(math.Log(from) + random.Float64()*math.Log(to/from))))
	}
	var batch []*Request
	left := 8192
	if !withChunks || random.Intn(5) > 0 {
		usual := float64(logUniform(32, 16384))
		for n := logUniform(1, 256); n > 0; n-- {
			computed := min(max(int(usual*(0.5+random.Float64())), 1), 16384)
			batch = append(batch, &Request{NumComputedTokens: computed, NumScheduledTokens: 1})
			left--
		}
	}
	if !withChunks {
		return batch
	}
	for n := 1 + random.Intn(3); n > 0 && left >= 16 && len(batch) < 256; n-- {
		chunk := &Request{NumScheduledTokens: logUniform(16, float64(left)), Partial: random.Intn(2) == 0}
		if random.Intn(2) == 0 {
			chunk.NumComputedTokens = logUniform(16, 16384)
		}
		left -= chunk.NumScheduledTokens
		batch = append(batch, chunk)
	}
	return batch
}

func TestExportedTablesAgreeWithTheLibraryWithinTheirStatedError(t *testing.T) {
	for _, setup := range setups {
		out := filepath.Join(t.TempDir(), "export.json")
		command(t, "", "fit", "--export", "json", "--model", setup.model, "--hardware", setup.hardware, "--tensor-parallel-size",
			fmt.Sprint(setup.tensorParallel), "--out", out)
		exported, err := tables.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(setup.model, setup.hardware, &Options{Deployment: Deployment{TensorParallelSize: setup.tensorParallel}})
		if err != nil {
			t.Fatal(err)
		}
		stated := exported.ExportError()
		for withChunks, stated := range map[bool]tables.Errors{false: stated.DecodeOnly, true: stated.WithChunks} {
			random := rand.New(rand.NewSource(7))
			errorsPct := make([]float64, 300)
			for i := range errorsPct {
				computed, scheduled, samples := columns(randomBatch(random, withChunks))
				us, err := exported.StepTimeUs(computed, scheduled, samples)
				exactUs, exactErr := m.StepTimeUs(computed, scheduled, samples)
				if err != nil || exactErr != nil {
					t.Fatal(err, exactErr)
				}
				errorsPct[i] = 100 * math.Abs(us/exactUs-1)
			}
			sort.Float64s(errorsPct)
			median, p90, most := errorsPct[150], errorsPct[270], errorsPct[299]
			t.Logf("%s, chunks %v: median %.2f, p90 %.2f, largest %.2f %%; stated %.2f, %.2f, %.2f %%", setup.model, withChunks,
				median, p90, most, stated.MedianApePct, stated.P90ApePct, stated.MaxApePct)
			// Other batches of the same kind as those that the export was judged on: about the same errors.
			if median > 2*stated.MedianApePct || p90 > 1.5*stated.P90ApePct || errorsPct[294] > stated.MaxApePct {
				t.Errorf("%s, chunks %v: beyond the stated error", setup.model, withChunks)
			}
		}
		for _, us := range [][2]int64{
			{exported.OutputTokenProcessingTime(), m.OutputTokenProcessingTime()},
			{exported.SchedulingProcessingTime(), m.SchedulingProcessingTime()},
			{exported.PreemptionProcessingTime(), m.PreemptionProcessingTime()},
			{exported.QueueingTime(&Request{NumScheduledTokens: 777}), m.QueueingTime(&Request{NumScheduledTokens: 777})},
		} {
			if us[0] != us[1] {
				t.Errorf("a delay of %d us is exported as %d us", us[1], us[0])
			}
		}
	}
}

// The Go file of an export is vetted, compiled and gives the same times as its JSON.
func TestTheExportedGoFileAgreesWithTheTables(t *testing.T) {
	const program = `package main

import (
	"encoding/json"
	"os"

	ridgepoint "exported/ridgepoint"
)

func main() {
	var batches [][]ridgepoint.Request
	if err := json.NewDecoder(os.Stdin).Decode(&batches); err != nil {
		panic(err)
	}
	times := []float64{ridgepoint.QueueingTimeUs(777), ridgepoint.OutputTokenProcessingTimeUs(),
		ridgepoint.SchedulingProcessingTimeUs(), ridgepoint.PreemptionProcessingTimeUs()}
	for _, batch := range batches {
		times = append(times, ridgepoint.StepTimeUs(batch))
	}
	if err := json.NewEncoder(os.Stdout).Encode(times); err != nil {
		panic(err)
	}
}
`
	folder := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(folder, "ridgepoint"), 0o755))
	must(os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module exported\n\ngo 1.21\n"), 0o644))
	must(os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o644))
	for format, file := range map[string]string{"go": "ridgepoint/ridgepoint.go", "json": "export.json"} {
		command(t, "", "fit", "--export", format, "--model", "llama-3.1-70b", "--hardware", "h100", "--tensor-parallel-size", "4",
			"--out", filepath.Join(folder, file))
	}
	exported, err := tables.Load(filepath.Join(folder, "export.json"))
	must(err)

	random := rand.New(rand.NewSource(3))
	batches := [][]*Request{{}, {{NumComputedTokens: 4}}, {{NumScheduledTokens: 1}}, {{NumComputedTokens: 9, NumScheduledTokens: 100_000}}}
	for i := 0; i < 300; i++ {
		batches = append(batches, append(randomBatch(random, i%2 == 0), &Request{NumComputedTokens: 50}))
	}
	in, err := json.Marshal(batches)
	must(err)
	run := func(stdin string, arguments ...string) []byte {
		t.Helper()
		c := exec.Command("go", arguments...)
		c.Dir, c.Stdin, c.Stderr = folder, strings.NewReader(stdin), os.Stderr
		out, err := c.Output()
		must(err)
		return out
	}
	run("", "vet", "./...")
	var times []float64
	must(json.Unmarshal(run(string(in), "run", "."), &times))
	if len(times) != 4+len(batches) || math.Abs(times[0]-float64(exported.QueueingTime(&Request{NumScheduledTokens: 777}))) > 0.5 {
		t.Fatalf("%d times, %v", len(times), times[:4])
	}
	for i, batch := range batches {
		us, err := exported.StepTimeUs(columns(batch))
		must(err)
		if got := times[4+i]; math.Abs(got-us) > 1e-9*us {
			t.Errorf("batch %d: %v us in the Go file, %v in the JSON", i, got, us)
		}
	}
}
