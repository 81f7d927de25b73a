package ridgepoint

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"ridgepoint/tables"
)

// The ridgepoint command, compared with the library: RIDGEPOINT_BIN says where it is.
func command(t testing.TB, stdin string, arguments ...string) []byte {
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

// setups are the models whose exported tables are compared with the library, one for each kind of attention, weights and deployment.
var setups = []struct {
	model, hardware string
	deployment      Deployment
	flags           string
	maxModelLen     int
}{
	{"llama-3.1-8b", "h100", Deployment{}, "", 131072},
	{"mixtral-8x7b", "h100", Deployment{TensorParallelSize: 2}, "--tensor-parallel-size 2", 32768},
	{"deepseek-v3", "h200", Deployment{TensorParallelSize: 8}, "--tensor-parallel-size 8", 163840},
	{"gemma-3-27b", "h100", Deployment{TensorParallelSize: 2, MaxModelLen: 32768}, "--tensor-parallel-size 2 --max-model-len 32768", 32768},
	{"llama-4-scout", "h200", Deployment{TensorParallelSize: 8, MaxModelLen: 65536}, "--tensor-parallel-size 8 --max-model-len 65536", 65536},
	{"qwen3-32b-fp8", "h100", Deployment{MaxNumSeqs: 128}, "--max-num-seqs 128", 40960},
	{"llama-3.1-70b", "h100", Deployment{TensorParallelSize: 2, PipelineParallelSize: 2, EnforceEager: true, MaxNumBatchedTokens: 16384},
		"--tensor-parallel-size 2 --pipeline-parallel-size 2 --enforce-eager --max-num-batched-tokens 16384", 131072},
}

// randomBatch has decodes, prefill chunks with or without context, or both, and idle requests; sizes and lengths are spread evenly
// over their logarithm. Contexts of few batches are longer than the model's.
func randomBatch(random *rand.Rand, maxModelLen int) []*Request {
	logUniform := func(from, to int) int {
		return int(math.Round(float64(from) * math.Pow(float64(to)/float64(from), random.Float64())))
	}
	longest, left := maxModelLen-1, 8192
	if random.Intn(50) == 0 {
		longest *= 3
	}
	hasDecodes, hasChunks := random.Intn(5) > 0, random.Intn(2) == 0
	var batch []*Request
	if hasDecodes || !hasChunks {
		usual := float64(logUniform(1, longest))
		for n := logUniform(1, 1020); n > 0; n-- {
			computed := min(max(int(usual*(0.5+random.Float64())), 1), longest)
			batch = append(batch, &Request{NumComputedTokens: computed, NumScheduledTokens: 1, Partial: random.Intn(2000) == 0})
			left--
		}
	}
	for n := 1 + random.Intn(4); hasChunks && n > 0; n-- {
		chunk := &Request{NumScheduledTokens: min(logUniform(1, left-n), longest), Partial: random.Intn(2) == 0}
		if random.Intn(2) == 0 {
			chunk.NumComputedTokens = min(logUniform(1, longest), longest+1-chunk.NumScheduledTokens)
		}
		left -= chunk.NumScheduledTokens
		batch = append(batch, chunk)
	}
	if random.Intn(10) == 0 {
		batch = append(batch, &Request{NumComputedTokens: logUniform(1, longest), Partial: random.Intn(2) == 0})
	}
	random.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	return batch
}

// isBeyond says whether a batch may be beyond the tables: contexts are longer than the model's, or those of all chunks together
// longer than docs/export.md says.
func isBeyond(batch []*Request, maxModelLen int) bool {
	chunkKeys := 0
	for _, r := range batch {
		if r.NumComputedTokens+r.NumScheduledTokens > maxModelLen {
			return true
		}
		if r.NumScheduledTokens > 1 {
			chunkKeys += r.NumComputedTokens + r.NumScheduledTokens
		}
	}
	return chunkKeys > min(2*maxModelLen, 131072)
}

// RIDGEPOINT_BATCHES: random batches of all models together, 14,000 by default.
func TestExportedTablesAgreeWithTheLibrary(t *testing.T) {
	batches := 14_000
	if text := os.Getenv("RIDGEPOINT_BATCHES"); text != "" {
		var err error
		if batches, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const mostPct = 0.001
	for i, setup := range setups {
		out := filepath.Join(t.TempDir(), "tables.json")
		arguments := []string{"export", "--model", setup.model, "--hardware", setup.hardware, "--out", out}
		command(t, "", append(arguments, strings.Fields(setup.flags)...)...)
		exported, err := tables.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(setup.model, setup.hardware, &Options{Deployment: setup.deployment})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewSource(int64(i)))
		worstPct, numBeyond, count := 0.0, 0, (batches+i)/len(setups)
		for n := 0; n < count; n++ {
			batch := randomBatch(random, setup.maxModelLen)
			computed, scheduled, samples := columns(batch)
			us, err := exported.StepTimeUs(computed, scheduled, samples)
			if errors.Is(err, tables.ErrBeyond) && isBeyond(batch, setup.maxModelLen) {
				numBeyond++
				continue
			}
			exactUs, exactErr := m.StepTimeUs(computed, scheduled, samples)
			if err != nil || exactErr != nil {
				t.Fatalf("%s, batch %d: %v, %v", setup.model, n, err, exactErr)
			}
			errorPct := 100 * math.Abs(us/exactUs-1)
			if exactUs == 0 {
				errorPct = us
			}
			if !(errorPct <= mostPct) {
				t.Errorf("%s, batch %d: %v us, and the library says %v", setup.model, n, us, exactUs)
			}
			worstPct = math.Max(worstPct, errorPct)
		}
		t.Logf("%s on %s %s: %d batches within %.2g %%, %d more beyond the tables", setup.model, setup.hardware, setup.flags,
			count-numBeyond, worstPct, numBeyond)
		if numBeyond*20 > count {
			t.Errorf("%s: too many batches are beyond the tables", setup.model)
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
