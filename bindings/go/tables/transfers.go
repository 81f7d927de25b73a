package tables

import (
	"errors"
	"fmt"

	"ridgepoint/latency"
)

// ErrNoLink is the reason for no time of a copy: the link between GPU and host is not known.
var ErrNoLink = errors.New("the GPU's file has no host_link, which a copy of KV blocks takes: export with --kv-transfers")

// links are the links by direction.
func (t *kvTransfers) links() [4]kvLink {
	return [...]kvLink{latency.GPUToCPU: t.GPUToCPU, latency.CPUToGPU: t.CPUToGPU, latency.CPUToDisk: t.CPUToDisk,
		latency.DiskToCPU: t.DiskToCPU}
}

// KVTransferTime is the time to copy so many bytes of KV blocks between the GPU and host memory, or host memory and a disk, while nothing
// else is copied. No link, a negative number of bytes and an unknown direction return [latency.NoAnswer]; [Model.Err] has the reason.
func (m *Model) KVTransferTime(direction latency.TransferDirection, bytes int64) int64 {
	us, err := m.KVTransferTimeUs(direction, bytes)
	if err != nil {
		return m.note(err)
	}
	return latency.Micros(us)
}

// KVTransferTimeUs is [Model.KVTransferTime] before rounding, in microseconds: latency + bytes / bandwidth.
func (m *Model) KVTransferTimeUs(direction latency.TransferDirection, bytes int64) (float64, error) {
	switch {
	case m.isEmpty():
		return 0, ErrEmpty
	case m.file.KVTransfers == nil:
		return 0, ErrNoLink
	case bytes < 0:
		return 0, fmt.Errorf("bytes = %d must be at least 0", bytes)
	case direction < latency.GPUToCPU || direction > latency.DiskToCPU:
		return 0, fmt.Errorf("direction = %d must be latency.GPUToCPU, CPUToGPU, CPUToDisk or DiskToCPU", direction)
	}
	link := m.file.KVTransfers.links()[direction]
	return link.LatencyUs + float64(bytes)/link.BytesPerS*1e6, nil
}

// KVContention is the share of its speed that a direction of copies keeps while the other one copies too; 1 where no link is known.
func (m *Model) KVContention() float64 {
	if m.isEmpty() || m.file.KVTransfers == nil {
		return 1
	}
	return m.file.KVTransfers.Contention
}
