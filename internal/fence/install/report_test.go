package install

import (
	"strings"
	"testing"
)

func TestReportOfWhatIsNoAuditLog(t *testing.T) {
	if _, err := Report(strings.NewReader("{}\nnot an event\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
	found, err := Report(strings.NewReader(`{"stage":"ResponseComplete","annotations":{"validation.policy.admission.k8s.io/validation_failure":"[{\"message\":\"m\",\"policy\":\"another\"}]"}}
{"stage":"ResponseStarted","responseStatus":{"message":"ValidatingAdmissionPolicy 'incumbent-fence.s.work-1234567890' with binding 'x' denied request: m"}}

{"stage":"ResponseComplete","responseStatus":{"message":"ValidatingAdmissionPolicy 'another' with binding 'x' denied request: m"}}
`))
	if err != nil || len(found) != 0 {
		t.Errorf("other people's policies, and a stage that comes again: %v, %v", found, err)
	}
}
