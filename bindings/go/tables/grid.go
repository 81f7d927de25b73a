package tables

import (
	"fmt"
	"math"
	"sort"
)

// line is a table over one count: up to PaddedUpTo the next point's time holds, above it lines connect the points.
type line struct {
	At         []float64 `json:"at"`
	TimeUs     []float64 `json:"time_us"`
	PaddedUpTo float64   `json:"padded_up_to"`
}

// sheet is a table over two counts; lines connect the points in both directions.
type sheet struct {
	Rows    []float64   `json:"rows"`
	Columns []float64   `json:"columns"`
	TimeUs  [][]float64 `json:"time_us"`
}

func (l *line) us(x float64) float64 {
	if x <= l.PaddedUpTo {
		next := sort.SearchFloat64s(l.At, x)
		return l.TimeUs[min(next, len(l.At)-1)]
	}
	i, j, way := around(l.At, x)
	return math.Max(l.TimeUs[i]+way*(l.TimeUs[j]-l.TimeUs[i]), 0)
}

func (s *sheet) us(row, column float64) float64 {
	i, j, down := around(s.Rows, row)
	k, l, right := around(s.Columns, column)
	upper := s.TimeUs[i][k] + right*(s.TimeUs[i][l]-s.TimeUs[i][k])
	lower := s.TimeUs[j][k] + right*(s.TimeUs[j][l]-s.TimeUs[j][k])
	return math.Max(upper+down*(lower-upper), 0)
}

// around gives the two points beside x and the way from the first to the second. Below the first point it holds; beyond the last
// the last line goes on.
func around(at []float64, x float64) (int, int, float64) {
	last := len(at) - 1
	if last == 0 {
		return 0, 0, 0
	}
	j := max(1, min(sort.SearchFloat64s(at, x), last))
	return j - 1, j, math.Max((x-at[j-1])/(at[j]-at[j-1]), 0)
}

// ascending says what is wrong with points that should rise.
func ascending(name string, at []float64) []error {
	if len(at) == 0 {
		return []error{fmt.Errorf("%s is empty: it must have a point at least", name)}
	}
	for i := 1; i < len(at); i++ {
		if at[i] <= at[i-1] {
			return []error{fmt.Errorf("%s[%d] = %v must be greater than %v before it", name, i, at[i], at[i-1])}
		}
	}
	return nil
}

func times(name string, us []float64, points int) []error {
	if len(us) != points {
		return []error{fmt.Errorf("%s has %d values: it must have one for each of the %d points", name, len(us), points)}
	}
	for i, t := range us {
		if t < 0 {
			return []error{fmt.Errorf("%s[%d] = %v must be at least 0", name, i, t)}
		}
	}
	return nil
}

func (l *line) problems(name string) []error {
	return append(ascending(name+".at", l.At), times(name+".time_us", l.TimeUs, len(l.At))...)
}

func (s *sheet) problems(name string) []error {
	found := append(ascending(name+".rows", s.Rows), ascending(name+".columns", s.Columns)...)
	if len(s.TimeUs) != len(s.Rows) {
		return append(found, fmt.Errorf("%s.time_us has %d rows: it must have %d", name, len(s.TimeUs), len(s.Rows)))
	}
	for i, row := range s.TimeUs {
		found = append(found, times(fmt.Sprintf("%s.time_us[%d]", name, i), row, len(s.Columns))...)
	}
	return found
}
