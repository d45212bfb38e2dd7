package coordination

// simBug is a defect around Plan; the zero value is none.
type simBug struct {
	name   string
	check  simCheck // that catches it
	around func(c *simCoordinator, e Election, plan func(Election) Plan) Plan
}

func (b simBug) plan(c *simCoordinator, e Election) Plan {
	plan := func(e Election) Plan { return c.observer.Plan(c.clock(), c.wall(), e, Own()) }
	if b.around == nil {
		return plan(e)
	}
	return b.around(c, e, plan)
}
