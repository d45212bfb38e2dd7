package report

func (r *Results) Picture() string { return "" }
