// Command etcd is etcd 3.6.8 with a lifeline: it ends together with the processes that need it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"incumbent.dev/incumbent/tools/lifeline"
)

func main() {
	lifeline.Hold()
	etcdmain.Main(os.Args)
}
