package ridgepoint

import (
	"errors"
	"math"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ridgepoint/latency"
)

func llama8b(t testing.TB) *Model {
	t.Helper()
	m, err := New("llama-3.1-8b", "h100", nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// decodes are so many decodes on about 1,000 tokens.
func decodes(n int) []*Request {
	batch := make([]*Request, n)
	for i := range batch {
		batch[i] = &Request{NumComputedTokens: 900 + i*37%200, NumScheduledTokens: 1}
	}
	return batch
}

func columns(batch []*Request) (computed, scheduled []uint32, samples []bool) {
	for _, r := range batch {
		computed, scheduled = append(computed, uint32(r.NumComputedTokens)), append(scheduled, uint32(r.NumScheduledTokens))
		samples = append(samples, !r.Partial)
	}
	return computed, scheduled, samples
}

func TestAllFormsOfACallAgree(t *testing.T) {
	m := llama8b(t)
	defer m.Close()
	batch := append(decodes(30), &Request{NumScheduledTokens: 512, Partial: true}, &Request{NumComputedTokens: 5})
	computed, scheduled, samples := columns(batch)
	us, err := m.StepTimeUs(computed, scheduled, samples)
	if err != nil || us < 5000 || us > 50000 {
		t.Fatalf("%v us, %v", us, err)
	}
	whole, err := m.StepTimeColumns(computed, scheduled, samples)
	if err != nil || whole != int64(math.Round(us)) || whole != m.StepTime(batch) {
		t.Errorf("%v us as %d and %d, %v", us, whole, m.StepTime(batch), err)
	}
	rand.New(rand.NewSource(1)).Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	if m.StepTime(batch) != whole {
		t.Error("the order of requests matters")
	}
	all, err := m.StepTimeUs(computed, scheduled, nil)
	if err != nil || all <= us {
		t.Errorf("one more sampled token takes no time: %v and %v us, %v", all, us, err)
	}
	times := []float64{-1, -1, -1}
	if err := m.StepTimesUs([]int{0, 30, 30, 32}, computed, scheduled, samples, times); err != nil {
		t.Fatal(err)
	}
	first, _ := m.StepTimeUs(computed[:30], scheduled[:30], samples[:30])
	last, _ := m.StepTimeUs(computed[30:], scheduled[30:], samples[30:])
	if times[0] != first || times[1] != 0 || times[2] != last {
		t.Errorf("%v, one by one %v, 0, %v", times, first, last)
	}
	if us := m.StepTime(nil); us != 0 || m.Err() != nil {
		t.Errorf("nothing to do takes %d us, %v", us, m.Err())
	}
}

// Chunks that sample nothing anywhere in a batch, also in one that no columns had room for yet.
func TestABatchTakesAsLongAsItsColumns(t *testing.T) {
	m := llama8b(t)
	for _, length := range []int{1, 2, 33, 128, 20_000} {
		for _, partial := range [][]int{{}, {0}, {length / 2}, {length - 1}, {0, length - 1}} {
			batch := decodes(length)
			for _, i := range partial {
				batch[i] = &Request{NumComputedTokens: 64 * i, NumScheduledTokens: 96, Partial: true}
			}
			whole, err := m.StepTimeColumns(columns(batch))
			if us := m.StepTime(batch); us != whole || err != nil || m.Err() != nil {
				t.Errorf("%d requests with chunks at %v: %d us, as columns %d us, %v, %v", length, partial, us, whole, err, m.Err())
			}
		}
	}
}

func TestARequestOutOfRangeIsNamed(t *testing.T) {
	for words, request := range map[string]*Request{
		"request 70 is nil":                             nil,
		"request 70: NumComputedTokens = -5 and":        {NumComputedTokens: -5, NumScheduledTokens: 1},
		"request 70: NumComputedTokens = 4294967296":    {NumComputedTokens: 1 << 32, NumScheduledTokens: 1},
		"and NumScheduledTokens = -1 must be from 0 to": {NumScheduledTokens: -1, Partial: true},
	} {
		m := llama8b(t)
		batch := decodes(128)
		batch[70] = request
		if us := m.StepTime(batch); us != latency.NoAnswer || !errors.Is(m.Err(), ErrInvalidArgument) ||
			!strings.Contains(m.Err().Error(), words) {
			t.Errorf("%s: %d us, %v", words, us, m.Err())
		}
	}
}

func TestTheOtherFourMethods(t *testing.T) {
	var m latency.Model = llama8b(t)
	short, long := m.QueueingTime(&Request{NumScheduledTokens: 100}), m.QueueingTime(&Request{NumScheduledTokens: 10_100})
	if short <= 0 || long <= short {
		t.Errorf("queueing takes %d and %d us", short, long)
	}
	if m.OutputTokenProcessingTime() <= 0 || m.SchedulingProcessingTime() <= 0 || m.PreemptionProcessingTime() < 0 {
		t.Errorf("%d, %d, %d", m.OutputTokenProcessingTime(), m.SchedulingProcessingTime(), m.PreemptionProcessingTime())
	}
}

func TestOptionsReachTheLibrary(t *testing.T) {
	const config = `{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
		"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 4096,
		"torch_dtype": "bfloat16"}`
	us := func(model string, options *Options) int64 {
		m, err := New(model, "h100", options)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return m.StepTime(decodes(8))
	}
	one, two := us("llama-3.1-8b", nil), us("llama-3.1-8b", &Options{Deployment: Deployment{TensorParallelSize: 2}})
	ideal, mine := us("llama-3.1-8b", &Options{Efficiency: "ideal"}), us("mine", &Options{ModelConfigJSON: config})
	if !(two < one && ideal < one && mine < one/3) {
		t.Errorf("one GPU %d, two %d, ideal %d, a model of an eighth %d us", one, two, ideal, mine)
	}
	description, err := llama8b(t).DescriptionJSON()
	if err != nil || !strings.Contains(string(description), `"tensor_parallel_size":1`) {
		t.Errorf("%s, %v", description, err)
	}
	models, hardware, err := Catalogue()
	if err != nil || len(models) < 10 || len(hardware) < 3 || Version() == "" {
		t.Errorf("%v %v %v", models, hardware, err)
	}
}

func TestABreakdownSumsUp(t *testing.T) {
	m := llama8b(t)
	computed, scheduled, samples := columns(decodes(16))
	step, err := m.Breakdown(computed, scheduled, samples)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, operator := range step.Operators {
		sum += operator.TimeUs
	}
	if math.Abs(sum/step.StepTimeUs-1) > 2e-3 || step.LowerUs >= step.StepTimeUs || step.UpperUs <= step.StepTimeUs {
		t.Errorf("operators sum up to %v: %+v", sum, step)
	}
	if _, err := m.Breakdown(nil, nil, nil); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}

func TestBadInputIsAnError(t *testing.T) {
	for _, test := range []struct {
		model, hardware string
		options         Options
		kind            error
		words           string
	}{
		{"llama-3.1-8", "h100", Options{}, ErrUnknownName, "did you mean"},
		{"llama-3.1-8b", "h1", Options{}, ErrUnknownName, "h1"},
		{"llama-3.1-8b\x00", "h100", Options{}, ErrInvalidArgument, "zero byte"},
		{"llama-3.1-8b", "h100\xff", Options{}, &Error{Status: InvalidUTF8}, "UTF-8"},
		{"./nowhere.json", "h100", Options{}, &Error{Status: IO}, "nowhere.json"},
		{"llama-3.1-8b", "h100", Options{Correction: "mine"}, ErrInvalidArgument, "none, global, auto"},
		{"llama-3.1-8b", "h100", Options{Efficiency: "best"}, ErrInvalidArgument, "tables or ideal"},
		{"llama-3.1-8b", "h100", Options{Deployment: Deployment{TensorParallelSize: 3}}, ErrInvalidInput, "tensor_parallel_size = 3"},
		{"llama-3.1-8b", "h100", Options{Deployment: Deployment{MaxNumSeqs: -1}}, ErrInvalidInput, "max_num_seqs = -1"},
		{"llama-3.1-8b", "h100", Options{Deployment: Deployment{GPUMemoryUtilization: math.NaN()}}, ErrInvalidInput, "NaN"},
		{"mine", "h100", Options{ModelConfigJSON: "{"}, ErrInvalidInput, "model_config_json"},
	} {
		m, err := New(test.model, test.hardware, &test.options)
		if m != nil || !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%q %q: %v", test.model, test.hardware, err)
		}
	}

	m := llama8b(t)
	ones, out := []uint32{1, 1}, []float64{-1}
	_, unequal := m.StepTimeUs(ones, ones[:1], nil)
	_, flags := m.StepTimeColumns(ones, ones, []bool{})
	for words, err := range map[string]error{
		"2 values of numComputedTokens, 1 of": unequal,
		"0 of samples":                        flags,
		"2 offsets for 0 steps":               m.StepTimesUs([]int{0, 2}, ones, ones, nil, nil),
		"0 offsets for 1 steps":               m.StepTimesUs(nil, ones, ones, nil, out),
		"offsets[1] = 3 must be":              m.StepTimesUs([]int{0, 3}, ones, ones, nil, out),
		"is smaller than":                     m.StepTimesUs([]int{0, 2, 1}, ones, ones, nil, []float64{0, 0}),
		"must be 0":                           m.StepTimesUs([]int{-1, 2}, ones, ones, nil, out),
	} {
		if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if out[0] != -1 {
		t.Error("a failure wrote a time")
	}
	if us := m.StepTime([]*Request{{NumScheduledTokens: 1}, nil}); us != latency.NoAnswer || !errors.Is(m.Err(), ErrInvalidArgument) {
		t.Errorf("%d, %v", us, m.Err())
	}
	if m.QueueingTime(nil) != latency.NoAnswer || m.QueueingTime(&Request{NumScheduledTokens: -1}) != latency.NoAnswer {
		t.Error("queueing of nothing takes time")
	}
}

func TestACopyOfKVBlocksTakesItsLaunchAndItsBytes(t *testing.T) {
	m := llama8b(t)
	// 20 us, and 5.44 MB over 0.85 x 64 GB/s in 100 us; 5.5 MB take 101.1 us.
	for bytes, whole := range map[int64]int64{0: 20, 5_440_000: 120, 5_500_000: 121} {
		if load, store := m.KVTransferTime(CPUToGPU, bytes), m.KVTransferTime(GPUToCPU, bytes); load != whole || store != whole {
			t.Errorf("%d bytes take %d us to load and %d us to store, not %d", bytes, load, store, whole)
		}
	}
	measured, err := New("llama-3.1-8b", "h100", &Options{KVTransfersJSON: `{"gpu_to_cpu": {"latency_us": 5, "bytes_per_s": 1e9},
		"cpu_to_gpu": {"latency_us": 100, "bytes_per_s": 1e10}, "contention": 0.5}`})
	if err != nil {
		t.Fatal(err)
	}
	defer measured.Close()
	if load, store := measured.KVTransferTime(CPUToGPU, 10_000_000), measured.KVTransferTime(GPUToCPU, 1_000_000); load != 1100 || store != 1005 || measured.KVContention() != 0.5 {
		t.Errorf("measured: %d %d", load, store)
	}
	if _, err := New("llama-3.1-8b", "h100", &Options{KVTransfersJSON: "{}"}); err == nil || !strings.Contains(err.Error(), "gpu_to_cpu") {
		t.Error(err)
	}
	if us, err := m.KVTransferTimeUs(CPUToGPU, 5_500_000); err != nil || math.Abs(us-20-5.5e6/54.4e3) > 1e-9 {
		t.Errorf("%v, %v", us, err)
	}
	// An NVMe disk: 100 us, and 35 MB at 7 GB/s from it and at 5 GB/s to it.
	if read, write := m.KVTransferTime(DiskToCPU, 35_000_000), m.KVTransferTime(CPUToDisk, 35_000_000); read != 5100 || write != 7100 {
		t.Errorf("35 MB take %d us to read and %d us to write", read, write)
	}
	if m.Err() != nil {
		t.Error(m.Err())
	}
	for words, ask := range map[string]func() (float64, error){
		"direction = 4": func() (float64, error) { return m.KVTransferTimeUs(4, 1) },
		"bytes = -1":    func() (float64, error) { return m.KVTransferTimeUs(GPUToCPU, -1) },
	} {
		if _, err := ask(); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if m.KVTransferTime(GPUToCPU, -1) != latency.NoAnswer || !errors.Is(m.Err(), ErrInvalidArgument) {
		t.Errorf("%v", m.Err())
	}
	m.Close()
	if _, err := m.KVTransferTimeUs(CPUToGPU, 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestAClosedModelSaysSo(t *testing.T) {
	m := llama8b(t)
	if m.Close() != nil || m.Close() != nil {
		t.Error("closing twice is fine")
	}
	if us := m.StepTime(decodes(3)); us != latency.NoAnswer || !errors.Is(m.Err(), ErrClosed) {
		t.Errorf("%d, %v", us, m.Err())
	}
	_, columns := m.StepTimeColumns(nil, nil, nil)
	_, breakdown := m.BreakdownJSON(nil, nil, nil)
	_, description := m.DescriptionJSON()
	for _, err := range []error{columns, breakdown, description, m.StepTimesUs([]int{0}, nil, nil, nil, nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if m.QueueingTime(&Request{}) != -1 || m.OutputTokenProcessingTime() != -1 || m.SchedulingProcessingTime() != -1 ||
		m.PreemptionProcessingTime() != -1 {
		t.Error("a closed model answers")
	}
	if zero := new(Model); zero.StepTime(nil) != -1 || !errors.Is(zero.Err(), ErrClosed) {
		t.Error("a model out of nothing answers")
	}
	var none *Model
	if none.StepTime(nil) != -1 || none.StepTime([]*Request{nil}) != -1 || none.QueueingTime(nil) != -1 ||
		none.SchedulingProcessingTime() != -1 || !errors.Is(none.Err(), ErrClosed) || none.Close() != nil {
		t.Error("a nil model answers")
	}
	if _, err := none.StepTimeUs(nil, nil, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	m := llama8b(t)
	batch := decodes(128)
	computed, scheduled, samples := columns(batch)
	m.StepTime(batch)
	if n := testing.AllocsPerRun(1000, func() { m.StepTime(batch) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
	batch[100] = &Request{NumScheduledTokens: 512, Partial: true}
	if n := testing.AllocsPerRun(1000, func() { m.StepTime(batch) }); n != 0 {
		t.Errorf("%v allocations a step with a chunk", n)
	}
	adapter := latency.Adapt(m, func(r *Request) Request { return *r }, func(*Request) int { return 512 })
	if n := testing.AllocsPerRun(1000, func() { adapter.StepTime(batch) }); n != 0 {
		t.Errorf("%v allocations a step of a simulator's own requests", n)
	}
	if n := testing.AllocsPerRun(1000, func() { m.StepTimeColumns(computed, scheduled, samples) }); n != 0 {
		t.Errorf("%v allocations a step of columns", n)
	}
}

// Goroutines on one model, which is closed while they are at it: the same time for the same step until then, and ErrClosed after.
func TestGoroutinesHammerOneModel(t *testing.T) {
	seconds, err := strconv.ParseFloat(os.Getenv("RIDGEPOINT_HAMMER_S"), 64)
	if err != nil {
		seconds = 2
	}
	m := llama8b(t)
	batches, expected := make([][]*Request, 50), make([]int64, 50)
	for i := range batches {
		batches[i] = append(decodes(1+i*5), &Request{NumScheduledTokens: 16 * i, Partial: i%2 == 0})
		expected[i] = m.StepTime(batches[i])
	}
	var running sync.WaitGroup
	for first := 0; first < 8; first++ {
		running.Add(1)
		go func(first int) {
			defer running.Done()
			for i := first; ; i++ {
				us := m.StepTime(batches[i%50])
				if us == latency.NoAnswer && errors.Is(m.Err(), ErrClosed) {
					return
				}
				if us != expected[i%50] {
					t.Errorf("step %d takes %d us, not %d", i%50, us, expected[i%50])
					return
				}
			}
		}(first)
	}
	for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(until); runtime.GC() {
		other := llama8b(t)
		other.Close()
		time.Sleep(10 * time.Millisecond)
	}
	m.Close()
	runtime.GC()
	running.Wait()
}
