package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// stepper is core.Config.Step, or something around it.
type stepper func(core.Config, core.State, core.Input) (core.State, core.Action)

// Bug is a defect, planted by wrapping Step.
type Bug struct {
	Name  string
	Mode  string // where it shows
	Check Check  // which has to catch it
	plant func() stepper
}

func stepOf(b *Bug) stepper {
	if b == nil {
		return core.Config.Step
	}
	return b.plant()
}
