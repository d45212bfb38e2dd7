package page

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

func TestFromStatus_Rejected(t *testing.T) {
	if e := FromStatus(leaderelection.Status{Rejected: "not declared"}); !strings.Contains(e.Problem, "rejects this process as holder: not declared") {
		t.Errorf("the problem is %q", e.Problem)
	}
}
