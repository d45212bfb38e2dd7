package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite"

	"incumbent.dev/incumbent/examples/fencing"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{WithoutControllers: true}) }

const election = "example"

// store is an SQL or an etcd store.
type store interface {
	Put(ctx context.Context, token uint64, name, value string) error
	Raise(ctx context.Context, token uint64) error
	Get(ctx context.Context, name string) (string, error)
}

func sqlStore(t *testing.T) store {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(60000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := fencing.NewSQL(t.Context(), db, election)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// etcdStore starts the etcd of the directory of the API server, on the address of the cluster, which no other process uses.
func etcdStore(t *testing.T) store {
	t.Helper()
	c := cluster.Shared(t)
	server, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + server.Hostname() + ":12379"
	etcd := exec.Command(filepath.Join(filepath.Dir(c.Kubectl()), "etcd"), "--data-dir="+t.TempDir(), "--log-level=error", "--unsafe-no-fsync",
		"--listen-client-urls="+address, "--advertise-client-urls="+address, "--listen-peer-urls=http://"+server.Hostname()+":12380")
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = etcd.Process.Kill()
		_ = etcd.Wait() // returns the error of the kill
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: harness.Patience, Context: context.WithoutCancel(t.Context())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if _, err := client.Get(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	return fencing.NewEtcd(client, election)
}

func both(t *testing.T, f func(t *testing.T, s store)) {
	t.Run("sql", func(t *testing.T) { f(t, sqlStore(t)) })
	t.Run("etcd", func(t *testing.T) { f(t, etcdStore(t)) })
}

func TestStores_RejectEarlierTerms(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		ctx := t.Context()
		expect := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		expect("the first write", s.Put(ctx, 99, "x", "a"), nil)
		expect("a second write of the term", s.Put(ctx, 99, "x", "b"), nil)
		expect("a later term, with one digit more", s.Put(ctx, 100, "x", "c"), nil)
		expect("the earlier one", s.Put(ctx, 99, "x", "d"), fencing.ErrStale)
		expect("a term that only raises", s.Raise(ctx, 1000), nil)
		expect("the one before it", s.Put(ctx, 100, "x", "e"), fencing.ErrStale)
		if value, err := s.Get(ctx, "x"); value != "c" || err != nil {
			t.Errorf("x is %q, %v", value, err)
		}
		if err := s.Put(ctx, 0, "x", "f"); err == nil || errors.Is(err, fencing.ErrStale) {
			t.Errorf("no token: %v", err)
		}
		if value, err := s.Get(ctx, "y"); value != "" || err != nil {
			t.Errorf("y is %q, %v", value, err)
		}
	})
}

func TestStores_RacingTerms(t *testing.T) {
	both(t, func(t *testing.T, s store) {
		const terms, writes = 8, 20
		answers := make(chan error, terms*writes)
		for term := range terms {
			go func() {
				for range writes {
					answers <- s.Put(t.Context(), uint64(term+1), "x", fmt.Sprint(term+1))
				}
			}()
		}
		for range terms * writes {
			if err := <-answers; err != nil && !errors.Is(err, fencing.ErrStale) {
				t.Error(err)
			}
		}
		if value, err := s.Get(t.Context(), "x"); value != fmt.Sprint(terms) || err != nil {
			t.Errorf("x is %q, %v: writes of the last term must not be rejected", value, err)
		}
	})
}

// A run function passes the token of its term.
func ExampleSQL() {
	run := func(ctx context.Context, store *fencing.SQL) error {
		term, _ := k8sleaderelection.TermFromContext(ctx)
		return store.Put(ctx, term.Token, "route", "canary")
	}
	_ = run
}
